"""Compares the speed and the learning of TRPO in astray, in sb3-contrib, and of the bare matrix products.

    python bench/trpo.py

One iteration is a rollout of 64 trajectories x 100 steps of a point mass in one batched environment, and one
improvement of a (64, 64) policy and a (64, 64) critic; one core, one thread. All contenders take turns in one
run, and the table gives medians and ratios.

The task is the same for all: states are standardised alike, the reward is minus the distance to the goal in km,
and nothing comes after the 100th step. sb3-contrib needs bounded actions and clips them: here its action space is
+-10 standard deviations, so that it never clips in practice. It also averages the KL over the columns of the
action, so its default trust region of 0.01 and damping of 0.1 mean 0.02 and 0.2 for two columns; astray gets
these values. sb3-contrib runs in three ways:

- `sb3 default`: its own defaults (critic in 10 epochs of minibatches of 128, 15 conjugate-gradient steps);
- `sb3 full batch`: the critic in 10 full-batch steps, 10 conjugate-gradient steps like astray;
- `sb3 every 5th row`: the same with its sub-sampling by 5, which leaves four fifths of the rows out of the whole
  policy step; astray leaves them out of the Fisher matrix only.

`matrix products` is the lower bound: the products of one astray iteration with nothing between them (no tanh, no
environment, no sums), in preallocated memory, each in its fastest transposed form.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from sb3_contrib import TRPO as SB3TRPO
from stable_baselines3.common.vec_env import VecEnv

from astray.irl.dynamics import Integrator
from astray.irl.learn_config import TRPOConfig
from astray.irl.policy import GaussianPolicy, Rollout
from astray.irl.trpo import TRPO

N, HORIZON = 64, 100
INTERVAL, SPEED = 30.0, 3.0  # seconds a step, m/s of one standard deviation
GOAL = np.array([300.0, -200.0])
CONFIG = TRPOConfig(bootstrap=False, max_kl=0.02, cg_damping=0.2)


def starts(rng: np.random.Generator, n: int = 1000) -> np.ndarray:
    at = rng.uniform(-1000.0, 1000.0, (n, 2))
    return np.concatenate([at, at, np.zeros((n, 1))], axis=1)


def demonstrated(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns states and actions from which both engines get the same standardisation."""
    states = starts(rng)
    states[:, :2] = rng.permutation(states[:, :2])
    states[:, 4] = rng.uniform(0.0, HORIZON * INTERVAL, len(states))
    return states, SPEED * rng.standard_normal((len(states), 2))


def distance(next_states: np.ndarray) -> np.ndarray:
    return np.linalg.norm(next_states[..., :2] - GOAL, axis=-1) / 1000.0


