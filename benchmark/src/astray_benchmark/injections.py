"""Makes a test set: replaces some trips by anomalies of known kinds, at a known rate, and marks the anomalous fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.trajectories import Trajectories
from astray_benchmark.injectors import INJECTORS, NEED_A_POOL


class InjectedSet(NamedTuple):
    """A test set of normal and anomalous trips."""

    trips: Trajectories
    kind: NDArray[np.str_]  # the kind of each trip's anomaly; empty for a normal trip
    truth: NDArray[np.bool_]  # True for anomalous fixes

    @property
    def label(self) -> NDArray[np.bool_]:
        """Returns a mask of the anomalous trips."""
        return np.asarray(self.kind != "")


def inject(
    trips: Trajectories,
    kinds: Sequence[str],
    rate: float,
    rng: np.random.Generator,
    *,
    pool: Trajectories | None = None,
    fewer: bool = False,
) -> InjectedSet:
    """Replaces some trips of a test set by anomalies of the given kinds; keeps the order and the names.

    Every kind gets the same number of trips, drawn without replacement. Metrics compare each kind with the normal
    trips, so ``rate`` is n / (n + number of normal trips) for the n trips of one kind. A trip that does not suit its
    kind stays normal, and another is changed instead.

    Parameters
    ----------
    pool
        Other trips, for the kinds that need them; none of them may be in the test set.
    fewer
        If too few trips suit a kind, make as many anomalies as possible instead of raising an error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> east = np.tile(np.arange(40) * 2e-3, 20)
    >>> trips = Trajectories.from_fixes(time=np.arange(800) * 15.0, lat=41 + 0 * east, lon=-8 + east,
    ...                                 trajectory=np.repeat(np.arange(20), 40))
    >>> test = inject(trips, ["loiter", "reverse"], 0.1, rng)
    >>> sorted(test.kind[test.label].tolist()), len(test.trips), int(test.truth.sum())
    (['loiter', 'loiter', 'reverse', 'reverse'], 20, 200)
    """
    count = round(rate * len(trips) / (1.0 - rate + rate * len(kinds)))
    if count < 1:
        raise DataError(
            f"{len(trips)} trips are too few for a rate of {rate:g}", remedy="give more trips or a higher rate"
        )
    for name in kinds:
        if name in NEED_A_POOL:
            _check_pool(name, trips, pool)

    queue = rng.permutation(len(trips))
    mutants: dict[int, tuple[str, Trajectories, NDArray[np.bool_]]] = {}
    for name in kinds:
        given = {"pool": pool} if name in NEED_A_POOL else {}
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
    return _assemble(trips, mutants)


def _assemble(trips: Trajectories, mutants: Mapping[int, tuple[str, Trajectories, NDArray[np.bool_]]]) -> InjectedSet:
    """Returns the test set with each mutant in the place of its original."""
    fixes = {name: trips.columns[name] for name in FIX_COLUMNS}
    plain = Trajectories(fixes, trips.offsets, trips.agent_ids, trips.trajectory_ids, trips.context)
    parts = [mutants[i][1] if i in mutants else plain[i] for i in range(len(trips))]
    truth = [mutants[i][2] if i in mutants else np.zeros(len(p.columns["time"]), np.bool_) for i, p in enumerate(parts)]
    kind = np.array([mutants[i][0] if i in mutants else "" for i in range(len(trips))], np.str_)
    return InjectedSet(Trajectories.concat(parts), kind, np.concatenate(truth))


def _check_pool(kind: str, trips: Trajectories, pool: Trajectories | None) -> None:
    if pool is None or not len(pool):
        raise DataError(f"{kind!r} needs other trips", remedy="give them as pool=")
    tested = set(zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True))
    both = [key for key in zip(pool.agent_ids.tolist(), pool.trajectory_ids.tolist(), strict=True) if key in tested]
    if both:
        agent, name = both[0]
        raise DataError(
            f"trip {name!r} of agent {agent!r} is both in the test set and in the pool ({len(both)} are)",
            remedy="take the test trips out of the pool",
        )
