"""An open trip: all that it takes to score its next fix, and to go on after a restart.

Its rows, one about every interval, are kept; the trip so far is scored from them by the functions that score a file, so
that a finished trip has the scores that the same fixes have in one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.decide import ANOMALY, NORMAL, REVIEW, leaving, segments, threshold
from astray.detectors.scoring import LEAST_SEGMENT, Scores, Seen, worst_segments
from astray.live.eye import Eye
from astray.live.fix import one_fix
from astray.live.motion import Motion, Step
from astray.live.rows import Rows
from astray.live.score import Stretch, TripScore
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.projection import Plane
from astray.mdp.statistics import TripRows, statistics
from astray.normality import StepScores, step_normality
from astray.tape import Tape
from astray.times import moment

if TYPE_CHECKING:
    from astray.detectors.scoring import Lens
    from astray.live.session import Session

Array = NDArray[Any]

MAX_ROWS = 10_000  # of a trip, which then ends: at the usual interval it has lasted for days
SETTLED = 60.0  # seconds of a trip that must have passed before there is an alert


class OpenTrip:
    """An open trip: all that it takes to score its next fix."""

    __slots__ = (
        *("_last", "_rows", "_running", "_scored", "_tick", "agent", "alert", "eps", "eye", "faults"),
        *("fixes", "gamma", "given", "history", "lens", "min_history", "motion", "name", "one", "open_eps"),
        *("plane", "reward", "start", "stretch"),
    )

    def __init__(self, session: Session, time: float, lat: float, lon: float, name: str = "") -> None:
        detector = session.detector
        self.lens: Lens = detector.lens(session.agent, session._near)
        view = self.lens.view
        self.agent, self.reward = session.agent, detector.reward_
        self.one = one = one_fix(session.agent, time, lat, lon, session.context)
        self.name = name or moment(time)
        self.fixes = self.faults = 0
        self.start = time
        self.eye = Eye(view)
        self.history, self.min_history = self.lens.history, float(detector.min_history)
        self.given: Array = view.context.given(one)[0]
        self.eps, self.open_eps = session.levels(one, self.lens)
        gamma = detector.gamma if session.gamma is None else session.gamma
        self.gamma = float(threshold(gamma, one, "gamma")[0])
        self.plane = Plane(view.projection)
        self.motion = Motion(view.config.interval, view.encoder.lags)
        self.alert = ""
        self._rows = Rows(view)
        self._tick = -1
        self._scored = 0  # rows that the trip so far was scored by
        self._last: Step | None = None
        self._running: TripScore | None = None
        self.stretch: Stretch | None = None  # that is not normal and still lasts

    @property
    def full(self) -> bool:
        """Whether the trip has lasted for too long to go on."""
        return self._rows.kept >= MAX_ROWS

    # ---------------------------------------------------------------- adding

    def add(self, time: float, lat: float, lon: float, *, breaks: bool = False) -> StepScores:
        """Count a good fix: its n(s, a), the spread over the heads, and the lowest aspect.

        Where a gap before it ``breaks`` the path, it is the first of the next one.
        """
        self.fixes += 1
        if breaks:
            self.motion.restart()
        step = self.motion.step(time, self.plane.to_metres(lat, lon))
        tick = self._tick_of(step)
        due = step.first or tick != self._tick
        scores = self._keep(step, due)
        if due:
            self._scored = self._rows.kept
            self._look_back()
            self._watch(time)
        return scores

    def _look_back(self) -> None:
        """Score the trip so far."""
        self._running, self.stretch = self._score(finished=False), self._lasting()

    def _tick_of(self, step: Step) -> int:
        """Which interval of the trip a step lies in; the first step of each stands for it, as in a file."""
        return math.floor(step.elapsed / self.lens.view.config.interval + 0.5)

    def _keep(self, step: Step, due: bool) -> StepScores:
        """Score a step, and keep it if the trip is scored by it: without a memory, by every one."""
        scores = step_normality(self.reward.step(self.eye.features(step, self.given)), self.lens.calibration)
        stays = due or not self.lens.view.counts
        self._rows.put(step, float(scores.normality[0]), self.eye.keys, self.eye.familiar, stays)
        self._last, self._tick = step, self._tick_of(step)
        return scores

    # ---------------------------------------------------------------- scoring

    def _scores(self, n: int, finished: bool) -> Scores:
        """The first rows as the one trip of a file."""
        view, rows = self.lens.view, self._rows
        steps, familiar = rows.steps(n, self.given), rows.familiar(n)
        since = np.diff(steps.time, prepend=steps.time[:1])
        weight = np.where(steps.first, 0.0, np.minimum(since, view.config.interval))
        of_trip = None
        if view.counts and self.reward.trip is not None:
            maker = view.popularity.number_of([self.agent])
            of_trip = statistics(
                TripRows(steps, rows.keys(n), view.frame, 1, np.array([finished])),
                familiar,
                view.config.habits,
                view.memory,
                view.popularity,
                interval=view.config.interval,
                maker=maker if maker[0] >= 0 else None,
            )
        if of_trip is not None and not finished:
            features = np.zeros((n, 0), np.float32)  # the statistics are enough, as long as no segment is asked for
        else:
            features = view.features(steps, familiar) if view.counts else view.encode(steps)
        seen = Seen(
            features,
            steps.trip,
            steps.time,
            weight,
            np.arange(n),
            np.zeros(n, np.int8),
            np.array([self.history]),
            np.zeros(1, np.int64),
            LEAST_SEGMENT,
            steps,
            of_trip,
        )
        calibration = self.lens.calibration if finished else self.lens.unfinished
        return Scores(self.one, seen, self.reward, [calibration])

    def _score(self, finished: bool) -> TripScore:
        n = self._rows.total if finished else self._scored
        scores, time = self._scores(n, finished), self._rows.time(n).tolist()
        of, eps = scores.of_trips, self.eps if finished else self.open_eps
        worst = worst_segments(scores, np.array([self.eps]))[0] if finished else None
        score, uncertainty = float(of.score[0]), float(of.uncertainty[0])
        return TripScore(
            self.agent,
            self.name,
            time[0],
            time[-1],
            self.fixes,
            self.faults,
            float(of.normality[0]),
            uncertainty,
            score,
            float(of.p_value[0]),
            scores.aspects[int(of.aspect[0])],
            self.sure(uncertainty) if score <= eps else NORMAL,
            self.history,
            None if worst is None else Stretch(time[worst.start], time[worst.stop - 1], worst.normality),
        )

    def sure(self, uncertainty: float) -> str:
        """What a low score is called: an anomaly, or, where the heads disagree or the past is short, for review."""
        return REVIEW if uncertainty > self.gamma or self.history < self.min_history else ANOMALY

    @property
    def so_far(self) -> TripScore:
        """The trip as it stood when it was last looked at, about every interval."""
        assert self._running is not None
        assert self._last is not None
        return self._running._replace(end=self._last.time, fixes=self.fixes, faults=self.faults)

    def finished(self) -> TripScore:
        """The whole trip: the scores that ``det.score`` gives of the same fixes."""
        return self._score(finished=True)

    def _lasting(self) -> Stretch | None:
        """The stretch that is not normal and still lasts."""
        n, time = self._rows.normality(self._scored), self._rows.time(self._scored)
        level = np.array([self.eps])
        found = segments(n, np.zeros(len(n), np.int64), time, level, leaving(level), LEAST_SEGMENT)
        if not found or found[-1].stop < len(n):
            return None
        return Stretch(float(time[found[-1].start]), float(time[-1]), found[-1].normality)

    def _watch(self, time: float) -> None:
        """Raise or lower the alert by the trip so far."""
        running = self._running
        if running is None or time - self.start < SETTLED:
            return
        if running.score <= self.open_eps:
            self.alert = self.alert or self.sure(running.uncertainty)
        elif running.score > leaving(self.open_eps):
            self.alert = ""

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where there is no memory to compare with."""
        encoder = self.lens.view.encoder
        if self._last is None or not isinstance(encoder, FamiliarityEncoder):
            return ""
        from astray.explain.words import familiar_words

        return familiar_words(self._last.row(self.given), encoder, -1)[0]

    # ---------------------------------------------------------------- keeping

    def freeze(self, tape: Tape) -> None:
        """Put all that changes on a tape."""
        tape.put(*(float(self.one.columns[name][0]) for name in ("time", "lat", "lon")))
        tape.put_text(self.name)
        tape.put(self.fixes, self.faults)
        tape.put(("", ANOMALY, REVIEW).index(self.alert), self.eps, self.open_eps, self.gamma)
        tape.put_many(self.given.tolist())
        self.motion.freeze(tape)
        tape.put(self._rows.kept, self._scored)
        tape.put_many(self._rows.numbers)

    @classmethod
    def thawed(cls, session: Session, tape: Tape) -> OpenTrip:
        """The trip that was frozen."""
        trip = cls(session, tape.take(), tape.take(), tape.take(), tape.text())
        trip.fixes, trip.faults = tape.count(), tape.count()
        trip.alert = ("", ANOMALY, REVIEW)[tape.count()]
        trip.eps, trip.open_eps, trip.gamma = tape.take(), tape.take(), tape.take()
        trip.given = np.array(tape.many(), np.float32)
        trip.motion.thaw(tape)
        kept, trip._scored = tape.count(), tape.count()
        trip._rows = Rows.of(trip.lens.view, tape.many(), kept, trip.given)
        if trip._scored:
            trip._last = trip._rows.last
            trip._tick = trip._tick_of(trip._last)
            trip._look_back()
        return trip