class Astray:
    """Runs astray's TRPO on the task."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.world = Integrator(starts(np.random.default_rng(1)), INTERVAL)
        self.generator = TRPO(GaussianPolicy(*demonstrated(np.random.default_rng(2)), self.rng), self.rng, CONFIG)
        self.line_search_steps: list[int] = []

    def iterate(self) -> float:
        """Runs one iteration; returns the mean return of its rollout."""
        drawn: Rollout = self.generator.rollout(self.world, N, HORIZON, self.rng)
        rewards = -distance(drawn.next_states)
        self.line_search_steps.append(self.generator.improve(drawn, rewards).line_search_steps)
        return float(rewards.sum(axis=1).mean())


class BatchedPointMass(VecEnv):
    """Offers the task to sb3: the same dynamics, one numpy call a step for all 64 copies."""

    def __init__(self, seed: int) -> None:
        self.world = Integrator(starts(np.random.default_rng(1)), INTERVAL)
        self.rng = np.random.default_rng(seed)
        states, _ = demonstrated(np.random.default_rng(2))
        self.mean, self.scale = states.mean(axis=0), states.std(axis=0)
        self.render_mode = None
        super().__init__(N, Box(-np.inf, np.inf, (5,)), Box(-10.0, 10.0, (2,)))

    def _observe(self) -> np.ndarray:
        return ((self.states - self.mean) / self.scale).astype(np.float32)

    def reset(self) -> np.ndarray:
        """Begins 64 new episodes."""
        self.states, self.t = self.world.reset(N, self.rng), 0
        return self._observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions for ``step_wait``."""
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Moves all copies, which end together."""
        self.states, _ = self.world.step(self.states, SPEED * self.actions, self.rng)
        rewards = -distance(self.states).astype(np.float32)
        self.t += 1
        done = self.t == HORIZON
        infos: list[dict[str, Any]] = [{} for _ in range(N)]
        if done:
            last = self._observe()
            infos = [{"terminal_observation": row} for row in last]
        observations = self.reset() if done else self._observe()
        return observations, rewards, np.full(N, done), infos

    def close(self) -> None:
        """Does nothing, because nothing is open."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Returns False for each copy, because none is wrapped."""
        return [False] * N

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Raises an AttributeError, because there are no single copies to call."""
        raise AttributeError(method_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns the attribute, which is the same for every copy."""
        return [getattr(self, attr_name)] * N

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets the attribute, which is the same for every copy."""
        setattr(self, attr_name, value)


class SB3:
    """Runs sb3-contrib's TRPO on the task."""

    def __init__(self, seed: int, **settings: Any) -> None:
        env = BatchedPointMass(seed)
        self.model = SB3TRPO("MlpPolicy", env, n_steps=HORIZON, seed=seed, device="cpu", **settings)

    def iterate(self) -> float:
        """Runs one iteration; returns the mean return of its rollout."""
        self.model.learn(N * HORIZON, reset_num_timesteps=False)
        return float(self.model.rollout_buffer.rewards.sum(axis=0).mean())


class Products:
    """Runs the matrix products of one astray iteration, with nothing between them."""

    def __init__(self, line_search_steps: float) -> None:
        rng = np.random.default_rng(0)
        policy, critic = (5, 64, 64, 2), (5, *CONFIG.critic_hidden, 1)
        rows, part = N * HORIZON, N * HORIZON // max(1, N * HORIZON // CONFIG.fisher_rows)
        critic_part = N * HORIZON // max(1, N * HORIZON // CONFIG.critic_rows)
        self.plan: list[tuple[Callable[[], None], int]] = [
            (self.forward(rng, policy, N), HORIZON),  # acting
            (self.forward(rng, critic, rows + N), 1),  # values
            (self.forward(rng, policy, rows), 1),  # means of the old policy
            (self.reverse(rng, policy, rows), 1),  # the surrogate's gradient
            (self.tangent(rng, policy, part), CONFIG.cg_iterations),  # Fisher products
            (self.reverse(rng, policy, part), CONFIG.cg_iterations),
            (self.forward(rng, policy, rows), round(line_search_steps)),  # line search
            (self.forward(rng, critic, critic_part), 2 * CONFIG.critic_rounds),  # before and after each step
            (
                self.reverse(rng, critic, critic_part),
                CONFIG.critic_rounds * (1 + CONFIG.critic_cg_iterations),
            ),
            (self.tangent(rng, critic, critic_part), CONFIG.critic_rounds * CONFIG.critic_cg_iterations),
        ]

    @staticmethod
    def product(rng: np.random.Generator, n: int, k: int, m: int) -> Callable[[], None]:
        """Returns a product (n x k)(k x m) in the form that is fastest on this machine."""

        def matrix(*shape: int) -> torch.Tensor:
            return torch.from_numpy(rng.standard_normal(shape)).float()

        a, at, b, bt = matrix(n, k), matrix(k, n), matrix(k, m), matrix(m, k)
        out, out_t = torch.empty(n, m), torch.empty(m, n)
        forms: list[Callable[[], Any]] = [
            lambda: torch.mm(a, b, out=out),
            lambda: torch.mm(a, bt.T, out=out),
            lambda: torch.mm(bt, a.T, out=out_t),
            lambda: torch.mm(at.T, b, out=out),
            lambda: torch.mm(b.T, at, out=out_t),
        ]

        def seconds(form: Callable[[], Any]) -> float:
            form()
            return min(_timed(form) for _ in range(20))

        return min(forms, key=seconds)

    def forward(self, rng: np.random.Generator, sizes: tuple[int, ...], rows: int) -> Callable[[], None]:
        """Returns the products of a network's output."""
        return _all([self.product(rng, rows, i, o) for i, o in pairwise(sizes)])

    def reverse(self, rng: np.random.Generator, sizes: tuple[int, ...], rows: int) -> Callable[[], None]:
        """Returns the products of J^T u: by the weights, and by the inputs of all layers but the first."""
        by_weight = [self.product(rng, i, rows, o) for i, o in pairwise(sizes)]
        by_input = [self.product(rng, rows, o, i) for i, o in list(pairwise(sizes))[1:]]
        return _all(by_weight + by_input)

    def tangent(self, rng: np.random.Generator, sizes: tuple[int, ...], rows: int) -> Callable[[], None]:
        """Returns the products of J v: by the weights, and by the inputs of all layers but the first."""
        by_weight = [self.product(rng, rows, i, o) for i, o in pairwise(sizes)]
        by_input = [self.product(rng, rows, i, o) for i, o in list(pairwise(sizes))[1:]]
        return _all(by_weight + by_input)

    def iterate(self) -> None:
        """Runs all products once."""
        for products, times in self.plan:
            for _ in range(times):
                products()


