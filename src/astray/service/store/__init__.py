"""The store: where the service keeps fixes, trips, memories, reviews and alerts. SQLite, or PostgreSQL."""

from __future__ import annotations

from astray.service.store.database import Address, Connection, Row, Store, StoreError, open_reader, open_store

__all__ = ["Address", "Connection", "Row", "Store", "StoreError", "open_reader", "open_store"]
