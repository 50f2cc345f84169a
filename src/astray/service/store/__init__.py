"""Keeps the service's fixes, trips, memories, reviews and alerts in SQLite or PostgreSQL."""

from __future__ import annotations

from astray.service.store.database import Address, Connection, ReadPool, Row, Store, StoreError
from astray.service.store.opening import connect, open_store

__all__ = ["Address", "Connection", "ReadPool", "Row", "Store", "StoreError", "connect", "open_store"]
