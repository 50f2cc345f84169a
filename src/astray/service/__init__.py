"""The service: takes live feeds, stores fixes and memories, queues trips for review, sends alerts, shows a page."""

from __future__ import annotations
