"""What a model remembers of trips, and which of them it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.features.paths import resample
from astray.scoring.scores import chunks

Progress = Callable[[int, int, Mapping[str, float]], None]

REMEMBER_FIXES = 500_000  # looked at in one go while remembering


def drawn(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions of at most so many of ``n`` trips, drawn at random, rising."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def sample(trips: Trajectories, most: int, rng: np.random.Generator) -> Trajectories:
    """At most so many trips, drawn at random, in their order."""
    return trips if len(trips) <= most else trips[drawn(len(trips), most, rng)]


def remember(featurizer: Featurizer, of: Prepared) -> Featurizer:
    """A featurizer that remembers these trips too; those that it remembered under the same names are replaced."""
    featurizer = featurizer.forget(of.trips.ids)
    blank = featurizer.with_memory(Memory())
    # In pieces, so that looking at very many trips takes little memory; merged in pairs, so that none moves too often.
    pieces = [np.arange(len(of.trips))[chunk] for chunk in chunks(of.trips.lengths, REMEMBER_FIXES)]
    memories = [blank.remember(of if len(pieces) == 1 else of[piece]).memory for piece in pieces]
    while len(memories) > 1:
        merged = [a.merge(b) for a, b in zip(memories[::2], memories[1::2], strict=False)]
        memories = merged + memories[2 * len(merged) :]
    return featurizer.with_memory(featurizer.memory.merge(memories[0])) if memories else featurizer


def thin(of: Prepared, featurizer: Featurizer) -> Trajectories:
    """Trips as a model keeps them: resampled to the featurizer's interval, without faulty fixes."""
    trips, paths = of.trips, resample(of.paths, featurizer.config.interval)
    lat, lon = featurizer.projection.to_degrees(paths.columns["xy"])
    lengths = np.bincount(paths.context["trip"], paths.lengths, len(trips)).astype(np.int64)
    present = lengths > 0
    wanted = (*featurizer.config.context.numeric, *featurizer.config.context.categorical)
    return Trajectories(
        {"time": paths.columns["time"], "lat": lat, "lon": lon},
        np.r_[0, np.cumsum(lengths[present])],
        trips.agent_ids[present],
        trips.trajectory_ids[present],
        {name: trips.context[name][present] for name in wanted},
    )
