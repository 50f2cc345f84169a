"""Explanations: why a trip scored as it did, as plain data for words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.decide import decide, low_scores, threshold
from astray.detectors.estimator import Detector
from astray.detectors.scoring import BAND, Scores
from astray.errors import DataError
from astray.irl.actor import Actor
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.familiarity import Habit, keys_of
from astray.mdp.faults import FAULT_NAMES
from astray.mdp.steps import Steps
from astray.mdp.view import View, trip_names
from astray.mdp.world import policy_states
from astray.normality import Segment
from astray.trajectories import Trajectories

Array = NDArray[Any]
Floats = NDArray[np.float64]
Way = tuple[Floats, Floats]  # latitudes, longitudes

HABITUAL = 50  # ways of the past that are shown, at most
MOST_STEPS = 60  # of an expected way
NEARBY = 300.0  # metres within which a past trip came through the same place

MANNERS = {  # what a habit asks beside the place, in words
    "heading": "in this direction",
    "speed": "at such a speed",
    "hours": "at this hour",
    "weekend": "on such a day",
    "origin": "from this start",
    "trail": "having come this way",
}


@dataclass(frozen=True, eq=False)
class Stretch:
    """A stretch of a trip that is not normal."""

    start: int  # its first fix, counted in the trip
    stop: int  # one past its last fix
    start_time: float  # seconds since 1970; for states and actions, steps
    end_time: float
    normality: float  # mean n(s, a) of its usable fixes
    uncertainty: float
    words: str  # what is unfamiliar about it
    counts: dict[str, float] = field(default_factory=dict)  # habit to the number of past trips that share it


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
        The stretches that are not normal, in order.
    trip_normality, trip_uncertainty, worst_window, score, p_value
        The scores of the whole trip.
    history
        How many past trips stand behind them.
    decision
        ``normal``, ``anomaly`` or ``review``, by the thresholds ``eps`` and ``gamma``.
    habitual
        Some of the agent's past ways: a latitude and a longitude array each.
    expected
        Where the agent would rather have gone from where it left the normal way; likewise.
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
    segments: tuple[Stretch, ...]
    trip_normality: float
    trip_uncertainty: float
    worst_window: float
    score: float
    p_value: float
    history: float
    decision: str
    eps: float
    gamma: float
    habitual: tuple[Way, ...] = ()
    expected: tuple[Way, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"Trip {self.trajectory} of {self.agent or 'the agent'}: {self.decision} (score {self.score:.1f} against "
            f"{self.eps:g}, uncertainty {self.trip_uncertainty:.1f} against {self.gamma:g}, p = {self.p_value:.2g}, "
            f"{self.history:.0f} past trips)"
        ]
        for s in self.segments:
            lines.append(f"  {self._moment(s.start_time)} to {self._moment(s.end_time)}: normality {s.normality:.1f}")
            lines.append(f"    {s.words}")
        if not self.segments:
            lines.append("  no stretch of it stands out")
        faults = int((self.fault != "").sum())
        if faults:
            lines.append(f"  {faults} of {len(self.fault)} fixes are the receiver's fault and were left out")
        return "\n".join(lines)

    def _moment(self, time: float) -> str:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}" if len(self.lat) else f"step {time:.0f}"


def explain_fixes(
    detector: Detector,
    scores: Scores,
    view: View,
    name: str,
    habitual: Sequence[Way],
    actor: Actor | None = None,
) -> Explanation:
    """The explanation of the one GPS trip in ``scores``, which the view may remember under ``name``.

    The expected ways are the policy's if there is one; else those on which ``habitual`` ones went on.
    """
    steps = scores.seen.steps
    if steps is None or not scores.segments:
        return _explanation(detector, scores, [], habitual)
    stretches = [steps[s.start : s.stop] for s in scores.segments]
    if isinstance(view.encoder, FamiliarityEncoder):
        number = int(view.memory.number_of(np.array([name]))[0])
        words = [familiar_words(stretch, view.encoder, number) for stretch in stretches]
    else:
        words = [(motion_words(stretch), {}) for stretch in stretches]
    left = scores.segments[0].start
    if actor is not None:
        expected = rolled_out(view, actor, steps, left)
    else:
        paths = [view.projection.to_metres(*way) for way in habitual]
        found = ways_on(paths, steps.location[max(left - 1, 0)], steps.velocity[max(left - 1, 0)])
        expected = [view.projection.to_degrees(way) for way in found]
    return _explanation(detector, scores, words, habitual, expected)


def explain_steps(detector: Detector, scores: Scores) -> Explanation:
    """The explanation of the one trajectory of states and actions in ``scores``."""
    n_states, n_actions = (scores.trips.columns[name].shape[1] for name in ("state", "action"))
    standard = scores.seen.features[:, : n_states + n_actions]
    words: list[tuple[str, dict[str, float]]] = [
        (step_words(standard[s.start : s.stop], n_states), {}) for s in scores.segments
    ]
    return _explanation(detector, scores, words)


def _explanation(
    detector: Detector,
    scores: Scores,
    words: Sequence[tuple[str, dict[str, float]]],
    habitual: Sequence[Way] = (),
    expected: Sequence[Way] = (),
) -> Explanation:
    """Everything together; ``words`` and counts come with each segment."""
    trip, seen, of = scores.trips, scores.seen, scores.of_trips
    scored = {name: np.full(trip.n_rows, np.nan) for name in ("normality", "uncertainty")}
    scored["normality"][seen.row] = scores.normality
    scored["uncertainty"][seen.row] = scores.uncertainty
    low = low_scores(trip, of.score, of.p_value, scores.n_calibration, eps=detector.eps)
    gamma = threshold(detector.gamma, trip, "gamma")
    decision = decide(low, of.uncertainty, seen.history, gamma=gamma, min_history=detector.min_history)
    return Explanation(
        agent=str(trip.agent_ids[0]),
        trajectory=str(trip.trajectory_ids[0]),
        time=trip.columns["time"] if trip.is_gps else np.arange(trip.n_rows, dtype=np.float64),
        lat=trip.columns["lat"] if trip.is_gps else np.zeros(0),
        lon=trip.columns["lon"] if trip.is_gps else np.zeros(0),
        **scored,
        lo=scored["normality"] - BAND * scored["uncertainty"],
        hi=scored["normality"] + BAND * scored["uncertainty"],
        fault=np.array(FAULT_NAMES)[seen.fault],
        segments=tuple(_stretch(scores, s, *said) for s, said in zip(scores.segments, words, strict=True)),
        trip_normality=float(of.normality[0]),
        trip_uncertainty=float(of.uncertainty[0]),
        worst_window=float(of.worst_window[0]),
        score=float(of.score[0]),
        p_value=float(of.p_value[0]),
        history=float(seen.history[0]),
        decision=str(decision[0]),
        eps=float(threshold(detector.eps, trip)[0]),
        gamma=float(gamma[0]),
        habitual=tuple(habitual),
        expected=tuple(expected),
    )


def _stretch(scores: Scores, segment: Segment, words: str, counts: dict[str, float]) -> Stretch:
    row, time = scores.seen.row, scores.seen.time
    return Stretch(
        int(row[segment.start]),
        int(row[segment.stop - 1]) + 1,
        float(time[segment.start]),
        float(time[segment.stop - 1]),
        segment.normality,
        float(scores.uncertainty[segment.start : segment.stop].mean()),
        words,
        counts,
    )


def position_of(trips: Trajectories, trajectory: str | int) -> int:
    """The position of a trajectory that is meant by its id or its position."""
    if not isinstance(trajectory, str):
        if not -len(trips) <= trajectory < len(trips):
            raise DataError(f"trajectory {trajectory} asked of {len(trips)}")
        return int(trajectory)
    found = np.flatnonzero((trips.trajectory_ids == trajectory) | np.isin(trip_names(trips), [trajectory]))
    if len(found) != 1:
        what = "no trajectory is" if not len(found) else f"{len(found)} trajectories are"
        raise DataError(f"{what} called {trajectory!r} here; give its position, or 'agent/trajectory'")
    return int(found[0])


# -------------------------------------------------------------------- words


def familiar_words(steps: Steps, encoder: FamiliarityEncoder, number: int) -> tuple[str, dict[str, float]]:
    """What a memory says of a stretch, in words, and the counts behind them.

    ``number`` is the trip's own number in the memory, which does not count; -1 if it is not remembered. Counts are
    medians over the stretch.
    """
    keys = keys_of(steps, encoder.habits, encoder.utc_offset)
    without = np.full((len(steps), 1, 1), number)
    counts = np.median(encoder.memory.counts(keys, without).mean(axis=2), axis=0)
    history = len(encoder.memory) - int(number >= 0)
    by_name = {h.name: float(c) for h, c in zip(encoder.habits, counts, strict=True)}
    places = sorted((h.cell, c) for h, c in zip(encoder.habits, counts, strict=True) if h.cell and h == Habit(h.cell))
    if not places:
        return f"{history} past trips stand behind this", by_name
    said = [f"{places[0][1]:.0f} of {history} past trips came through this {_area(places[0][0])}"]
    # The next larger place says more if more trips went there; if none is, the district will do.
    wider = [p for p in places[1:] if round(p[1]) > round(places[0][1])] or places[len(places) // 2 : -1] or places[1:]
    if round(places[0][1]) < history:
        said += [f"{c:.0f} through this {_area(cell)}" for cell, c in wider[:1]]
    manners = _manners(encoder.habits, counts, places)
    return ", ".join(said) + ("; " + " and ".join(manners) if manners else ""), by_name


def _manners(habits: Sequence[Habit], counts: Array, places: Sequence[tuple[float, float]]) -> list[str]:
    """What was unusual in the way of being somewhere that is not: few of those who came there did it like this."""
    rare: list[tuple[int, float, tuple[str, ...], str]] = []
    for habit, count in zip(habits, counts, strict=True):
        here = [c for cell, c in places if habit.cell is not None and cell >= habit.cell]
        manner = tuple(phrase for name, phrase in MANNERS.items() if getattr(habit, name) not in (None, False))
        if manner and here and here[0] >= 3 and count <= 0.15 * here[0]:
            words = f"{count:.0f} of the {here[0]:.0f} trips around here went {' '.join(manner)}"
            rare.append((len(manner), count / here[0], manner, words))
    said: list[tuple[tuple[str, ...], str]] = []
    # The fewest words first; what is said already is not said again with more.
    for _, _, manner, words in sorted(
        rare, key=lambda r: (r[0], round(r[1], 1), list(MANNERS.values()).index(r[2][0]))
    ):
        if not any(set(before) <= set(manner) for before, _ in said):
            said.append((manner, words))
    return [words for _, words in said[:2]]


def _area(cell: float) -> str:
    sizes = ((200, "street"), (800, "block"), (2500, "neighbourhood"), (8000, "district"))
    return next((name for size, name in sizes if cell <= size), "region")


def motion_words(steps: Steps) -> str:
    """What can be said of a stretch without a memory."""
    speed = np.hypot(*steps.velocity.T)
    way = float(np.hypot(*np.diff(steps.location, axis=0).T).sum()) / 1000.0
    return f"{way:.1f} km at {3.6 * float(np.median(speed)):.0f} km/h that the reward finds unlike the past"


def step_words(z: Array, n_states: int) -> str:
    """What stands out among standardised states and actions (rows x columns)."""
    far = np.abs(np.median(z, axis=0))
    column = int(np.argmax(far))
    name = f"state {column}" if column < n_states else f"action {column - n_states}"
    side = "above" if np.median(z[:, column]) > 0 else "below"
    return f"{name} lies {far[column]:.1f} standard deviations {side} its mean"


# -------------------------------------------------------------------- ways


def rolled_out(view: View, actor: Actor, steps: Steps, row: int, n: int = 5, seed: int = 0) -> list[Way]:
    """The ways on from before step ``row`` by the policy: its mean one, then ``n - 1`` drawn ones.

    They go on for as long as the trip did, within bounds.
    """
    at = steps[np.array([row])]
    left = float(steps.time[-1] - steps.time[row])
    horizon = int(np.clip(np.ceil(left / view.config.interval), 5, MOST_STEPS))
    noise = np.random.default_rng(seed).standard_normal((horizon, n, len(actor.action_mean)))
    noise[:, 0] = 0.0
    states = np.repeat(policy_states(at, view.context.utc_offset), n, axis=0)
    ways = actor.drive(states, horizon, view.config.interval, noise)
    return [view.projection.to_degrees(way) for way in ways]


def ways_on(paths: Sequence[Array], place: Array, velocity: Array, most: int = 5) -> list[Array]:
    """How past ways (n x 2 each, metres) went on from a place, those that went in the same direction first.

    >>> east = np.column_stack([np.arange(0, 5000, 500.0), np.zeros(10)])
    >>> [way[-1].tolist() for way in ways_on([east, east + 9000], np.array([1000.0, 50.0]), np.array([9.0, 0.0]))]
    [[4500.0, 0.0]]
    """
    found = []
    for path in paths:
        apart = np.hypot(*(path - place).T)
        i = int(apart.argmin())
        if apart[i] <= NEARBY and i + 1 < len(path):
            ahead = path[i + 1] - path[i]
            found.append((-float(ahead @ velocity) / (float(np.hypot(*ahead)) + 1e-9), path[i:]))
    return [way for _, way in sorted(found, key=lambda f: f[0])[:most]]
