"""IRLDetector: learns what is normal for one agent, or one pool of agents, and scores new trips."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError, some_names
from astray.core.settings import check_parameters
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone, by_place, home_of
from astray.explain import HABITUAL, Explanation, explain_fixes, explain_steps
from astray.features.encoders import OwnEncoder
from astray.features.featurizer import Featurizer, FeaturizerConfig, sampling_interval
from astray.features.memory import Forgetting, Memory
from astray.irl.shared import Reward
from astray.irl.step_world import StepWorld
from astray.irl.world import GeoWorld
from astray.model.configuration import (
    aspect_weights,
    featurizer_config,
    hours_from,
    learn_config,
    observing_config,
    own_explorers,
    preset,
    scale_config,
)
from astray.model.files import ModelFile, configured, plain
from astray.model.inbox import Inbox
from astray.model.observing import Learner, Observing
from astray.model.own_reward import further_steps, geo_world, step_world, train
from astray.model.parameters import AgentParameters
from astray.model.parts import Packed, pack_ids, unpack_ids
from astray.model.pool_reward import enrol_pool
from astray.model.resuming import Generated, revive
from astray.model.shared_reward import enrol, shared_reward
from astray.model.trained import Trained
from astray.model.training import remember, sample
from astray.model.updating import check_steps, first_lesson, given_again, others, sort_out, without
from astray.scoring.decisions import PAPER_EPS, Bounds, Threshold, least_rate
from astray.scoring.normality import Calibration
from astray.scoring.own_scale import OwnScores, own_scale
from astray.scoring.scores import AgentModel, Chunk, Scores

Array = NDArray[Any]

KDD19_FEATURIZER = FeaturizerConfig(encoder="raw", interval=30.0)
"""How the preset looks at trips."""


class IRLDetector(AgentParameters, Observing):
    """Sequential anomaly detection by inverse reinforcement learning.

    What an agent does is taken for what it wants: a reward is learned under which an agent's own trips are better than
    other people's and than what it might have done instead, with an uncertainty; new trips are scored by it.

    For GPS trips (:class:`~astray.Trajectories` with time, lat, lon) the reward looks at how a trip compares with
    the agent's past ones, and so is learned once for everybody: it ships with astray, and fitting is counting. With
    other people's trips (``population``) it also counts where these go, and, if a dozen of them or more have ten trips
    each, goes on learning from them for some tens of seconds. Trips of several agents are a pool, such as the taxis of
    a town: then the reward goes on learning from the pool's own trips. For states and actions of any kind
    (:meth:`Trajectories.from_steps <astray.Trajectories.from_steps>`), for the preset ``kdd19``, where the featurizer
    gives what the shared reward does not know (other habits, another encoder, a context), and with explorers or a
    background of one's own, the agent's own reward is learned by Algorithm 1 of the paper.

    Attributes
    ----------
    reward_
        The reward of steps and of trips (:class:`~astray.irl.shared.Reward`); ``posterior_`` are its step heads.
    featurizer_, world_
        How GPS trips, or states and actions, become features; the other one is None. ``featurizer_.memory`` is what is
        remembered, ``featurizer_.popularity`` where other agents go.
    aspect_weights_
        How much each aspect of the reward counts.
    calibration_
        What scores are measured on (r_bar, sigma_bar, the scores of normal trips).
    training_history_
        How the reward was learned: a table with one row an iteration, of the agent's own reward, of the shared one that
        went on learning, or of the shipped one, as far as its file tells.
    kept_
        Thinned past trips of the agent.
    agents_
        Whose trips they were: one agent's, or those of a pool.
    zone_
        The time zone in which they live (:class:`~astray.core.zones.Zone`); None for states and actions.
    anomalous_
        The trips confirmed as anomalous, which are never learned from.
    suspects_
        Suspected trips: past ones that look like other agents' rather than this one's, and are not remembered. Name
        those that proved anomalous: ``partial_fit(anomalous=detector.suspects_)`` if all did.
    n_trips_, n_updates_
        How many trips have been learned from, and how often the detector went on learning.
    config_
        The configuration that it learned with, as plain values.
    generated_
        The policy and its critic as arrays, or None.

    Examples
    --------
    >>> from astray.simulate import city
    >>> trips = city(people=4, days=14, seed=0).trips
    >>> mine, others = trips.agent("p00"), trips.without("p00")
    >>> detector = IRLDetector().fit(mine[:-5])
    >>> detector.score_samples(mine[-5:]).mean() > detector.score_samples(others[-5:]).mean()
    np.True_
    >>> detector.score(others[-1]).columns[:4]
    ['agent', 'trajectory', 'normality', 'uncertainty']
    """

    KIND: ClassVar[str] = "detector"
    UNSAVED: ClassVar[tuple[str, ...]] = ("dynamics", "background", "progress")

    reward_: Reward
    featurizer_: Featurizer | None
    world_: StepWorld | None
    aspect_weights_: tuple[float, ...]
    own_: OwnScores
    inbox_: Inbox
    kept_: Trajectories
    agents_: tuple[str, ...]
    zone_: Zone | None
    anomalous_: frozenset[TripId]
    suspects_: tuple[TripId, ...]
    n_trips_: int
    n_updates_: int
    generated_: Generated | None
    config_: dict[str, Any]

    # ---------------------------------------------------------------- learning

    @one_thread()
    def fit(self, trips: Trajectories, y: ArrayLike | None = None, population: Trajectories | None = None) -> Self:
        """Learn what is normal.

        Parameters
        ----------
        trips
            The agent's past trips, or those of a pool of agents.
        y
            By default all trips are learned from; those marked -1 (not +1) are known to be anomalous and are not.
        population
            Other agents' trips: what else people do, and where they go. Those of agents in ``trips`` are left out.
        """
        check_parameters(self)
        good = first_lesson(trips, y)
        rng = np.random.default_rng(self.seed)
        mine = trips[good]
        if not mine.is_gps:
            check_steps(mine, mine)
        rest = None if population is None else others(population, mine, self.max_population, rng)
        config = learn_config(self, mine.is_gps)
        if mine.is_gps:
            blank = self._blank(mine, rng)
            prepared = blank.prepare(mine)
            featurizer = remember(blank, prepared)
            shared = shared_reward(self, featurizer)
            if shared is not None:
                pooled = self._learns_from_the_pool(mine)
                weights = aspect_weights(shared.aspects, self.look_for, pooled)
                enrolled = enrol_pool if pooled else enrol
                trained = enrolled(self, prepared, featurizer, rest, rng, shared, weights)
            else:
                trained = train(self, geo_world(self, prepared, featurizer, rng), config, rng, rest)
        else:
            trained = train(self, step_world(self, mine, config, rng), config, rng, rest)
        self._take(trained)
        asked = (self.look_for if self.is_shared else None), trained.reward.of_a_pool
        self.aspect_weights_ = aspect_weights(trained.reward.aspects, *asked)
        self.config_ = plain(config)
        self.agents_ = tuple(mine.agents)
        self.zone_ = home_of(mine) if mine.is_gps else None
        self.anomalous_ = frozenset(trips[~good].ids)
        self.inbox_ = self.inbox_.know(self._counted(trips[~good]))
        self.n_trips_, self.n_updates_ = len(mine), 0
        return self

    def _learns_from_the_pool(self, trips: Trajectories) -> bool:
        """Whether the reward goes on learning from the trips themselves: as said, and by default if they are a pool."""
        return self.preset == "own" or (self.preset == "default" and len(trips.agents) > 1)

    def _blank(self, trips: Trajectories, rng: np.random.Generator) -> Featurizer:
        """How GPS trips are looked at, with nothing remembered yet."""
        if self.dynamics is not None:
            raise DataError(
                "dynamics are for states and actions, but these are GPS trips, which move by their velocity",
                remedy="leave dynamics out",
            )
        default = FeaturizerConfig(interval=sampling_interval(trips))
        if self.preset == "kdd19":
            default = KDD19_FEATURIZER
        named = self.encoder if isinstance(self.encoder, str) else None
        given = {"interval": self.interval, "utc_offset": hours_from(self.time_zone, trips)}
        looking = featurizer_config(default, self.featurizer, encoder=named, **given)
        own = None if self.encoder is None or named else OwnEncoder(self.encoder)
        return Featurizer.of(trips, looking, rng, own)

    @one_thread()
    def partial_fit(
        self,
        trips: Trajectories | None = None,
        y: ArrayLike | None = None,
        *,
        anomalous: Sequence[TripId | str] = (),
        population: Trajectories | None = None,
    ) -> Self:
        """Go on learning with further trips; a model that was loaded from a file can, too.

        The trips are remembered. A reward of the agent's own goes on from where it was, for a third of the iterations,
        on the kept past trips and the new ones together; the shared one stays as it is, unless there are new trips of
        others. A trip that was remembered under the same name is replaced.

        Trips confirmed as anomalous are never learned from: they are taken out of the memory and of the kept trips, and
        known from then on. Given again without a mark, under whatever name, they are refused.

        Parameters
        ----------
        trips
            New trips; None if only ``anomalous`` is given.
        y
            +1 for normal trips (the default), -1 for anomalous ones.
        anomalous
            Trips, new or past, that proved anomalous: their ids, or names: ``"agent/trajectory"``, or ``"trajectory"``
            where only one agent has it. A trip that is neither given nor known is refused.
        population
            Other agents' trips. Where they go is added to what is known of it.
        """
        if not self._is_fitted:
            if trips is None:
                raise DataError("there is nothing to learn from", remedy="give trips")
            refused = sort_out(trips, y, anomalous).refused
            return self.fit(trips, np.where(trips.isin(refused), -1, 1), population)
        learned = self._learned()
        given = trips if trips is None else self._check(trips)
        new, trained, refused = sort_out(given, y, anomalous, self.known_trips_, self.anomalous_)
        if new is not None and y is None:
            again = given_again(self._counted(new), self.inbox_.rejected)
            new, trained, refused = without(new, again), trained - again, refused | again
        proved = self._proved(given, refused)
        if new is not None and len(new):
            self._go_on(new, refused, without(self.kept_, refused | trained), population)
            self.agents_ = tuple(dict.fromkeys([*self.agents_, *new.agents]))
            self.n_trips_ += len(trained - learned)
        else:
            # Nothing to learn from: the reward stays.
            self._forget(refused)
        self.suspects_ = tuple(trip for trip in self.suspects_ if trip not in refused)
        self.n_trips_ -= len(refused & learned)
        self.inbox_ = self.inbox_.without(trained).allow(trained).reject(refused).know(proved)
        self.anomalous_ = (self.anomalous_ | refused) - trained
        return self

    def forget(self, agent: str) -> None:
        """Remove somebody of the population, or of a pool, and all that is known of them.

        What was learned from their trips together with others' stays: the numbers of a reward, which hold no places.

        Raises
        ------
        DataError
            If nobody of this name is known, or the model is of this agent alone; nothing was changed.
        """
        self._require_fitted()
        if agent == self._name:
            raise DataError(f"the model is of {agent!r} alone", remedy="delete its file to forget this agent")
        others = () if self.featurizer_ is None else self.featurizer_.popularity.agents.trip_ids
        inbox, learned = self.inbox_, self._learned()
        held = learned | self.anomalous_ | {*inbox.waiting.trip_ids, *inbox.rejected.trip_ids}
        gone = {trip for trip in held if trip.agent == agent}
        if agent not in (*self.agents_, *others) and not gone:
            raise DataError(
                f"the model knows nobody named {agent!r}, so there is nothing to forget", remedy="check the name"
            )
        self._forget(gone)
        if self.featurizer_ is not None:
            popularity = self.featurizer_.popularity.without([agent])
            self.featurizer_ = replace(self.featurizer_, popularity=popularity)
        self.agents_ = tuple(other for other in self.agents_ if other != agent)
        self.suspects_ = tuple(trip for trip in self.suspects_ if trip not in gone)
        self.inbox_ = replace(inbox.without(gone), rejected=inbox.rejected.remove(gone))
        self.n_trips_ -= len(gone & learned)
        self.anomalous_ -= gone

    def _counted(self, trips: Trajectories) -> Memory:
        """What would be remembered of trips by a shared reward; nothing, if that is not how the detector sees them."""
        if self.featurizer_ is None or not self.is_shared or not len(trips):
            return Memory()
        return self.featurizer_.with_memory(Memory()).remember(trips).memory

    def _proved(self, given: Trajectories | None, trips: Collection[TripId]) -> Memory:
        """What is remembered, or would be, of trips that proved anomalous."""
        if self.featurizer_ is None or not self.is_shared:
            return Memory()
        remembered = self.featurizer_.memory
        remembered = replace(remembered.remove(set(remembered.trip_ids) - set(trips)), forgetting=Forgetting())
        if given is None:
            return remembered
        new = self._counted(given[given.isin(trips)])
        return new.merge(remembered.remove(new.trip_ids))

    @property
    def _name(self) -> str:
        """Whose model it is; that of a pool has no name."""
        return self.agents_[0] if len(self.agents_) == 1 else ""

    def _inboxes(self) -> Mapping[str, Inbox]:
        return {self._name: self.inbox_}

    def _learned(self) -> set[TripId]:
        remembered = () if self.featurizer_ is None else self.featurizer_.memory.trip_ids
        return {*self.kept_.ids, *remembered, *self.suspects_}

    def _by_learner(self, trips: Trajectories) -> Mapping[str, Array]:
        if not self.is_shared:
            raise DataError(
                "only a detector with a shared reward learns trip by trip", remedy="call partial_fit(trips)"
            )
        unknown = self.unknown_agents(trips)
        if unknown:
            remedy = f"give trips.agent({self._name!r})"
            raise DataError(f"the model is of {self._name}, not of {some_names(unknown)}", remedy=remedy)
        return {self._name: np.arange(len(trips))}

    def _learner(self, agent: str) -> Learner:
        assert self.featurizer_ is not None
        known = (self.featurizer_, self.own_, self.inbox_, self.reward_, self.aspect_weights_)
        return Learner(agent, *known, scale_config(self), observing_config(self))

    def _keep(self, learner: Learner, new: int) -> None:
        self.featurizer_, self.own_, self.inbox_ = learner.featurizer, learner.own, learner.inbox
        self.n_trips_ += new

    def _forget(self, trips: Collection[TripId]) -> None:
        self.kept_ = without(self.kept_, trips)
        if self.featurizer_ is not None:
            before, self.featurizer_ = self.featurizer_.memory, self.featurizer_.forget(trips)
            if self.is_shared:
                self.own_ = self.own_.follow(before, self.featurizer_.memory)

    def _go_on(
        self, new: Trajectories, refused: Collection[TripId], kept: Trajectories, population: Trajectories | None
    ) -> None:
        rng = np.random.default_rng([self.seed, self.n_updates_ + 1])
        rest = None
        if population is not None:
            rest = others(population, new, self.max_population, rng, self.agents_)
        featurizer = self.featurizer_
        if featurizer is not None:
            featurizer = remember(featurizer.forget(refused), featurizer.prepare(new))
        if featurizer is not None and featurizer.counts:
            # What the memory has let go of must not come back by way of the kept trips.
            kept = kept[kept.isin(featurizer.memory.trip_ids)]
            featurizer = replace(featurizer, popularity=featurizer.popularity.without(new.agents))
        both = Trajectories.concat([kept, sample(new, self.max_trips, rng)])
        if featurizer is not None and self.is_shared:
            # Whether those that are given again are suspected is found out anew.
            again = set(new.ids)
            suspected = tuple(trip for trip in self.suspects_ if trip not in again)
            known = (self.reward_, self.aspect_weights_, suspected)
            trained = enrol(self, featurizer.prepare(both), featurizer, rest, rng, *known)
        else:
            config = configured(preset("default"), self.config_)
            world: GeoWorld | StepWorld
            if featurizer is not None:
                world = GeoWorld.of(both, featurizer, own_explorers(self.explorers))
            else:
                assert self.world_ is not None
                world = further_steps(self, self.world_, both, config, rng)
            config = replace(config, iterations=max(1, config.iterations // 3))
            start = revive(self.reward_.step, self.generated_, config, rng)
            trained = train(self, world, config, rng, rest, start)
        reward = trained.reward
        if not self.is_shared:
            past = [self.training_history_, reward.history]
            reward = replace(reward, history=pl.concat(past, how="diagonal_relaxed"))
        self._take(replace(trained, reward=reward, inbox=self.inbox_))
        self.n_updates_ += 1

    def _take(self, trained: Trained) -> None:
        """Nothing has been changed so far; now everything is, at once."""
        self.reward_, self.featurizer_, self.world_, self.own_ = (
            trained.reward,
            trained.featurizer,
            trained.world,
            trained.own,
        )
        self.generated_, self.kept_ = trained.generated, trained.kept
        self.suspects_, self.inbox_ = trained.suspects, trained.inbox
        self._own_calibration = trained.calibration

    # ---------------------------------------------------------------- looking

    @property
    def is_shared(self) -> bool:
        """Whether trips are scored by a reward that serves everybody, not by the agent's own."""
        self._require_fitted()
        return self.reward_.trip is not None

    @property
    def calibration_(self) -> Calibration:
        """What scores are measured on."""
        self._require_fitted()
        return self._calibration()

    def _calibration(self, unfinished: bool = False) -> Calibration:
        return self._measured()(unfinished)

    def _measured(self) -> Callable[[bool], Calibration]:
        """What trips are measured on, whole or unfinished, as the detector is now."""
        own = self._own_calibration
        if own is not None:
            return lambda unfinished: own
        assert self.featurizer_ is not None
        of = (self.reward_, self.aspect_weights_, self.own_, self.featurizer_.memory.history, scale_config(self))
        return own_scale(*of).calibration

    def _calibrations(self, trips: Trajectories) -> Sequence[Calibration]:
        return [self._calibration()]

    def _eps(self) -> Threshold | None:
        self._require_fitted()
        if self.eps is not None or self._own_calibration is None:
            return self.eps
        few = least_rate(self._own_calibration.normal.total) > self.false_alarm_rate
        return PAPER_EPS if self.preset == "kdd19" or few else None

    @property
    def agents(self) -> list[str]:
        """The agents whose trips it has learned from."""
        self._require_fitted()
        return list(self.agents_)

    def _zone(self, model: ModelFile) -> Zone | None:
        """The zone that a file names; those of earlier versions name none, but know the place."""
        named = model.value("zone", str) if "zone" in model.values else ""
        if named or self.featurizer_ is None:
            return Zone.of(named) if named else None
        return by_place(self.featurizer_.projection.lat, self.featurizer_.projection.lon)

    def _home(self, agent: str) -> Zone | None:
        return self.zone_

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """The agents of these trips that the model is not of; a pool is asked about anybody."""
        self._require_fitted()
        return [agent for agent in trips.agents if self._is_unknown(agent)]

    def _is_unknown(self, agent: str) -> bool:
        return bool(self._name and agent and agent != self._name)  # what has no name may be the agent's own

    def _check(self, trips: Trajectories) -> Trajectories:
        self._require_fitted()
        if trips.is_gps != (self.featurizer_ is not None):
            wanted = "GPS fixes (time, lat, lon)" if self.featurizer_ is not None else "states and actions"
            raise DataError(
                f"this detector was fitted on {wanted}, but these trajectories hold {', '.join(trips.columns)}",
                remedy="give trajectories of the kind it was fitted on",
            )
        if not trips.is_gps:
            check_steps(trips, self.kept_)
        return trips

    def _featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        self._check(trips)
        unknown = np.isin(trips.agent_ids, self.unknown_agents(trips))
        if self.featurizer_ is None:
            assert self.world_ is not None
            return Chunk.of_steps(trips, self.world_.featurize(trips), np.where(unknown, 0.0, self._history))
        own = self.featurizer_.memory.number_of(trips.ids) >= 0
        past = np.where(unknown, 0.0, np.maximum(self._history - own, 0.0))
        return Chunk.of_fixes(self.featurizer_.featurize(trips, every), past, np.zeros(len(trips), np.int64))

    @property
    def _history(self) -> float:
        """How many past trips stand behind a score."""
        counts = self.featurizer_ is not None and self.featurizer_.counts
        return self.featurizer_.memory.history if self.featurizer_ is not None and counts else float(self.n_trips_)

    def agent_model(self, agent: str = "", near: tuple[float, float] | None = None) -> AgentModel:
        """How GPS trips are seen and measured, fix by fix; behind those of a stranger stands no past trip."""
        self._require_fitted()
        if self.featurizer_ is None:
            raise DataError(
                "this detector was fitted on states and actions, which have no place on the earth",
                remedy="use one that was fitted on GPS trips",
            )
        history = 0.0 if self._is_unknown(agent) else self._history
        return AgentModel(self.featurizer_, history, self._measured(), scale_config(self))

    def _explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        if self.featurizer_ is None:
            assert self.world_ is not None
            return explain_steps(scores, bounds, self.world_)
        shown = without(self.kept_, trip.ids)
        shown = shown[np.linspace(0, len(shown) - 1, min(HABITUAL, len(shown))).astype(int)]
        habitual = [(way.columns["lat"], way.columns["lon"]) for way in shown]
        actor = None if self.generated_ is None else self.generated_.actor
        return explain_fixes(scores, bounds, self.featurizer_, trip.ids[0], habitual, actor)

    # ---------------------------------------------------------------- keeping

    def _pack(self) -> Packed:
        own = {
            "config": self.config_,
            "agents": self.agents_,
            "zone": "" if self.zone_ is None else str(self.zone_),
            "n_trips": self.n_trips_,
            "n_updates": self.n_updates_,
            "aspect_weights": self.aspect_weights_,
        }
        trained = Trained(
            self.reward_,
            self._own_calibration,
            self.featurizer_,
            self.world_,
            self.kept_,
            self.generated_,
            self.own_,
            self.suspects_,
            self.inbox_,
        )
        return Packed.together([Packed(own, pack_ids("anomalous", sorted(self.anomalous_))), trained.pack()])

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The detector that a file holds; see :func:`astray.load`."""
        detector = cls._of_parameters(model)
        detector._take(Trained.unpack(model))
        detector.config_ = model.value("config", dict[str, Any])
        detector.agents_ = model.value("agents", tuple[str, ...])
        detector.zone_ = detector._zone(model)
        detector.anomalous_ = frozenset(unpack_ids(model, "anomalous"))
        detector.n_trips_ = model.value("n_trips", int)
        detector.n_updates_ = model.value("n_updates", int)
        detector.aspect_weights_ = cls._unpack_weights(model, detector.reward_)
        return detector
