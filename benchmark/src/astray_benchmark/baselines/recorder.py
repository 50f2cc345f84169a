"""A control: a detector that knows only the intervals of the recorder, and no places."""

from __future__ import annotations

import numpy as np

from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Floats

NEIGHBOURS = 5
QUARTILES = (25, 50, 75)


class RecorderInterval:
    """Scores a trip by the difference of its intervals between fixes from those of the fifth nearest training trip.

    Receivers of different people write fixes at different intervals, which alone may give a foreign trip away, without
    any knowledge of behaviour. A method should detect more than this control.

    >>> every = lambda seconds: Trajectories.from_fixes(time=np.arange(20) * seconds, lat=[0] * 20, lon=[0] * 20)
    >>> usual = Trajectories.concat([every(2.0)] * 9)
    >>> usual_again, rare = RecorderInterval().fit(usual).score_samples(Trajectories.concat([every(2.0), every(60.0)]))
    >>> bool(usual_again > rare)
    True
    """

    def fit(self, trips: Trajectories) -> RecorderInterval:
        """Learns the intervals between the fixes of these trips."""
        self.known_ = _intervals(trips)
        return self

    def score_samples(self, trips: Trajectories) -> Floats:
        """Returns a score for each trip; high is normal."""
        apart = np.linalg.norm(_intervals(trips)[:, None] - self.known_[None], axis=2)
        nearest = np.sort(apart, axis=1)[:, : min(NEIGHBOURS, len(self.known_))]
        return np.asarray(-nearest[:, -1])


def _intervals(trips: Trajectories) -> Floats:
    """Returns the logarithms of the quartiles of the seconds between fixes: (trips, 3)."""
    found = np.zeros((len(trips), len(QUARTILES)))
    for i, (begin, end) in enumerate(zip(trips.offsets[:-1], trips.offsets[1:], strict=True)):
        between = np.diff(trips.columns["time"][begin:end])
        if len(between):
            found[i] = np.log(np.percentile(np.maximum(between, 0.1), QUARTILES))
    return found
