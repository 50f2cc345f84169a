"""An open trip: everything needed to score its next fix, and to continue after a restart.

An open trip is scored from running sums. It also keeps its rows, about one per interval. When it ends, these are scored
by the functions that score a file, so the trip gets the same scores as in a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.snapshot import Snapshot
from astray.core.times import moment
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Frames, StepKeys, familiarity_to_each, keys_of
from astray.features.statistics import SEEN, RunningStatistics, count_rows, statistics_so_far
from astray.features.steps import OpenPath, Step, as_steps
from astray.features.trip_rows import TripRows
from astray.runtime.live_scores import LiveSegment, TripScore
from astray.runtime.rows import Rows, Seen
from astray.scoring.decisions import ANOMALY, NORMAL, REVIEW, Levels, threshold
from astray.scoring.normality import (
    AspectScores,
    TripScores,
    aspect_scores,
    aspect_scores_of_one,
    normality_of,
    trip_normality,
)
from astray.scoring.own_scale import SeenTrips, see
from astray.scoring.scores import Chunk, Scores, worst_segments
from astray.scoring.segments import Segment, lasting_segment, leaving

if TYPE_CHECKING:
    from astray.core.projection import Place
    from astray.runtime.session import Session
    from astray.scoring.scores import AgentModel

Array = NDArray[Any]

MAX_ROWS = 20_000  # a trip with this many ends; no trip of a file has more at the usual interval
TOGETHER = 6  # from this many trips on it is faster to make the keys of their steps together

ALERTS = ("", ANOMALY, REVIEW)
"""The alerts of an open trip; a saved trip has the number of its alert."""
BY_ASPECT = len(ALERTS)
"""What a saved trip adds to that number if the rates of its aspects follow."""

OfStep = tuple[float, float, str]  # n(s, a), its spread over the heads, and the name of its lowest aspect
NO_STEP: OfStep = (math.nan, math.nan, "")
OfAspects = tuple[list[float], list[float]]  # the fields of AspectScores, for one trip
OneTrip = tuple[float, float, float, float, int, OfAspects]  # the fields of TripScores, and of its aspects


def _first(of: TripScores, aspects: AspectScores) -> OneTrip:
    normality, uncertainty, score, p_value = (float(values[0]) for values in of[:4])
    of_aspects = aspects.score[0].tolist(), aspects.p_value[0].tolist()
    return normality, uncertainty, score, p_value, int(of.aspect[0]), of_aspects


def one_fix(agent: str, time: float, lat: float, lon: float, context: Mapping[str, Any]) -> Trajectories:
    """Returns a trip's first fix as a trip, from which thresholds and context are taken."""
    return Trajectories.unchecked(
        {"time": np.array([time]), "lat": np.array([lat]), "lon": np.array([lon])},
        np.array([0, 1]),
        np.array([agent]),
        np.array([moment(time)]),
        {name: np.array([value]) for name, value in context.items()},
    )


def score_open(trips: Iterable[OpenTrip]) -> None:
    """Takes in the last fix of each open trip, and scores the trips that got a new row by their rows so far.

    numpy takes about as long for one trip as for sixteen, so all trips of one model are scored together. The other
    trips do not change a trip's score.
    """
    by_model: dict[tuple[int, int], list[OpenTrip]] = {}
    for trip in trips:
        if trip.moved:
            by_model.setdefault((id(trip.reward), id(trip.featurizer.config)), []).append(trip)
    for together in by_model.values():
        _take_in(together)
        _score_so_far([trip for trip in together if trip.due])


def _take_in(trips: Sequence[OpenTrip]) -> None:
    """Makes each trip's last fix a row, scores the step to it, and adds it to the sums; all trips have one model."""
    for trip in trips:
        trip.put()
    unseen = [trip for trip in trips if trip.needs_keys]
    for trip, (keys, familiar) in zip(unseen, _look_up(unseen), strict=True):
        trip.rows.see(keys, familiar)
    _score_steps([trip for trip in trips if trip.score_steps])
    counted = [(trip, trip.running) for trip in trips if trip.due and trip.running is not None]
    if counted:
        last = [trip.rows.last for trip, _ in counted]
        count_rows(
            [running for _, running in counted],
            [trip.last for trip, _ in counted],
            np.array([keys for keys, _ in last]),
            np.array([familiar for _, familiar in last]),
        )


