"""A labelled test set: some trips replaced by anomalies of known kinds, at a known rate, with the truth of each fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.trajectories import Trajectories
from astray_benchmark.injectors import (
    INJECTORS,
    NEED_A_POOL,
    Injected,
    agent_swap,
    half_sine_detour,
    loiter,
    point_jitter,
    reverse,
    segment_shift,
    speed,
    splice,
)

__all__ = [
    "INJECTORS",
    "NEED_A_POOL",
    "Injected",
    "LabelledTrips",
    "agent_swap",
    "half_sine_detour",
    "inject",
    "loiter",
    "point_jitter",
    "reverse",
    "segment_shift",
    "speed",
    "splice",
]


class LabelledTrips(NamedTuple):
    """A test set: trips, what is wrong with each (empty for a normal one), and whether each fix is anomalous."""

    trips: Trajectories
    kind: NDArray[np.str_]
    truth: NDArray[np.bool_]

    @property
    def label(self) -> NDArray[np.bool_]:
        """Returns whether each trip is anomalous."""
        return np.asarray(self.kind != "")


def inject(
    trips: Trajectories,
    kinds: str | Sequence[str],
    rate: float,
    rng: np.random.Generator,
    *,
    pool: Trajectories | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    fewer: bool = False,
) -> LabelledTrips:
    """Replace some trips of a test set by anomalies of the given kinds; the order and the names stay.

    Every kind gets the same number of trips, drawn without replacement: so many that the anomalies of one kind are the
    share ``rate`` of themselves and the normal trips together, for each kind is measured against the normal trips. A
    trip that cannot carry its kind stays normal, and another takes its place.

    Parameters
    ----------
    pool
        Other trips, for the kinds that need them; none of them may stand in the test set.
    settings
        Kind to the parameters of its injector, where they are not the defaults.
    fewer
        Where too few trips can carry a kind: make as many as can be, instead of refusing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> east = np.tile(np.arange(40) * 2e-3, 20)
    >>> trips = Trajectories.from_fixes(time=np.arange(800) * 15.0, lat=41 + 0 * east, lon=-8 + east,
    ...                                 trajectory=np.repeat(np.arange(20), 40))
    >>> test = inject(trips, ["loiter", "reverse"], 0.1, rng, settings={"loiter": {"minutes": 10}})
    >>> sorted(test.kind[test.label].tolist()), len(test.trips), int(test.truth.sum())
    (['loiter', 'loiter', 'reverse', 'reverse'], 20, 160)
    """
    names = [kinds] if isinstance(kinds, str) else list(dict.fromkeys(kinds))
    unknown = [name for name in (*names, *(settings or {})) if name not in INJECTORS]
    if unknown or not names:
        raise DataError(
            f"no kind of anomaly named {(unknown or ['(none)'])[0]!r}", remedy=f"there are {', '.join(INJECTORS)}"
        )
    if not 0.0 < rate < 1.0:
        raise DataError(f"rate is {rate}", remedy="give the share of anomalies, between 0 and 1")
    count = round(rate * len(trips) / (1.0 - rate + rate * len(names)))
    if count < 1:
        raise DataError(
            f"{len(trips)} trips are too few for a rate of {rate:g}", remedy="give more trips or a higher rate"
        )
    for name in names:
        if name in NEED_A_POOL:
            _check_pool(name, trips, pool)

    queue = rng.permutation(len(trips))
    mutants: dict[int, tuple[str, Trajectories, NDArray[np.bool_]]] = {}
    for name in names:
        given = dict((settings or {}).get(name, {})) | ({"pool": pool} if name in NEED_A_POOL else {})
        made = INJECTORS[name](trips[queue], rng, most=count, **given)
        if len(made.source) < count and not fewer:
            raise DataError(
                f"only {len(made.source)} of {count} trips can be made anomalous by {name!r}",
                remedy="lower the rate, give more or longer trips"
                + (", or a larger pool" if name in NEED_A_POOL else ""),
            )
        offsets = made.trips.offsets
        for j, i in enumerate(queue[made.source].tolist()):
            mutants[i] = (name, made.trips[j], made.truth[offsets[j] : offsets[j + 1]])
        queue = np.delete(queue, made.source)
    return _assembled(trips, mutants)


def _assembled(
    trips: Trajectories, mutants: Mapping[int, tuple[str, Trajectories, NDArray[np.bool_]]]
) -> LabelledTrips:
    """Returns the test set with the mutants in the places of their originals."""
    fixes = {name: trips.columns[name] for name in FIX_COLUMNS}
    plain = Trajectories(fixes, trips.offsets, trips.agent_ids, trips.trajectory_ids, trips.context)
    parts = [mutants[i][1] if i in mutants else plain[i] for i in range(len(trips))]
    truth = [mutants[i][2] if i in mutants else np.zeros(len(p.columns["time"]), np.bool_) for i, p in enumerate(parts)]
    kind = np.array([mutants[i][0] if i in mutants else "" for i in range(len(trips))], np.str_)
    return LabelledTrips(Trajectories.concat(parts), kind, np.concatenate(truth))


def _check_pool(kind: str, trips: Trajectories, pool: Trajectories | None) -> None:
    if pool is None or not len(pool):
        raise DataError(f"{kind!r} needs other trips", remedy="give them as pool=")
    tested = set(zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True))
    both = [key for key in zip(pool.agent_ids.tolist(), pool.trajectory_ids.tolist(), strict=True) if key in tested]
    if both:
        agent, name = both[0]
        raise DataError(
            f"trip {name!r} of agent {agent!r} stands both in the test set and in the pool ({len(both)} do)",
            remedy="take the test trips out of the pool",
        )
