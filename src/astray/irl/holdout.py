"""The holdout: demonstrations that no head learns from. They decide when to stop and set the scale of the scores."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId


def held_out(names: Sequence[TripId] | Sequence[str], present: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Selects the demonstrations to hold out, by a hash of their names, so that an update holds out the same ones.

    Demonstrations with the same name are held out together. At least one name is held out unless ``share`` is 0 or
    there is only one name, and never all.

    >>> held_out(["a", "b", "c", "d"], np.arange(4), 0.5)
    array([0, 1, 2])
    """
    known = sorted({names[i] for i in present})
    if share == 0 or len(known) < 2:
        return present[:0]
    texts = (name if isinstance(name, str) else "/".join(name) for name in known)
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    uniform = np.array([int.from_bytes(d, "little") for d in digests]) / 2.0**64  # in [0, 1)
    n = np.clip(np.count_nonzero(uniform < share), 1, len(known) - 1)
    out = {known[i] for i in np.argsort(uniform)[:n]}
    return present[[names[i] in out for i in present]]
