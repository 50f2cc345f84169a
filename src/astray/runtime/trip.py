"""An open trip: all that it takes to score its next fix, and to go on after a restart.

While it goes on, it is scored from running sums. Its rows, one about every interval, are kept: the finished trip is
scored from them by the functions that score a file, so that it has the scores that the same fixes have in one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.snapshot import Snapshot
from astray.core.times import moment
from astray.core.trip_ids import TripId
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Frames, few_familiarity, few_keys
from astray.features.featurizer import StepFeatures
from astray.features.statistics import RunningStatistics, count_rows, statistics_so_far
from astray.features.steps import OpenPath, Step, as_steps
from astray.features.trip_rows import TripRows
from astray.runtime.fix import one_fix
from astray.runtime.live_scores import LiveSegment, TripScore
from astray.runtime.rows import Rows, Seen
from astray.scoring.decisions import ANOMALY, NORMAL, REVIEW, threshold
from astray.scoring.normality import TripScores, normality_of, trip_normality
from astray.scoring.own_scale import SeenTrips, see
from astray.scoring.scores import Chunk, Scores, worst_segments
from astray.scoring.segments import OpenSegment, leaving

if TYPE_CHECKING:
    from astray.core.projection import Place
    from astray.runtime.session import Session
    from astray.scoring.scores import AgentModel

Array = NDArray[Any]
Floats = NDArray[np.float32]
Keys = NDArray[np.uint64]

MAX_ROWS = 20_000  # of a trip, which then ends; the longest has fewer at the usual interval, so a file cuts no later
TOGETHER = 6  # trips from which on it takes less time to make the keys of their steps together
SETTLED = 60.0  # seconds of a trip that must have passed before there is an alert

OfStep = tuple[float, float, str]  # n(s, a), its spread over the heads, and the name of its lowest aspect
NO_STEP: OfStep = (math.nan, math.nan, "")
OneTrip = tuple[float, float, float, float, int]  # what TripScores holds, of one trip


def _first(of: TripScores) -> OneTrip:
    normality, uncertainty, score, p_value = (float(values[0]) for values in of[:4])
    return normality, uncertainty, score, p_value, int(of.aspect[0])


def score_open(trips: Iterable[OpenTrip]) -> None:
    """Take in the last fix of open trips, and score those that are due as far as they have come.

    A call of numpy costs about the same for one of them as for sixteen: so all trips of one model are looked at
    together. What comes out does not depend on the others.
    """
    by_model: dict[tuple[int, int], list[OpenTrip]] = {}
    for trip in trips:
        if trip.moved:
            model = id(trip.reward), id(trip.agent_model.featurizer.config)
            by_model.setdefault(model, []).append(trip)
    for together in by_model.values():
        _take_in(together)
        due = [trip for trip in together if trip.due]
        _score_so_far([trip for trip in due if trip.running is not None])
        for trip in due:
            if trip.running is None:
                trip.score_by_rows()


def _take_in(trips: Sequence[OpenTrip]) -> None:
    """Take in the last fix of trips of one model."""
    alike = [trip for trip in trips if trip.needs_keys_alone]
    if len(alike) >= TOGETHER:
        featurizers = [trip.agent_model.featurizer for trip in alike]
        steps = as_steps(np.array([trip.last.numbers() for trip in alike]), np.zeros(0))
        keys = few_keys(steps, featurizers[0].config.habits, Frames.of([one.frame for one in featurizers]))
        familiar = few_familiarity(keys, [one.memory for one in featurizers])
        for trip, *seen in zip(alike, keys, familiar, strict=True):
            trip.put(seen)
    for trip in trips:
        if trip.moved:
            trip.look()
    counted = [trip for trip in trips if trip.due and trip.running is not None]
    if counted:
        last = [trip.rows.last for trip in counted]
        count_rows(
            [trip.running for trip in counted if trip.running is not None],
            [trip.last for trip in counted],
            np.array([keys for keys, _ in last]),
            np.array([familiar for _, familiar in last]),
        )


def _score_so_far(trips: Sequence[OpenTrip]) -> None:
    """Score trips of one model by their statistics so far."""
    if not trips:
        return
    reward, scales = trips[0].reward.trip, [trip.agent_model.unfinished for trip in trips]
    assert reward is not None
    rewards = reward(statistics_so_far([trip.running for trip in trips if trip.running is not None]))
    found = normality_of(rewards, [scale.weights for scale in scales], [scale.trip for scale in scales])
    for trip, scale, n, spread, aspect in zip(trips, scales, *(values.tolist() for values in found), strict=True):
        trip.scored((n, math.hypot(spread, scale.trip_noise), n, scale.normal.p_value(n), aspect))


class OpenTrip:
    """An open trip: all that it takes to score its next fix."""

    __slots__ = (
        *("_closes", "_destination", "_features", "_last", "_maker", "_score_steps", "_scored", "_segment", "_so_far"),
        *("_tick", "agent", "agent_model", "alert", "due", "eps", "faults", "fixes", "gamma", "given", "history"),
        *("min_history", "moved", "name", "of_step", "one", "open_eps", "path", "reward", "rows", "running", "seen"),
        *("segment", "start"),
    )

    def __init__(self, session: Session, time: float, lat: float, lon: float, name: str = "") -> None:
        detector = session.detector
        self.agent_model: AgentModel = detector.agent_model(session.agent, (lat, lon))
        featurizer = self.agent_model.featurizer
        self.agent, self.reward = session.agent, detector.reward_
        self.one = one = one_fix(session.agent, time, lat, lon, session.context)
        self.name = name or moment(time)
        self.fixes = self.faults = 0
        self.start = time
        self.history, self.min_history = self.agent_model.history, float(detector.min_history)
        self.given: Array = featurizer.context.given(one)[0]
        self.eps, self.open_eps = session.levels(one, self.agent_model)
        gamma = detector.gamma if session.gamma is None else session.gamma
        self.gamma = float(threshold(gamma, one, "gamma")[0])
        self.path = OpenPath(featurizer.config.interval, featurizer.encoder.lags)
        self.alert = ""
        self.moved = False  # whether there is a fix that was not taken in yet
        self.due = False  # whether there is a row that the trip was not scored by yet
        self.of_step: OfStep = NO_STEP  # what is said of the last fix
        self.seen: SeenTrips | None = None  # the whole trip when it is over, where single fixes are not scored
        self._score_steps = session.score_steps
        self._maker = int(featurizer.popularity.number_of([self.agent])[0])
        self._destination = session.destination
        self._tick = -1
        self._last: Step | None = None
        self._so_far: TripScore | None = None
        self.segment: LiveSegment | None = None  # that is not normal and still lasts
        self._begin(Rows(featurizer))

    def _begin(self, rows: Rows) -> None:
        """Set everything up that is made of rows and thresholds; of rows that are kept already, too."""
        featurizer = self.agent_model.featurizer
        self._features: StepFeatures | None = None  # made when it is first needed
        self._closes = float(leaving(self.open_eps))
        self._segment = OpenSegment(self.eps, float(leaving(self.eps)), self.agent_model.calibration.least_segment)
        self.running: RunningStatistics | None = None
        if self._by_statistics:
            self.running = RunningStatistics(
                featurizer.config.habits,
                featurizer.memory,
                featurizer.popularity,
                featurizer.frame,
                window=featurizer.config.window_rows,
                maker=self._maker,
                destination=None if self._destination is None else featurizer.projection.place(*self._destination),
            )
        self.rows = rows
        self._scored = 0  # rows that the trip so far was scored by

    @property
    def _by_statistics(self) -> bool:
        """Whether the trip is scored by its statistics, or else by the mean over its rows."""
        return self.agent_model.featurizer.counts and self.reward.trip is not None

    @property
    def full(self) -> bool:
        """Whether the trip has lasted for too long to go on, with its last fix."""
        return self.rows.kept + (self.moved and self._stays) >= MAX_ROWS

    @property
    def _stays(self) -> bool:
        """Whether its last fix is a row that stays; without a memory the trip is scored by every fix."""
        return self.due or not self.agent_model.featurizer.counts

    # ---------------------------------------------------------------- adding

    def add(self, time: float, lat: float, lon: float, *, breaks: bool = False) -> None:
        """Move to a good fix, which :func:`score_open` then takes in.

        Where a gap before it ``breaks`` the path, it is the first of the next one.
        """
        self.fixes += 1
        if breaks:
            self.path.restart()
        self._last = step = self.path.step(time, self.agent_model.featurizer.projection.place(lat, lon))
        before, self._tick = self._tick, self._tick_of(step)
        self.due = step.first or self._tick != before
        self.moved = True

    @property
    def last(self) -> Step:
        """The last step."""
        assert self._last is not None
        return self._last

    @property
    def needs_keys_alone(self) -> bool:
        """Whether the keys of its last step, and no further features of it, are needed to take it in."""
        return self.due and not self._score_steps and self.agent_model.featurizer.counts

    def look(self) -> None:
        """Take in the last fix, with what is needed of it: that of a row that the next one replaces may be nothing."""
        self.of_step, seen = NO_STEP, None
        if self._stays or self._score_steps:
            encoded, seen = self._encode(self.last)
            if self._score_steps:
                calibration = self.agent_model.calibration
                rewards = self.reward.step(encoded)
                (n,), (spread,), (lowest,) = normality_of(rewards, [calibration.step_weights], [calibration.step])
                self.of_step = float(n), float(spread), self.reward.step.aspects[lowest]
        self.put(seen)

    def put(self, seen: Sequence[Array] | None) -> None:
        """Take in the last fix; with its keys and their familiarity, if they are known."""
        self.moved = False
        self.rows.put(self.last, self.of_step[0], seen, self._stays)
        if self._stays and self._score_steps:
            self._segment.add(self.of_step[0], self.last.time)

    def _encode(self, step: Step) -> tuple[Floats, Seen]:
        """The features of a step, its keys, and their familiarity."""
        if self._features is None:
            self._features = StepFeatures(self.agent_model.featurizer, self.given)
        encoded = self._features.encode(step)
        return encoded, (self._features.keys, self._features.familiar)

    def head_for(self, destination: Place) -> None:
        """Set where the trip is meant to end (lat, lon); the next row is scored by it."""
        self._destination = destination
        if self.running is not None:
            self.running.head_for(self.agent_model.featurizer.projection.place(*destination))

    def _tick_of(self, step: Step) -> int:
        """Which interval of the trip a step lies in; the first step of each stands for it, as in a file."""
        return math.floor(step.elapsed / self.agent_model.featurizer.config.interval + 0.5)

    # ---------------------------------------------------------------- scoring

    def score_by_rows(self) -> None:
        """Score the trip so far by its rows."""
        self.scored(_first(self._scores(self.rows.kept, finished=False).of_trips))

    def scored(self, of: OneTrip) -> None:
        """Note what the trip scores so far, and raise or lower its alert."""
        self._scored, self.due = self.rows.kept, False
        self._so_far = self._trip_score(of, self._scored, self.open_eps, None)
        lasting = self._segment.lasting
        self.segment = None if lasting is None else LiveSegment(*lasting)
        self._watch(self.last.time)

    def _scores(self, n: int, finished: bool) -> Scores:
        """The first rows as the one trip of a file."""
        featurizer, rows = self.agent_model.featurizer, self.rows
        self._see_last()
        steps, familiar = rows.steps(n, self.given), rows.familiar[:n]
        since = np.diff(steps.time, prepend=steps.time[:1])
        weight = np.where(steps.first, 0.0, np.minimum(since, featurizer.config.interval))
        of_trip = None
        if self._by_statistics:
            maker = np.array([self._maker]) if self._maker >= 0 else None
            of_trip = featurizer.trip_statistics(self._as_trip(n), familiar, maker=maker)
        seen = Chunk(
            featurizer.features(steps, familiar) if featurizer.counts else featurizer.encode(steps),
            steps.trip,
            steps.time,
            weight,
            np.arange(n),
            np.zeros(n, np.int8),
            np.array([self.history]),
            np.zeros(1, np.int64),
            steps,
            of_trip,
        )
        calibration = self.agent_model.calibration if finished else self.agent_model.unfinished
        return Scores(self.one, seen, self.reward, [calibration])

    def _see_last(self) -> None:
        """Look at the last row, too, if nobody has asked for it so far."""
        if not self.rows.seen:
            self.rows.see(*self._encode(self.last)[1])

    def _as_trip(self, n: int) -> TripRows:
        """The first rows as those of one whole trip."""
        frame = self.agent_model.featurizer.frame
        return TripRows(self.rows.steps(n, self.given), self.rows.keys[:n], frame, 1, np.array([True]))

    def _trip_score(self, of: OneTrip, n: int, eps: float, segment: LiveSegment | None) -> TripScore:
        """What is said of the first rows of the trip."""
        normality, uncertainty, score, p_value, aspect = of
        time = self.rows.numbers[:n, 0]
        return TripScore(
            TripId(self.agent, self.name),
            float(time[0]),
            float(time[-1]),
            self.fixes,
            self.faults,
            normality,
            uncertainty,
            score,
            p_value,
            self.reward.aspects[aspect],
            self.sure(uncertainty) if score <= eps else NORMAL if self.history > 0 else REVIEW,
            self.history,
            segment,
        )

    def sure(self, uncertainty: float) -> str:
        """What a low score is called: an anomaly, or, where the heads disagree or the past is short, for review."""
        return REVIEW if uncertainty > self.gamma or self.history < self.min_history else ANOMALY

    @property
    def so_far(self) -> TripScore:
        """The trip as it stood when it was last scored, about every interval."""
        assert self._so_far is not None
        return self._so_far._replace(end=self.last.time, fixes=self.fixes, faults=self.faults)

    def finished(self) -> TripScore:
        """The whole trip: the scores that ``det.score`` gives of the same fixes."""
        n, calibration = self.rows.total, self.agent_model.calibration
        if self.running is not None and not self._score_steps:
            self._see_last()
            of = (self._as_trip(n), self.agent_model.featurizer, self.reward, self.agent_model.scaling)
            self.seen = see(*of, familiar=self.rows.familiar[:n])
            return self._trip_score(_first(trip_normality(self.seen.rewards[0], calibration)), n, self.eps, None)
        scores, segment = self._scores(n, finished=True), None
        worst = worst_segments(scores, np.array([self.eps]))[0] if self._score_steps else None
        if worst is not None:
            time = self.rows.numbers[:, 0]
            segment = LiveSegment(float(time[worst.start]), float(time[worst.stop - 1]), worst.normality)
        return self._trip_score(_first(scores.of_trips), n, self.eps, segment)

    def _watch(self, time: float) -> None:
        """Raise or lower the alert by the trip so far."""
        so_far = self._so_far
        if so_far is None or time - self.start < SETTLED:
            return
        if so_far.score <= self.open_eps:
            self.alert = self.alert or self.sure(so_far.uncertainty)
        elif so_far.score > self._closes:
            self.alert = ""

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where there is no memory to compare with."""
        encoder = self.agent_model.featurizer.encoder
        if self._last is None or not isinstance(encoder, FamiliarityEncoder):
            return ""
        from astray.explain import counts_in_words, familiar_counts

        counts = familiar_counts(self._last.row(self.given), encoder, -1)
        return counts_in_words(counts, encoder, -1, self.so_far.aspect)[0]

    # ---------------------------------------------------------------- saving

    def save(self, snapshot: Snapshot) -> None:
        """Put all that changes into a snapshot."""
        path = self.path
        snapshot.put(*(float(self.one.columns[name][0]) for name in ("time", "lat", "lon")))
        snapshot.put_text(self.name)
        snapshot.put(self.fixes, self.faults)
        snapshot.put(("", ANOMALY, REVIEW).index(self.alert), self.eps, self.open_eps, self.gamma)
        snapshot.put_many(self.given.tolist())
        snapshot.put(path.start, *path.origin)
        for values in path.points:
            snapshot.put_many(values)
        snapshot.put(self.rows.kept, self._scored)
        snapshot.put_many(self.rows.numbers[: self.rows.total].ravel().tolist())

    @classmethod
    def restored(cls, session: Session, snapshot: Snapshot) -> OpenTrip:
        """The trip that was saved; its running sums are counted again."""
        trip = cls(session, snapshot.take(), snapshot.take(), snapshot.take(), snapshot.text())
        trip.fixes, trip.faults = snapshot.count(), snapshot.count()
        alert = ("", ANOMALY, REVIEW)[snapshot.count()]
        trip.eps, trip.open_eps, trip.gamma = snapshot.take(), snapshot.take(), snapshot.take()
        trip.given = np.array(snapshot.many(), np.float32)
        trip.path.restore(
            snapshot.take(),
            (snapshot.take(), snapshot.take()),
            (snapshot.many(), snapshot.many(), snapshot.many()),
        )
        kept, scored = snapshot.count(), snapshot.count()
        trip._begin(Rows.of(trip.agent_model.featurizer, snapshot.many(), kept, trip.given))
        if scored:
            trip._count_again(scored)
        trip.alert = alert
        return trip

    def _count_again(self, scored: int) -> None:
        """Count the rows, and score the trip as far as it was: by the first ``scored`` of those that are kept."""
        rows, kept = self.rows, self.rows.kept
        self._last = rows[rows.total - 1][0]
        self._tick = self._tick_of(self._last)
        for row in range(kept):
            step, normality, keys, familiar = rows[row]
            if self.running is not None:
                count_rows([self.running], [step], keys[None], familiar[None])
            if self._score_steps:
                self._segment.add(normality, step.time)
            if row + 1 == scored:
                rows.kept = scored
                if self.running is None:
                    self.score_by_rows()
                else:
                    _score_so_far([self])
        rows.kept = kept
