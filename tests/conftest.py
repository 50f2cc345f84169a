"""Marks the tests that the fast run leaves out."""

from __future__ import annotations

import pytest

from markers import MARKED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in MARKED, so that this table alone decides what the fast run leaves out."""
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        for marker, beginnings in MARKED.items():
            if name.startswith(beginnings):
                item.add_marker(marker)
