"""Hashes 64-bit words into keys, for arrays and for single integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def changes(values: Array) -> NDArray[np.bool_]:
    """Returns a mask of the values that differ from the one before; the first always does."""
    found = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


# numpy multiplies and shifts by arrays twice as fast as by Python integers.
_ODD = [np.array(odd, np.uint64) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]
_FAR = [np.array(far, np.uint64) for far in (30, 27, 31)]


def mix(a: Array, b: Array) -> NDArray[np.uint64]:
    """Hashes two words into one (a multiply, xor-shift round as in SplitMix64, Steele et al. 2014)."""
    # Numbers of cells are small: spread the first word over all bits before mixing in the second one.
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
    """Hashes two integers as :func:`mix` hashes arrays.

    >>> mix_one(3, -4) == int(mix(np.array([3], np.uint64), np.array([-4]).view(np.uint64))[0])
    True
    """
    h = ((a & _BITS) * 0x9E3779B97F4A7C15 + b) & _BITS
    h = ((h ^ h >> 30) * 0xBF58476D1CE4E5B9) & _BITS
    h = ((h ^ h >> 27) * 0x94D049BB133111EB) & _BITS
    return h ^ h >> 31
