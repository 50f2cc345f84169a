"""An open trip: all that it takes to score its next fix, and to go on after a restart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.decide import ANOMALY, NORMAL, REVIEW, level, threshold
from astray.live.eye import Eye
from astray.live.fix import one_fix
from astray.live.motion import Motion, Place, Plane, Step
from astray.live.score import TripScore, moment
from astray.live.tally import Gauge, Lowest, Tally
from astray.live.tape import Tape
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.faults import FaultFilter

if TYPE_CHECKING:
    from astray.live.session import Session

Array = NDArray[Any]


class Anchor:
    """Where the agent has been staying: since when, around which place, and the middle of its fixes there."""

    __slots__ = ("place", "rows", "since", "sum")

    def __init__(self, since: float, place: Place) -> None:
        self.since, self.place = since, place
        self.sum, self.rows = place, 1

    @property
    def centre(self) -> Place:
        """The middle of the fixes there."""
        return self.sum[0] / self.rows, self.sum[1] / self.rows

    def add(self, at: Place) -> None:
        """One more fix there."""
        self.sum, self.rows = (self.sum[0] + at[0], self.sum[1] + at[1]), self.rows + 1


class OpenTrip:
    """An open trip: all that it takes to score its next fix."""

    __slots__ = (
        *("alert", "anchor", "eps", "eye", "faults", "fixes", "gamma", "gauge", "given", "history", "judge"),
        *("last_step", "min_history", "motion", "name", "plane", "tally"),
    )

    def __init__(self, session: Session, time: float, lat: float, lon: float) -> None:
        detector = session.detector
        lens = detector.lens(session.agent, session._near)
        view = lens.view
        one = one_fix(session.agent, time, lat, lon, session.context)
        eps = detector.eps if session.eps is None else session.eps
        gamma = detector.gamma if session.gamma is None else session.gamma
        self.name = moment(time)
        self.fixes = self.faults = 0
        self.eye = Eye(lens, detector.reward(session.agent))
        self.gauge = Gauge(lens.scale)
        self.history, self.min_history = lens.history, float(detector.min_history)
        self.given: Array = view.context.given(one)[0]
        rate, left_out = session.false_alarm_rate, lens.scale.calibration.trips
        self.eps = float(threshold(eps, one)[0]) if rate is None else level(rate, left_out)
        self.gamma = float(threshold(gamma, one, "gamma")[0])
        self.plane = Plane(view.projection)
        self.judge = FaultFilter(view.config.faults)
        self.motion = Motion(view.config.interval, view.encoder.lags)
        self.tally = Tally(self.gauge, self.eps)
        self.alert = ""
        self.anchor = Anchor(time, self.place(lat, lon))
        self.last_step: Step | None = None

    def place(self, lat: float, lon: float) -> Place:
        """A place in metres."""
        return self.plane.to_metres(lat, lon)

    def degrees(self, at: Place) -> Place:
        """Latitude and longitude of a place in metres."""
        lat, lon = self.eye.lens.view.projection.to_degrees(np.array([at]))
        return float(lat[0]), float(lon[0])

    def add(self, time: float, at: Place) -> tuple[Lowest, float]:
        """Count a good fix: its n(s, a), and the spread over the heads."""
        self.fixes += 1
        self.last_step = step = self.motion.step(time, at)
        rewards = self.eye.rewards(step, self.given)
        n = self.gauge.of_aspects(rewards)
        low = self.gauge.step(n)
        self.tally.add(time, step.weight, n, rewards, low.value)
        self._watch_window()
        return low, self.gauge.step_uncertainty(rewards, low.aspect)

    def low(self, score: float) -> bool:
        """Whether a score is one to object to."""
        return score <= self.eps

    def sure(self, uncertainty: float) -> str:
        """What a low score is called: an anomaly, or, where the heads disagree or the past is short, for review."""
        return REVIEW if uncertainty > self.gamma or self.history < self.min_history else ANOMALY

    def score(self, agent: str) -> TripScore:
        """The trip so far."""
        r = self.tally.running()
        return TripScore(
            agent,
            self.name,
            self.tally.start,
            self.tally.end,
            self.fixes,
            self.faults,
            r.normality,
            r.uncertainty,
            r.worst_window,
            r.score,
            r.p_value,
            self.gauge.aspects[r.aspect],
            self.sure(r.uncertainty) if self.low(r.score) else NORMAL,
            self.history,
            self.tally.worst(r.score),
        )

    def _watch_window(self) -> None:
        """Raise or lower the alert by the last window: what it objects to, the trip's score cannot take back.

        Where the mean alone decides (``scale="step"``, as in the paper), by the mean so far.
        """
        if math.isnan(self.tally.window):
            return
        now = self.tally.running().normality if self.gauge.by_mean else self.tally.window
        if self.low(now):
            self.alert = self.alert or self.sure(self.tally.running().uncertainty)
        elif not self.low(2 * now):
            self.alert = ""

    def stays(self, time: float, at: Place, seconds: float, radius: float) -> bool:
        """Whether the agent has now stayed for so long within a circle."""
        x, y = self.anchor.place
        if math.hypot(at[0] - x, at[1] - y) > radius:
            self.anchor = Anchor(time, at)
            return False
        self.anchor.add(at)
        return time - self.anchor.since >= seconds

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where there is no memory to compare with."""
        encoder = self.eye.lens.view.encoder
        if self.last_step is None or not isinstance(encoder, FamiliarityEncoder):
            return ""
        from astray.explain.words import familiar_words

        return familiar_words(self.last_step.row(self.given), encoder, -1)[0]

    def freeze(self, tape: Tape) -> None:
        """Put all that changes on a tape."""
        judge, anchor = self.judge, self.anchor
        tape.put(self.tally.start, *self.degrees(self.motion.origin), self.fixes, self.faults)
        tape.put(("", ANOMALY, REVIEW).index(self.alert), self.eps, self.gamma)
        tape.put_many(self.given.tolist())
        tape.put_many(judge.last or ())
        tape.put(*judge.velocity)
        tape.put_many(value for suspect in judge.suspects for value in suspect)
        tape.put(anchor.since, *anchor.place, *anchor.sum, anchor.rows)
        self.motion.freeze(tape)
        self.tally.freeze(tape)

    @classmethod
    def thawed(cls, session: Session, tape: Tape) -> OpenTrip:
        """The trip that was frozen."""
        trip = cls(session, tape.take(), tape.take(), tape.take())
        trip.fixes, trip.faults = tape.count(), tape.count()
        trip.alert = ("", ANOMALY, REVIEW)[tape.count()]
        trip.eps, trip.gamma = tape.take(), tape.take()
        trip.tally = Tally(trip.gauge, trip.eps)
        trip.given = np.array(tape.many(), np.float32)
        last = tape.many().tolist()
        trip.judge.last = (last[0], last[1], last[2]) if last else None
        trip.judge.velocity = (tape.take(), tape.take())
        suspects = tape.many().tolist()
        trip.judge.suspects = list(zip(*(suspects[i::3] for i in range(3)), strict=True))
        anchor = Anchor(tape.take(), (tape.take(), tape.take()))
        anchor.sum, anchor.rows = (tape.take(), tape.take()), tape.count()
        trip.anchor = anchor
        trip.motion.thaw(tape)
        trip.tally.thaw(tape)
        return trip
