"""Warns if a model has learned trips that it would have flagged, and says how that changed their scores."""

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
    from astray.detector import Detector
    from astray.features.memory import Memory

LOOKED_AT = 500
"""At most this many trips are scored before and after the model learns them: the first ones."""

AGENTS = 20
"""At most this many agents' trips, those of the first ones, are also scored by the older half of the agent's past."""

FEW = 10
"""For an agent with fewer trips, half of them are too few to score anything."""


class _Looked(NamedTuple):
    """Trips that the model will learn, with their scores by the model and by the older half of its trips."""

    trips: Trajectories
    flagged: NDArray[np.bool_]
    normality: NDArray[np.float64]
    older_flagged: NDArray[np.bool_]
    older_normality: NDArray[np.float64]


class Drift:
    """Scores trips before a model learns them, and compares these scores with those afterwards.

    If a model learns another person's trips one at a time, it would flag only the first: each trip that it learns makes
    the next one normal. So this class also scores trips by the older half of the agent's trips.
    """

    def __init__(self, detector: Detector, model: Path, quiet: bool) -> None:
        self.detector, self.model, self.quiet = detector, model, quiet
        self._new: set[str] = set()  # agents that the model did not know before anything was learned
        self._looked: list[_Looked] = []

    def look(self, trips: Trajectories) -> None:
        """Scores trips that the model will learn, except those of agents that are new to it."""
        room = LOOKED_AT - sum(len(looked.trips) for looked in self._looked)
        if self.quiet or room <= 0:
            return
        self._new.update(self.detector.unknown_agents(trips))
        known = trips[[trip.agent not in self._new for trip in trips.ids]]
        some = known[~_learned(self.detector, known)][:room]
        if len(some):
            self._looked.append(_Looked(some, *_seen(self.detector, some), *_seen(self._older(some.agents), some)))

    def say(self, after: Detector) -> None:
        """Says how many of the learned trips would have been flagged, and how normal they are ``after`` learning."""
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

    def _older(self, agents: Sequence[str]) -> Detector:
        """Returns the model without the newer half of these agents' trips; it is never saved."""
        from astray.detector import load

        older = load(self.model)
        names = list(older.memories_) if older.is_one else list(agents[:AGENTS])
        for memory in [older.memories_[name] for name in names if name in older.memories_]:
            trips: dict[str, list[str]] = {}
            for trip in [memory.counts.trip_ids[i] for i in newer(memory.counts)]:
                trips.setdefault(trip.agent, []).append(trip.trajectory)
            for agent, trajectories in trips.items():
                older.forget_trips(agent, trajectories)
        return older


def newer(memory: Memory) -> list[int]:
    """Returns the positions of the newer half of a memory's trips; an empty list if there are few trips.

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


def _learned(detector: Detector, trips: Trajectories) -> NDArray[np.bool_]:
    """Returns a mask of the trips that a model has learned from."""
    return trips.isin(detector.fitted.learned_of(trips.agents))


def _seen(detector: Detector, trips: Trajectories) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Returns a mask of the trips that a model flags, and the normality of all of them."""
    table = detector.score(trips)
    return (table["decision"] != "normal").to_numpy(), table["normality"].to_numpy()
