"""Detector: learns what is normal for agents, scores new trips, and continues to learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import (
    DataError,
    InUseError,
    ModelFileError,
    NotFittedError,
    Place,
    UnknownAgentWarning,
    some_names,
)
from astray.core.processes import cores
from astray.core.settings import check_parameters
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId, find_trips
from astray.core.zones import Zone, by_place
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import Reward
from astray.model.configuration import check_rates, explorer_names
from astray.model.file import ModelFile, write_model
from astray.model.gps_trips import GpsTrips
from astray.model.memories import Memories
from astray.model.observing import Observed, Question
from astray.model.packing import Contents, FilePath, pack, unpack
from astray.model.parameters import Parameters, documented
from astray.model.parts import plain_threshold, restore_threshold
from astray.model.plain_values import plain
from astray.model.store import MODEL, Store
from astray.model.trip_selection import sort_out, teachable
from astray.model.worlds import World, world_named, world_of
from astray.scoring.decisions import Bounds, Levels, Rate, Threshold, decide, rate_level, threshold
from astray.scoring.normality import AspectScores, Calibration, TripScores
from astray.scoring.scores import CHUNK_FIXES, AgentModel, Scores, chunks, fix_table, p_name, trip_table

if TYPE_CHECKING:
    from astray.explain import Explanation
    from astray.runtime.session import Session

Array = NDArray[Any]
Floats = NDArray[np.float64]
Result = TypeVar("Result")

UNSAVED = ("dynamics", "background", "progress")
"""Parameters that are functions or objects, which no file can hold."""


class Detector(Parameters):
    """Detects anomalous trips and sequences by inverse reinforcement learning.

    A detector assumes that an agent does what it wants: it learns a reward that ranks the agent's own trips above other
    people's and above what the agent might have done instead. By this reward it scores new trips, with an uncertainty.

    For GPS trips (:class:`~astray.Trajectories` with time, lat, lon) the reward judges how a trip compares with the
    agent's past ones. So one reward serves everybody: it ships with astray, and to fit is only to count past trips.

    - Trips of one agent make a model of that agent. With other people's trips (``population``) it also counts where
      these people go and, if at least a dozen of them have ten trips each, the reward learns a second stage from them,
      which stays only if people held out of it are better for it.
    - Trips of many agents make a model with a memory for each agent. The reward continues to learn from them, and
      serves agents that it has never met: :meth:`enroll` counts their trips.
    - ``pooled=True`` makes one memory of all trips, such as those of a town's taxis; the reward then continues to learn
      from these trips.

    The detector learns the agent's own reward by Algorithm 1 of the paper for states and actions of any kind
    (:meth:`Trajectories.from_steps <astray.Trajectories.from_steps>`), for the preset ``kdd19``, for features that the
    shared reward does not know (other habits, another encoder, a context), and with your own explorers or background.

    Attributes
    ----------
    reward_
        The reward of steps and of trips (:class:`~astray.irl.shared.Reward`); ``posterior_`` are its step heads.
    memories_
        Maps each agent to its :class:`~astray.model.agent_memory.AgentMemory`: all that the model knows of the agent.
        A loaded model reads a memory from its file when somebody asks for it.
    agents
        The agents whose trips it has learned from.
    training_history_
        The measures of training: a table with one row for each iteration, empty if they are not known.
    anomalous_
        The trips that proved anomalous, which the model never learns from.
    suspects_
        Past trips that look like another agent's; the model does not remember them. If they all prove anomalous, call
        ``partial_fit(anomalous=detector.suspects_)``.
    waiting_, questions_
        The flagged trips that wait for a person, and the model's questions about them.
    n_trips_, n_updates_
        The number of trips that the model has learned from, and how many times it continued to learn.
    world_
        What the model has learned, and how it handles trajectories of its kind (:class:`~astray.model.worlds.World`).

    Examples
    --------
    >>> from astray.simulate import city
    >>> trips = city(people=4, days=14, seed=0).trips
    >>> mine, others = trips.agent("p00"), trips.without("p00")
    >>> detector = Detector().fit(mine[:-5])
    >>> detector.score_samples(mine[-5:]).mean() > detector.score_samples(others[-5:]).mean()
    np.True_
    >>> detector.score(others[-1]).columns[:4]
    ['agent', 'trajectory', 'normality', 'uncertainty']

    Many agents, and one who comes later:

    >>> fleet = Detector(iterations=1).fit(trips.without("p03"))
    >>> new = trips.agent("p03")
    >>> fleet.enroll(new[:30])
    30
    >>> fleet.score(new[30:33])["history"].to_list()
    [30.0, 30.0, 30.0]
    >>> fleet.forget("p03")
    >>> "p03" in fleet.agents
    False
    """

    world_: World
    _store: Store | None
    _model_there: bytes

    # ---------------------------------------------------------------- parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters given to the constructor, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Changes parameters: thresholds, ``scaling`` and ``observing`` at once, the others from the next fit on."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise DataError(
                    f"{type(self).__name__} has no parameter {name!r}", remedy=f"give one of {', '.join(known)}"
                )
            setattr(self, name, value)
        if {"eps", "false_alarm_rate"} & set(params):
            check_rates(self)
        return self

    def __repr__(self) -> str:
        values = ((f.name, repr(getattr(self, f.name)), repr(f.default)) for f in fields(self))
        return f"{type(self).__name__}({', '.join(f'{n}={value}' for n, value, usual in values if value != usual)})"

    # ---------------------------------------------------------------- learning

    @one_thread()
    def fit(self, trips: Trajectories, y: ArrayLike | None = None, population: Trajectories | None = None) -> Self:
        """Learns what is normal.

        Parameters
        ----------
        trips
            Past trips of one agent, or of many.
        y
            +1 for normal trips (the default), -1 for trips that are known to be anomalous: the detector does not learn
            from these.
        population
            Other agents' trips, for a model of one agent or a pool: what else people do, and where they go. Trips of
            agents in ``trips`` are left out.
        """
        check_parameters(self)
        check_rates(self)
        good = teachable(trips, y)
        if not good.any():
            raise DataError("no trajectory to learn from", remedy="give at least one that is not marked anomalous")
        world = world_of(trips).fit(self, trips[good], trips[~good], population)
        return self._begin_with(world)

    def begin(self) -> Self:
        """Begins a model of GPS trips that knows nobody yet, with the shipped reward; :meth:`enroll` adds agents."""
        check_parameters(self)
        check_rates(self)
        return self._begin_with(GpsTrips.begin(self))

    def _begin_with(self, world: World) -> Self:
        # Fitting may fail, so the detector is changed only now.
        self.world_, self._store, self._model_there = world, None, b""
        return self

    @one_thread()
    def partial_fit(
        self,
        trips: Trajectories | None = None,
        y: ArrayLike | None = None,
        *,
        anomalous: Sequence[TripId | str] = (),
        population: Trajectories | None = None,
    ) -> Self:
        """Continues to learn from further trips, also after loading.

        The model remembers the trips. An agent's own reward continues to learn for a third of the iterations, from the
        kept past trips and the new ones together. The shared reward stays as it is, unless you give trips of others. In
        a model of one agent a trip replaces the one that the model remembers under the same name.

        The model never learns from trips confirmed as anomalous: it takes them out of its memory, and refuses them when
        they come again without a mark, even under another name.

        Parameters
        ----------
        trips
            New trips; None if only ``anomalous`` is given.
        y
            +1 for normal trips (the default), -1 for anomalous ones.
        anomalous
            Trips, new or past, that proved anomalous: their ids, or names: ``"agent/trajectory"``, or ``"trajectory"``
            where only one agent has it. The model refuses a trip that is neither given nor known.
        population
            Other agents' trips. The model adds the places where they go to its counts.
        """
        if not self._is_fitted:
            if trips is None:
                raise DataError("there is nothing to learn from", remedy="give trips")
            refused = sort_out(trips, y, anomalous).refused
            return self.fit(trips, np.where(trips.isin(refused), -1, 1), population)
        self.fitted.update(trips, y, anomalous, population)
        return self

    @one_thread()
    def enroll(self, trips: Trajectories) -> int:
        """Counts trips of new agents, or further trips of known ones; trains nothing.

        Leaves out trips that the model already remembers, and trips that proved anomalous, even under another name.
        Returns the number of trips that it counted.
        """
        return self.fitted.enroll(trips)

    @one_thread()
    def observe(self, trips: Trajectories) -> Observed:
        """Scores trips in the order of time, and learns from each trip that is not flagged.

        Flagged trips wait (``waiting_``); while many are flagged, so do trips that are not clearly normal. The model
        asks about waiting trips that are alike: a new habit, or somebody else (``questions_``)? It learns from them
        only if your :meth:`answer` allows it.

        Examples
        --------
        >>> from astray.simulate import city
        >>> mine = city(people=2, days=21, seed=0).trips.agent("p00")
        >>> detector = Detector().fit(mine[:40])
        >>> observed = detector.observe(mine[40:45])
        >>> observed.table.columns
        ['agent', 'trajectory', 'score', 'p_value', 'became']
        >>> detector.n_trips_ == 40 + (observed.table["became"] == "learned").sum()
        True
        """
        return self.fitted.observe(trips, self.is_low)

    def answer(self, question: Question | Sequence[TripId | str], mine: bool) -> None:
        """Says whether the agent made these waiting trips: the model learns from them, or else refuses trips like them.

        Parameters
        ----------
        question
            One of ``questions_``, or ``waiting_`` trips of one agent: their ids, or names (``"agent/trajectory"``).
        mine
            Whether the trips were the agent's own.
        """
        asked = question.trips if isinstance(question, Question) else question
        trips = find_trips(asked, self.fitted.waiting, among="trips that wait for an answer")
        self.world_.answer(list(dict.fromkeys(trips)), mine)

    def forget(self, agent: str) -> None:
        """Removes an agent, or a member of the population, and all that the model knows of it.

        A reward that was learned from many agents' trips stays as it is; it holds no places.

        Raises
        ------
        DataError
            If the model knows nobody of this name, or knows this agent alone; nothing was changed.
        """
        self.fitted.forget(agent)

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Takes trips out of an agent's memory; the model never learns from them again if they proved ``anomalous``.

        Returns how many of them it remembered. Other agents are still compared with all the places where this agent
        went; :meth:`forget` removes these, too.
        """
        return self.fitted.forget_trips(agent, trajectories, anomalous=anomalous)

    # ---------------------------------------------------------------- what was learned

    @property
    def _is_fitted(self) -> bool:
        return "world_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted

    @property
    def fitted(self) -> World:
        """The fitted model; raises a NotFittedError before the first fit."""
        if not self._is_fitted:
            raise NotFittedError(
                f"this {type(self).__name__} has not been fitted",
                remedy="call fit(trips) first, or astray.load(path)",
            )
        if self.world_.parameters is not self:  # this detector is a copy
            self.world_ = self.world_.with_parameters(self)
        return self.world_

    @property
    def reward_(self) -> Reward:
        """The reward of steps and of trips."""
        return self.fitted.reward

    @property
    def posterior_(self) -> RewardPosterior:
        """The heads that reward steps, as arrays."""
        return self.reward_.step

    @property
    def training_history_(self) -> pl.DataFrame:
        """The measures of the last training of the reward, one row for each iteration; empty if they are not known."""
        return self.reward_.history

    @property
    def aspect_weights_(self) -> tuple[float, ...]:
        """The weight of each aspect of the reward."""
        return self.fitted.weights

    @property
    def memories_(self) -> Memories:
        """The memory of each agent; empty if the model remembers no trips."""
        return self.fitted.memories

    @property
    def agents(self) -> list[str]:
        """The agents whose trips the model has learned from."""
        return self.fitted.agents

    @property
    def is_one(self) -> bool:
        """True if the model is of one agent or one pool: it then compares every trip with the same past."""
        return self.fitted.is_one

    @property
    def calibration_(self) -> Calibration:
        """The scale of the scores of a model of one agent or pool, for trips that are not long after its past ones.

        Ask :meth:`agent_model` for the scale of a trip that began later.
        """
        world = self.fitted
        if not world.is_one:
            raise DataError("each agent of this model has its own scale", remedy="ask agent_model(agent).calibration")
        return next(iter(world.calibrations(None)))

    @property
    def anomalous_(self) -> frozenset[TripId]:
        """The trips that proved anomalous."""
        return self.fitted.anomalous

    @property
    def suspects_(self) -> tuple[TripId, ...]:
        """Past trips that look like somebody else's; the model does not remember them."""
        return self.fitted.suspects

    @property
    def waiting_(self) -> tuple[TripId, ...]:
        """The flagged trips that wait for a person's answer."""
        return self.fitted.waiting

    @property
    def questions_(self) -> tuple[Question, ...]:
        """The model's questions to a person, each about an agent's flagged trips that are alike."""
        return self.fitted.questions

    @property
    def known_trips_(self) -> set[TripId]:
        """The trips that the model knows: remembered, kept, waiting, or known as anomalous."""
        return self.fitted.known_trips

    @property
    def n_trips_(self) -> int:
        """The number of trips that the model has learned from."""
        return self.fitted.n_trips

    @property
    def n_updates_(self) -> int:
        """The number of times that the model continued to learn."""
        return self.fitted.updates

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """Returns the agents of these trips that the model does not know: it has no past trips of them."""
        return self.fitted.unknown_agents(trips)

    def agent_model(
        self, agent: str = "", near: tuple[float, float] | None = None, began: float | None = None
    ) -> AgentModel:
        """Returns the parts that score one agent's GPS trips fix by fix; for an unknown agent, around ``near``.

        ``began`` is the time at which the trip began. If that is long after the newest past trip, the scale is wider.
        """
        return self.fitted.agent_model(agent, near, began)

    # ---------------------------------------------------------------- local time

    def zones(self, trips: Trajectories) -> list[Zone]:
        """Returns the time zone in which the times of each trip are printed.

        That is ``time_zone``, if it is given; else the offset in the trip's file; else the zone where the agent made
        its past trips; for an agent without past trips, the zone where the trip was made.
        """
        return self.fitted.zones(trips) or []

    def zone(self, agent: str, near: tuple[float, float] | None = None) -> Zone:
        """Returns the time zone of an agent's live trips; for a stranger, the zone of a place (lat, lon)."""
        return self.given_zone or self.fitted.home(agent) or by_place(*(near or (0.0, 0.0)))

    # ---------------------------------------------------------------- scoring

    def open(self, agent: str = "", **settings: Any) -> Session:
        """Returns a session that scores one agent's live trips fix by fix; it never changes the model.

        ``settings`` are those of :class:`astray.runtime.Session`: ``reorder``, ``stay``, ``eps``, ``gamma``, ...
        """
        from astray.runtime.session import Session

        return Session(self, agent, **settings)

    def _score(self, trips: Trajectories, every: bool = False) -> Scores:
        world = self.fitted
        return Scores(trips, world.featurize(trips, every), world.reward, world.calibrations(trips))

    def _map(
        self, trips: Trajectories, what: Callable[[Scores, Array], Result], every: bool = False
    ) -> list[tuple[Array, Result]]:
        """Calls ``what`` with the scores of each chunk and the positions of its trips; returns both, chunk by chunk."""
        order = self.fitted.order(trips)
        ordered = trips if order is None else trips[order]
        position = np.arange(len(trips)) if order is None else order

        def of(chunk: slice) -> tuple[Array, Result]:
            with one_thread():
                return position[chunk], what(self._score(ordered[chunk], every), position[chunk])

        found = chunks(ordered.lengths, CHUNK_FIXES)
        threads = cores(self.n_jobs)
        if threads <= 1:
            return [of(chunk) for chunk in found]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(of, found))

    def _table(
        self, trips: Trajectories, what: Callable[[Scores, Array], pl.DataFrame], every: bool = False
    ) -> tuple[pl.DataFrame, Array]:
        """Returns the tables of all chunks, and the positions of the trips in them."""
        parts = self._map(trips, what, every)
        if not parts:
            raise DataError("no trajectories were given", remedy="give at least one")
        return pl.concat([table for _, table in parts]), np.concatenate([position for position, _ in parts])

    def is_low(self, trip: Trajectories, calibration: Calibration, of: TripScores, by_aspect: AspectScores) -> bool:
        """Returns True if one trip, whose scores have this calibration, is low by the detector's thresholds."""
        eps, rate = self.fitted.eps, self.false_alarm_rate
        if eps is not None:
            return bool(of.score[0] <= threshold(eps, trip)[0])
        rates = self.fitted.rates(rate)
        levels = Levels(np.array([rate_level(rate, calibration, rates)]), rates)
        return bool(levels.low_aspects(by_aspect).any() if rates else of.score[0] <= levels.eps[0])

    def _levels(
        self, trips: Trajectories, eps: Threshold | None, false_alarm_rate: Rate | None
    ) -> Callable[[Scores, Array], Levels]:
        """Returns a function that gives the thresholds of a chunk, from its scores and the positions of its trips."""
        if eps is not None and false_alarm_rate is not None:
            raise DataError(
                "eps and false_alarm_rate are each a threshold by itself", remedy="give one of them, not both"
            )
        by = eps if eps is not None or false_alarm_rate is not None else self.fitted.eps
        if by is None:
            rate = self.false_alarm_rate if false_alarm_rate is None else false_alarm_rate
            rates = self.fitted.rates(rate)
            return lambda scores, at: scores.levels(rate, rates)
        given = threshold(by, trips)  # for all trips at once, in the order in which they were given
        return lambda scores, at: Levels(given[at])

    def score_samples(self, trips: Trajectories) -> Floats:
        """Returns the score of each trip, by which it is judged; high is normal, NaN is a trip without a usable fix."""
        return self._scored(trips, lambda scores, _: scores.of_trips.score)

    def decision_function(self, trips: Trajectories) -> Floats:
        """Returns how far each trip scores above its threshold; with rates by aspect, the aspect nearest to its own."""
        levels = self._levels(trips, None, None)
        return self._scored(trips, lambda scores, at: scores.above(levels(scores, at)))

    def _scored(self, trips: Trajectories, what: Callable[[Scores, Array], Floats]) -> Floats:
        found = np.full(len(trips), np.nan)
        for position, values in self._map(trips, what):
            found[position] = values
        return found

    def predict(self, trips: Trajectories) -> NDArray[np.int64]:
        """Returns +1 for normal trips and -1 for those that score low, however uncertain; see :meth:`decide`."""
        with np.errstate(invalid="ignore"):
            return np.where(self.decision_function(trips) <= 0.0, -1, 1)

    def decide(
        self,
        trips: Trajectories,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: Rate | None = None,
    ) -> NDArray[np.str_]:
        """Returns ``normal``, ``anomaly`` or ``review`` for each trip.

        A trip that scores low is an anomaly if the heads agree (uncertainty at most ``gamma``) and the agent has enough
        past trips (``min_history``); otherwise a person should look at it.

        Parameters
        ----------
        trips
            New trips.
        eps, gamma
            Thresholds to use instead of the detector's: numbers, or functions of the trips
            (:class:`astray.scoring.decisions.ByHour`, :class:`astray.scoring.decisions.ByContext`, or your own).
        false_alarm_rate
            Instead of ``eps``: the share of normal trips that may count as low, by conformal p-values. Or a mapping
            from aspects to shares: a trip counts as low if the p-value of any aspect is at most the aspect's share, so
            at most the sum of the shares of normal trips does.
        """
        return self.score(trips, eps=eps, gamma=gamma, false_alarm_rate=false_alarm_rate)["decision"].to_numpy()

    def score(
        self,
        trips: Trajectories,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: Rate | None = None,
    ) -> pl.DataFrame:
        """Returns a table with one row for each trip.

        Columns: agent, trajectory, normality (N(tau), about 0 with spread 1 for normal trips), uncertainty (standard
        deviation over the heads, wider where the history is short), score (compared with the threshold: N(tau) or, for
        a reward that was learned from steps alone, the worst window if that is lower), p_value (conformal; null if no
        trip was held out of learning, as with preset="kdd19"), p_place, p_route, p_manner and p_time (the p-value of
        each aspect alone: the share of normal trips that are as unusual in it; null if ``look_for`` leaves it out, or
        if the reward has no aspects), aspect (what is most unusual: place, route, manner or time; if rates by aspect
        flag the trip, the aspect that is rarest for its rate), decision, history (past trips behind the score), start
        (when the trip began), zone (its time zone, see :meth:`zones`), and the segment in which the trip lost most
        normality: segment_start, segment_end, segment_normality (null if there is none). Date-times are in UTC; text
        files have them in the zone, with the offset. States and actions have no aspects, no start and no zone.

        Trips of an unknown agent have no history and are for review, whatever they score; an
        :class:`~astray.core.errors.UnknownAgentWarning` names these agents.
        """
        world, levels = self.fitted, self._levels(trips, eps, false_alarm_rate)
        found, trip = self._table(trips, lambda scores, at: trip_table(scores, levels(scores, at), world))
        table = _sorted(found, trip)
        self._warn_of_unknown(trips)
        decision = decide(
            table["low"].to_numpy(),
            table["uncertainty"].to_numpy(),
            table["history"].to_numpy(),
            gamma=threshold(self.gamma if gamma is None else gamma, trips, "gamma"),
            min_history=self.min_history,
        )
        scores = ("normality", "uncertainty", "score", "p_value", *map(p_name, world.table_aspects))
        return (
            table.with_columns(pl.Series("decision", decision), pl.col(*scores).fill_nan(None), *self._zones(trips))
            .select(
                "agent", "trajectory", *scores, "aspect", "decision", "history", "^start$", "^zone$", "^segment_.*$"
            )
            .rechunk()
        )

    def _zones(self, trips: Trajectories) -> list[pl.Series]:
        """Returns the zones of trips as a column; no column where there is no time."""
        zones = self.fitted.zones(trips)
        return [] if zones is None else [pl.Series("zone", [str(zone) for zone in zones], pl.String)]

    def score_fixes(self, trips: Trajectories) -> pl.DataFrame:
        """Returns a table with one row for each fix.

        Columns: agent, trajectory, time, lat, lon (or step, for states and actions), normality (n(s, a)), uncertainty,
        lo and hi (normality minus and plus two standard deviations), aspect (the one with the lowest normality), fault
        (why the fix is a receiver's error, which has no scores; empty for a good fix), and zone, as in :meth:`score`.
        """
        world = self.fitted
        table, trip = self._table(trips, lambda scores, _: fix_table(scores, world), every=True)
        position = np.repeat(trip, trips.lengths[trip])
        table = table.with_columns(column.gather(position) for column in self._zones(trips))
        return table.rechunk() if (np.diff(trip) > 0).all() else _sorted(table, position)

    def explain(
        self,
        trips: Trajectories,
        trajectory: TripId | str | int = 0,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: Rate | None = None,
    ) -> Explanation:
        """Explains a trip's score: its segments, in words, and the route that the agent would rather have taken.

        Parameters
        ----------
        trips
            Some trips.
        trajectory
            Which of them: its id, its name (``"agent/trajectory"``, or ``"trajectory"`` where only one agent has it) or
            its position; the first by default.
        eps, gamma, false_alarm_rate
            The thresholds by which it decides, as in :meth:`decide`.

        Examples
        --------
        >>> from astray.simulate import city
        >>> trips = city(people=2, days=10, seed=0).trips
        >>> mine, other = trips.agent("p00"), trips.agent("p01")
        >>> detector = Detector(iterations=3, seed=0).fit(mine, population=other[:20])
        >>> explanation = detector.explain(other, "p01-0030")
        >>> print(explanation)  # doctest: +ELLIPSIS
        Trip p01-0030 of p01: ...
        >>> len(explanation.normality) == len(explanation.time), len(explanation.habitual) == len(mine)
        (True, True)
        """
        from astray.explain import position_of

        world = self.fitted
        trip = world.check(trips)[position_of(trips, trajectory)]
        self._warn_of_unknown(trip)
        with one_thread():
            scores = self._score(trip, every=True)
            low = self._levels(trip, eps, false_alarm_rate)(scores, np.array([0]))
            unsure = threshold(self.gamma if gamma is None else gamma, trip, "gamma")
            bounds = Bounds(float(low.eps[0]), float(unsure[0]), float(self.min_history), low.rates)
            explanation = world.explain(trip, scores, bounds)
        zones = world.zones(trip)
        return explanation if zones is None else replace(explanation, zone=zones[0])

    def _warn_of_unknown(self, trips: Trajectories) -> None:
        unknown = self.unknown_agents(trips)
        if unknown:
            text = f"the model does not know {some_names(unknown)}: such trips are for review"
            warnings.warn(text, UnknownAgentWarning, stacklevel=3)

    # ---------------------------------------------------------------- keeping

    def save(self, path: FilePath) -> None:
        """Writes the model to a file; :func:`astray.load` opens it again.

        If the model was opened from this file, only the changes are written, all at once or not at all; any other file
        is written whole. The file is an SQLite database without code; equal models, written whole, give equal bytes. It
        grows with the trips that the model remembers, and is as private as they are. Functions that were given as
        parameters are not saved.

        Raises
        ------
        InUseError
            If another process is changing the file, or has changed the same agents since this model was opened;
            nothing was written.
        """
        world = self.fitted
        if isinstance(self._store, ModelFile) and self._store.is_at(path):
            self.save_changes()
            return
        if isinstance(self._store, ModelFile) and Path(path).resolve() == self._store.path and Path(path).exists():
            raise InUseError(
                "another process has put another file in its place since it was opened",
                place=Place(str(path)),
                remedy="open it again, or save this one under another name",
            )
        parts = self.shared_parts
        write_model(path, parts, world.rows())
        if self._store is None:
            self._opened_with(ModelFile.open(path), parts[MODEL])

    def save_changes(self) -> None:
        """Writes the changes to the store that the model was opened from, all at once or not at all.

        Raises
        ------
        InUseError
            If somebody else is changing the store, or has changed the same agents since they were read; nothing was
            written.
        """
        world, store = self.fitted, self._store
        if store is None:
            raise ModelFileError("this model was not opened from anywhere", remedy="save it to a file first")
        model = self._model()
        with store.changing() as change:
            if model != self._model_there:
                if store.shared(MODEL) != self._model_there:
                    raise InUseError(
                        "another process has changed the settings of this model since it was opened",
                        place=Place(store.name),
                        remedy="open the model again, and repeat the change",
                    )
                change.share(MODEL, model)
            committed = world.write_changes(store, change)
        committed()
        self._opened_with(store, model)

    def to_store(self, store: Store) -> None:
        """Writes the whole model to an empty store; the detector keeps the store that it has."""
        world = self.fitted
        with store.changing() as change:
            for part, data in self.shared_parts.items():
                change.share(part, data)
            for agent, row in world.rows():
                change.put(agent, row, None)

    @classmethod
    def from_store(cls, store: Store) -> Self:
        """Returns the model that a store holds, such as a file; see :func:`astray.load`."""
        data = store.shared(MODEL)
        model = unpack(data, store.name)
        world = world_named(model)
        with model.fitting_together():
            detector = cls._of_parameters(model)
            detector.world_ = world.unpack(detector, model, store)
            detector._opened_with(store, data)
        return detector

    def _opened_with(self, store: Store, model: bytes) -> None:
        self._store, self._model_there = store, model
        self.world_.opened_with(store)

    @property
    def shared_parts(self) -> dict[str, bytes]:
        """The parts that all agents share, as a store keeps them."""
        return {MODEL: self._model(), **self.fitted.parts()}

    def _model(self) -> bytes:
        """Returns reward and settings as bytes."""
        learned = self.fitted.pack()  # first: for a user's encoder its error message says more
        return pack(self.world_.kind, {"parameters": self.saved_parameters, **learned})

    @property
    def saved_parameters(self) -> dict[str, Any]:
        """The parameters that a file can hold, as plain values."""
        params = self.get_params() | dict.fromkeys(UNSAVED)
        params |= {name: plain_threshold(name, params[name]) for name in ("eps", "gamma") if params[name] is not None}
        if params.get("explorers") is not None:
            params["explorers"] = explorer_names(params["explorers"])
        saved: dict[str, Any] = plain(params)
        return saved

    @classmethod
    def _of_parameters(cls, model: Contents) -> Self:
        """Returns a detector that is not fitted, with the parameters that a file holds."""
        inside = model.within("parameters")
        thresholds = {
            name: restore_threshold(inside, name) for name in ("eps", "gamma") if inside.values.get(name) is not None
        }
        found = cls(**{**inside.values, **thresholds})
        check_parameters(found)
        return found


def _sorted(table: pl.DataFrame, position: Array) -> pl.DataFrame:
    """Returns the rows in the order of their positions."""
    order = pl.Series("position", position)
    return table.with_columns(order).sort("position", maintain_order=True).drop("position")


Detector.__doc__ = documented(Detector.__doc__ or "", Detector)


def load(path: FilePath) -> Detector:
    """Opens a saved model; it scores at once, and needs the training library only to learn a reward.

    An agent's memory is read only when that agent is needed.

    Parameters
    ----------
    path
        A file that :meth:`Detector.save` wrote.

    Raises
    ------
    ModelFileError
        If the file is damaged, not a model, or of another version.
    """
    return Detector.from_store(ModelFile.open(path))
