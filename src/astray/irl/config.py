"""How the reward and the policy are learned, as data: the default, which measures best, and the paper's settings.

What goes beyond the paper is a field of :class:`LearnConfig` with the paper's value in the preset :data:`KDD19`.
"""

from __future__ import annotations

from dataclasses import dataclass

from astray.errors import DataError
from astray.irl.reward import RewardConfig
from astray.irl.trpo import TRPOConfig
from astray.mdp.counterfactuals import DEFAULT_EXPLORERS, KINDS

ONLY_ASPECT = "behaviour"  # what a reward of one aspect is asked about


@dataclass(frozen=True)
class LearnConfig:
    """How the reward and the policy are learned. The defaults are what measures best; KDD19 is the paper."""

    reward: RewardConfig = RewardConfig()
    policy: TRPOConfig = TRPOConfig()
    iterations: int = 30  # N of Algorithm 1
    updates: int = 25  # J of Algorithm 2: reward gradient steps an iteration
    objective: str = "step"  # 'step': the discriminator form; 'trajectory': Eq. 9
    temperature: float | None = None  # of the trajectory weights; None: the horizon; 1: Eq. 9 as printed
    all_heads: bool = True  # update every head each time, each on its own bootstrap; False: only the sampled one
    learning_rate: float = 6e-3  # of Adam on the reward, falling linearly to a twentieth
    batch_rows: int = 512  # demonstrated steps, and background steps of each aspect, in a 'step' update
    batch_paths: int = 32  # demonstrated and background trajectories, each, in a 'trajectory' update
    horizon: int = 50  # steps of a rollout, and of the stretches that Eq. 9 sums over
    rollouts: int = 64  # trajectories that the policy makes an iteration; 0: no policy
    clone_updates: int = 300  # gradient steps that first make the policy imitate the demonstrations
    aspects: bool = True  # a reward for each kind of counterfactual (place, route, manner, time); False: one for all
    weights: tuple[tuple[str, float], ...] = (("policy", 0.2), ("explore", 1.0), ("population", 4.0))
    explorers: tuple[str, ...] = DEFAULT_EXPLORERS  # which counterfactuals, repeated as often as they are to weigh
    imagined: int = 400  # counterfactual trips of each aspect
    capacity: int = 100_000  # rows kept of each source of the background
    missing: float = 0.25  # share of the rows from which a group of features that may be missing is hidden
    held_out: float = 0.2  # share of the demonstrations that no head learns from: they say when to stop
    patience: int = 10  # iterations without a better held-out score before stopping

    def __post_init__(self) -> None:
        if self.objective not in ("step", "trajectory"):
            raise DataError(f"objective is 'step' or 'trajectory', not {self.objective!r}")
        if self.iterations < 1 or self.updates < 1:
            raise DataError("iterations and updates must be at least 1")
        if not 0.0 <= self.held_out < 1.0:
            raise DataError(f"held_out is a share of the demonstrations in [0, 1), not {self.held_out}")


KDD19 = LearnConfig(
    reward=RewardConfig(prior_variance=0.1, initial_variance=0.1),
    iterations=100,
    objective="trajectory",
    temperature=1.0,
    all_heads=False,
    aspects=False,
    clone_updates=0,
    weights=(("policy", 1.0),),
    held_out=0.0,
    patience=100,
)

TRIPS = LearnConfig(
    reward=RewardConfig(hidden=(32, 16), heads=2, networks=5),
    iterations=60,
    rollouts=0,
    capacity=2_000_000,
    held_out=0.1,
    patience=20,
)
"""How the reward of whole trips is learned: a row is a trip, told from others' and from counterfactuals."""

STEPS = LearnConfig(rollouts=0, capacity=500_000, held_out=0.1)
"""How the reward of steps is learned from many agents: without a policy, for each would need its own."""

PRESETS = {"default": LearnConfig(), "kdd19": KDD19}


def explorers_of(config: LearnConfig) -> dict[str, tuple[str, ...]]:
    """The aspects of the reward, each with its counterfactuals.

    The first aspect is where an agent is and who it could be: other agents and the policy belong to its background.

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
