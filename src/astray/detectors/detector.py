"""IRLDetector: learns what is normal for one agent, or one pool of agents, and scores new trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.decide import Bounds, Threshold
from astray.detectors.configuration import learn_config, preset, view_config
from astray.detectors.continuation import Generated, revive
from astray.detectors.estimator import Detector
from astray.detectors.scoring import Lens, Scores, Seen
from astray.detectors.teaching import Progress, Taught, others, remember, sample, teach, without
from astray.detectors.updates import first_lesson, sort_out
from astray.errors import DataError
from astray.explain import HABITUAL, Explanation, explain_fixes, explain_steps
from astray.irl.posterior import RewardPosterior
from astray.mdp.dynamics import Dynamics, LearnedDynamics
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.view import View, ViewConfig, trip_names
from astray.mdp.world import GeoWorld, StepWorld
from astray.modelfile import ModelFile, configured, plain
from astray.modelfile.parts import Packed
from astray.normality import Scale
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig
    from astray.irl.learn import Learned

Array = NDArray[Any]

WAVES = 32  # random Fourier features of states and actions


class IRLDetector(Detector):
    """Sequential anomaly detection by inverse reinforcement learning.

    What an agent does is taken for what it wants: a reward is learned under which its past trips are better than what
    it might have done instead, with an uncertainty; new trips are scored by it. For GPS trips
    (:class:`~astray.Trajectories` with time, lat, lon), and for states and actions of any kind
    (:meth:`Trajectories.from_steps <astray.Trajectories.from_steps>`).

    Parameters
    ----------
    preset
        ``"default"``: what measures best. ``"kdd19"``: the paper to the letter (raw coordinates, the policy alone as
        background, Eq. 9, N(tau) a plain mean).
    encoder
        What the reward sees of a GPS step: ``"familiarity"``, ``"fourier"`` or ``"raw"``; by default the preset's.
    interval
        Seconds between the steps that are learned from.
    heads, networks
        How many reward heads, and how many independent networks of as many heads each.
    iterations
        N of Algorithm 1.
    explorers
        Names of the counterfactuals in the background (:data:`astray.mdp.counterfactuals.COUNTERFACTUALS`; for states
        and actions ``perturb`` and ``exchange``).
    weights
        How much of the background comes from each source: ``policy``, ``explore``, ``population``.
    objective
        ``"step"`` or ``"trajectory"`` (Eq. 9).
    dynamics
        For states and actions: the world the policy acts in (:class:`~astray.mdp.dynamics.GymDynamics` or one's own);
        by default it is learned from the demonstrations. A saved model does not hold it.
    eps
        Trips that score at most this are anomalies: a number, or a function of the trips
        (:class:`~astray.decide.ByHour`, :class:`~astray.decide.ByContext`).
    gamma
        Above this spread over the heads what scored low is for review; likewise.
    min_history
        With fewer past trips than this, too.
    robust
        Scales by median and lower quantile instead of mean and standard deviation, for heavy tails.
    window
        Length of the worst window: seconds, or steps; by default 120 seconds or 10 steps.
    max_trips
        The reward is learned from at most so many trips (all are remembered).
    max_population
        At most so many trips of others make the background, drawn at random.
    keep
        How many past trips (and a third as many of the population's) the model keeps, thinned, to go on learning from
        and to show.
    n_jobs
        Threads for scoring; -1 for as many as there are cores.
    seed
        The same seed and data give the same model, bit for bit.
    progress
        Called as ``progress(iteration, iterations, measures)`` while fitting. A saved model does not hold it.
    config, view
        For experts: a :class:`~astray.irl.config.LearnConfig` or :class:`~astray.mdp.view.ViewConfig`, or a (nested)
        mapping of those of its fields that differ from the preset. The parameters above go first.

    Attributes
    ----------
    posterior_
        The reward heads, as arrays.
    view_, world_
        How GPS trips, or states and actions, are seen; the other one is None. ``view_.memory`` is what is remembered.
    scales_
        One entry: what scores are measured on (r_bar, sigma_bar, the left-out trips).
    history_
        A table with one row for each iteration of learning.
    kept_, population_
        Thinned past trips of the agent and of others.
    agents_
        Whose trips they were: one agent's, or those of a pool.
    anomalous_
        Names of trips confirmed as anomalous, which never teach.
    suspects_
        Names of trips that look like other agents' rather than this one's, if there was a population to compare with.
        They are remembered, but the reward has not learned from them. Look at them, and name those that proved
        anomalous: ``partial_fit(anomalous=detector.suspects_)`` if all did.
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
    >>> detector = IRLDetector(iterations=5, seed=0).fit(mine[:-5], population=others[:40])
    >>> detector.score_samples(mine[-5:]).mean() > detector.score_samples(others[-5:]).mean()
    np.True_
    >>> detector.score(others[-1]).columns[:4]
    ['agent', 'trajectory', 'normality', 'uncertainty']
    """

    KIND: ClassVar[str] = "detector"
    UNSAVED: ClassVar[tuple[str, ...]] = ("dynamics", "progress")

    def __init__(
        self,
        *,
        preset: str = "default",
        encoder: str | None = None,
        interval: float | None = None,
        heads: int | None = None,
        networks: int | None = None,
        iterations: int | None = None,
        explorers: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        objective: str | None = None,
        dynamics: Dynamics | None = None,
        eps: Threshold = -2.0,
        gamma: Threshold = 1.5,
        min_history: float = 5,
        robust: bool = False,
        window: float | None = None,
        max_trips: int = 5000,
        max_population: int = 600,
        keep: int = 300,
        n_jobs: int = 1,
        seed: int = 0,
        progress: Progress | None = None,
        config: LearnConfig | Mapping[str, Any] | None = None,
        view: ViewConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self.preset = preset
        self.encoder = encoder
        self.interval = interval
        self.heads = heads
        self.networks = networks
        self.iterations = iterations
        self.explorers = explorers
        self.weights = weights
        self.objective = objective
        self.dynamics = dynamics
        self.eps = eps
        self.gamma = gamma
        self.min_history = min_history
        self.robust = robust
        self.window = window
        self.max_trips = max_trips
        self.max_population = max_population
        self.keep = keep
        self.n_jobs = n_jobs
        self.seed = seed
        self.progress = progress
        self.config = config
        self.view = view

    posterior_: RewardPosterior
    view_: View | None
    world_: StepWorld | None
    scales_: tuple[Scale, ...]
    history_: pl.DataFrame
    kept_: Trajectories
    population_: Trajectories | None
    agents_: tuple[str, ...]
    anomalous_: frozenset[str]
    suspects_: tuple[str, ...]
    n_trips_: int
    n_updates_: int
    generated_: Generated | None
    config_: dict[str, Any]

    # ---------------------------------------------------------------- learning

    def fit(self, trips: Trajectories, y: ArrayLike | None = None, population: Trajectories | None = None) -> Self:
        """Learn what is normal.

        Parameters
        ----------
        trips
            The agent's past trips, or those of a pool of agents.
        y
            By default all trips teach; those marked -1 (not +1) are known to be anomalous and do not.
        population
            Other agents' trips: what else people do. Those of agents in ``trips`` are left out. If
            they are of thirty agents or more, the reward also sees how many of these go to a place.
        """
        good = first_lesson(trips, y)
        rng = np.random.default_rng(self.seed)
        mine = trips[good]
        crowd = None if population is None else others(population, mine, self.max_population, rng)
        demonstrations = sample(mine, self.max_trips, rng)
        config = learn_config(preset(self.preset), self, self.objective, mine.is_gps)
        world: GeoWorld | StepWorld
        if mine.is_gps:
            if self.dynamics is not None:
                raise DataError("dynamics are for states and actions; GPS trips move by their velocity")
            default = ViewConfig(encoder="raw") if self.preset == "kdd19" else ViewConfig()
            looking = view_config(default, self.view, encoder=self.encoder, interval=self.interval)
            view = remember(View.of(mine, looking, rng), mine)
            if crowd is not None and dict(config.weights).get("population", 0.0) > 0:
                view = view.among(crowd)
            world = GeoWorld.of(demonstrations, view)
        else:
            waves = 0 if self.preset == "kdd19" else WAVES
            world = StepWorld.of(demonstrations, self._dynamics(demonstrations, rng), rng, waves)
        self._learn(world, config, rng, crowd)
        self.config_ = plain(config)
        self.agents_ = tuple(mine.agents)
        self.anomalous_ = frozenset(trip_names(trips[~good]))
        self.n_trips_, self.n_updates_ = len(mine), 0
        return self

    def partial_fit(
        self,
        trips: Trajectories | None = None,
        y: ArrayLike | None = None,
        *,
        anomalous: Sequence[str] = (),
        population: Trajectories | None = None,
    ) -> Self:
        """Go on learning with further trips; a model that was loaded from a file can, too.

        The trips are remembered, and reward and policy go on from where they were, for a third of the iterations, on
        the kept past trips and the new ones together. A trip that was remembered under the same name is replaced.

        Trips confirmed as anomalous never teach: they are not remembered, and if they were, they are taken out of the
        memory and of the kept trips. They are known from then on: given again without a mark, they are left out again.

        Parameters
        ----------
        trips
            New trips; None if only ``anomalous`` is given.
        y
            +1 for normal trips (the default), -1 for anomalous ones.
        anomalous
            Names of trips, new or past, that proved anomalous: ``"trajectory"`` or ``"agent/trajectory"``.
        population
            Other agents' trips; by default the kept ones. Where they go is added to what is known of it.
        """
        if not self._is_fitted:
            if trips is None:
                raise DataError("there is nothing to learn from; give trips")
            refused = sort_out(trips, y, anomalous, set(), frozenset(), ()).refused
            return self.fit(trips, np.where(np.isin(trip_names(trips), sorted(refused)), -1, 1), population)
        past = {*trip_names(self.kept_), *(() if self.view_ is None else self.view_.memory.trip_ids)}
        given = trips if trips is None else self._check(trips)
        new, taught, refused = sort_out(given, y, anomalous, past, self.anomalous_, self.agents_)
        view = self.view_ if self.view_ is None else self.view_.forget(sorted(refused))
        kept = without(self.kept_, refused | taught)
        if new is not None and len(new):
            self._go_on(new, view, kept, population)
            self.agents_ = tuple(dict.fromkeys([*self.agents_, *new.agents]))
            self.n_trips_ += len(taught - past)
        else:
            # Nothing to learn from: reward and scales stay, so that what was refused cannot rise by them.
            self.view_, self.kept_ = view, kept
        self.suspects_ = tuple(name for name in self.suspects_ if name not in refused)
        self.n_trips_ -= len(refused & past)
        self.anomalous_ = (self.anomalous_ | refused) - taught
        return self

    def _go_on(self, new: Trajectories, view: View | None, kept: Trajectories, population: Trajectories | None) -> None:
        rng = np.random.default_rng([self.seed, self.n_updates_ + 1])
        crowd = self.population_
        if population is not None:
            crowd = others(population, new, self.max_population, rng, self.agents_)
        view = None if view is None else remember(view, new)
        if view is not None and isinstance(view.encoder, FamiliarityEncoder):
            # What the memory has let go of must not come back by way of the kept trips.
            kept = kept[np.isin(trip_names(kept), view.memory.trip_ids)]
            # Who has joined is no other any more. A reward that sees no haunts cannot begin to.
            if view.haunts.cells and population is not None and crowd is not None:
                view = replace(view, haunts=view.haunts_of(crowd, view.haunts))
            view = replace(view, haunts=view.haunts.without(new.agents))
        both = Trajectories.concat([kept, sample(new, self.max_trips, rng)])
        world: GeoWorld | StepWorld
        if view is not None:
            world = GeoWorld.of(both, view)
        else:
            assert self.world_ is not None
            world = replace(self.world_, trajectories=both, dynamics=self._dynamics(both, rng))
        config = configured(preset("default"), self.config_)
        config = replace(config, iterations=max(1, config.iterations // 3))
        self._learn(world, config, rng, crowd, revive(self.posterior_, self.generated_, config, rng))
        self.n_updates_ += 1

    def _learn(
        self,
        world: GeoWorld | StepWorld,
        config: LearnConfig,
        rng: np.random.Generator,
        crowd: Trajectories | None,
        start: Learned | None = None,
    ) -> None:
        taught = teach(
            world,
            config,
            rng,
            population=crowd,
            start=start,
            keep=self.keep,
            robust=self.robust,
            scale="step" if self.preset == "kdd19" else "trip",
            window=self.window,
            progress=self.progress,
        )
        if start is not None:
            before_and_now = [self.history_, taught.history]
            judged_anew = set(world.names)
            suspects = (*(name for name in self.suspects_ if name not in judged_anew), *taught.suspects)
            taught = replace(taught, history=pl.concat(before_and_now, how="diagonal_relaxed"), suspects=suspects)
        self._take(taught)

    def _take(self, taught: Taught) -> None:
        """Nothing has been changed so far; now everything is, at once."""
        self.posterior_, self.scales_ = taught.posterior, (taught.scale,)
        self.view_, self.world_, self.history_ = taught.view, taught.world, taught.history
        self.generated_, self.kept_, self.population_ = taught.generated, taught.kept, taught.population
        self.suspects_ = taught.suspects

    def _dynamics(self, trips: Trajectories, rng: np.random.Generator) -> Dynamics:
        return LearnedDynamics.fit(trips, rng) if self.dynamics is None else self.dynamics

    # ---------------------------------------------------------------- looking

    @property
    def agents(self) -> list[str]:
        """The agents whose trips it has learned from."""
        self._require_fitted()
        return list(self.agents_)

    def _check(self, trips: Trajectories) -> Trajectories:
        self._require_fitted()
        if trips.is_gps != (self.view_ is not None):
            wanted = "GPS fixes (time, lat, lon)" if self.view_ is not None else "states and actions"
            raise DataError(f"this detector was fitted on {wanted}; these trajectories hold {', '.join(trips.columns)}")
        for name in () if trips.is_gps else ("state", "action"):
            given, known = (t.columns[name].shape[1] for t in (trips, self.kept_))
            if given != known:
                raise DataError(f"{name}s have {given} columns, not {known}")
        return trips

    def _see(self, trips: Trajectories) -> Seen:
        self._check(trips)
        if self.view_ is None:
            assert self.world_ is not None
            return Seen.of_steps(trips, self.world_.look(trips), float(self.n_trips_))
        own = self.view_.memory.number_of(np.array(trip_names(trips))) >= 0
        past = np.maximum(self.lens().history - own, 0.0)
        return Seen.of_fixes(self.view_.look(trips), past, np.zeros(len(trips), np.int64))

    def lens(self, agent: str = "", near: tuple[float, float] | None = None) -> Lens:
        """How GPS trips are seen and measured, fix by fix; an agent is no other to itself."""
        self._require_fitted()
        if self.view_ is None:
            raise DataError("this detector was fitted on states and actions, which have no place on the earth")
        remembered = isinstance(self.view_.encoder, FamiliarityEncoder)
        view = replace(self.view_, haunts=self.view_.haunts.seen_by(agent))
        return Lens(view, self.scales_[0], view.memory.history if remembered else float(self.n_trips_))

    def _explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        if self.view_ is None:
            return explain_steps(scores, bounds)
        shown = without(self.kept_, trip_names(trip))
        shown = shown[np.linspace(0, len(shown) - 1, min(HABITUAL, len(shown))).astype(int)]
        habitual = [(way.columns["lat"], way.columns["lon"]) for way in shown]
        actor = None if self.generated_ is None else self.generated_.actor
        return explain_fixes(scores, bounds, self.view_, trip_names(trip)[0], habitual, actor)

    # ---------------------------------------------------------------- keeping

    def _pack(self) -> Packed:
        own = {
            "config": self.config_,
            "agents": self.agents_,
            "anomalous": sorted(self.anomalous_),
            "n_trips": self.n_trips_,
            "n_updates": self.n_updates_,
        }
        seen = (self.posterior_, self.scales_[0], self.view_, self.world_, self.history_)
        taught = Taught(*seen, self.generated_, self.kept_, self.population_, self.suspects_)
        return Packed.together([Packed(own, {}), taught.pack()])

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The detector that a file holds; see :func:`astray.load`."""
        detector = cls._of_parameters(model)
        detector._take(Taught.unpack(model))
        detector.config_ = model.value("config", dict[str, Any])
        detector.agents_ = model.value("agents", tuple[str, ...])
        detector.anomalous_ = frozenset(model.value("anomalous", tuple[str, ...]))
        detector.n_trips_ = model.value("n_trips", int)
        detector.n_updates_ = model.value("n_updates", int)
        return detector