def _look_up(trips: Sequence[OpenTrip]) -> Iterable[Seen]:
    """Returns the keys and the familiarity of the last step of trips of one model."""
    if len(trips) < TOGETHER:
        return [trip.look_up() for trip in trips]
    featurizers = [trip.featurizer for trip in trips]
    steps = as_steps(np.array([trip.last.numbers() for trip in trips]), np.zeros(0))
    keys = keys_of(steps, featurizers[0].config.habits, Frames.of([one.frame for one in featurizers]))
    return zip(keys, familiarity_to_each(keys, [one.memory for one in featurizers]), strict=True)


def _score_steps(trips: Sequence[OpenTrip]) -> None:
    """Scores the last step of trips of one model."""
    if not trips:
        return
    reward, scales = trips[0].reward.step, [trip.agent_model.calibration for trip in trips]
    rewards = reward(np.concatenate([trip.features() for trip in trips]))
    found = normality_of(rewards, [scale.step_weights for scale in scales], [scale.step for scale in scales])
    for trip, n, spread, lowest in zip(trips, *(values.tolist() for values in found), strict=True):
        trip.of_step = n, spread, reward.aspects[lowest]
        trip.rows.score(n)


def _score_so_far(trips: Sequence[OpenTrip]) -> None:
    """Scores trips of one model by their statistics so far, or by their rows if the model has no trip reward."""
    running = [trip.running for trip in trips if trip.running is not None]
    if not running:
        for trip in trips:
            scores = trip.scores(trip.rows.kept, finished=False)
            trip.set_score(_first(scores.of_trips, scores.of_aspects))
        return
    reward, scales = trips[0].reward.trip, [trip.agent_model.unfinished for trip in trips]
    assert reward is not None
    rewards = reward(statistics_so_far(running)[:, SEEN])
    found = normality_of(rewards, [scale.weights for scale in scales], [scale.trip for scale in scales])
    means = (np.add.reduce(rewards, axis=2, dtype=np.float64) / rewards.shape[2]).tolist()
    for trip, scale, of_aspects, n, spread, aspect in zip(
        trips, scales, means, *(values.tolist() for values in found), strict=True
    ):
        by_aspect = aspect_scores_of_one(of_aspects, scale)
        trip.set_score((n, math.hypot(spread, scale.trip_noise), n, scale.normal.p_value(n), aspect, by_aspect))


