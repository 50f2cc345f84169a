"""Learning on, trip by trip: the normal ones are remembered, the others wait, and novelty that returns is asked about.

A trip that was not flagged is remembered after it was scored. One that was flagged waits. When several waiting trips
are alike in what is new about them, that is either a new habit or somebody else who has come to stay; only a person can
tell, so a question is asked, never more often than the agent has tokens for. Nothing flagged is ever learned unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.detectors.own_scale import OwnScores, own_calibration, own_scores
from astray.errors import DataError
from astray.irl.shared import Reward, trip_rewards
from astray.mdp.memory import Memory
from astray.mdp.view import View, trip_names
from astray.modelfile import ModelFile, pack_text
from astray.modelfile.parts import Packed
from astray.normality import Calibration, trip_normality
from astray.trajectories import Trajectories

Array = NDArray[Any]

LEARNED, WAITING, REFUSED, KNOWN = "learned", "waiting", "refused", "known"
"""What became of a trip: it is remembered; it waits; it is like one that was not the agent's; it was known already."""

ALIKE = 0.1  # share of what is new about two trips that alike ones have in common
TOGETHER = 2  # alike trips, at least, that a question is about
TOKENS, EARNED, MOST_TOKENS = 2.0, 0.05, 5.0  # a question costs one; so many at first, a trip earns, and at most
MOST_WAITING = 50  # trips that wait; the oldest leave
LATELY, DRIFTING = 20, 5  # so many flagged trips among the last ones are a drift


@dataclass(frozen=True, eq=False)
class Inbox:
    """Trips of an agent that were flagged and not learned from.

    Attributes
    ----------
    waiting, rejected
        Those that nobody has spoken about, and those that proved not to be the agent's.
    asked
        The groups of waiting trips that a person was asked about and has not answered.
    tokens
        How many questions may be asked.
    flags
        Whether each of the last trips was flagged.
    """

    waiting: Memory = field(default_factory=Memory)
    rejected: Memory = field(default_factory=Memory)
    asked: tuple[tuple[str, ...], ...] = ()
    tokens: float = TOKENS
    flags: tuple[bool, ...] = ()

    def with_flag(self, flagged: bool) -> Inbox:
        """One more trip has come, flagged or not."""
        tokens = min(self.tokens + EARNED, MOST_TOKENS)
        return replace(self, tokens=tokens, flags=(*self.flags, flagged)[-LATELY:])

    def without(self, names: Collection[str]) -> Inbox:
        """The same after somebody has decided on some of the waiting trips."""
        gone = set(names)
        groups = (tuple(t for t in group if t not in gone) for group in self.asked)
        asked = tuple(group for group in groups if len(group) >= TOGETHER)
        return replace(self, waiting=self.waiting.remove(gone), asked=asked)

    def reject(self, names: Collection[str]) -> Inbox:
        """The same after some of the waiting trips proved not to be the agent's: what is alike is refused from then."""
        proved = self.waiting.remove(set(self.waiting.trip_ids) - set(names))
        return replace(self.without(names), rejected=self.rejected.merge(proved))

    def add(self, trip: Memory) -> Inbox:
        """One more trip waits; the oldest may have to go."""
        waiting = self.waiting.merge(trip)
        gone = set(waiting.trip_ids[: max(len(waiting) - MOST_WAITING, 0)])
        asked = tuple(group for group in self.asked if not gone.intersection(group))
        return replace(self, waiting=waiting.remove(gone), asked=asked)


class Question(NamedTuple):
    """Is this a new habit? Asked about flagged trips of one agent that are alike."""

    agent: str
    trips: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.trips)} unusual trips of {self.agent or 'the agent'} are alike: a new habit?"


class Outcome(NamedTuple):
    """What became of one trip."""

    name: str
    score: float
    p_value: float
    became: str


