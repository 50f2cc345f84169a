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

from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Frames, few_familiarity, few_keys
from astray.features.featurizer import StepFeatures
from astray.features.statistics import RunningStatistics, statistics
from astray.features.steps import OpenPath, Step, as_steps
from astray.features.trip_rows import TripRows
from astray.live.fix import one_fix
from astray.live.rows import Rows, Seen
from astray.live.score import LiveSegment, TripScore
from astray.scoring.decisions import ANOMALY, NORMAL, REVIEW, threshold
from astray.scoring.normality import TripScores, one_normality
from astray.scoring.scores import Chunk, Scores, worst_segments
from astray.scoring.segments import OpenSegment, leaving
from astray.snapshot import Snapshot
from astray.times import moment
from astray.trip_ids import TripId

if TYPE_CHECKING:
    from astray.features.projection import Place
    from astray.live.session import Session
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

    What a call of numpy costs is the same for one of them as for sixteen: so the keys of their steps are made together,
    and those of one reward go through it together. What comes out does not depend on the others.
    """
    moved = [trip for trip in trips if trip.moved]
    keys = _keys_together([trip for trip in moved if trip.needs_keys_alone])
    for trip in moved:
        trip.take_in(keys.get(id(trip)))
    by_reward: dict[int, list[tuple[OpenTrip, Floats]]] = {}
    for trip in moved:
        if trip.due:
            statistics = trip.statistics
            if statistics is None:
                trip.score_so_far(None)
            else:
                by_reward.setdefault(id(trip.reward), []).append((trip, statistics))
    for together in by_reward.values():
        of_trips = together[0][0].reward.trip
        assert of_trips is not None
        rewards = of_trips(np.concatenate([statistics for _, statistics in together]))
        for (trip, _), one in zip(together, rewards, strict=True):
            trip.score_so_far(one)


def _keys_together(trips: Sequence[OpenTrip]) -> dict[int, Keys]:
    """The keys (habits, grids) of the last steps of trips, if they are enough; those of one model together."""
    by_habits: dict[int, list[OpenTrip]] = {}
    for trip in trips:
        by_habits.setdefault(id(trip.agent_model.featurizer.config.habits), []).append(trip)
    found: dict[int, Keys] = {}
    for together in by_habits.values():
        if len(together) >= TOGETHER:
            featurizers = [trip.agent_model.featurizer for trip in together]
            steps = as_steps(np.array([trip.last.numbers() for trip in together]), np.zeros(0))
            keys = few_keys(steps, featurizers[0].config.habits, Frames.of([one.frame for one in featurizers]))
            found.update(zip(map(id, together), np.ascontiguousarray(keys), strict=True))
    return found


class OpenTrip:
    """An open trip: all that it takes to score its next fix."""

    __slots__ = (
        *("_closes", "_counted", "_destination", "_features", "_last", "_maker", "_rows", "_running", "_scored"),
        *("_score_steps", "_segment", "_statistics", "_tick", "agent", "agent_model", "alert", "due", "eps", "faults"),
        *("fixes", "gamma", "given", "history", "min_history", "moved", "name", "of_step", "one", "open_eps", "path"),
        *("reward", "segment", "start"),
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
        self._score_steps = session.score_steps
        self._maker = int(featurizer.popularity.number_of([self.agent])[0])
        self._destination = session.destination
        self._tick = -1
        self._last: Step | None = None
        self._running: TripScore | None = None
        self.segment: LiveSegment | None = None  # that is not normal and still lasts
        self._begin(Rows(featurizer))

    def _begin(self, rows: Rows) -> None:
        """Set everything up that is made of rows and thresholds; of rows that are kept already, too."""
        featurizer = self.agent_model.featurizer
        self._features: StepFeatures | None = None  # made when it is first needed
        self._closes = float(leaving(self.open_eps))
        self._segment = OpenSegment(self.eps, float(leaving(self.eps)), self.agent_model.calibration.least_segment)
        self._statistics: RunningStatistics | None = None
        if self._by_statistics:
            self._statistics = RunningStatistics(
                featurizer.config.habits,
                featurizer.memory,
                featurizer.popularity,
                featurizer.frame,
                window=featurizer.config.window_rows,
                maker=self._maker,
                destination=None if self._destination is None else featurizer.projection.place(*self._destination),
            )
        self._rows = rows
        self._counted = 0  # rows that are in the running sums
        self._scored = 0  # rows that the trip so far was scored by

    @property
    def _by_statistics(self) -> bool:
        """Whether the trip is scored by its statistics, or else by the mean over its rows."""
        return self.agent_model.featurizer.counts and self.reward.trip is not None

    @property
    def full(self) -> bool:
        """Whether the trip has lasted for too long to go on, with its last fix."""
        return self._rows.kept + (self.moved and self._stays) >= MAX_ROWS

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

    def take_in(self, keys: Keys | None = None) -> None:
        """Take in the last fix; with the keys of its step, if they are known already."""
        self.moved, self.of_step = False, NO_STEP
        step, featurizer, stays = self.last, self.agent_model.featurizer, self._stays
        seen: Seen | None = None
        if keys is not None:
            seen = keys, few_familiarity(keys, featurizer.memory)
        elif stays or self._score_steps:
            encoded, seen = self._encode(step)
            if self._score_steps:
                calibration = self.agent_model.calibration
                rewards = self.reward.step(encoded)[0]
                *of_step, lowest = one_normality(rewards, calibration.step_weights, calibration.step)
                self.of_step = (*of_step, self.reward.step.aspects[lowest])
        self._rows.put(step, self.of_step[0], seen, stays)
        if stays:
            self._count(self._rows.kept)

    def _encode(self, step: Step) -> tuple[Floats, Seen]:
        """The features of a step, its keys, and their familiarity."""
        if self._features is None:
            self._features = StepFeatures(self.agent_model.featurizer, self.given)
        encoded = self._features.encode(step)
        return encoded, (self._features.keys, self._features.familiar)

    def head_for(self, destination: Place) -> None:
        """Set where the trip is meant to end (lat, lon); the next row is scored by it."""
        self._destination = destination
        if self._statistics is not None:
            self._statistics.head_for(self.agent_model.featurizer.projection.place(*destination))

    def _tick_of(self, step: Step) -> int:
        """Which interval of the trip a step lies in; the first step of each stands for it, as in a file."""
        return math.floor(step.elapsed / self.agent_model.featurizer.config.interval + 0.5)

    def _count(self, rows: int) -> None:
        """Take the rows that are not in the running sums yet into them, up to so many."""
        for row in range(self._counted, rows):
            step, normality, keys, familiar = self._rows[row]
            if self._statistics is not None:
                self._statistics.add(step, keys, familiar)
            if self._score_steps:
                self._segment.add(normality, step.time)
        self._counted = rows

    # ---------------------------------------------------------------- scoring

    @property
    def statistics(self) -> Floats | None:
        """The statistics of the trip so far, (1, statistics); None where it is scored by its rows."""
        return None if self._statistics is None else self._statistics.values

    def _score_alone(self) -> None:
        """Score the trip so far by its running sums."""
        of_trips, statistics = self.reward.trip, self.statistics
        self.score_so_far(None if of_trips is None or statistics is None else of_trips(statistics)[0])

    def score_so_far(self, rewards: Array | None) -> None:
        """Score the trip so far by the rewards (aspects, heads) of its statistics, and raise or lower its alert."""
        self._scored, self.due = self._counted, False
        if rewards is not None:
            scale = self.agent_model.unfinished
            normality, spread, aspect = one_normality(rewards, scale.weights, scale.trip)
            p_value = scale.normal.p_value(normality)
            of = (normality, math.hypot(spread, scale.trip_noise), normality, p_value, aspect)
        else:
            of = _first(self._scores(self._scored, finished=False).of_trips)
        self._running = self._trip_score(of, self._scored, self.open_eps, None)
        lasting = self._segment.lasting
        self.segment = None if lasting is None else LiveSegment(*lasting)
        self._watch(self.last.time)

    def _scores(self, n: int, finished: bool) -> Scores:
        """The first rows as the one trip of a file."""
        featurizer, rows = self.agent_model.featurizer, self._rows
        if not rows.seen:
            rows.see(*self._encode(self.last)[1])
        steps, familiar = rows.steps(n, self.given), rows.familiar[:n]
        since = np.diff(steps.time, prepend=steps.time[:1])
        weight = np.where(steps.first, 0.0, np.minimum(since, featurizer.config.interval))
        of_trip = None
        if self._by_statistics:
            of_trip = statistics(
                TripRows(steps, rows.keys[:n], featurizer.frame, 1, np.array([True])),
                familiar,
                featurizer.config.habits,
                featurizer.memory,
                featurizer.popularity,
                window=featurizer.config.window_rows,
                maker=np.array([self._maker]) if self._maker >= 0 else None,
            )
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

    def _trip_score(self, of: OneTrip, n: int, eps: float, segment: LiveSegment | None) -> TripScore:
        """What is said of the first rows of the trip."""
        normality, uncertainty, score, p_value, aspect = of
        time = self._rows.numbers[:n, 0]
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
        assert self._running is not None
        return self._running._replace(end=self.last.time, fixes=self.fixes, faults=self.faults)

    def finished(self) -> TripScore:
        """The whole trip: the scores that ``det.score`` gives of the same fixes."""
        scores = self._scores(self._rows.total, finished=True)
        worst, time = worst_segments(scores, np.array([self.eps]))[0], self._rows.numbers[:, 0]
        segment = None
        if worst is not None:
            segment = LiveSegment(float(time[worst.start]), float(time[worst.stop - 1]), worst.normality)
        return self._trip_score(_first(scores.of_trips), self._rows.total, self.eps, segment)

    def _watch(self, time: float) -> None:
        """Raise or lower the alert by the trip so far."""
        running = self._running
        if running is None or time - self.start < SETTLED:
            return
        if running.score <= self.open_eps:
            self.alert = self.alert or self.sure(running.uncertainty)
        elif running.score > self._closes:
            self.alert = ""

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where there is no memory to compare with."""
        encoder = self.agent_model.featurizer.encoder
        if self._last is None or not isinstance(encoder, FamiliarityEncoder):
            return ""
        from astray.explain.words import counts_in_words, familiar_counts

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
        snapshot.put(self._rows.kept, self._scored)
        snapshot.put_many(self._rows.numbers[: self._rows.total].ravel().tolist())

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
            trip._last = trip._rows[trip._rows.total - 1][0]
            trip._tick = trip._tick_of(trip._last)
            trip._count(scored)
            trip._score_alone()
            trip._count(kept)
        trip.alert = alert
        return trip