def _all(calls: list[Callable[[], None]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


FULL: dict[str, Any] = {"batch_size": N * HORIZON, "cg_max_steps": CONFIG.cg_iterations}
CONTENDERS: dict[str, Callable[[int], Any]] = {
    "astray": Astray,
    "sb3 default": SB3,
    "sb3 full batch": partial(SB3, **FULL),
    "sb3 every 5th row": partial(SB3, **FULL, sub_sampling_factor=5),
}


def speed(rounds: int) -> None:
    engines = {name: make(0) for name, make in CONTENDERS.items()}
    for _ in range(3):
        for engine in engines.values():
            engine.iterate()
    engines["matrix products"] = Products(float(np.mean(engines["astray"].line_search_steps)))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            times[name].append(_timed(engine.iterate))
    ours = np.array(times["astray"])
    print(f"one iteration of {N} x {HORIZON} steps, median of {rounds} alternating rounds, one thread")
    print(f"{'':20}{'ms':>9}{'/ astray':>11}{'  (quartiles)':>16}")
    for name, seconds in times.items():
        ratio = np.array(seconds) / ours  # within one round, so that the load of the machine cancels out
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        print(f"{name:20}{1e3 * np.median(seconds):9.1f}{middle:11.2f}   ({low:.2f} - {high:.2f})")
    floor = np.median(ours / np.array(times["matrix products"]))
    print(f"astray is {floor:.2f} x its bare matrix products\n")


def learning(iterations: int, seeds: int) -> None:
    print(f"mean return over the last 5 of {iterations} iterations (first iteration in brackets)")
    print(f"{'':20}" + "".join(f"{f'seed {seed}':>20}" for seed in range(seeds)) + f"{'mean':>10}")
    for name, make in CONTENDERS.items():
        cells, finals = "", []
        for seed in range(seeds):
            engine = make(seed)
            returns = [engine.iterate() for _ in range(iterations)]
            finals.append(np.mean(returns[-5:]))
            cells += f"{finals[-1]:12.2f} ({returns[0]:.1f})"
        print(f"{name:20}{cells}{np.mean(finals):10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="timing rounds")
    parser.add_argument("--iterations", type=int, default=25, help="iterations of the learning comparison")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the learning comparison")
    options = parser.parse_args()
    torch.set_num_threads(1)
    speed(options.rounds)
    if options.iterations:
        learning(options.iterations, options.seeds)


if __name__ == "__main__":
    main()
