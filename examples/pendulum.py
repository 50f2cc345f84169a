"""Not only GPS: is this still the controller that we know? Pendulum-v1 under a scripted controller, and under another.

    python examples/pendulum.py [--dynamics gym|learned]

The usual controller swings the pendulum up and balances it; the odd one does the same job with its gains changed. With
``learned`` nothing is known of the plant (its dynamics are fitted from the demonstrations); ``gym`` rolls out in the
real one.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np

from astray import Detector, Trajectories
from astray.irl.dynamics import Dynamics, GymDynamics

USUAL, ODD = (8.0, 2.0), (3.0, 0.4)  # gains on angle and speed near the top


def control(observation: np.ndarray, gains: tuple[float, float]) -> np.ndarray:
    """Pump energy until nearly upright, then hold the pendulum there."""
    cos, sin, speed = observation.T
    angle = np.arctan2(sin, cos)
    energy = 0.5 * speed**2 + 15.0 * (cos - 1.0)
    pump = -np.sign(speed + 1e-9) * np.clip(energy, -2.0, 2.0)
    hold = -gains[0] * angle - gains[1] * speed
    return np.asarray(np.clip(np.where(cos > 0.85, hold, pump), -2.0, 2.0)[:, None])


def demonstrate(n: int, steps: int, gains: tuple[float, float], rng: np.random.Generator) -> Trajectories:
    """``n`` runs of a controller, with a little noise on its hand."""
    envs = plant(n)
    observation, _ = envs.reset(seed=int(rng.integers(2**31)))
    states, actions = [], []
    for _ in range(steps):
        action = control(observation, gains) + rng.normal(0, 0.1, (n, 1))
        states.append(observation)
        actions.append(action)
        observation, *_ = envs.step(np.clip(action, -2.0, 2.0).astype(np.float32))
    envs.close()
    return Trajectories.from_steps(list(np.stack(states, axis=1)), list(np.stack(actions, axis=1)))


def plant(n: int) -> gym.vector.VectorEnv:
    """``n`` pendulums side by side."""
    return gym.make_vec("Pendulum-v1", num_envs=n, vectorization_mode="sync")


def main(dynamics: str = "learned", n: int = 60, steps: int = 100, seed: int = 0) -> float:
    """Learn the usual controller, score unseen runs of both, and return how well they are told apart (AUROC)."""
    rng = np.random.default_rng(seed)
    world: Dynamics | None = GymDynamics(plant) if dynamics == "gym" else None
    # There is nobody else, so the policy is half of the background.
    detector = Detector(dynamics=world, weights={"policy": 1, "explore": 1}, window=20, seed=seed)
    detector.fit(demonstrate(n, steps, USUAL, rng))

    usual, odd = demonstrate(n, steps, USUAL, rng), demonstrate(n, steps, ODD, rng)
    of_usual, of_odd = detector.score_samples(usual), detector.score_samples(odd)
    auroc = float((of_usual[:, None] > of_odd[None]).mean())
    print(f"{dynamics} dynamics: N of the usual controller {of_usual.mean():.2f}, of the other {of_odd.mean():.2f}")
    flagged = [(detector.decide(runs) != "normal").mean() for runs in (usual, odd)]
    print(f"not normal: usual {flagged[0]:.0%}, other {flagged[1]:.0%}; AUROC {auroc:.3f}")
    return auroc


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dynamics", choices=("gym", "learned"), default="learned")
    main(parser.parse_args().dynamics)
