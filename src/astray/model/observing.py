"""Learning on, trip by trip: the normal ones are remembered, the others wait, and novelty that returns is asked about.

A trip that was not flagged is remembered after it was scored. One that was flagged waits. When several waiting trips
are alike in what is new about them, that is either a new habit or somebody else who has come to stay; only a person can
tell, so a question is asked, never more often than the agent has tokens for. Nothing flagged is ever learned unasked.
Somebody else's trips are not all flagged, and each that is learned makes the next one normal: so the more trips were
flagged lately, the more normal a trip must be to be learned. What is in doubt waits, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, some_names
from astray.core.text import harmless
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId, find_trips
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.features.trip_rows import TripRows
from astray.irl.shared import Reward
from astray.model.estimator import Detector
from astray.model.inbox import Inbox, ObservingConfig
from astray.scoring.normality import Calibration, trip_normality
from astray.scoring.own_scale import OwnScale, OwnScores, SeenTrips, see, step_location
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]

LEARNED, WAITING, REFUSED, KNOWN = "learned", "waiting", "refused", "known"
"""What became of a trip: it is remembered; it waits; it is like one that was not the agent's; it was known already."""


class Question(NamedTuple):
    """Is this a new habit? Asked about flagged trips of one agent that are alike."""

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


@dataclass(frozen=True, eq=False)
class Learner:
    """What is known of one agent while it is observed."""

    agent: str
    featurizer: Featurizer
    own: OwnScores
    inbox: Inbox
    reward: Reward
    weights: tuple[float, ...]
    scaling: ScaleConfig
    config: ObservingConfig

    @property
    def calibration(self) -> Calibration:
        """What its next trip is measured on."""
        of = (self.reward, self.weights, self.own, self.featurizer.memory.history, self.scaling)
        return OwnScale(*of).calibration()

    @property
    def questions(self) -> tuple[Question, ...]:
        """What a person is asked."""
        return tuple(Question(self.agent, group) for group in self.inbox.asked)

    @property
    def drift(self) -> str:
        """What is said when more trips are flagged than normal ones would be; empty if that is not so."""
        flags = self.inbox.flags
        if len(flags) < self.config.lately or sum(flags) < self.config.drifting:
            return ""
        return (
            f"{sum(flags)} of the last {len(flags)} trips of {self.agent or 'the agent'} were flagged: its habits may "
            "have changed, or somebody else is travelling; look at the waiting trips"
        )

    @property
    def doubt(self) -> float:
        """The p-value that a trip must exceed to be learned: the more was flagged lately, the higher."""
        return min(self.config.doubt * sum(self.inbox.flags) / self.config.lately, self.config.most_doubt)

    def at(self, trip: Trajectories) -> Self:
        """The same, to look at a trip from where it begins."""
        return self

    def observe(self, trip: Trajectories, level: Callable[[Calibration], float]) -> tuple[Learner, Outcome]:
        """Score one trip, then learn from it, or let it wait, or refuse it."""
        here = self.at(trip)
        prepared = here.featurizer.prepare(trip)
        seen, calibration = here._see(here.featurizer.rows(prepared)), here.calibration
        scored = trip_normality(seen.rewards[0], calibration)
        score, p_value = float(scored.score[0]), float(scored.p_value[0])
        learner, became = here._take(prepared, seen, score <= level(calibration), p_value)
        return learner, Outcome(trip.ids[0], score, p_value, became)

    def take(
        self, trip: Trajectories, flagged: bool, p_value: float, seen: SeenTrips | None = None
    ) -> tuple[Learner, str]:
        """Learn from one trip that was scored, or let it wait, or refuse it; gives what became of it.

        ``seen`` is the trip as what is known of the agent sees it, if that was looked at already.
        """
        here = self.at(trip)
        paths = here.featurizer.paths(trip)
        if seen is None:
            seen = here._see(here.featurizer.trip_rows(here.featurizer.chosen_steps(paths), 1))
        return here._take(Prepared(trip, paths, seen.rows.steps), seen, flagged, p_value)

    def _see(self, rows: TripRows) -> SeenTrips:
        return see(rows, self.featurizer, self.reward, self.scaling)

    def _take(self, trip: Prepared, seen: SeenTrips, flagged: bool, p_value: float) -> tuple[Learner, str]:
        (name,) = trip.trips.ids
        if any(name in memory.trip_ids for memory in (self.featurizer.memory, self.inbox.waiting, self.inbox.rejected)):
            return self, KNOWN
        if np.isnan(p_value):
            return self, REFUSED
        one = self.featurizer.with_memory(Memory()).remember(trip, seen.rows).memory
        if not flagged and p_value > self.doubt:
            return self._learn(one, seen), LEARNED
        inbox, new = self.inbox.with_flag(flagged, self.config), self._novel(one)
        if any(self._alike(new, _only(inbox.rejected, k)) for k in range(len(inbox.rejected))):
            return replace(self, inbox=inbox), REFUSED
        waits = replace(self, inbox=inbox.add(one, self.config))
        return waits._ask(name, new) if flagged else waits, WAITING

    def _learn(self, one: Memory, seen: SeenTrips) -> Learner:
        # Held out of the memory that is to hold it, the trip is seen as it is by the one that does not yet.
        step = self.own.step or step_location(seen, self.featurizer, self.reward, self.weights)
        featurizer = self.featurizer.with_memory(self.featurizer.memory.merge(one))
        own = self.own.follow(self.featurizer.memory, featurizer.memory)
        own = own.with_scores(OwnScores(seen.over_heads, step), featurizer.memory.number_of(one.trip_ids))
        return replace(self, featurizer=featurizer, own=own, inbox=self.inbox.with_flag(False, self.config))

    def _novel(self, one: Memory) -> Array:
        """What is new about a trip: keys that no remembered trip has."""
        return np.unique(one.keys[self.featurizer.memory.counts(one.keys) == 0])

    def _alike(self, new: Array, other: Memory) -> bool:
        """Whether another trip has enough in common with what is new about a trip."""
        return alike(new, self._novel(other), self.config.alike)

    def _ask(self, name: TripId, new: Array) -> Learner:
        """Ask about the waiting trips that are like this one, if there are any, and tokens."""
        inbox = self.inbox
        group = tuple(
            trip
            for k, trip in enumerate(inbox.waiting.trip_ids)
            if trip == name or self._alike(new, _only(inbox.waiting, k))
        )
        told = [asked for asked in inbox.asked if set(asked) & set(group)]
        if told:  # a question is open already: the trip belongs to it
            others = tuple(asked for asked in inbox.asked if asked not in told)
            joined = tuple(dict.fromkeys([*(t for asked in told for t in asked), name]))
            return replace(self, inbox=replace(inbox, asked=(*others, joined)))
        if len(group) < self.config.together or inbox.tokens < 1.0:
            return self
        return replace(self, inbox=replace(inbox, asked=(*inbox.asked, group), tokens=inbox.tokens - 1.0))

    def answer(self, trips: Sequence[TripId], mine: bool) -> Learner:
        """A person has said whether some waiting trips were the agent's own."""
        meant = set(trips)
        if not mine:
            return replace(self, inbox=replace(self.inbox.reject(meant), flags=()))
        chosen = self.inbox.waiting.remove(set(self.inbox.waiting.trip_ids) - meant)
        featurizer = self.featurizer.with_memory(self.featurizer.memory.merge(chosen))
        own = self.own.follow(self.featurizer.memory, featurizer.memory)
        return replace(self, featurizer=featurizer, own=own, inbox=replace(self.inbox.without(meant), flags=()))


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


