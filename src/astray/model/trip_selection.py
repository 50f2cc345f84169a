"""Selects the trips that a model learns from, those that proved anomalous, and those that it keeps."""

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
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.features.paths import resample
from astray.scoring.scores import chunks

REMEMBER_FIXES = 500_000  # about how many fixes are counted at a time


def teachable(
    trips: Trajectories,
    y: ArrayLike | None = None,
    refused: Iterable[TripId] = (),
    known: frozenset[TripId] = frozenset(),
) -> NDArray[np.bool_]:
    """Returns a mask of the trips that a model may learn from; raises a DataError if two have the same name.

    A model never learns from trips marked -1, from those in ``refused``, or from those ``known`` to be anomalous,
    unless these are marked +1 now.

    >>> trips = Trajectories.from_fixes(time=[0, 0, 0], lat=[0, 0, 0], lon=[0, 0, 0], agent="a", trajectory=[*"xyz"])
    >>> teachable(trips, [1, -1, 1], refused=[TripId("a", "z")]).tolist()
    [True, False, False]
    """
    for trip, times in Counter(trips.ids).most_common(1):
        if times > 1:
            raise DataError(
                f"two trajectories are called '{trip}'", remedy="give the trajectories of an agent different ids"
            )
    unwanted = trips.isin(refused)
    if y is None:
        return ~unwanted & ~trips.isin(known)
    labels = np.asarray(y)
    if labels.shape not in ((), (len(trips),)) or not np.isin(labels, (-1, 1)).all():
        raise DataError(
            "y does not have one label for each trajectory",
            remedy=f"give +1 (normal) or -1 (anomalous) for each of the {len(trips)} trajectories",
        )
    return np.asarray(~unwanted & (labels == 1), bool)


def without(trips: Trajectories, ids: Iterable[TripId]) -> Trajectories:
    """Returns the trips that have none of these ids."""
    return trips[~trips.isin(ids)]


def check_steps(given: Trajectories, known: Trajectories, whose: str = "") -> None:
    """Raises a DataError unless trips hold states and actions of the same kinds and widths as the known ones."""
    for name in ("state", "action"):
        if name not in given.columns:
            held = ", ".join(given.columns)
            raise DataError(
                f"{whose}{name}s are missing: there is {held}",
                remedy="make the trajectories with Trajectories.from_steps",
            )
        if given.has_discrete_actions != known.has_discrete_actions:
            kinds = ("quantities", "discrete")
            raise DataError(
                f"{whose}actions are {kinds[given.has_discrete_actions]}, in the past trajectories they are "
                f"{kinds[known.has_discrete_actions]}",
                remedy="give n_actions to Trajectories.from_steps for both, or for neither",
            )
        columns, wanted = given.columns[name].shape[1], known.columns[name].shape[1]
        if columns != wanted:
            unit = "possible values" if name == "action" and known.has_discrete_actions else "columns"
            raise DataError(
                f"{whose}{name}s have {columns} {unit}, not {wanted} as in the past trajectories",
                remedy=f"give the same {unit}",
            )


def others(
    population: Trajectories, mine: Trajectories, most: int, rng: np.random.Generator, known: Iterable[str] = ()
) -> Trajectories:
    """Returns at most ``most`` trips of a population, none by the agents of ``mine`` or by ``known`` agents."""
    if not population.is_like(mine):
        raise DataError(
            "the population and the trips are not of one kind",
            remedy="give fixes for both, or states and actions for both",
        )
    if mine.holds("state"):
        check_steps(population, mine, "the population's ")
    # Agents without a name may be anybody, so none of them is left out.
    found = population[~np.isin(population.agent_ids, [a for a in {*mine.agents, *known} if a])]
    if not len(found):
        raise DataError("the population has no trip of another agent", remedy="leave it out, or give others' trips")
    return sample(found, most, rng)


def given_again(trips: Memory, known: Memory) -> set[TripId]:
    """Returns the trips that are known under other names: made at the same time, in the same places.

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
    """Trips to learn from, their ids, and the ids of trips that proved anomalous."""

    new: Trajectories | None
    learned: frozenset[TripId]
    refused: frozenset[TripId]


def sort_out(
    trips: Trajectories | None,
    y: ArrayLike | None,
    anomalous: Iterable[TripId | str],
    past: Iterable[TripId] = (),
    known: frozenset[TripId] = frozenset(),
) -> Update:
    """Sorts new trips by their marks, and past ones by their names, into trips to learn from and trips to refuse.

    ``anomalous`` names trips, new or ``past``, that proved anomalous; raises a DataError for an unknown name. ``known``
    are the past trips that are already known to be anomalous.
    """
    asked = list(anomalous)
    among = chain(past, () if trips is None else trips.ids) if asked else ()
    remedy = "give the trip as well, if the model has not seen it"
    refused = set(find_trips(asked, among, among="trips that the model knows or that were given", remedy=remedy))
    if trips is None:
        return Update(None, frozenset(), frozenset(refused))
    good = teachable(trips, y, refused, known)
    refused.update(trips[~good].ids)
    return Update(trips[good], frozenset(trips[good].ids), frozenset(refused))


def kept_ways(kept: Trajectories | None, but: Trajectories) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Returns some past routes (lat, lon) to show, evenly spread over the kept trips; leaves out the trips ``but``."""
    if kept is None:
        return []
    shown = without(kept, but.ids)
    shown = shown[np.linspace(0, len(shown) - 1, min(HABITUAL, len(shown))).astype(int)]
    return [(way.columns["lat"], way.columns["lon"]) for way in shown]


# -------------------------------------------------------------------- samples


def drawn(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns the positions of at most ``most`` of ``n`` trips, drawn at random, in rising order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def sample(trips: Trajectories, most: int, rng: np.random.Generator) -> Trajectories:
    """Returns at most ``most`` trips, drawn at random, in their order."""
    return trips if len(trips) <= most else trips[drawn(len(trips), most, rng)]


def remember(featurizer: Featurizer, of: Prepared) -> Featurizer:
    """Returns a featurizer that remembers these trips, too; they replace remembered trips of the same names."""
    featurizer = featurizer.forget(of.trips.ids)
    blank = featurizer.with_memory(Memory())
    # In pieces, to bound the memory that many trips take; merged in pairs, so that no piece is copied too often.
    pieces = [np.arange(len(of.trips))[chunk] for chunk in chunks(of.trips.lengths, REMEMBER_FIXES)]
    memories = [blank.remember(of if len(pieces) == 1 else of[piece]).memory for piece in pieces]
    while len(memories) > 1:
        merged = [a.merge(b) for a, b in zip(memories[::2], memories[1::2], strict=False)]
        memories = merged + memories[2 * len(merged) :]
    return featurizer.with_memory(featurizer.memory.merge(memories[0])) if memories else featurizer


KEPT_INTERVAL = 30.0  # seconds: farther apart, the fixes would hide the way and look like gaps


def thin(of: Prepared, featurizer: Featurizer) -> Trajectories:
    """Returns trips as a model keeps them: resampled to the featurizer's interval or finer, without faulty fixes."""
    trips, paths = of.trips, resample(of.paths, min(featurizer.config.interval, KEPT_INTERVAL))
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
