"""FleetDetector: one shared reward, one memory per agent; a new agent is enrolled by counting its trips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.decide import Threshold
from astray.detectors import crowd
from astray.detectors.crowd import Member, pack_members, unpack_members
from astray.detectors.estimator import Detector
from astray.detectors.scoring import Lens, Scale, Seen, chunks
from astray.detectors.sharing import SharingConfig, band_of, share
from astray.detectors.teaching import Progress, teachable
from astray.errors import DataError, NotFittedError
from astray.explain import Explanation, explain_fixes, position_of
from astray.irl.posterior import RewardPosterior
from astray.mdp.context import Context
from astray.mdp.projection import Projection
from astray.mdp.view import ViewConfig, trip_names
from astray.modelfile import FilePath, ModelFile, configured, pack_text, plain, write
from astray.modelfile.parts import (
    Packed,
    pack_posterior,
    pack_scales,
    pack_table,
    plain_threshold,
    restore_threshold,
    unpack_posterior,
    unpack_scales,
    unpack_table,
)
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.learn import LearnConfig

Array = NDArray[Any]

ENROL_FIXES = 100_000  # counted in one go


class FleetDetector(Detector):
    """One reward for many agents, each with a memory of its own.

    The reward is learned once, from a sample of the agents, and looks at a trip only through its agent's memory (how
    often was this agent here, in this direction, at this hour, ...). So it serves agents it has never met: they are
    enrolled by counting their trips, and go on learning by counting further ones. A score says how much history stands
    behind it.

    Scores are measured against trips of agents with about as much history (``bands``), so that ``eps`` means the same
    for a new agent as for an old one; and a short history widens the uncertainty by as much as scores would differ had
    as many other trips of the agent been seen.

    Parameters
    ----------
    max_agents
        The reward is learned from at most so many agents, drawn at random; all are enrolled.
    bands
        Edges of the bands of history, in trips.
    ways
        How many past ways of each agent are kept to be shown.
    iterations, heads, networks, explorers, weights
        As for :class:`~astray.IRLDetector`; there is no policy.
    eps, gamma, min_history, robust, window, n_jobs, seed, progress
        As for :class:`~astray.IRLDetector`.
    config, view
        For experts, likewise; a mapping of fields that differ from the default. The encoder is ``familiarity``, and
        landmarks, which belong to a place, are not for a fleet.
    sharing
        For experts: how agents stand in the training (:class:`~astray.detectors.sharing.SharingConfig`, or a mapping of
        fields).

    Attributes
    ----------
    posterior_
        The shared reward heads, as arrays.
    scales_, bands_
        What scores are measured on, one for each band of history; and the bands' edges.
    members_
        Agent to :class:`~astray.detectors.crowd.Member`: its centre, memory and some ways.
    anomalous_
        Names of trips confirmed as anomalous, which never teach.
    history_
        A table with one row for each iteration of learning.

    Examples
    --------
    >>> from astray.simulate import city
    >>> trips = city(people=8, days=14, seed=0).trips
    >>> fleet = FleetDetector(iterations=5, seed=0).fit(trips[~np.isin(trips.agent_ids, ["p06", "p07"])])
    >>> new = trips.agent("p06")
    >>> fleet.enroll(new[:30])
    30
    >>> fleet.score(new[30:33])["history"].to_list()
    [30.0, 30.0, 30.0]
    >>> fleet.observe(new[30:32])
    2
    >>> fleet.forget("p06")
    >>> "p06" in fleet.agents
    False
    """

    KIND: ClassVar[str] = "fleet"

    def __init__(
        self,
        *,
        max_agents: int = 64,
        bands: Sequence[float] = (5.0, 20.0, 50.0, 200.0),
        ways: int = 20,
        iterations: int | None = None,
        heads: int | None = None,
        networks: int | None = None,
        explorers: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        eps: Threshold = -2.0,
        gamma: Threshold = 1.5,
        min_history: float = 5,
        robust: bool = False,
        window: float | None = None,
        n_jobs: int = 1,
        seed: int = 0,
        progress: Progress | None = None,
        config: LearnConfig | Mapping[str, Any] | None = None,
        view: ViewConfig | Mapping[str, Any] | None = None,
        sharing: SharingConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self.max_agents = max_agents
        self.bands = bands
        self.ways = ways
        self.iterations = iterations
        self.heads = heads
        self.networks = networks
        self.explorers = explorers
        self.weights = weights
        self.eps = eps
        self.gamma = gamma
        self.min_history = min_history
        self.robust = robust
        self.window = window
        self.n_jobs = n_jobs
        self.seed = seed
        self.progress = progress
        self.config = config
        self.view = view
        self.sharing = sharing

    posterior_: RewardPosterior
    scales_: tuple[Scale, ...]
    history_: pl.DataFrame
    members_: dict[str, Member]
    anomalous_: frozenset[str]
    bands_: tuple[float, ...]
    view_config_: ViewConfig
    context_: Context

    # ---------------------------------------------------------------- learning

    def fit(self, trips: Trajectories, y: ArrayLike | None = None) -> Self:
        """Learn the shared reward, and enrol everybody in ``trips``; those marked -1 in ``y`` do not teach."""
        self._check_gps(trips)
        if list(self.bands) != sorted(set(self.bands)) or not all(b > 1 for b in self.bands):
            raise DataError(
                f"bands are {list(self.bands)}; give rising numbers of trips above 1, such as (5, 20, 50, 200)"
            )
        good = teachable(trips, y)
        if not good.any():
            raise DataError("no trajectory to learn from; give at least one that is not marked anomalous")
        rng = np.random.default_rng(self.seed)
        mine = trips[good]
        view = self._view_config()
        sharing = configured(SharingConfig(max_agents=self.max_agents), self.sharing)
        config = self._learn_config()
        shared = share(
            mine,
            view,
            config,
            sharing,
            self.bands,
            rng,
            robust=self.robust,
            window=self.window,
            progress=self.progress,
        )
        context = Context.of(view.context, mine, Projection(0.0, 0.0))
        members = self._counted(mine, {}, view)
        # Nothing has been changed so far; now everything is, at once.
        self.posterior_, self.scales_, self.history_ = shared.posterior, shared.scales, shared.history
        self.view_config_, self.context_, self.members_ = view, context, members
        self.bands_ = tuple(float(b) for b in self.bands)
        self.anomalous_ = frozenset(trip_names(trips[~good]))
        return self

    def _view_config(self) -> ViewConfig:
        view = configured(ViewConfig(), self.view)
        if view.encoder != "familiarity" or view.context.landmarks:
            raise DataError("a fleet sees trips by their familiarity, without landmarks: those belong to one place")
        return view

    def _learn_config(self) -> LearnConfig:
        from astray.irl.learn import LearnConfig

        shared = LearnConfig(rollouts=0, capacity=500_000, held_out=0.1)
        own = {
            "iterations": self.iterations,
            "explorers": self.explorers,
            "weights": None if self.weights is None else list(self.weights.items()),
            "reward": {k: v for k, v in (("heads", self.heads), ("networks", self.networks)) if v is not None},
        }
        return configured(configured(shared, self.config), {k: v for k, v in own.items() if v is not None})

    # ---------------------------------------------------------------- agents and their memories

    @property
    def agents(self) -> list[str]:
        """The agents that are enrolled."""
        self._require_fitted()
        return list(self.members_)

    def enroll(self, trips: Trajectories) -> int:
        """Count the trips of new agents, or further trips of known ones; nothing is trained.

        Trips that are remembered already, or confirmed as anomalous, are left out. Returns how many were counted.
        """
        self._check_gps(trips)
        self._require_fitted()
        teachable(trips)
        known = {n for a in trips.agents if a in self.members_ for n in self.members_[a].memory.trip_ids}
        new = trips[[n not in known and n not in self.anomalous_ for n in trip_names(trips)]]
        self.members_.update(self._counted(new, self.members_, self.view_config_))
        return len(new)

    def observe(self, trips: Trajectories) -> int:
        """Count further trips of enrolled agents, known to be normal; returns how many were counted."""
        self._require_fitted()
        strangers = [a for a in trips.agents if a not in self.members_]
        if strangers:
            raise DataError(f"agent {strangers[0]!r} is not enrolled; call enroll(trips) first")
        return self.enroll(trips)

    def forget(self, agent: str) -> None:
        """Remove an agent and all that is known of it."""
        self._member(agent)
        del self.members_[agent]
        self.anomalous_ = frozenset(n for n in self.anomalous_ if not n.startswith(f"{agent}/"))

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Take trips out of an agent's memory; with ``anomalous`` they proved so, and are never counted again.

        Returns how many were remembered.
        """
        member = self._member(agent)
        names = {f"{agent}/{t}" for t in trajectories}
        memory = member.memory.remove(names)
        gone = len(member.memory) - len(memory)
        # Ways have no names: after a removal none of them is sure to be innocent.
        self.members_[agent] = replace(member, memory=memory, ways=() if gone else member.ways)
        if anomalous:
            self.anomalous_ |= names
        return gone

    def lens(self, agent: str, near: tuple[float, float] | None = None) -> Lens:
        """How one agent's trips are seen and measured, fix by fix; for a stranger, around a place (lat, lon)."""
        self._require_fitted()
        if agent in self.members_ or near is None:
            member = self._member(agent)
        else:
            lat, lon = near
            member = Member.around(np.array([lat]), np.array([lon]), self.view_config_)
        history = member.memory.history
        scale = self.scales_[int(band_of(history, self.bands_))]
        return Lens(member.view(self.view_config_, self.context_), scale, history)

    def _member(self, agent: str) -> Member:
        self._require_fitted()
        if agent not in self.members_:
            raise DataError(f"agent {agent!r} is not enrolled; there are {len(self.members_)} agents")
        return self.members_[agent]

    def _counted(self, trips: Trajectories, members: Mapping[str, Member], config: ViewConfig) -> dict[str, Member]:
        """The members with these trips counted; the others are not in the answer."""
        counted: dict[str, Member] = {}
        ordered = trips[_by_agent(trips)]
        for chunk in chunks(ordered.lengths, ENROL_FIXES):
            part = ordered[chunk]
            present = {a: counted.get(a) or members.get(a) for a in part.agents}
            found = {a: Member.of(part.agent(a), config) if m is None else m for a, m in present.items()}
            of_trip = [found[a] for a in part.agent_ids.tolist()]
            for first, member in crowd.remember(part, of_trip, config, self.ways):
                counted[str(part.agent_ids[first])] = member
        return counted

    # ---------------------------------------------------------------- looking

    def _require_fitted(self) -> None:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("this FleetDetector has not been fitted; call fit(trips) first, or astray.load(path)")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def _check_gps(self, trips: Trajectories) -> None:
        if not trips.is_gps:
            raise DataError(f"a fleet is of GPS trips (time, lat, lon); these hold {', '.join(trips.columns)}")

    def _order(self, trips: Trajectories) -> Array:
        return _by_agent(trips)

    def _see(self, trips: Trajectories) -> Seen:
        self._check_gps(trips)
        # Somebody who is not enrolled has no history; where its centre lies does not matter then.
        found = {a: self.members_.get(a) or Member.of(trips.agent(a), self.view_config_) for a in trips.agents}
        members = [found[a] for a in trips.agent_ids.tolist()]
        sight = crowd.look(trips, members, self.view_config_, self.context_)
        remembered = {n for m in found.values() for n in m.memory.trip_ids}
        own = np.array([n in remembered for n in trip_names(trips)], bool)
        past = {id(m): m.memory.history for m in found.values()}
        history = np.maximum(np.array([past[id(m)] for m in members]) - own, 0.0)
        return Seen.of_fixes(sight, history, band_of(history, self.bands_))

    def explain(self, trips: Trajectories, trajectory: str | int = 0) -> Explanation:
        """Why a trip scored as it did; the expected ways are those on which the agent's past trips went on.

        Parameters
        ----------
        trips
            Some trips.
        trajectory
            Which of them: its id or its position; the first by default.
        """
        self._require_fitted()
        self._check_gps(trips)
        one = trips[position_of(trips, trajectory)]
        agent = one.agents[0]
        member = self.members_.get(agent) or Member.of(one, self.view_config_)
        habitual = [member.projection.to_degrees(way.astype(np.float64)) for way in member.ways]
        view = member.view(self.view_config_, self.context_)
        return explain_fixes(self, self._score(one), view, trip_names(one)[0], habitual)

    # ---------------------------------------------------------------- keeping

    def save(self, path: FilePath) -> None:
        """Write reward and memories to one file, whole or not at all; :func:`astray.load` opens it again.

        The file grows with the trips that are remembered. It holds no code. ``progress`` is not saved.
        """
        self._require_fitted()
        params = self.get_params() | {"progress": None}
        params |= {name: plain_threshold(name, params[name]) for name in ("eps", "gamma")}
        own = {
            "parameters": plain(params),
            "bands": self.bands_,
            "view_config": plain(self.view_config_),
            "context": plain(self.context_),
        }
        parts = Packed.together(
            [
                pack_posterior("reward", self.posterior_),
                pack_scales("scales", self.scales_),
                pack_table("history", self.history_),
                pack_members(self.members_),
                Packed({}, pack_text("anomalous", sorted(self.anomalous_))),
            ]
        )
        write(path, self.KIND, own | parts.values, parts.arrays)

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The fleet that a file holds; see :func:`astray.load`."""
        inside = model.within("parameters")
        params = dict(inside.values) | {name: restore_threshold(inside, name) for name in ("eps", "gamma")}
        fleet = cls(**params | {"bands": inside.value("bands", tuple[float, ...])})
        fleet.bands_ = model.value("bands", tuple[float, ...])
        fleet.posterior_ = unpack_posterior(model, "reward")
        fleet.scales_ = unpack_scales(model, "scales")
        fleet.history_ = unpack_table(model, "history")
        fleet.view_config_ = model.value("view_config", ViewConfig)
        fleet.context_ = model.value("context", Context)
        fleet.members_ = unpack_members(model, fleet.view_config_)
        fleet.anomalous_ = frozenset(model.text("anomalous"))
        blank = Member(Projection(0.0, 0.0), 0.0).view(fleet.view_config_, fleet.context_)
        if len(fleet.scales_) != len(fleet.bands_) + 1 or len(blank.names) != len(fleet.posterior_.mean):
            raise model.wrong("its reward, bands and view do not fit together")
        return fleet


def _by_agent(trips: Trajectories) -> NDArray[np.int64]:
    """The order in which the trips of each agent stand together, agents by their first trip."""
    _, first, agent = np.unique(trips.agent_ids, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(first[agent], kind="stable"), np.int64)
