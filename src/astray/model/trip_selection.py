"""Which trips are learned from: at first, and in an update, which also takes trips out, new or past, for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId, find_trips
from astray.explain import HABITUAL
from astray.features.memory import Memory
from astray.model.trip_samples import sample


def teachable(
    trips: Trajectories,
    y: ArrayLike | None = None,
    refused: Iterable[TripId] = (),
    known: frozenset[TripId] = frozenset(),
) -> NDArray[np.bool_]:
    """Which trips may be learned from.

    Not those marked -1, not those named in ``refused``, and not those that are ``known`` to be anomalous, unless they
    are marked +1 now. Two trips of one name are refused altogether.

    >>> trips = Trajectories.from_fixes(time=[0, 0, 0], lat=[0, 0, 0], lon=[0, 0, 0], agent="a", trajectory=[*"xyz"])
    >>> teachable(trips, [1, -1, 1], refused=[TripId("a", "z")]).tolist()
    [True, False, False]
    """
    for trip, times in Counter(trips.ids).most_common(1):
        if times > 1:
            raise DataError(
                f"two trajectories are called '{trip}'", remedy="give each trajectory of an agent an id of its own"
            )
    unwanted = trips.isin(refused)
    if y is None:
        return ~unwanted & ~trips.isin(known)
    labels = np.asarray(y)
    if labels.shape not in ((), (len(trips),)) or not np.isin(labels, (-1, 1)).all():
        raise DataError(
            "y is not a label for each trajectory",
            remedy=f"give +1 (normal) or -1 (anomalous) for each of the {len(trips)} trajectories",
        )
    return np.asarray(~unwanted & (labels == 1), bool)


def without(trips: Trajectories, ids: Iterable[TripId]) -> Trajectories:
    """The trips that have none of these ids."""
    return trips[~trips.isin(ids)]


def check_steps(given: Trajectories, known: Trajectories, whose: str = "") -> None:
    """Refuse what does not hold states and actions as wide as the known ones."""
    for name in ("state", "action"):
        if name not in given.columns:
            held = ", ".join(given.columns)
            raise DataError(
                f"{whose}{name}s are missing: there is {held}",
                remedy="make the trajectories with Trajectories.from_steps",
            )
        columns, wanted = given.columns[name].shape[1], known.columns[name].shape[1]
        if columns != wanted:
            raise DataError(
                f"{whose}{name}s have {columns} columns, not {wanted} as those that were learned from",
                remedy="give the same columns",
            )


def others(
    population: Trajectories, mine: Trajectories, most: int, rng: np.random.Generator, known: Iterable[str] = ()
) -> Trajectories:
    """At most so many trips of a population, none of them by the agents of ``mine`` or by ``known`` ones."""
    if not population.is_like(mine):
        raise DataError(
            "the population and the trips are not of one kind",
            remedy="give fixes for both, or states and actions for both",
        )
    if mine.holds("state"):
        check_steps(population, mine, "the population's ")
    # Agents without a name cannot be told apart, so nobody is left out by it.
    found = population[~np.isin(population.agent_ids, [a for a in {*mine.agents, *known} if a])]
    if not len(found):
        raise DataError("the population has no trip of another agent", remedy="leave it out, or give others' trips")
    return sample(found, most, rng)


def first_lesson(trips: Trajectories, y: ArrayLike | None) -> NDArray[np.bool_]:
    """Which trips a detector that knows nothing yet learns from: at least one."""
    good = teachable(trips, y)
    if not good.any():
        raise DataError("no trajectory to learn from", remedy="give at least one that is not marked anomalous")
    return good


def given_again(trips: Memory, known: Memory) -> set[TripId]:
    """Those trips that are known under other names: made at the same time, in the same places.

    >>> key, first, second = np.array([7, 8], np.uint64), TripId("ana", "1"), TripId("ana", "2")
    >>> known = Memory().add({first: key}, {first: 60.0})
    >>> given_again(Memory().add({second: key}, {second: 60.0}), known)
    {TripId(agent='ana', trajectory='2')}
    >>> given_again(Memory().add({second: key}, {second: 90.0}), known)
    set()
    """
    at = {time: np.flatnonzero(known.times == time) for time in set(trips.times) & set(known.times)}
    return {
        name
        for i, (name, time) in enumerate(zip(trips.trip_ids, trips.times.tolist(), strict=True))
        if any(np.array_equal(known.keys[known.trips == j], trips.keys[trips.trips == i]) for j in at.get(time, ()))
    }


class Update(NamedTuple):
    """Trips that are learned from, their ids, and the ids of those that proved anomalous."""

    new: Trajectories | None
    learned: frozenset[TripId]
    refused: frozenset[TripId]


def proved_anomalous(names: Iterable[TripId | str], past: Iterable[TripId], trips: Trajectories | None) -> set[TripId]:
    """The trips, among past and new ones, that are named as anomalous; a name that is not known is refused."""
    asked = list(names)
    if not asked:
        return set()
    known = chain(past, () if trips is None else trips.ids)
    remedy = "give the trip as well, if the model has not seen it"
    return set(find_trips(asked, known, among="trips that the model knows or that were given", remedy=remedy))


def sort_out(
    trips: Trajectories | None,
    y: ArrayLike | None,
    anomalous: Iterable[TripId | str],
    past: Iterable[TripId] = (),
    known: frozenset[TripId] = frozenset(),
) -> Update:
    """Sort out new trips by their marks, and past ones by their names.

    Parameters
    ----------
    trips, y
        New trips, or None; +1 for normal ones, -1 for anomalous ones.
    anomalous
        Trips, new or past, that proved anomalous: ids, or names as :func:`~astray.core.trip_ids.find_trips` takes them.
    past
        The trips that the detector knows.
    known
        Those of them that are known to be anomalous.
    """
    refused = proved_anomalous(anomalous, past, trips)
    if trips is None:
        return Update(None, frozenset(), frozenset(refused))
    good = teachable(trips, y, refused, known)
    refused.update(trips[~good].ids)
    return Update(trips[good], frozenset(trips[good].ids), frozenset(refused))


def kept_ways(kept: Trajectories | None, but: Trajectories) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Returns some past ways (lat, lon), to be shown: evenly spread over the kept trips, without some trips."""
    if kept is None:
        return []
    shown = without(kept, but.ids)
    shown = shown[np.linspace(0, len(shown) - 1, min(HABITUAL, len(shown))).astype(int)]
    return [(way.columns["lat"], way.columns["lon"]) for way in shown]
