"""Builds the explanation of a trip: its scores, its segments that are not normal, and what to compare it with."""

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
from astray.explain.aspect_phrases import aspect_words
from astray.explain.expected_route import Way, expected_ways
from astray.explain.planned_way import planned_way
from astray.explain.score_attribution import Reason, either_side, reasons
from astray.explain.segment_phrases import (
    ASPECTS,
    counts_in_words,
    familiar_counts,
    motion_words,
    passed_here,
)
from astray.explain.step_phrases import odd_numbers
from astray.features.encoders import FamiliarityEncoder
from astray.features.featurizer import Featurizer
from astray.features.steps import chosen
from astray.features.trip_rows import TripHabit, TripRows
from astray.irl.actor import Actor
from astray.scoring.decisions import BAND, NORMAL, Bounds, decide
from astray.scoring.normality import step_normality
from astray.scoring.segments import Segment, leaving

if TYPE_CHECKING:
    from astray.irl.step_demonstrator import StepDemonstrator
    from astray.scoring.scores import Scores

Array = NDArray[Any]
Floats = NDArray[np.float64]

PAST_STEPS = 20_000  # the most past steps that a step of states and actions is compared with


@dataclass(frozen=True, eq=False)
class ExplainedSegment:
    """A segment of a trip that is not normal."""

    start: int  # the position of its first fix in the trip
    stop: int  # one past its last fix
    start_time: float  # seconds since 1970; for states and actions, steps
    end_time: float
    normality: float  # mean n(s, a) of its usable fixes
    uncertainty: float
    aspect: str  # its lowest aspect, such as "place"
    words: str  # what is unfamiliar
    counts: dict[str, float] = field(default_factory=dict)  # how many past trips share each habit

    def __str__(self) -> str:
        return f"{ASPECTS[self.aspect]}: {self.words}" if self.aspect in ASPECTS else self.words


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a trip scored as it did.

    Attributes
    ----------
    agent, trajectory
        The agent and the name of the trip.
    time, lat, lon
        The fixes as they came; for states and actions ``lat`` and ``lon`` are empty, and ``time`` counts steps.
    normality, uncertainty, lo, hi, fault
        n(s, a) of every fix, its spread over the heads, n(s, a) minus and plus two spreads, and what is wrong with a
        faulty fix, whose scores are NaN (an empty text for good fixes).
    segments
        The segments that are not normal, in order.
    aspect
        The lowest aspect of the trip (place, route, manner, time); empty if there is none.
    reasons
        What lowered the trip's score most, the most important first.
    trip_normality, trip_uncertainty, score, p_value
        The scores of the whole trip; the p-value is NaN if no trip was held out of learning.
    p_aspects
        The p-value of each aspect of the trip alone, by its name; NaN for an aspect that is not looked for.
    rates
        The false-alarm rate of each aspect that has one; empty if the score decides.
    history
        The number of past trips that the scores are based on.
    zone
        The time zone of the trip.
    decision
        ``normal``, ``anomaly`` or ``review``, by the thresholds ``eps`` and ``gamma``.
    leave
        A segment begins at or under ``eps``, and ends above this.
    passed
        The number of past trips through the place of every fix (NaN for faulty fixes); empty if not counted.
    habitual
        Some of the agent's past ways: a latitude and a longitude array each.
    expected
        The way that was expected of the agent instead, in the same form: the planned way to where the trip ended or, if
        there is none, how past trips continued where it left them, the likeliest first.
    longer
        By how many metres the trip is longer than the planned way over its agent's own ways; 0 if it is not a detour.
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
    longer: float = 0.0
    reasons: tuple[Reason, ...] = ()
    zone: Zone = UTC_ZONE
    p_aspects: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def began(self) -> str:
        """The local time at which the trip began, and the zone; empty for states and actions."""
        if not len(self.lat):
            return ""
        return f"{self.zone.clock(self.time[0]):%a %d %b %Y, %H:%M} ({self.zone})"

    @property
    def id(self) -> TripId:
        """The id of the trip."""
        return TripId(self.agent, self.trajectory)

    @property
    def low_aspects(self) -> list[str]:
        """The aspects whose p-value is at most their rate."""
        return [aspect for aspect, rate in self.rates.items() if self.p_aspects[aspect] <= rate]

    @property
    def is_low(self) -> bool:
        """True if the trip is low: by the rate of an aspect if there are any, else by its score."""
        return bool(self.low_aspects) if self.rates else self.score <= self.eps

    @property
    def rule(self) -> str:
        """What the decision compares: the score with the threshold, or p-values with the rates of aspects."""
        if not self.rates:
            return f"score {self.score:.1f} against {round(self.eps, 2):g}"
        return ", ".join(f"p of {a} {self.p_aspects[a]:.2g} against {rate:g}" for a, rate in self.rates.items())

    @property
    def aspects_in_words(self) -> str:
        """How unusual each aspect of the trip is by itself; empty if that is not known."""
        return aspect_words(self.p_aspects)

    @property
    def words(self) -> tuple[str, ...]:
        """The reasons in words, the most important first, and how long a detour the trip is."""
        detour = f"about {self.longer / 1000:.1f} km longer than the way that was expected of it"
        return (*(reason.words for reason in self.reasons), *([detour] if self.longer else []))

    @property
    def why(self) -> str:
        """The words in one line; empty for a normal trip, or if there are none."""
        return "" if self.decision == NORMAL else "; ".join(self.words)

    @property
    def lowest(self) -> str:
        """The unusual aspect of the whole trip, in words.

        If a segment is unusual in another aspect, the words name both: a trip may be at an unusual time throughout, and
        take an unusual way for a while.
        """
        if self.aspect not in ASPECTS:
            return ""
        words = f"over the whole trip: {ASPECTS[self.aspect]}"
        for number, segment in enumerate(self.segments, 1):
            if segment.aspect != self.aspect and segment.aspect in ASPECTS:
                return f"{words}; in segment {number}: {ASPECTS[segment.aspect]}"
        return words

    def __str__(self) -> str:
        whose, began = harmless(self.agent) or "the agent", f"; began {self.began}" if self.began else ""
        p = "unknown" if np.isnan(self.p_value) else f"{self.p_value:.2g}"
        lines = [
            f"Trip {harmless(self.trajectory)} of {whose}: {self.decision} ({self.rule}, "
            f"uncertainty {self.trip_uncertainty:.1f} against {self.gamma:g}, "
            f"p = {p}, {number_of(self.history, 'past trip')}){began}"
        ]
        if self.why:
            lines.append(f"  {self.why}")
        if self.is_low and self.lowest:
            lines.append(f"  {self.lowest}")
        if self.aspects_in_words:
            lines.append(f"  {self.aspects_in_words}")
        for s in self.segments:
            lines.append(f"  {self._moment(s.start_time)} to {self._moment(s.end_time)}: normality {s.normality:.1f}")
            lines.append(f"    {s}")
        if not self.segments:
            lines.append("  no segment stands out")
        faults = int((self.fault != "").sum())
        if faults:
            verb = "is the receiver's fault and was" if faults == 1 else "are the receiver's fault and were"
            lines.append(f"  {faults} of {number_of(len(self.fault), 'fix')} {verb} left out")
        return "\n".join(lines)

    def _moment(self, time: float) -> str:
        return f"{self.zone.clock(time):%Y-%m-%d %H:%M:%S}" if len(self.lat) else f"step {time:.0f}"


