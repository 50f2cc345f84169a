"""The explanation of a trip: its scores, its segments that are not normal, and what to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.faults import FAULT_NAMES
from astray.core.text import harmless, number_of
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId, find_trips
from astray.core.zones import UTC_ZONE, Zone
from astray.explain.expected_way import Way, expected_ways
from astray.explain.reasons import Reason, either_side, reasons
from astray.explain.segment_words import (
    ASPECTS,
    counts_in_words,
    familiar_counts,
    motion_words,
    passed_here,
    worst_aspect,
)
from astray.explain.step_words import odd_numbers
from astray.features.encoders import FamiliarityEncoder
from astray.features.featurizer import Featurizer
from astray.irl.actor import Actor
from astray.irl.kdd19 import irl_ad
from astray.scoring.decisions import BAND, NORMAL, Bounds, decide
from astray.scoring.normality import step_normality
from astray.scoring.segments import Segment, leaving

if TYPE_CHECKING:
    from astray.irl.step_demonstrator import StepDemonstrator
    from astray.scoring.scores import Scores

Array = NDArray[Any]
Floats = NDArray[np.float64]

PAST_STEPS = 20_000  # that a step of states and actions is compared with


@dataclass(frozen=True, eq=False)
class ExplainedSegment:
    """A segment of a trip that is not normal."""

    start: int  # its first fix, counted in the trip
    stop: int  # one past its last fix
    start_time: float  # seconds since 1970; for states and actions, steps
    end_time: float
    normality: float  # mean n(s, a) of its usable fixes
    uncertainty: float
    aspect: str  # which aspect of it is lowest, such as "place"
    words: str  # what is unfamiliar about it
    counts: dict[str, float] = field(default_factory=dict)  # habit to the number of past trips that share it

    def __str__(self) -> str:
        return f"{ASPECTS[self.aspect]}: {self.words}" if self.aspect in ASPECTS else self.words


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a trip scored as it did.

    Attributes
    ----------
    agent, trajectory
        Whose trip, and which.
    time, lat, lon
        Its fixes, as they came; ``lat`` and ``lon`` are empty for states and actions, where ``time`` counts steps.
    normality, uncertainty, lo, hi, fault
        n(s, a) of every fix, the spread over the heads, the band of two spreads either side, and what is wrong with the
        fix (an empty text for most; faulty fixes have no scores, NaN).
    segments
        The segments that are not normal, in order.
    aspect
        Which aspect of the trip (place, route, manner, time) is lowest; empty if none can be told.
    reasons
        What lowered the score of the trip most, the most important first.
    trip_normality, trip_uncertainty, score, p_value
        The scores of the whole trip.
    history
        How many past trips stand behind them.
    zone
        The time zone that the trip is told in.
    decision
        ``normal``, ``anomaly`` or ``review``, by the thresholds ``eps`` and ``gamma``.
    leave
        A segment opens at ``eps`` and closes above this.
    passed
        How many past trips came through the place of every fix (NaN for faulty fixes); empty if that is not counted.
    habitual
        Some of the agent's past ways: a latitude and a longitude array each.
    expected
        Where the agent would rather have gone from where it left the normal way, the likeliest way first; likewise.
    """

    agent: str
    trajectory: str
    time: Floats
    lat: Floats
    lon: Floats
    normality: Floats
    uncertainty: Floats
    lo: Floats
    hi: Floats
    fault: NDArray[np.str_]
    segments: tuple[ExplainedSegment, ...]
    trip_normality: float
    trip_uncertainty: float
    score: float
    aspect: str
    p_value: float
    history: float
    decision: str
    eps: float
    gamma: float
    leave: float
    passed: Floats = field(default_factory=lambda: np.zeros(0))
    habitual: tuple[Way, ...] = ()
    expected: tuple[Way, ...] = ()
    reasons: tuple[Reason, ...] = ()
    zone: Zone = UTC_ZONE

    @property
    def began(self) -> str:
        """When the trip began, in local time, and the zone; empty for states and actions."""
        if not len(self.lat):
            return ""
        return f"{self.zone.clock(self.time[0]):%a %d %b %Y, %H:%M} ({self.zone})"

    @property
    def id(self) -> TripId:
        """What the trip is called."""
        return TripId(self.agent, self.trajectory)

    @property
    def why(self) -> str:
        """The reasons in one line; empty for a normal trip, or if there are none."""
        return "" if self.decision == NORMAL else "; ".join(reason.words for reason in self.reasons)

    @property
    def lowest(self) -> str:
        """Which aspect of the whole trip is unusual, in words.

        A segment may be unusual in another aspect, and then both are said: a trip may be at an unusual time throughout,
        and go an unusual way for a while.
        """
        if self.aspect not in ASPECTS:
            return ""
        said = f"over the whole trip: {ASPECTS[self.aspect]}"
        for number, segment in enumerate(self.segments, 1):
            if segment.aspect != self.aspect and segment.aspect in ASPECTS:
                return f"{said}; in segment {number}: {ASPECTS[segment.aspect]}"
        return said

    def __str__(self) -> str:
        whose, began = harmless(self.agent) or "the agent", f"; began {self.began}" if self.began else ""
        lines = [
            f"Trip {harmless(self.trajectory)} of {whose}: {self.decision} (score {self.score:.1f} against "
            f"{round(self.eps, 2):g}, uncertainty {self.trip_uncertainty:.1f} against {self.gamma:g}, "
            f"p = {self.p_value:.2g}, {number_of(self.history, 'past trip')}){began}"
        ]
        if self.why:
            lines.append(f"  {self.why}")
        if self.score <= self.eps and self.lowest:
            lines.append(f"  {self.lowest}")
        for s in self.segments:
            lines.append(f"  {self._moment(s.start_time)} to {self._moment(s.end_time)}: normality {s.normality:.1f}")
            lines.append(f"    {s}")
        if not self.segments:
            lines.append("  no segment of it stands out")
        faults = int((self.fault != "").sum())
        if faults:
            verb = "is the receiver's fault and was" if faults == 1 else "are the receiver's fault and were"
            lines.append(f"  {faults} of {number_of(len(self.fault), 'fix')} {verb} left out")
        return "\n".join(lines)

    def _moment(self, time: float) -> str:
        return f"{self.zone.clock(time):%Y-%m-%d %H:%M:%S}" if len(self.lat) else f"step {time:.0f}"


