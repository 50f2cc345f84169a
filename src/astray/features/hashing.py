"""Hashing: the words that keys are made of, each different one hashed once.

The steps of many trips share streets, speeds and hours, so that the different keys among them are few. They are told
apart by small numbers first; only then is anything hashed, looked up, and given back to all the steps that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TICKED = 16  # times as many possible values as there are steps can be ticked off in a table


@dataclass(frozen=True, eq=False)
class Word:
    """A key, or a part of one (a cell, a direction, an hour), of every step.

    Attributes
    ----------
    hashes
        Of the different ones.
    values
        What they stood for, before they were hashed.
    at
        Of every step, where in a table of ``size``; the different ones have their places at ``values`` there. If the
        size is 0, ``at`` is the number of the step's own among the different ones.

    Examples
    --------
    >>> word = Word.of(np.array([7, 9, 9, 7, 8]), size=10)
    >>> word.values.tolist(), word.number.tolist()
    ([7, 8, 9], [0, 2, 2, 0, 1])
    >>> word.spread(np.array([0.7, 0.8, 0.9])).tolist()
    [0.7, 0.9, 0.9, 0.7, 0.8]
    """

    hashes: NDArray[np.uint64]
    values: NDArray[np.int64]
    at: NDArray[np.int64]
    size: int

    @classmethod
    def of(cls, values: NDArray[np.int64], size: int) -> Word:
        """Small numbers, one a step, from 0 up to a size; they are their own hashes.

        Where there are too many possible ones to tick them off in a table, every run of equals counts as one: a cell is
        larger than a step, so that a step mostly stays in the cell of the step before.
        """
        if size <= TICKED * len(values) + 1024:
            ticked = np.zeros(size, bool)
            ticked[values] = True
            found, at = np.flatnonzero(ticked), values
        else:
            fresh = changes(values)
            found, at, size = values[np.flatnonzero(fresh)], np.cumsum(fresh) - 1, 0
        return cls(found.view(np.uint64), found, at, size)

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """Of every step the number of its own among the different ones."""
        return self._placed(np.arange(len(self.hashes))) if self.size else self.at

    def spread(self, values: Array) -> Array:
        """One value for each of the different ones, given to every step."""
        if self.size and "number" not in vars(self):
            return self._placed(values)
        return values.take(self.number)

    def _placed(self, values: Array) -> Array:
        table = np.empty(self.size, values.dtype)
        table[self.values] = values
        return table.take(self.at)

    def hashed(self, hashes: NDArray[np.uint64]) -> Word:
        """The same steps with other hashes."""
        return Word(hashes, self.values, self.number, 0)

    def lasting(self, steps: NDArray[np.int64]) -> Word:
        """The same, each repeated for so many steps."""
        return Word(self.hashes, self.values, np.repeat(self.number, steps), 0)

    def pairs(self, other: Word) -> tuple[Word, NDArray[np.int64], NDArray[np.int64]]:
        """This with another: the different pairs, and the numbers of the two that each of them is of."""
        n = len(other.hashes)
        at = self.number * n
        at += other.number
        both = Word.of(at, len(self.hashes) * n)
        one = both.values // n  # and what is left: four times as fast as np.divmod
        return both, one, both.values - one * n

    def then(self, other: Word) -> Word:
        """This and another, hashed one after the other."""
        both, one, two = self.pairs(other)
        return Word(mix(self.hashes.take(one), other.hashes.take(two)), both.values, both.at, both.size)


def changes(values: Array) -> NDArray[np.bool_]:
    """Whether each value differs from the one before; the first does."""
    found = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


# As arrays they are taken up twice as fast as numbers.
_ODD = [np.array(odd, np.uint64) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]
_FAR = [np.array(far, np.uint64) for far in (30, 27, 31)]


def mix(a: Array, b: Array) -> NDArray[np.uint64]:
    """Hash two words into one (a multiply, xor-shift round as in SplitMix64, Steele et al. 2014)."""
    # Neighbouring cells are small numbers: spread the first word over all bits before the second one comes in.
    h = a * _ODD[0] + b
    shifted = h >> _FAR[0]
    h ^= shifted
    h *= _ODD[1]
    h ^= np.right_shift(h, _FAR[1], out=shifted)
    h *= _ODD[2]
    h ^= np.right_shift(h, _FAR[2], out=shifted)
    return np.asarray(h)


_BITS = 0xFFFF_FFFF_FFFF_FFFF


def mix_one(a: int, b: int) -> int:
    """The same as :func:`mix`, of two integers.

    >>> mix_one(3, -4) == int(mix(np.array([3], np.uint64), np.array([-4]).view(np.uint64))[0])
    True
    """
    h = ((a & _BITS) * 0x9E3779B97F4A7C15 + b) & _BITS
    h = ((h ^ h >> 30) * 0xBF58476D1CE4E5B9) & _BITS
    h = ((h ^ h >> 27) * 0x94D049BB133111EB) & _BITS
    return h ^ h >> 31
