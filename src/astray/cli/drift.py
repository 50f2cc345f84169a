"""That a model was given trips to learn which it would have flagged, and what learning them has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astray.cli.console import say
from astray.text import number_of

if TYPE_CHECKING:
    import polars as pl

    from astray.detectors.agent import IRLDetector
    from astray.detectors.fleet import FleetDetector
    from astray.trajectories import Trajectories

LOOKED_AT = 500
"""So many trips are scored before and after they are learned; of many more, the first ones."""


class Drift:
    """Trips that are about to be learned, and how the model scores them before."""

    def __init__(self, detector: IRLDetector | FleetDetector, quiet: bool) -> None:
        self.detector, self.quiet = detector, quiet
        self._new: set[str] = set()  # agents that the model did not know before anything was learned
        self._looked: list[tuple[Trajectories, pl.DataFrame]] = []

    def look(self, trips: Trajectories) -> None:
        """Score trips that will be learned, of agents that the model knew from the beginning."""
        room = LOOKED_AT - sum(len(some) for some, _ in self._looked)
        if self.quiet or room <= 0:
            return
        self._new.update(self.detector.unknown_agents(trips))
        known = [i for i, agent in enumerate(trips.agent_ids.tolist()) if agent not in self._new]
        if known:
            some = trips[known[:room]]
            self._looked.append((some, self.detector.score(some)))

    def say(self, after: IRLDetector | FleetDetector) -> None:
        """Say how many of the trips, now learned, would have been flagged, and how normal they are ``after`` that."""
        import numpy as np

        was, now = [], []
        for trips, before in self._looked:
            learned = [trip not in after.anomalous_ for trip in trips.ids]
            flagged = (before["decision"] != "normal").to_numpy() & np.array(learned)
            if flagged.any():
                was += before["normality"].to_numpy()[flagged].tolist()
                now += after.score(trips)["normality"].to_numpy()[flagged].tolist()
        if was:
            n = sum(len(trips) for trips, _ in self._looked)
            say(
                f"{number_of(len(was), 'trip')} of {n:,} would have been flagged: in the median their normality was "
                f"{np.median(was):.1f}, and is {np.median(now):.1f} now. What is learned becomes normal; "
                "astray observe learns only what is normal already"
            )
