"""Learns from one trip after another: normal trips are remembered, flagged ones wait for a person.

The model scores a trip and, if it is not flagged, remembers it. A flagged trip waits in the inbox. If several waiting
trips are unusual in the same way, either the agent has a new habit, or somebody else travels under its name. Only a
person can tell, so the model asks a question, which costs the agent one of its tokens. It never learns a flagged trip
without an answer.
Not all of an intruder's trips are flagged, and each one that the model learns makes the next one look more normal. So
the more trips were flagged lately, the more normal a trip must be to be learned; a doubtful trip waits, too.

Everything here is a function of an agent's memory and of what all agents share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.text import harmless
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.model.agent_memory import AgentMemory, Common, centres
from astray.model.inbox import ObservingConfig
from astray.scoring.normality import AspectScores, Calibration, TripScores, aspect_scores, trip_normality
from astray.scoring.own_scale import OwnScale, SeenTrips, scores_of, see

Array = NDArray[Any]

LEARNED, WAITING, REFUSED, KNOWN = "learned", "waiting", "refused", "known"
"""What became of a trip: the model remembers it; it waits; it resembles a rejected trip; the model knew it before."""


class Question(NamedTuple):
    """Asks whether flagged trips of one agent that are alike are a new habit."""

    agent: str
    trips: tuple[TripId, ...]

    def __str__(self) -> str:
        return f"{len(self.trips)} unusual trips of {harmless(self.agent) or 'the agent'} are alike: a new habit?"


class Outcome(NamedTuple):
    """What became of one trip."""

    trip: TripId
    score: float
    p_value: float
    became: str


class Observed(NamedTuple):
    """What became of trips that were observed.

    Attributes
    ----------
    table
        One row for each trip: agent, trajectory, score, p_value, and what it became: ``learned``, ``waiting``,
        ``refused`` (it resembles a trip that was not the agent's, or has no usable fix) or ``known`` (the model knew it
        before).
    questions
        What the model asks a person.
    drift
        A warning for each agent with many flagged trips among its last ones.
    """

    table: pl.DataFrame
    questions: tuple[Question, ...]
    drift: tuple[str, ...]


def questions_of(agent: str, memory: AgentMemory) -> tuple[Question, ...]:
    """Returns the open questions about an agent."""
    return tuple(Question(agent, group) for group in memory.inbox.asked)


def drift_of(agent: str, memory: AgentMemory, config: ObservingConfig) -> str:
    """Returns a warning if more of the last trips were flagged than normal trips would be, else an empty text."""
    flags = memory.inbox.flags
    if len(flags) < config.lately or sum(flags) < config.drifting:
        return ""
    return (
        f"{sum(flags)} of the last {len(flags)} trips of {agent or 'the agent'} were flagged: its habits may "
        "have changed, or somebody else is travelling; look at the waiting trips"
    )


def observe(
    agent: str,
    memory: AgentMemory,
    common: Common,
    trips: Trajectories,
    is_low: Callable[[Trajectories, Calibration, TripScores, AspectScores], bool],
) -> tuple[AgentMemory, list[Outcome]]:
    """Scores trips of one agent in the order of time, and learns from each before it scores the next.

    Returns the memory afterwards, and what became of each trip, in the order of ``trips``.
    """
    start = trips.columns["time"][trips.offsets[:-1]]
    outcomes: dict[int, Outcome] = {}
    for i in np.argsort(start, kind="stable").tolist():
        trip = trips[i : i + 1]
        featurizer = _featurizer(agent, memory, common, trip)
        prepared, history = featurizer.prepare(trip), featurizer.memory.history
        seen = see(featurizer.rows(prepared), featurizer, common.reward)
        scale = OwnScale(common.reward, common.weights, memory.own, history, common.scaling)
        calibration = scale.calibration(stale=memory.is_stale(float(start[i]), common.scaling))
        scored = trip_normality(seen.rewards, calibration)
        score, p_value = float(scored.score[0]), float(scored.p_value[0])
        flagged = is_low(trip, calibration, scored, aspect_scores(seen.rewards.mean(axis=2), calibration))
        memory, became = _take(memory, common, featurizer, prepared, seen, flagged, p_value)
        outcomes[i] = Outcome(trip.ids[0], score, p_value, became)
    return memory, [outcomes[i] for i in range(len(trips))]


def take_trip(
    agent: str,
    memory: AgentMemory,
    common: Common,
    trip: Trajectories,
    flagged: bool,
    p_value: float,
    seen: SeenTrips | None = None,
) -> tuple[AgentMemory, str]:
    """Learns from a trip that is already scored, lets it wait or refuses it; returns what became of it.

    ``seen`` is the trip as the memory sees it, if that was computed already.
    """
    featurizer = _featurizer(agent, memory, common, trip)
    paths = featurizer.paths(trip)
    if seen is None:
        rows = featurizer.trip_rows(featurizer.chosen_steps(paths), 1)
        seen = see(rows, featurizer, common.reward)
    return _take(memory, common, featurizer, Prepared(trip, paths, seen.rows.steps), seen, flagged, p_value)


def answer(memory: AgentMemory, trips: Sequence[TripId], mine: bool) -> AgentMemory:
    """Returns the memory after a person has said whether some waiting trips were the agent's own."""
    meant, inbox = set(trips), memory.inbox
    if not mine:
        return replace(memory, inbox=replace(inbox.reject(meant), flags=()))
    chosen = inbox.waiting.remove(set(inbox.waiting.trip_ids) - meant)
    learned = memory.with_counts(replace(memory.counts).merge(chosen))
    return replace(learned, inbox=replace(inbox.without(meant), flags=()))