@dataclass(frozen=True, eq=False)
class Learner:
    """What is known of one agent while it is observed."""

    agent: str
    view: View
    own: OwnScores
    inbox: Inbox
    reward: Reward
    weights: tuple[float, ...]

    @property
    def calibration(self) -> Calibration:
        """What its next trip is measured on."""
        return own_calibration(self.reward, self.weights, self.own, self.view.memory.history)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What a person is asked."""
        return tuple(Question(self.agent, group) for group in self.inbox.asked)

    @property
    def drift(self) -> str:
        """What is said when more trips are flagged than normal ones would be; empty if that is not so."""
        flags = self.inbox.flags
        if len(flags) < LATELY or sum(flags) < DRIFTING:
            return ""
        return (
            f"{sum(flags)} of the last {len(flags)} trips of {self.agent or 'the agent'} were flagged: its habits may "
            "have changed, or somebody else is travelling; look at the waiting trips"
        )

    def observe(self, trip: Trajectories, level: Callable[[Calibration], float]) -> tuple[Learner, Outcome]:
        """Score one trip, then learn from it, or let it wait, or refuse it."""
        name = trip_names(trip)[0]
        known = (self.view.memory, self.inbox.waiting, self.inbox.rejected)
        rows = self.view.rows(trip)
        statistics = self.view.survey(rows)[1]
        assert self.reward.trip is not None
        calibration = self.calibration
        scored = trip_normality(trip_rewards(self.reward.trip, statistics), calibration)
        score, p_value = float(scored.score[0]), float(scored.p_value[0])
        if any(name in memory.trip_ids for memory in known):
            return self, Outcome(name, score, p_value, KNOWN)
        if np.isnan(score):
            return self, Outcome(name, score, p_value, REFUSED)
        one = self.view.with_memory(Memory()).remember(trip).memory
        if score > level(calibration):
            return self._learn(one, rows), Outcome(name, score, p_value, LEARNED)
        inbox = self.inbox.with_flag(True)
        new = self._novel(one)
        if any(_alike(new, self._novel(_only(inbox.rejected, k))) for k in range(len(inbox.rejected))):
            return replace(self, inbox=inbox), Outcome(name, score, p_value, REFUSED)
        waits = replace(self, inbox=inbox.add(one))
        return waits._ask(name, new), Outcome(name, score, p_value, WAITING)

    def _learn(self, one: Memory, rows: Any) -> Learner:
        # Left out of the memory that is to hold it, the trip is seen as it is by the one that does not yet.
        fresh = own_scores(rows, self.view, None, self.reward, self.weights)
        view = self.view.with_memory(self.view.memory.merge(one))
        own = self.own.follow(self.view.memory, view.memory)
        own = own.with_scores(replace(fresh, step=own.step or fresh.step), view.memory.number_of(one.trip_ids))
        return replace(self, view=view, own=own, inbox=self.inbox.with_flag(False))

    def _novel(self, one: Memory) -> Array:
        """What is new about a trip: keys that no remembered trip has."""
        return np.unique(one.keys[self.view.memory.counts(one.keys) == 0])

    def _ask(self, name: str, new: Array) -> Learner:
        """Ask about the waiting trips that are like this one, if there are any, and tokens."""
        inbox = self.inbox
        alike = tuple(
            trip
            for k, trip in enumerate(inbox.waiting.trip_ids)
            if trip == name or _alike(new, self._novel(_only(inbox.waiting, k)))
        )
        told = [group for group in inbox.asked if set(group) & set(alike)]
        if told:  # a question is open already: the trip belongs to it
            others = tuple(group for group in inbox.asked if group not in told)
            joined = tuple(dict.fromkeys([*(t for group in told for t in group), name]))
            return replace(self, inbox=replace(inbox, asked=(*others, joined)))
        if len(alike) < TOGETHER or inbox.tokens < 1.0:
            return self
        return replace(self, inbox=replace(inbox, asked=(*inbox.asked, alike), tokens=inbox.tokens - 1.0))

    def answer(self, trips: Sequence[str], mine: bool) -> Learner:
        """A person has said whether some waiting trips, by name, were the agent's own."""
        meant = set(trips)
        unknown = meant - set(self.inbox.waiting.trip_ids)
        if unknown or not meant:
            raise DataError(f"no trip named {min(unknown) if unknown else ''!r} is waiting for an answer")
        if not mine:
            return replace(self, inbox=self.inbox.reject(meant))
        chosen = self.inbox.waiting.remove(set(self.inbox.waiting.trip_ids) - meant)
        view = self.view.with_memory(self.view.memory.merge(chosen))
        own = self.own.follow(self.view.memory, view.memory)
        return replace(self, view=view, own=own, inbox=replace(self.inbox.without(meant), flags=()))


class Observed(NamedTuple):
    """What became of trips that were observed.

    Attributes
    ----------
    table
        One row a trip: agent, trajectory, score, p_value, and what it became: ``learned``, ``waiting``, ``refused`` (it
        is like one that was not the agent's, or has no usable fix) or ``known`` (it was there already).
    questions
        What a person is asked.
    drift
        What is said when many trips in a row are flagged, one text an agent.
    """

    table: pl.DataFrame
    questions: tuple[Question, ...]
    drift: tuple[str, ...]

    @classmethod
    def of(
        cls, trips: Trajectories, outcomes: Sequence[Outcome], questions: tuple[Question, ...], drift: Sequence[str]
    ) -> Observed:
        """The outcomes of trips, in their order."""
        table = pl.DataFrame(
            {
                "agent": trips.agent_ids.tolist(),
                "trajectory": trips.trajectory_ids.tolist(),
                "score": [o.score for o in outcomes],
                "p_value": [o.p_value for o in outcomes],
                "became": [o.became for o in outcomes],
            },
            schema_overrides={"agent": pl.String, "trajectory": pl.String, "became": pl.String},
        )
        return cls(table, questions, tuple(text for text in drift if text))


