"""The settings of learning, as frozen dataclasses. Those of the paper are :data:`astray.irl.kdd19.KDD19`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from astray.core.errors import DataError
from astray.irl.counterfactuals import DEFAULT_EXPLORERS, KINDS

ONLY_ASPECT = "behaviour"  # the name of the aspect where there is only one


@dataclass(frozen=True)
class RewardConfig:
    """The settings of the reward network: its shape and its prior."""

    hidden: tuple[int, ...] = (64, 16)  # widths of the shared layers
    heads: int = 10  # K, the heads of each network, for each aspect
    networks: int = 1  # independent networks; heads=1 with networks=K is the ensemble of the paper's Section 4.1.1
    prior_variance: float = 10.0  # sigma^2 of the Gaussian prior N(0, sigma^2) on every weight
    initial_variance: float | None = None  # of the initial weights and biases; None: 1 / fan-in, 0
    random_prior: float = 0.0  # weight of a fixed random network that is added to each head (Osband et al. 2018)


@dataclass(frozen=True)
class TRPOConfig:
    """The settings of TRPO."""

    max_kl: float = 0.01  # delta: the trust region, a bound on the mean KL(old || new) of one improvement
    last_kl: float | None = None  # delta at the end, to which it falls geometrically; None: it stays the same
    discount: float = 0.99  # gamma: the present value of a reward of 1 that comes one step later
    gae_lambda: float = 0.95  # lambda: 0 trusts the critic, 1 trusts the sampled return
    entropy_bonus: float = 0.0  # weight of the policy's entropy beside the normalised advantage
    bootstrap: bool = True  # the critic estimates the value beyond the last step; False: 0, and it sees the steps left
    fisher_rows: int = 1280  # rows (every k-th) to average the Fisher matrix over; all if there are fewer
    cg_iterations: int = 10  # conjugate-gradient iterations for the natural gradient
    cg_damping: float = 0.1  # added to the diagonal of the Fisher matrix
    line_search_steps: int = 10  # step lengths to try; if none is good, the policy does not change
    line_search_shrink: float = 0.8  # factor from one step length to the next
    critic_hidden: tuple[int, ...] = (64, 64)  # widths of the value network's hidden layers
    critic_rounds: int = 3  # Gauss-Newton steps of the critic, each on different rows
    critic_rows: int = 1280  # rows (every k-th) for one such step; all if there are fewer
    critic_cg_iterations: int = 8  # conjugate-gradient iterations of one such step
    critic_damping: float = 0.1  # added to the diagonal of the critic's Gauss-Newton matrix

    def __post_init__(self) -> None:
        for name in ("max_kl", "last_kl"):
            delta = getattr(self, name)
            if delta is not None and not delta > 0.0:
                raise DataError(
                    f"{name} is {delta}", remedy="give a number above 0 for the trust region; 0.01 is usual"
                )
        for name in ("discount", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise DataError(f"{name} is {getattr(self, name)}", remedy="give a number from 0 to 1")


@dataclass(frozen=True)
class LearnConfig:
    """The settings of learning a reward and a policy. The defaults gave the best scores in our measurements."""

    reward: RewardConfig = RewardConfig()
    policy: TRPOConfig = TRPOConfig()
    iterations: int = 30  # N of Algorithm 1
    updates: int = 25  # J of Algorithm 2: gradient steps of the reward in each iteration
    objective: str = "step"  # 'step': discriminate single steps; 'trajectory': Eq. 3, at the temperature below
    temperature: float | None = None  # divides the exponent of the weights in Eq. 3; None: the horizon; 1: as printed
    all_heads: bool = True  # update every head in each iteration, each on its own bootstrap; False: the sampled one
    learning_rate: float = 6e-3  # of Adam on the reward, falling linearly to a twentieth
    batch_rows: int = 512  # demonstrated steps, and background steps of each aspect, in a 'step' update
    batch_paths: int = 32  # demonstrated and background trajectories, each, in a 'trajectory' update
    horizon: int | None = 50  # the most steps in a rollout, and in the parts that Eq. 3 sums over; None: whole trips
    policy_temperature: float = 1.0  # the policy maximises the sum of r - temperature * log pi; 0: the reward alone
    rollouts: int = 64  # trajectories that the policy generates in each iteration; 0: no policy
    clone_updates: int = 300  # gradient steps of behavioural cloning before the first rollout
    aspects: bool = True  # a reward for each kind of counterfactual (place, route, manner, time); False: one for all
    weights: tuple[tuple[str, float], ...] = (("policy", 0.2), ("explore", 1.0), ("population", 4.0))
    explorers: tuple[str, ...] = DEFAULT_EXPLORERS  # counterfactuals; one that is named twice weighs twice as much
    waves: int = 32  # random Fourier features of states and actions; 0: none
    imagined: int = 400  # counterfactual trips for each aspect
    capacity: int = 100_000  # rows that each source of the background keeps
    missing: float = 0.25  # share of the rows in which a group of features is hidden, so that the reward can do without
    held_out: float = 0.2  # share of the demonstrations that no head learns from; they decide when to stop
    cross_fit: bool = False  # each of several networks holds out a different part of them, and not all the same share
    divide_prior: bool = True  # divide -log p(theta) by the number of demonstrations; False: as Section 4.2 prints it
    patience: int = 10  # iterations without a lower held-out loss before learning stops

    def __post_init__(self) -> None:
        if self.objective not in ("step", "trajectory"):
            raise DataError(f"objective is {self.objective!r}", remedy="give 'step' or 'trajectory'")
        if self.iterations < 1 or self.updates < 1:
            raise DataError(
                f"iterations is {self.iterations}, updates is {self.updates}", remedy="give at least 1 for each"
            )
        if not 0.0 <= self.held_out < 1.0:
            raise DataError(
                f"held_out is {self.held_out}", remedy="give a share of the demonstrations, from 0 to below 1"
            )

    @property
    def crosses(self) -> bool:
        """True if each network holds out a different part, and the counterfactuals that were made from it.

        One network alone, or one that learns from whole trajectories, holds out the share ``held_out``.
        """
        return self.cross_fit and self.reward.networks > 1 and self.objective == "step"


TRIPS = LearnConfig(
    # The number of agents is small, so the prior must be narrow to have an effect.
    reward=RewardConfig(heads=2, networks=5, prior_variance=1.0),
    # Other agents teach the aspect of place: counterfactuals in places where nobody goes would teach the reward to
    # trust every street.
    explorers=tuple(name for name in DEFAULT_EXPLORERS if name not in KINDS["place"]),
    iterations=60,
    rollouts=0,
    capacity=2_000_000,
    held_out=0.1,
    patience=20,
)
"""The settings for the reward of whole trips, where a row is a trip."""

POOL = replace(
    TRIPS,
    # A pool may have no other agents to compare with, so counterfactuals of place replace them.
    explorers=DEFAULT_EXPLORERS,
    batch_rows=256,
    patience=10,
)
"""The settings for a reward of whole trips that continues to learn from one pool of agents."""

STATES = LearnConfig(reward=RewardConfig(networks=5), cross_fit=True)
"""The settings for states and actions of one agent or pool.