class OpenTrip:
    """An open trip: everything needed to score its next fix."""

    __slots__ = (
        *("_closes", "_destination", "_familiar", "_last", "_leaves", "_maker", "_scored", "_so_far", "_step_keys"),
        *("_tick", "agent", "agent_model", "alert", "closes", "due", "eps", "faults", "featurizer", "fixes", "gamma"),
        *("given", "history", "min_history", "moved", "name", "of_step", "one", "open_eps", "path", "rates", "reward"),
        *("rows", "running", "score_steps", "seen", "segment", "start"),
    )

    def __init__(self, session: Session, time: float, lat: float, lon: float, name: str = "") -> None:
        detector = session.detector
        self.agent_model: AgentModel = detector.agent_model(session.agent, (lat, lon), time)
        self.featurizer = featurizer = self.agent_model.featurizer
        self.agent, self.reward = session.agent, detector.reward_
        self.one = one = one_fix(session.agent, time, lat, lon, session.context)
        self.name = name or moment(time)
        self.fixes = self.faults = 0
        self.start = time
        self.history, self.min_history = self.agent_model.history, float(detector.min_history)
        self.given: Array = featurizer.context.given(one)[0]
        self.eps, self.open_eps, self.rates, self.closes = session.levels(one, self.agent_model)
        gamma = detector.gamma if session.gamma is None else session.gamma
        self.gamma = float(threshold(gamma, one, "gamma")[0])
        self.path = OpenPath(featurizer.config.interval, featurizer.encoder.lags)
        self.alert = ""
        self.moved = False  # True if score_open has yet to take in the last fix
        self.due = False  # True if the trip has a row that its score does not count yet
        self.of_step: OfStep = NO_STEP  # the scores of the last fix
        self.seen: SeenTrips | None = None  # the whole trip when it is over, if single fixes are not scored
        self.score_steps = session.score_steps
        self._maker = int(featurizer.popularity.number_of([self.agent])[0])
        self._destination = session.destination
        self._tick = -1
        self._last: Step | None = None
        self._so_far: TripScore | None = None
        self.segment: LiveSegment | None = None  # the current segment that is not normal
        self._begin(Rows(featurizer))

    def _begin(self, rows: Rows) -> None:
        """Sets up what depends on the thresholds and on the rows, be they new or restored."""
        featurizer = self.featurizer
        self._step_keys: StepKeys | None = None  # made when it is first needed
        self._familiar: Array = np.zeros(0, np.float32)  # of the last step that _step_keys has seen
        self._closes, self._leaves = float(leaving(self.open_eps)), float(leaving(self.eps))
        self.running: RunningStatistics | None = None  # None if the trip is scored by the mean over its rows
        if featurizer.counts and self.reward.trip is not None:
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
        self._scored = 0  # how many rows the score so far is based on

    @property
    def full(self) -> bool:
        """Returns True if the trip must end with its last fix, because it has too many rows."""
        return self.rows.kept + (self.moved and self._stays) >= MAX_ROWS

    @property
    def _stays(self) -> bool:
        """Returns True if the next fix does not replace the last row; without a memory every row stays."""
        return self.due or not self.featurizer.counts

    # ---------------------------------------------------------------- adding

    def add(self, time: float, lat: float, lon: float, *, breaks: bool = False) -> None:
        """Adds a good fix, which :func:`score_open` then takes in.

        If a gap before the fix ``breaks`` the path, the fix begins a new path.
        """
        self.fixes += 1
        if breaks:
            self.path.restart()
        self._last = step = self.path.step(time, self.featurizer.projection.place(lat, lon))
        before, self._tick = self._tick, self._tick_of(step)
        self.due = step.first or self._tick != before
        self.moved = True

    @property
    def last(self) -> Step:
        """Returns the last step."""
        assert self._last is not None
        return self._last

    @property
    def needs_keys(self) -> bool:
        """Returns True if the last row needs its keys now; a row that the next fix replaces may never need them."""
        return self.featurizer.counts and (self.due or self.score_steps)

    def put(self) -> None:
        """Makes the last fix a row."""
        self.moved = False
        self.rows.put(self.last, self._stays)

    def look_up(self) -> Seen:
        """Returns the keys of the last step, and their familiarity."""
        if self._step_keys is None:
            self._step_keys = StepKeys(self.featurizer.config.habits, self.featurizer.frame)
        keys = self._step_keys(self.last)
        if self._step_keys.changed:
            (self._familiar,) = familiarity_to_each(keys[None], [self.featurizer.memory])
        return keys, self._familiar

    def features(self) -> NDArray[np.float32]:
        """Returns the features of the last step: (1, features)."""
        return self.featurizer.features_of_step(self.last, self.rows.last[1], self.given)

    def head_for(self, destination: Place) -> None:
        """Sets where the trip is meant to end (lat, lon); the score of the next row counts it."""
        self._destination = destination
        if self.running is not None:
            self.running.head_for(self.featurizer.projection.place(*destination))

    def _tick_of(self, step: Step) -> int:
        """Returns the interval of the trip that a step lies in; its first step becomes a row, as in a file."""
        return math.floor(step.elapsed / self.featurizer.config.interval + 0.5)

    # ---------------------------------------------------------------- scoring

    def set_score(self, of: OneTrip) -> None:
        """Sets the score of the trip so far, and raises or lowers its alert."""
        self._scored, self.due = self.rows.kept, False
        self._so_far = so_far = self._trip_score(of, self._scored, self.open_eps, None)
        if self.score_steps:
            rows = self.rows.numbers[: self._scored]
            least = self.agent_model.calibration.least_segment
            self.segment = self._live(lasting_segment(rows[:, -1], rows[:, 0], self.eps, self._leaves, least))
        if self.last.time - self.start < self.agent_model.scaling.settled:
            return
        if self.is_low(so_far, self.open_eps):
            self.alert = self.alert or self._flag(so_far.uncertainty)
        elif self._is_usual_again(so_far.score, of[-1][0]):
            self.alert = ""

    def is_low(self, trip: TripScore, eps: float | None = None) -> bool:
        """Returns True if a trip is low: by the rate of an aspect, or by its score and ``eps``, of a whole trip."""
        if self.rates:
            p_values = zip(self.rates, trip.p_aspects.values(), strict=False)
            return any(p <= rate for rate, p in p_values)
        return trip.score <= (self.eps if eps is None else eps)

    def _is_usual_again(self, score: float, by_aspect: Sequence[float]) -> bool:
        """Returns True if the score, or that of every aspect with a rate, is half-way back to normal."""
        if self.rates:
            return all(score > bar for score, bar in zip(by_aspect, self.closes, strict=True))
        return score > self._closes

    def _live(self, segment: Segment | None) -> LiveSegment | None:
        """Returns a segment of rows with its times."""
        if segment is None:
            return None
        start, end = self.rows.numbers[[segment.start, segment.stop - 1], 0].tolist()
        return LiveSegment(start, end, segment.normality)

    def scores(self, n: int, finished: bool) -> Scores:
        """Returns the scores of the first ``n`` rows, as of a file with one trip."""
        featurizer, rows = self.featurizer, self.rows
        self._see_last()
        steps, familiar = rows.steps(n, self.given), rows.familiar[:n]
        since = np.diff(steps.time, prepend=steps.time[:1])
        weight = np.where(steps.first, 0.0, np.minimum(since, featurizer.config.interval))
        of_trip = None
        if self.running is not None:
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
        """Looks up the last row's keys and familiarity, if nothing needed them so far."""
        if self.featurizer.counts and not self.rows.seen:
            self.rows.see(*self.look_up())

    def _as_trip(self, n: int) -> TripRows:
        """Returns the first ``n`` rows as those of a finished trip."""
        return TripRows(self.rows.steps(n, self.given), self.rows.keys[:n], self.featurizer.frame, 1, np.array([True]))

    def _trip_score(self, of: OneTrip, n: int, eps: float, segment: LiveSegment | None) -> TripScore:
        """Returns the scores of the first ``n`` rows of the trip, with the decision."""
        normality, uncertainty, score, p_value, aspect, (_, p_values) = of
        time, scale = self.rows.numbers[:n, 0], self.agent_model.calibration
        low = score <= eps
        if self.rates:
            used = [(p / rate, k) for k, (p, rate) in enumerate(zip(p_values, self.rates, strict=False)) if p <= rate]
            low, aspect = bool(used), min(used, default=(0.0, aspect))[1]
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
            self._flag(uncertainty) if low else NORMAL if self.history > 0 else REVIEW,
            self.history,
            segment,
            p_aspects=dict(zip(self.reward.aspects, p_values, strict=True)) if scale.by_aspect else {},
        )

    def _flag(self, uncertainty: float) -> str:
        """Returns the decision for a low score: anomaly, or review if it is uncertain or the history is short."""
        return REVIEW if uncertainty > self.gamma or self.history < self.min_history else ANOMALY

    @property
    def so_far(self) -> TripScore:
        """Returns the trip as it was last scored, about every interval."""
        assert self._so_far is not None
        return self._so_far._replace(end=self.last.time, fixes=self.fixes, faults=self.faults)

    def finished(self) -> TripScore:
        """Returns the scores of the whole trip: those that ``det.score`` gives the same fixes."""
        n, calibration = self.rows.total, self.agent_model.calibration
        if self.running is not None and not self.score_steps:
            self._see_last()
            of = (self._as_trip(n), self.featurizer, self.reward)
            self.seen = see(*of, familiar=self.rows.familiar[:n])
            rewards = self.seen.rewards
            one = _first(trip_normality(rewards, calibration), aspect_scores(rewards.mean(axis=2), calibration))
            return self._trip_score(one, n, self.eps, None)
        scores = self.scores(n, finished=True)
        levels = Levels(np.array([self.eps]), self.rates)
        worst = worst_segments(scores, levels)[0] if self.score_steps else None
        return self._trip_score(_first(scores.of_trips, scores.of_aspects), n, self.eps, self._live(worst))

    def describe(self) -> str:
        """Says in words what is unfamiliar about the last step; empty if there is no memory to compare with."""
        encoder = self.featurizer.encoder
        if self._last is None or not isinstance(encoder, FamiliarityEncoder):
            return ""
        from astray.explain import counts_in_words, familiar_counts

        counts = familiar_counts(self._last.row(self.given), encoder, -1)
        return counts_in_words(counts, encoder, -1, self.so_far.aspect)[0]

    # ---------------------------------------------------------------- saving

    def save(self, snapshot: Snapshot) -> None:
        """Puts the state of the trip into a snapshot."""
        path = self.path
        snapshot.put(*(float(self.one.columns[name][0]) for name in ("time", "lat", "lon")))
        snapshot.put_text(self.name)
        snapshot.put(self.fixes, self.faults)
        alert = ALERTS.index(self.alert)
        snapshot.put(alert + BY_ASPECT * bool(self.rates), self.eps, self.open_eps, self.gamma)
        if self.rates:
            snapshot.put_many(self.rates)
            snapshot.put_many(self.closes)
        snapshot.put_many(self.given.tolist())
        snapshot.put(path.start, *path.origin)
        for values in path.points:
            snapshot.put_many(values)
        snapshot.put(self.rows.kept, self._scored)
        snapshot.put_many(self.rows.numbers[: self.rows.total].ravel().tolist())

    @classmethod
    def restored(cls, session: Session, snapshot: Snapshot) -> OpenTrip:
        """Restores a saved trip, and computes its running sums again."""
        trip = cls(session, snapshot.take(), snapshot.take(), snapshot.take(), snapshot.text())
        trip.fixes, trip.faults = snapshot.count(), snapshot.count()
        by_aspect, alert = divmod(snapshot.count(), BY_ASPECT)
        trip.eps, trip.open_eps, trip.gamma = snapshot.take(), snapshot.take(), snapshot.take()
        trip.rates, trip.closes = (tuple(snapshot.many()), tuple(snapshot.many())) if by_aspect else ((), ())
        trip.given = np.array(snapshot.many(), np.float32)
        trip.path.restore(
            snapshot.take(),
            (snapshot.take(), snapshot.take()),
            (snapshot.many(), snapshot.many(), snapshot.many()),
        )
        kept, scored = snapshot.count(), snapshot.count()
        trip._begin(Rows.of(trip.featurizer, snapshot.many(), kept, trip.given))
        if scored:
            trip._count_again(scored)
        trip.alert = ALERTS[alert]
        return trip

    def _count_again(self, scored: int) -> None:
        """Adds the rows to the sums again, and scores the trip by the first ``scored`` of them, as before."""
        rows, kept = self.rows, self.rows.kept
        self._last = rows[rows.total - 1][0]
        self._tick = self._tick_of(self._last)
        for row in range(kept):
            step, keys, familiar = rows[row]
            if self.running is not None:
                count_rows([self.running], [step], keys[None], familiar[None])
            if row + 1 == scored:
                rows.kept = scored
                _score_so_far([self])
        rows.kept = kept