def explain_fixes(
    scores: Scores,
    whole: Scores,
    bounds: Bounds,
    featurizer: Featurizer,
    name: TripId,
    habitual: Sequence[Way],
    actor: Actor | None = None,
) -> Explanation:
    """The explanation of one GPS trip, which the featurizer may remember under ``name``.

    ``scores`` are of its every fix; ``whole`` has the statistics of the trip, by which it is scored as a whole. The
    expected ways are those on which ``habitual`` ones went on; where none had come, the policy's, if there is one.
    """
    scores = replace(scores, chunk=scores.chunk._replace(statistics=whole.chunk.statistics))
    segments = scores.segments(np.array([bounds.eps]))
    steps = scores.chunk.steps
    if steps is None or not len(steps):
        return explain_segments(scores, bounds, segments, [], habitual)
    spans = [slice(s.start, s.stop) for s in segments]
    words: list[tuple[str, dict[str, float]]]
    if isinstance(featurizer.encoder, FamiliarityEncoder):
        number = int(featurizer.memory.number_of([name])[0])
        counts = familiar_counts(steps, featurizer.encoder, number)
        aspects = [_aspect(scores, span) for span in spans]
        words = [
            counts_in_words(counts[span], featurizer.encoder, number, aspect)
            for span, aspect in zip(spans, aspects, strict=True)
        ]
        passed = passed_here(counts, featurizer.encoder)
    else:
        words = [(motion_words(steps[span]), {}) for span in spans]
        passed = np.zeros(0)
    expected = expected_ways(steps, [span.start for span in spans], habitual, featurizer, actor) if spans else []
    explanation = explain_segments(scores, bounds, segments, words, habitual, expected, passed)
    return replace(explanation, reasons=_reasons(scores, featurizer, name))


def _reasons(scores: Scores, featurizer: Featurizer, name: TripId) -> tuple[Reason, ...]:
    """What lowered the score of the trip as a whole."""
    chunk, others = scores.chunk, featurizer.popularity
    if chunk.statistics is None:
        return ()
    return reasons(
        chunk.statistics[0],
        scores.reward,
        scores.calibrations[int(chunk.scale[0])],
        habits=featurizer.config.habits,
        cells=others.cells,
        history=float(chunk.history[0]),
        others=len(others.agents) - int(others.excluded in others.agents.trip_ids),
        sides=either_side(featurizer, scores.trips, int(featurizer.memory.number_of([name])[0])),
    )