def _featurizer(agent: str, memory: AgentMemory, common: Common, trip: Trajectories) -> Featurizer:
    # A copy of the counts: the look-up tables that counts cache are larger than the counts.
    of = replace(memory, counts=replace(memory.counts))
    return of.featurizer(agent, common, centres(trip)[0])


def _take(
    memory: AgentMemory,
    common: Common,
    featurizer: Featurizer,
    trip: Prepared,
    seen: SeenTrips,
    flagged: bool,
    p_value: float,
) -> tuple[AgentMemory, str]:
    (name,) = trip.trips.ids
    inbox, config = memory.inbox, common.observing
    if any(name in known.trip_ids for known in (memory.counts, inbox.waiting, inbox.rejected)):
        return memory, KNOWN
    if np.isnan(p_value):
        return memory, REFUSED
    one = featurizer.with_memory(Memory()).remember(trip, seen.rows).memory
    if not flagged and p_value > _doubt(memory, config):
        learned = _learn(memory, common, featurizer, one, seen)
        return replace(learned, inbox=inbox.with_flag(False, config)), LEARNED
    inbox, new = inbox.with_flag(flagged, config), _novel(featurizer, one)
    if any(_alike(new, featurizer, _only(inbox.rejected, k), config) for k in range(len(inbox.rejected))):
        return replace(memory, inbox=inbox), REFUSED
    waits = replace(memory, inbox=inbox.add(one, config))
    return _ask(waits, featurizer, name, new, config) if flagged else waits, WAITING


def _doubt(memory: AgentMemory, config: ObservingConfig) -> float:
    """Returns the p-value that a trip must exceed to be learned: the more trips were flagged lately, the higher."""
    return min(config.doubt * sum(memory.inbox.flags) / config.lately, config.most_doubt)


def _learn(memory: AgentMemory, common: Common, featurizer: Featurizer, one: Memory, seen: SeenTrips) -> AgentMemory:
    # The memory holds the trips before this one alone, so the trip keeps the score by which it was decided.
    fresh = scores_of(seen, featurizer, common.reward, common.weights, common.scaling)
    learned = memory.with_counts(featurizer.memory.merge(one))
    number = replace(learned.counts).number_of(one.trip_ids)
    own = learned.own.with_scores(replace(fresh, step=memory.own.step or fresh.step), number)
    return replace(learned, own=own)


def _ask(memory: AgentMemory, featurizer: Featurizer, name: TripId, new: Array, config: ObservingConfig) -> AgentMemory:
    """Asks about the waiting trips that are like this one, if there are enough of them and the agent has tokens."""
    inbox = memory.inbox
    group = tuple(
        trip
        for k, trip in enumerate(inbox.waiting.trip_ids)
        if trip == name or _alike(new, featurizer, _only(inbox.waiting, k), config)
    )
    open_already = [asked for asked in inbox.asked if set(asked) & set(group)]
    if open_already:  # the trip joins that question
        others = tuple(asked for asked in inbox.asked if asked not in open_already)
        joined = tuple(dict.fromkeys([*(t for asked in open_already for t in asked), name]))
        return replace(memory, inbox=replace(inbox, asked=(*others, joined)))
    if len(group) < config.together or inbox.tokens < 1.0:
        return memory
    return replace(memory, inbox=replace(inbox, asked=(*inbox.asked, group), tokens=inbox.tokens - 1.0))


def _novel(featurizer: Featurizer, one: Memory) -> Array:
    """Returns what is new about a trip: its keys that no remembered trip has."""
    return np.unique(one.keys[featurizer.memory.counts(one.keys) == 0])


def _alike(new: Array, featurizer: Featurizer, other: Memory, config: ObservingConfig) -> bool:
    return alike(new, _novel(featurizer, other), config.alike)


def _only(memory: Memory, number: int) -> Memory:
    """Returns one trip of a memory."""
    return memory.remove([t for k, t in enumerate(memory.trip_ids) if k != number])


def alike(one: Array, other: Array, share: float) -> bool:
    """Returns True if two trips have at least this share of what is new about them in common."""
    least = min(len(one), len(other))
    return least > 0 and len(np.intersect1d(one, other, assume_unique=True)) >= share * least