def explain_fixes(
    scores: Scores,
    bounds: Bounds,
    featurizer: Featurizer,
    name: TripId,
    habitual: Sequence[Way],
    actor: Actor | None = None,
) -> Explanation:
    """Explains one GPS trip from the scores of its usable fixes.

    The ``featurizer`` compares the trip with the memory of its agent. If the memory holds the trip under this ``name``,
    the trip does not count towards its own familiarity. If a segment is not normal, the expected way is the planned one
    to where the trip ended. If there is none, the expected ways are how the ``habitual`` ways continued or, where none
    of them came by, how the policy (``actor``) drives on.
    """
    steps, encoder = scores.chunk.steps, featurizer.encoder
    number = int(featurizer.memory.number_of([name])[0])
    maker = featurizer.popularity.number_of(scores.trips.agent_ids)
    sides: dict[TripHabit, tuple[float, float]] = {}
    rows: TripRows | None = None
    if steps is not None and isinstance(encoder, FamiliarityEncoder):
        kept = chosen(steps, featurizer.config.interval)
        rows = featurizer.trip_rows(steps[kept], 1)
        familiar = scores.chunk.features[kept, : len(encoder.habits)]
        without = np.array([number])
        statistics = featurizer.trip_statistics(
            rows, familiar, without if number >= 0 else None, maker if maker[0] >= 0 else None
        )
        scores = replace(scores, chunk=scores.chunk._replace(statistics=statistics))
        sides = either_side(featurizer, rows, number)
    segments = scores.segments(bounds.levels)
    if steps is None or not len(steps):
        return explain_segments(scores, bounds, segments, [], habitual)
    spans = [slice(s.start, s.stop) for s in segments]
    words: list[tuple[str, dict[str, float]]]
    if isinstance(encoder, FamiliarityEncoder):
        words = [
            counts_in_words(familiar_counts(steps[span], encoder, number), encoder, number, _aspect(scores, span))
            for span in spans
        ]
        passed = passed_here(steps, encoder, number)
    else:
        words = [(motion_words(steps[span]), {}) for span in spans]
        passed = np.zeros(0)
    plan = planned_way(rows, featurizer, habitual, number, int(maker[0])) if spans and rows is not None else None
    if plan is not None:
        expected = [(plan.lat, plan.lon)]
    else:
        expected = expected_ways(steps, [span.start for span in spans], habitual, featurizer, actor) if spans else []
    explanation = explain_segments(scores, bounds, segments, words, habitual, expected, passed)
    longer = 0.0 if plan is None else plan.longer
    flagged_by = explanation.aspect if explanation.low_aspects else ""
    return replace(explanation, longer=longer, reasons=reasons(scores, featurizer, sides, flagged_by))


