"""Snapshots, which store the state of a live object as one row of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError

ANEW = "start with a new state file"


class Snapshot:
    """A row of numbers, which are taken out in the order in which they were put in.

    >>> snapshot = Snapshot()
    >>> snapshot.put(1.5, None, True)
    >>> snapshot.put_many([7, 8])
    >>> snapshot = Snapshot(snapshot.numbers)
    >>> snapshot.take(), snapshot.maybe(), bool(snapshot.take()), snapshot.many().tolist()
    (1.5, None, True, [7.0, 8.0])
    """

    __slots__ = ("_at", "numbers")

    def __init__(self, numbers: array[float] | NDArray[Any] | None = None) -> None:
        self.numbers = array("d") if numbers is None else array("d", np.asarray(numbers, np.float64).tobytes())
        self._at = 0

    def put(self, *values: float | None) -> None:
        """Appends numbers; None becomes NaN."""
        self.numbers.extend([np.nan if v is None else v for v in values])

    def put_many(self, values: Iterable[float]) -> None:
        """Appends a row of numbers, preceded by its length."""
        row = array("d", values)
        self.numbers.append(len(row))
        self.numbers.extend(row)

    def put_text(self, text: str) -> None:
        """Appends a text, letter by letter."""
        self.put_many(map(ord, text))

    def text(self) -> str:
        """Returns the next text."""
        return "".join(chr(int(letter)) for letter in self.many())

    def take(self) -> float:
        """Returns the next number."""
        if self._at >= len(self.numbers):
            raise DataError("the state of a live trip ends too early", remedy=ANEW)
        self._at += 1
        return self.numbers[self._at - 1]

    def count(self) -> int:
        """Returns the next number, which must be a count."""
        value = self.take()
        if not 0 <= value < 2**53:
            raise DataError("the state of a live trip holds an impossible count", remedy=ANEW)
        return int(value)

    def maybe(self) -> float | None:
        """Returns the next number, or None if it is NaN."""
        value = self.take()
        return None if np.isnan(value) else value

    def many(self) -> array[float]:
        """Returns the next row of numbers."""
        n = self.count()
        if self._at + n > len(self.numbers):
            raise DataError("the state of a live trip ends too early", remedy=ANEW)
        self._at += n
        return self.numbers[self._at - n : self._at]