There are often only some dozens of runs. A fifth of them is too few to measure how low a normal run scores, so each run
is held out from one of five networks, and all of them are measured (cross-conformal prediction, Vovk 2015).
"""

STEPS = LearnConfig(rollouts=0, capacity=500_000, held_out=0.1)
"""The settings for the reward of steps of many agents: without a policy, because each agent would need its own."""


def explorers_of(config: LearnConfig) -> dict[str, tuple[str, ...]]:
    """Returns the aspects of the reward, each with its counterfactuals.

    The first aspect, place, also has other agents and the policy in its background.

    >>> explorers_of(LearnConfig(explorers=("shift", "pace", "stop")))
    {'place': ('shift',), 'manner': ('pace', 'stop')}
    >>> explorers_of(LearnConfig(explorers=("shift", "pace"), aspects=False))
    {'behaviour': ('shift', 'pace')}
    """
    explored = dict(config.weights).get("explore", 0.0) > 0
    known = {name for names in KINDS.values() for name in names}
    if not config.aspects or not explored or not known.issuperset(config.explorers):
        return {ONLY_ASPECT: config.explorers if explored else ()}
    first, *_ = KINDS
    by_kind = {kind: tuple(e for e in config.explorers if e in names) for kind, names in KINDS.items()}
    return {kind: names for kind, names in by_kind.items() if names or kind == first}