def explain_steps(scores: Scores, bounds: Bounds, world: StepDemonstrator) -> Explanation:
    """Explains the one trajectory of states and actions in ``scores`` by the lowest step of each segment.

    ``world`` holds past runs to compare with.
    """
    segments = scores.segments(bounds.levels)
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
        odd = odd_numbers(pairs[at], past, world.scale, n_states, normality, trip.has_discrete_actions)
        said = "; ".join(o.words(n_states) for o in odd) or "no single number sets it apart from past steps"
        words.append((f"at step {at}, {said}", {}))
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
    eps, gamma, least, rates = bounds
    levels = bounds.levels
    decision = decide(scores.low(levels), of.uncertainty, chunk.history, gamma=gamma, min_history=least)
    aspect = int(levels.aspect(of.aspect, scores.of_aspects)[0])
    has_scales = scores.calibrations[int(chunk.scale[0])].by_aspect
    p_aspects = dict(zip(scores.aspects, scores.of_aspects.p_value[0].tolist(), strict=True)) if has_scales else {}
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
        aspect=scores.aspects[aspect] if aspect >= 0 else "",
        p_value=float(of.p_value[0]),
        history=float(chunk.history[0]),
        decision=str(decision[0]),
        eps=eps,
        gamma=gamma,
        leave=float(leaving(eps)),
        habitual=tuple(habitual),
        expected=tuple(expected),
        p_aspects=p_aspects,
        rates={name: rate for name, rate in zip(scores.aspects, rates, strict=False) if rate},
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
    """Returns the aspect in which some rows lost most normality."""
    lost = np.bincount(scores.of_steps.aspect[rows], np.maximum(-scores.normality[rows], 1e-9), len(scores.aspects))
    return scores.aspects[int(lost.argmax())]


def position_of(trips: Trajectories, trajectory: TripId | str | int) -> int:
    """Returns the position of a trajectory that is given by its id, its name or its position."""
    if not isinstance(trajectory, (str, TripId)):
        if not -len(trips) <= trajectory < len(trips):
            raise DataError(f"there is no trajectory {trajectory} among {len(trips)}", remedy="count from 0")
        return int(trajectory)
    ids = trips.ids
    (meant,) = find_trips([trajectory], ids)
    if ids.count(meant) > 1:
        raise DataError(f"{ids.count(meant)} trajectories are called '{meant}' here", remedy="give its position")
    return ids.index(meant)
