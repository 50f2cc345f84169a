"""The service: live feeds in, a store of fixes and memories, a queue of trips to review, alerts, and a page."""

from __future__ import annotations