def observed(
    learner: Learner, trips: Trajectories, level: Callable[[Trajectories, Calibration], float]
) -> tuple[Learner, list[Outcome]]:
    """Observe trips of one agent in the order of time; the outcomes are in the order of the trips."""
    start = trips.columns["time"][trips.offsets[:-1]]
    outcomes: dict[int, Outcome] = {}
    for i in np.argsort(start, kind="stable").tolist():
        trip = trips[i : i + 1]
        learner, outcomes[i] = learner.observe(trip, partial(level, trip))
    return learner, [outcomes[i] for i in range(len(trips))]


def _only(memory: Memory, number: int) -> Memory:
    """One trip of a memory."""
    return memory.remove([t for k, t in enumerate(memory.trip_ids) if k != number])


def _alike(one: Array, other: Array) -> bool:
    """Whether two trips have a tenth of what is new about them in common."""
    least = min(len(one), len(other))
    return least > 0 and len(np.intersect1d(one, other, assume_unique=True)) >= ALIKE * least


# -------------------------------------------------------------------- as a file holds them


def pack_inboxes(name: str, inboxes: Sequence[Inbox]) -> Packed:
    """The inboxes of agents: all trips that wait or were rejected, with whose they are and in which state."""
    known = [(i, inbox, kind) for i, inbox in enumerate(inboxes) for kind in KINDS]
    memories = [getattr(inbox, kind) for _, inbox, kind in known]
    groups = {str(i): inbox.asked for i, inbox in enumerate(inboxes) if inbox.asked}
    arrays = {
        **pack_text(f"{name}.trip_ids", [t for m in memories for t in m.trip_ids]),
        f"{name}.owner": np.repeat(np.array([i for i, _, _ in known], np.int64), [len(m) for m in memories]),
        f"{name}.kind": np.repeat(np.array([KINDS.index(k) for *_, k in known], np.int64), [len(m) for m in memories]),
        f"{name}.times": np.concatenate([np.zeros(0), *(m.times for m in memories)]),
        f"{name}.keys": np.concatenate([np.zeros(0, np.uint64), *(_by_trip(m)[0] for m in memories)]),
        f"{name}.sizes": np.concatenate([np.zeros(0, np.int64), *(_by_trip(m)[1] for m in memories)]),
        f"{name}.tokens": np.array([inbox.tokens for inbox in inboxes], np.float64),
        f"{name}.flags": np.array([_bits(inbox.flags) for inbox in inboxes], np.int64),
    }
    return Packed({f"{name}.asked": groups}, arrays)


KINDS = ("waiting", "rejected")


def _by_trip(memory: Memory) -> tuple[Array, Array]:
    """The keys of a memory, trip by trip, and how many each trip has."""
    return memory.keys[np.argsort(memory.trips, kind="stable")], np.bincount(memory.trips, minlength=len(memory))


def _bits(flags: Sequence[bool]) -> int:
    """Flags as a number: a leading one, then a bit for each."""
    return int("1" + "".join("1" if flag else "0" for flag in flags), 2)


def unpack_inboxes(model: ModelFile, name: str, n: int) -> list[Inbox]:
    """The inboxes of ``n`` agents."""
    ids = model.text(f"{name}.trip_ids")
    owner, kind = (model.array(f"{name}.{part}", np.int64, len(ids)) for part in ("owner", "kind"))
    times = model.array(f"{name}.times", np.float64, len(ids))
    sizes = model.array(f"{name}.sizes", np.int64, len(ids))
    keys = model.array(f"{name}.keys", np.uint64, None)
    tokens = model.array(f"{name}.tokens", np.float64, n)
    flags = model.array(f"{name}.flags", np.int64, n)
    asked = model.value(f"{name}.asked", dict[str, tuple[tuple[str, ...], ...]])
    whole = (sizes >= 0).all() and sizes.sum() == len(keys) and (flags > 0).all()
    if not whole or not (np.isin(owner, np.arange(n)).all() and np.isin(kind, (0, 1)).all()):
        raise model.wrong(f"the trips of {name} do not fit together")
    cuts = np.r_[0, np.cumsum(sizes)]
    inboxes = [
        Inbox(tokens=float(t), flags=tuple(b == "1" for b in f"{f:b}"[1:])) for t, f in zip(tokens, flags, strict=True)
    ]
    for i, group in asked.items():
        inboxes[int(i)] = replace(inboxes[int(i)], asked=group)
    for k, trip in enumerate(ids):
        inbox, which = inboxes[owner[k]], KINDS[kind[k]]
        memory: Memory = getattr(inbox, which)
        grown = memory.add({trip: keys[cuts[k] : cuts[k + 1]]}, {trip: float(times[k])})
        inboxes[owner[k]] = replace(inbox, **{which: grown})
    return inboxes
