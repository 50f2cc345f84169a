"""That a model was given trips to learn which it would have flagged, and what learning them has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from astray.cli.console import say
from astray.core.errors import some_names
from astray.core.text import harmless, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from astray.core.trajectories import Trajectories
    from astray.features.memory import Memory
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector

LOOKED_AT = 500
"""So many trips are scored before and after they are learned; of many more, the first ones."""

AGENTS = 20
"""Of so many agents trips are also measured by the older half of what was learned; of many more, the first ones."""

FEW = 10
"""Fewer trips than this have no older half that could measure anything."""


class _Looked(NamedTuple):
    """Trips that are about to be learned: how the model saw them, and how the older half of its trips does."""

    trips: Trajectories
    flagged: NDArray[np.bool_]
    normality: NDArray[np.float64]
    older_flagged: NDArray[np.bool_]
    older_normality: NDArray[np.float64]


class Drift:
    """Trips that are about to be learned, and how the model scores them before.

    Who lets another person's trips drip in, one at a time, is flagged only at the first: each that is learned makes the
    next one normal. So they are also scored by the older half of the agent's trips, in which the drip is not.
    """

    def __init__(self, detector: IRLDetector | FleetDetector, model: Path, quiet: bool) -> None:
        self.detector, self.model, self.quiet = detector, model, quiet
        self._new: set[str] = set()  # agents that the model did not know before anything was learned
        self._looked: list[_Looked] = []

    def look(self, trips: Trajectories) -> None:
        """Score trips that will be learned, of agents that the model knew from the beginning."""
        room = LOOKED_AT - sum(len(looked.trips) for looked in self._looked)
        if self.quiet or room <= 0:
            return
        self._new.update(self.detector.unknown_agents(trips))
        known = trips[[trip.agent not in self._new for trip in trips.ids]]
        some = known[~_learned(self.detector, known)][:room]
        if len(some):
            self._looked.append(_Looked(some, *_seen(self.detector, some), *_seen(self._older(some.agents), some)))

    def say(self, after: IRLDetector | FleetDetector) -> None:
        """Say how many of the trips, now learned, would have been flagged, and how normal they are ``after`` that."""
        import numpy as np

        was, now, lately, names = [], [], [], []
        for looked in self._looked:
            learned = _learned(after, looked.trips)
            flagged = looked.flagged & learned
            if flagged.any():
                was += looked.normality[flagged].tolist()
                now += after.score(looked.trips)["normality"].to_numpy()[flagged].tolist()
            late = looked.older_flagged & ~looked.flagged & learned
            lately += looked.older_normality[late].tolist()
            names += [harmless(str(trip)) for trip in looked.trips[late].ids]
        n = sum(len(looked.trips) for looked in self._looked)
        if was:
            say(
                f"{number_of(len(was), 'trip')} of {n:,} would have been flagged: in the median their normality was "
                f"{np.median(was):.1f}, and is {np.median(now):.1f} now. What is learned becomes normal; "
                "astray observe learns only what is normal already"
            )
        if lately:
            say(
                f"{number_of(len(lately), 'trip')} of {n:,} would have been flagged but for what was learned lately "
                f"({some_names(names)}): by the older half of past trips their normality is {np.median(lately):.1f} in "
                "the median. Habits have changed, or somebody else's trips were learned; "
                "astray update MODEL --anomalous TRIP takes one out"
            )

    def _older(self, agents: Sequence[str]) -> IRLDetector | FleetDetector:
        """The model as if the newer half of these agents' trips had not been learned; it is never saved."""
        from astray.features.memory import Memory
        from astray.model.fleet import FleetDetector
        from astray.model.loading import load

        older = load(self.model)
        if isinstance(older, FleetDetector):
            for agent in agents[:AGENTS]:
                member = older.members_.counted(agent)
                memory = Memory() if member is None else member.memory
                older.forget_trips(agent, [memory.trip_ids[i].trajectory for i in newer(memory)])
        elif older.featurizer_ is not None and older.is_shared:  # another one would go on learning, which takes long
            memory = older.featurizer_.memory
            older.partial_fit(anomalous=[memory.trip_ids[i] for i in newer(memory)])
        return older


def newer(memory: Memory) -> list[int]:
    """The positions of the newer half of the trips of a memory; none of few trips.

    >>> import numpy as np
    >>> from astray import TripId
    >>> from astray.features.memory import Memory
    >>> ids = [TripId("ana", str(i)) for i in range(10)]
    >>> memory = Memory().add({i: np.zeros(1, np.uint64) for i in ids}, {i: -float(i.trajectory) for i in ids})
    >>> newer(memory), newer(memory.remove(ids[:1]))
    ([4, 3, 2, 1, 0], [])
    """
    import numpy as np

    order: list[int] = np.argsort(memory.times, kind="stable").tolist()
    return order[(len(order) + 1) // 2 :] if len(order) >= FEW else []


def _learned(detector: IRLDetector | FleetDetector, trips: Trajectories) -> NDArray[np.bool_]:
    """Which trips a model has learned; not those that wait, are suspected, or proved anomalous under any name."""
    from astray.model.fleet import FleetDetector

    if isinstance(detector, FleetDetector):  # of which only who is asked for is read
        members = (detector.members_.counted(agent) for agent in trips.agents)
        return trips.isin(trip for member in members if member is not None for trip in member.memory.trip_ids)
    return trips.isin(detector.known_trips_ - detector.anomalous_.union(detector.waiting_, detector.suspects_))


def _seen(detector: IRLDetector | FleetDetector, trips: Trajectories) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which trips a model flags, and their normality."""
    table = detector.score(trips)
    return (table["decision"] != "normal").to_numpy(), table["normality"].to_numpy()