def explain_steps(scores: Scores, bounds: Bounds, world: StepDemonstrator) -> Explanation:
    """The explanation of the one trajectory of states and actions in ``scores``: of each segment, its lowest step.

    ``world`` holds past runs to compare with.
    """
    segments = scores.segments(np.array([bounds.eps]))
    trip, calibration = scores.trips, scores.calibrations[0]
    pairs = np.hstack([trip.columns["state"], trip.columns["action"]])
    n_states = trip.columns["state"].shape[1]
    past = world.excerpt(PAST_STEPS)

    def normality(steps: Array) -> Floats:
        rewards = scores.reward.step(world.encode(steps[:, :n_states], steps[:, n_states:]))
        return step_normality(rewards, calibration).normality

    words: list[tuple[str, dict[str, float]]] = []
    for segment in segments:
        at = segment.start + int(np.argmin(scores.normality[segment.start : segment.stop]))
        odd = odd_numbers(pairs[at], past, world.scale, n_states, normality)
        said = "; ".join(o.words(n_states) for o in odd) or "no single number of it sets it apart from past steps"
        words.append((f"at step {at} {said}", {}))
    return explain_segments(scores, bounds, segments, words)


def explain_segments(
    scores: Scores,
    bounds: Bounds,
    segments: Sequence[Segment],
    words: Sequence[tuple[str, dict[str, float]]],
    habitual: Sequence[Way] = (),
    expected: Sequence[Way] = (),
    passed: Floats | None = None,
) -> Explanation:
    """Returns the explanation of the one trip in ``scores``.

    ``words`` has a text and counts for each segment, ``passed`` a number for each usable fix.
    """
    trip, chunk, of = scores.trips, scores.chunk, scores.of_trips
    of_fixes = {"normality": scores.normality, "uncertainty": scores.uncertainty}
    if passed is not None and len(passed):
        of_fixes["passed"] = passed
    scored = {name: np.full(trip.n_rows, np.nan) for name in of_fixes}
    for name, values in of_fixes.items():
        scored[name][chunk.row] = values
    eps, gamma, least = bounds
    decision = decide(irl_ad(of.score, eps), of.uncertainty, chunk.history, gamma=gamma, min_history=least)
    return Explanation(
        agent=str(trip.agent_ids[0]),
        trajectory=str(trip.trajectory_ids[0]),
        time=trip.columns.get("time", np.arange(trip.n_rows, dtype=np.float64)),
        lat=trip.columns.get("lat", np.zeros(0)),
        lon=trip.columns.get("lon", np.zeros(0)),
        normality=scored["normality"],
        uncertainty=scored["uncertainty"],
        passed=scored.get("passed", np.zeros(0)),
        lo=scored["normality"] - BAND * scored["uncertainty"],
        hi=scored["normality"] + BAND * scored["uncertainty"],
        fault=np.array(FAULT_NAMES)[chunk.fault],
        segments=tuple(_segment(scores, s, *said) for s, said in zip(segments, words, strict=True)),
        trip_normality=float(of.normality[0]),
        trip_uncertainty=float(of.uncertainty[0]),
        score=float(of.score[0]),
        aspect=scores.aspects[of.aspect[0]] if of.aspect[0] >= 0 else "",
        p_value=float(of.p_value[0]),
        history=float(chunk.history[0]),
        decision=str(decision[0]),
        eps=eps,
        gamma=gamma,
        leave=float(leaving(eps)),
        habitual=tuple(habitual),
        expected=tuple(expected),
    )


def _segment(scores: Scores, segment: Segment, words: str, counts: dict[str, float]) -> ExplainedSegment:
    row, time, inside = scores.chunk.row, scores.chunk.time, slice(segment.start, segment.stop)
    return ExplainedSegment(
        int(row[segment.start]),
        int(row[segment.stop - 1]) + 1,
        float(time[segment.start]),
        float(time[segment.stop - 1]),
        segment.normality,
        float(scores.uncertainty[inside].mean()),
        _aspect(scores, inside),
        words,
        counts,
    )


def _aspect(scores: Scores, rows: slice) -> str:
    """The aspect in which some rows lost most."""
    return worst_aspect(scores.aspects, scores.of_steps.aspect[rows], scores.normality[rows])


def position_of(trips: Trajectories, trajectory: TripId | str | int) -> int:
    """The position of a trajectory that is meant by its id, its name or its position."""
    if not isinstance(trajectory, (str, TripId)):
        if not -len(trips) <= trajectory < len(trips):
            raise DataError(f"there is no trajectory {trajectory} among {len(trips)}", remedy="count from 0")
        return int(trajectory)
    ids = trips.ids
    (meant,) = find_trips([trajectory], ids)
    if ids.count(meant) > 1:
        raise DataError(f"{ids.count(meant)} trajectories are called '{meant}' here", remedy="give its position")
    return ids.index(meant)