def alike(one: Array, other: Array, share: float) -> bool:
    """Whether two trips have such a share of what is new about them in common."""
    least = min(len(one), len(other))
    return least > 0 and len(np.intersect1d(one, other, assume_unique=True)) >= share * least


class Observing(Detector):
    """A detector that goes on learning, trip by trip."""

    anomalous_: frozenset[TripId]

    @abstractmethod
    def _inboxes(self) -> Mapping[str, Inbox]:
        """The inbox of each agent."""

    @abstractmethod
    def _learned(self) -> Iterable[TripId]:
        """The trips that were learned from, or taken for somebody else's."""

    @abstractmethod
    def _learner(self, agent: str) -> Learner:
        """What is known of one agent."""

    @abstractmethod
    def _keep(self, learner: Learner, new: int) -> None:
        """Take over what is known of an agent after it was observed; so many ``new`` trips were learned."""

    @abstractmethod
    def _by_learner(self, trips: Trajectories) -> Mapping[str, Array]:
        """The positions of the trips of each agent that is known; somebody else's are refused."""

    def observe(self, trips: Trajectories) -> Observed:
        """Score trips in the order of time, and learn from each of them that is not flagged.

        What is flagged waits (``waiting_``), and so does what is not clearly normal while many trips are flagged.
        Waiting trips that are alike become a question (:meth:`answer`): a new habit, or somebody else? Nothing flagged
        is learned unasked.

        Examples
        --------
        >>> from astray import IRLDetector
        >>> from astray.simulate import city
        >>> trips = city(people=2, days=21, seed=0).trips
        >>> mine = trips.agent("p00")
        >>> detector = IRLDetector().fit(mine[:40])
        >>> observed = detector.observe(mine[40:45])
        >>> observed.table.columns
        ['agent', 'trajectory', 'score', 'p_value', 'became']
        >>> detector.n_trips_ == 40 + (observed.table["became"] == "learned").sum()
        True
        """
        self._require_fitted()
        given = trips[~self._check(trips).isin(self.anomalous_)]
        learned: list[tuple[Learner, int]] = []
        outcomes: dict[int, Outcome] = {}
        for agent, at in self._by_learner(given).items():
            with one_thread():
                learner, found = observed(self._learner(agent), given[at], self._level)
            learned.append((learner, sum(outcome.became == LEARNED for outcome in found)))
            outcomes.update(zip(at.tolist(), found, strict=True))
        # Nothing has been changed so far; now everything is.
        for learner, new in learned:
            self._keep(learner, new)
        became = [outcomes[i] for i in range(len(given))]
        table = pl.DataFrame(
            {
                "agent": given.agent_ids.tolist(),
                "trajectory": given.trajectory_ids.tolist(),
                "score": [outcome.score for outcome in became],
                "p_value": [outcome.p_value for outcome in became],
                "became": [outcome.became for outcome in became],
            },
            schema_overrides={"agent": pl.String, "trajectory": pl.String, "became": pl.String},
        )
        questions = tuple(q for learner, _ in learned for q in learner.questions)
        return Observed(table, questions, tuple(learner.drift for learner, _ in learned if learner.drift))

    @property
    def questions_(self) -> tuple[Question, ...]:
        """What a person is asked: groups of flagged trips of an agent that are alike."""
        self._require_fitted()
        return tuple(Question(agent, group) for agent, inbox in self._inboxes().items() for group in inbox.asked)

    @property
    def waiting_(self) -> tuple[TripId, ...]:
        """The trips that were not learned from and that nobody has spoken about."""
        self._require_fitted()
        return tuple(trip for inbox in self._inboxes().values() for trip in inbox.waiting.trip_ids)

    @property
    def known_trips_(self) -> set[TripId]:
        """The trips that the detector knows: remembered, kept, waiting, or known as anomalous."""
        self._require_fitted()
        return {*self._learned(), *self.waiting_, *self.anomalous_}

    def answer(self, question: Question | Sequence[TripId | str], mine: bool) -> None:
        """Say whether waiting trips were the agent's own; then they are remembered, otherwise what is alike is refused.

        Parameters
        ----------
        question
            One of ``questions_``, or ``waiting_`` trips of one agent: their ids, or names (``"agent/trajectory"``).
        mine
            Whether they were.
        """
        self._require_fitted()
        asked = question.trips if isinstance(question, Question) else question
        trips = list(dict.fromkeys(find_trips(asked, self.waiting_, among="trips that wait for an answer")))
        whose = [agent for agent, inbox in self._inboxes().items() if set(trips) & set(inbox.waiting.trip_ids)]
        if not whose:
            raise DataError("no trip was named", remedy="name waiting trips, or give one of the questions")
        if len(whose) > 1:
            raise DataError(f"the trips are of {some_names(whose)}", remedy="answer for one agent at a time")
        self._keep(self._learner(whose[0]).answer(trips, mine), len(trips) if mine else 0)
        if not mine:
            self.anomalous_ |= set(trips)
