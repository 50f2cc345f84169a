"""Discrete actions: who balances the pole? CartPole-v1, where an action is a push to the left or to the right.

    python examples/cartpole.py

The usual agent pushes the cart to the side to which the pole leans, and errs now and then. Others push at random, or
react two steps late. `n_actions=2` says that 0 and 1 are names of actions, and not quantities.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from astray import Detector, Trajectories

GAINS = np.array([0.05, 0.3, 3.0, 1.0])  # on the cart's position and speed, and on the pole's angle and speed
STEPS = 100


def demonstrate(n: int, rng: np.random.Generator, mistakes: float = 0.05, delay: int = 0) -> Trajectories:
    """Simulates runs; a share ``mistakes`` of the pushes goes to a random side, and all come ``delay`` steps late."""
    env = gym.make("CartPole-v1")
    states, actions = [], []
    for _ in range(n):
        state, _ = env.reset(seed=int(rng.integers(2**31)))
        seen, done, ended = [], [], False
        while not ended and len(seen) < STEPS:
            seen.append(state)
            leaning = seen[max(len(seen) - 1 - delay, 0)]
            action = int(rng.integers(2)) if rng.random() < mistakes else int(GAINS @ leaning > 0)
            done.append(action)
            state, _, ended, _, _ = env.step(action)
        states.append(np.array(seen))
        actions.append(np.array(done))
    env.close()
    return Trajectories.from_steps(states, actions, n_actions=2)


def main(seed: int = 0) -> dict[str, float]:
    """Learns the usual agent, scores new runs of it and of others, and returns how well it tells each apart (AUROC)."""
    rng = np.random.default_rng(seed)
    detector = Detector(seed=seed).fit(demonstrate(60, rng))
    usual = demonstrate(100, rng)
    of_usual = detector.score_samples(usual)
    print(f"not normal: as usual {(detector.decide(usual) != 'normal').mean():.0%}")
    others = {
        "at random": demonstrate(40, rng, mistakes=1.0),
        "two steps late": demonstrate(40, rng, delay=2),
    }
    areas = {}
    for name, runs in others.items():
        areas[name] = float((of_usual[:, None] > detector.score_samples(runs)[None]).mean())
        flagged = (detector.decide(runs) != "normal").mean()
        print(f"not normal: {name} {flagged:.0%}; AUROC {areas[name]:.3f}")
    return areas


if __name__ == "__main__":
    main()
