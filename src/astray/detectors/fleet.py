"""FleetDetector: one shared reward, one memory per agent; a new agent is enrolled by counting its trips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.decide import Bounds, Threshold
from astray.detectors import crowd
from astray.detectors.configuration import learn_config, view_config
from astray.detectors.estimator import Detector
from astray.detectors.finetune import Lessons, Mixed, Tuned, TuningConfig, alike, fine_tune, pack_tuned, unpack_tuned
from astray.detectors.members import Common, Member, pack_members, unpack_members
from astray.detectors.personal import Own
from astray.detectors.scoring import Lens, Scores, Seen
from astray.detectors.sharing import SharingConfig, share
from astray.detectors.teaching import Progress, teachable
from astray.detectors.updates import first_lesson
from astray.errors import DataError
from astray.explain import Explanation, explain_fixes
from astray.irl.posterior import RewardPosterior
from astray.mdp.context import Context
from astray.mdp.haunts import Haunts
from astray.mdp.projection import Projection
from astray.mdp.view import ViewConfig, trip_names
from astray.modelfile import FilePath, ModelFile, configured, pack_text, plain
from astray.modelfile.parts import (
    Packed,
    pack_haunts,
    pack_posterior,
    pack_scales,
    pack_table,
    unpack_haunts,
    unpack_posterior,
    unpack_scales,
    unpack_table,
)
from astray.normality import Scale
from astray.processes import cores
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig

Array = NDArray[Any]


class FleetDetector(Detector):
    """One reward for many agents, each with a memory of its own.

    The reward is learned once, from a sample of the agents, and looks at a trip only through its agent's memory (how
    often was this agent here, in this direction, at this hour, ...). So it serves agents it has never met: they are
    enrolled by counting their trips, and go on learning by counting further ones. A score says how much history stands
    behind it.

    Scores are measured against trips of agents with about as much history (``bands``), so that ``eps`` means the same
    for a new agent as for an old one; and, the more trips of an agent there are, against its own past trips. A short
    history widens the uncertainty by as much as scores would differ had as many other trips of the agent been seen.

    Agents with many trips can be given rewards of their own (:meth:`fine_tune`).

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
    tuning
        For experts: how :meth:`fine_tune` learns (:class:`~astray.detectors.finetune.TuningConfig`, likewise).

    Attributes
    ----------
    posterior_
        The shared reward heads, as arrays.
    scales_, bands_
        What scores are measured on, one for each band of history; and the bands' edges.
    members_
        Agent to :class:`~astray.detectors.members.Member`: its centre, memory and some ways.
    haunts_
        Where the agents that the reward was learned from go, for everybody else to see.
    tuned_
        Agent to :class:`~astray.detectors.finetune.Tuned`, its own reward and scale, for those that have them.
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
        tuning: TuningConfig | Mapping[str, Any] | None = None,
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
        self.tuning = tuning

    posterior_: RewardPosterior
    scales_: tuple[Scale, ...]
    history_: pl.DataFrame
    members_: dict[str, Member]
    tuned_: dict[str, Tuned]
    anomalous_: frozenset[str]
    bands_: tuple[float, ...]
    view_config_: ViewConfig
    context_: Context
    haunts_: Haunts

    # ---------------------------------------------------------------- learning

    def fit(self, trips: Trajectories, y: ArrayLike | None = None) -> Self:
        """Learn the shared reward, and enrol everybody in ``trips``; those marked -1 in ``y`` do not teach."""
        self._check(trips)
        if list(self.bands) != sorted(set(self.bands)) or not all(b > 1 for b in self.bands):
            raise DataError(
                f"bands are {list(self.bands)}; give rising numbers of trips above 1, such as (5, 20, 50, 200)"
            )
        good = first_lesson(trips, y)
        rng = np.random.default_rng(self.seed)
        mine = trips[good]
        view = view_config(ViewConfig(), self.view)
        if view.encoder != "familiarity" or view.context.landmarks:
            raise DataError("a fleet sees trips by their familiarity, without landmarks: those belong to one place")
        shared = share(
            mine,
            view,
            self._learn_config(),
            configured(SharingConfig(max_agents=self.max_agents), self.sharing),
            self.bands,
            rng,
            robust=self.robust,
            window=self.window,
            progress=self.progress,
        )
        context = Context.of(view.context, mine, Projection(0.0, 0.0))
        bands = tuple(float(b) for b in self.bands)
        common = Common(view, context, shared.posterior, shared.scales, bands, shared.haunts)
        members = crowd.enrol(mine, {}, common, self.ways)
        # Nothing has been changed so far; now everything is, at once.
        self.posterior_, self.scales_, self.bands_ = common.posterior, common.scales, common.bands
        self.view_config_, self.context_, self.haunts_, self.history_ = view, context, shared.haunts, shared.history
        self.members_, self.tuned_ = members, {}
        self.anomalous_ = frozenset(trip_names(trips[~good]))
        return self

    def fine_tune(
        self,
        trips: Trajectories,
        agents: Sequence[str] | None = None,
        *,
        n_jobs: int = -1,
        folder: FilePath | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Give agents rewards of their own, which start from the shared one; returns how many have got one.

        An agent's own reward is learned from its remembered trips, against counterfactuals of them and a sample of the
        other agents' trips, and has a scale of its own. From then on the agent is scored by it; further trips are
        counted as before. Trips that are not remembered yet are counted first; those confirmed as anomalous do not
        teach. The result does not depend on the number of processes, nor on which agents are asked for.

        Parameters
        ----------
        trips
            The agents' past trips, and those of others.
        agents
            Who is to have a reward; by default all in ``trips`` of whom enough trips are remembered
            (``least_trips`` of ``tuning``).
        n_jobs
            Processes, -1 for as many as there are cores. With more than one the calling program must be importable: on
            its top level, everything that is to run once stands under ``if __name__ == "__main__":``.
        folder
            Every finished reward is written here at once, a small file each; a run that was killed goes on from there,
            and comes to the same model. A folder of another fleet, or of other trips or settings, is refused.
        progress
            Called as ``progress(finished, agents, {})`` after each agent.

        Examples
        --------
        >>> from astray.simulate import city
        >>> trips = city(people=4, days=10, seed=0).trips
        >>> fleet = FleetDetector(iterations=2, tuning={"iterations": 1}, seed=0).fit(trips)
        >>> fleet.fine_tune(trips, ["p01"], n_jobs=1)
        1
        >>> fleet.reward("p01") is fleet.reward("p00")
        False
        """
        self._require_fitted()
        members = self.members_ | crowd.enrol(self._unknown(trips), self.members_, self._common, self.ways)
        taught = trips[[n not in self.anomalous_ for n in trip_names(trips)]]
        tuning = configured(TuningConfig(), self.tuning)
        config = tuning.learning(self._learn_config())
        lessons = Lessons(self._common, members, taught, tuning, config, self.robust, self.window, self.seed)
        found = fine_tune(lessons, lessons.able(agents), processes=cores(n_jobs), folder=folder, progress=progress)
        self.members_, self.tuned_ = members, self.tuned_ | found
        return len(found)

    def _learn_config(self) -> LearnConfig:
        from astray.irl.config import LearnConfig

        return learn_config(LearnConfig(rollouts=0, capacity=500_000, held_out=0.1), self)

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
        self._require_fitted()
        new = self._unknown(trips)
        self.members_.update(crowd.enrol(new, self.members_, self._common, self.ways))
        return len(new)

    def _unknown(self, trips: Trajectories) -> Trajectories:
        """The trips that are neither remembered nor known to be anomalous."""
        teachable(self._check(trips))
        known = {n for a in trips.agents if a in self.members_ for n in self.members_[a].memory.trip_ids}
        return trips[[n not in known and n not in self.anomalous_ for n in trip_names(trips)]]

    def observe(self, trips: Trajectories) -> int:
        """Count further trips of enrolled agents, known to be normal; returns how many were counted."""
        self._require_fitted()
        strangers = [a for a in trips.agents if a not in self.members_]
        if strangers:
            raise DataError(f"agent {strangers[0]!r} is not enrolled; call enroll(trips) first")
        return self.enroll(trips)

    def forget(self, agent: str) -> None:
        """Remove an agent and all that is known of it, its own reward too."""
        self._member(agent)
        del self.members_[agent]
        self.tuned_.pop(agent, None)
        self.haunts_ = self.haunts_.without([agent])
        # The names of others may begin with this one's.
        longer = tuple(f"{other}/" for other in self.members_ if other.startswith(f"{agent}/"))
        its = (n for n in self.anomalous_ if n.startswith(f"{agent}/") and not n.startswith(longer))
        self.anomalous_ = self.anomalous_ - set(its)

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Take trips out of an agent's memory; with ``anomalous`` they proved so, and are never counted again.

        Returns how many were remembered. A reward of its own that the agent may have stays as it is, and so does where
        others see it go; :meth:`forget` takes out both.
        """
        member = self._member(agent)
        names = {f"{agent}/{t}" for t in trajectories}
        memory = member.memory.remove(names)
        gone = len(member.memory) - len(memory)
        # Ways have no names: after a removal none of them is sure to be innocent.
        self.members_[agent] = replace(member.with_memory(memory), ways=() if gone else member.ways)
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
        return Lens(member.view(agent, self._common), self._scale(agent, member), member.history)

    def reward(self, agent: str) -> RewardPosterior:
        """The reward that one agent's trips are scored by: its own, or the shared one."""
        self._require_fitted()
        return self.tuned_[agent].posterior if agent in self.tuned_ else self.posterior_

    def _scale(self, agent: str, member: Member | None) -> Scale:
        """What an agent's trips are measured on: its own reward's scale, or that of agents like it, made its own."""
        if agent in self.tuned_:
            return self.tuned_[agent].scale
        if member is None:
            return self.scales_[0]
        return Own.of(member.scores).scale(self._common.like(member))

    @property
    def _common(self) -> Common:
        return Common(self.view_config_, self.context_, self.posterior_, self.scales_, self.bands_, self.haunts_)

    def _member(self, agent: str) -> Member:
        self._require_fitted()
        if agent not in self.members_:
            raise DataError(f"agent {agent!r} is not enrolled; there are {len(self.members_)} agents")
        return self.members_[agent]

    # ---------------------------------------------------------------- looking

    def _check(self, trips: Trajectories) -> Trajectories:
        if not trips.is_gps:
            raise DataError(f"a fleet is of GPS trips (time, lat, lon); these hold {', '.join(trips.columns)}")
        return trips

    def _order(self, trips: Trajectories) -> Array:
        return crowd.by_agent(trips)

    def _see(self, trips: Trajectories) -> Seen:
        self._check(trips)
        # Somebody who is not enrolled has no history; where its centre lies does not matter then.
        found = {a: self.members_.get(a) or Member.of(trips[run], self.view_config_) for a, run in crowd.runs(trips)}
        members = [found[a] for a in trips.agent_ids.tolist()]
        sight = crowd.look(trips, members, self._common)
        remembered = {n for m in found.values() for n in m.memory.trip_ids}
        own = np.array([n in remembered for n in trip_names(trips)], bool)
        history = np.maximum(crowd.histories(members) - own, 0.0)
        number = {agent: i for i, agent in enumerate(found)}
        return Seen.of_fixes(sight, history, np.array([number[a] for a in trips.agent_ids.tolist()], np.int64))

    def _measures(self, trips: Trajectories, seen: Seen) -> tuple[RewardPosterior, Sequence[Scale]]:
        # One scale for each agent, in the order in which the trips of a chunk stand.
        agents = list(crowd.runs(trips))
        own = [(run, self.tuned_[a].posterior) for a, run in agents if a in self.tuned_]
        return Mixed.of(self.posterior_, own, seen.trip), [self._scale(a, self.members_.get(a)) for a, _ in agents]

    def _explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        # The expected ways are those on which the agent's past trips went on: a fleet has no policy.
        member = self.members_.get(trip.agents[0]) or Member.of(trip, self.view_config_)
        habitual = [member.projection.to_degrees(way.astype(np.float64)) for way in member.ways]
        view = member.view(trip.agents[0], self._common)
        return explain_fixes(scores, bounds, view, trip_names(trip)[0], habitual)

    # ---------------------------------------------------------------- keeping

    def _pack(self) -> Packed:
        own = {
            "bands": self.bands_,
            "view_config": plain(self.view_config_),
            "context": plain(self.context_),
        }
        return Packed.together(
            [
                Packed(own, pack_text("anomalous", sorted(self.anomalous_))),
                pack_posterior("reward", self.posterior_),
                pack_scales("scales", self.scales_),
                pack_table("history", self.history_),
                pack_members(self.members_),
                pack_tuned(self.tuned_),
                pack_haunts("haunts", self.haunts_),
            ]
        )

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The fleet that a file holds; see :func:`astray.load`."""
        fleet = cls._of_parameters(model, bands=model.within("parameters").value("bands", tuple[float, ...]))
        fleet.bands_ = model.value("bands", tuple[float, ...])
        fleet.posterior_ = unpack_posterior(model, "reward")
        fleet.scales_ = unpack_scales(model, "scales")
        fleet.history_ = unpack_table(model, "history")
        fleet.view_config_ = model.value("view_config", ViewConfig)
        fleet.context_ = model.value("context", Context)
        fleet.haunts_ = unpack_haunts(model, "haunts")
        fleet.members_ = unpack_members(model, fleet.view_config_)
        fleet.tuned_ = unpack_tuned(model)
        fleet.anomalous_ = frozenset(model.text("anomalous"))
        blank = Member(Projection(0.0, 0.0), 0.0).view("", fleet._common)
        if len(fleet.scales_) != len(fleet.bands_) + 1 or len(blank.names) != len(fleet.posterior_.mean):
            raise model.wrong("its reward, bands and view do not fit together")
        if any(not alike(t.posterior, fleet.posterior_) for t in fleet.tuned_.values()):
            raise model.wrong("its agents' own rewards do not have the shape of the shared one")
        if not fleet.tuned_.keys() <= fleet.members_.keys():
            raise model.wrong("an agent that is not enrolled has a reward of its own")
        return fleet
