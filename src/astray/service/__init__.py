"""The service takes live feeds, stores fixes and memories, queues trips for review, sends alerts and shows a page."""

from __future__ import annotations
