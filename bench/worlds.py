"""Measures detection and false alarms in worlds of Gymnasium: Pendulum-v1 (torques) and CartPole-v1 (left or right).

    python bench/worlds.py measure --world pendulum --seed 0 [--method default ...]   (adds to bench/out/worlds.jsonl)
    python bench/worlds.py report                                                     (prints tables of that file)
    python bench/worlds.py alarms [--seeds 5] [--runs 60]                             (counts false alarms only)

A scripted agent demonstrates 60 runs of at most 100 steps. Every method scores 100 further runs of it, and 20 runs of
each kind of anomaly. Rivals see the same steps (s, a). A rival is fitted five times, each time on four fifths of the
runs, and scores a new run by the mean of the five. So all past runs are held out once, as with astray's default, and
set the threshold for 2 % false alarms. Only the presets of the paper decide by -2, because they hold nothing out.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.svm import OneClassSVM

from astray import Detector, Trajectories
from astray.irl.dynamics import GymDynamics
from astray.scoring.decisions import level
from astray.scoring.normality import Sample

Array = NDArray[Any]
OUT = Path(__file__).parent / "out" / "worlds.jsonl"

RUNS, NORMAL, ODD, STEPS = 60, 100, 20, 100
RATE = 0.02
FOLDS = 5

# -------------------------------------------------------------------- agents and their worlds


@dataclass(frozen=True)
class Agent:
    """A controller with a noisy hand, in a body that may have changed."""

    gains: tuple[float, ...]
    clumsy: float  # the noise of its hand: a torque, or the share of wrong pushes
    random: bool = False
    delay: int = 0  # steps by which its actions come late
    reverse: bool = False
    sensor: float = 0.0  # noise of the sensors, relative to `World.sensor`
    body: Mapping[str, float] = field(default_factory=dict)  # attributes of the environment that have changed


@dataclass(frozen=True)
class World:
    """An environment, the usual agent, and other agents by the kind of their anomaly."""

    name: str
    act: Callable[[Array, Agent, np.random.Generator], Any]
    sensor: Array  # standard deviations of the sensor noise
    n_actions: int | None
    usual: Agent
    odd: Mapping[str, Agent]

    def runs(self, n: int, agent: Agent, rng: np.random.Generator) -> Trajectories:
        """Simulates runs of an agent; a run ends early if the environment ends it."""
        env: Any = gym.make(self.name).unwrapped
        for name, value in agent.body.items():
            setattr(env, name, value)
        states, actions = [], []
        for _ in range(n):
            true, _ = env.reset(seed=int(rng.integers(2**31)))
            seen, done, planned = [], [], []
            for _ in range(STEPS):
                seen.append(true + agent.sensor * self.sensor * rng.normal(size=len(true)))
                planned.append(self.act(seen[-1], agent, rng))
                done.append(planned[max(len(planned) - 1 - agent.delay, 0)])
                true, _, ended, _, _ = env.step(done[-1])
                if ended:
                    break
            states.append(np.array(seen, np.float64))
            actions.append(np.array(done))
        return Trajectories.from_steps(states, actions, n_actions=self.n_actions)

    def dynamics(self) -> GymDynamics:
        """Returns the environment for rollouts."""
        return GymDynamics(lambda n: gym.make_vec(self.name, num_envs=n, vectorization_mode="sync"))


def swing_up(seen: Array, agent: Agent, rng: np.random.Generator) -> Array:
    """Pumps energy until the pendulum is nearly upright, then holds it there (Astrom and Furuta 2000)."""
    if agent.random:
        return rng.uniform(-2.0, 2.0, 1)
    cos, sin, speed = seen
    pump = -np.sign(speed + 1e-9) * np.clip(0.5 * speed**2 + 15.0 * (cos - 1.0), -2.0, 2.0)
    hold = -agent.gains[0] * np.arctan2(sin, cos) - agent.gains[1] * speed
    torque = (hold if cos > 0.85 else pump) + agent.clumsy * rng.normal()
    return np.clip([-torque if agent.reverse else torque], -2.0, 2.0)


def balance(seen: Array, agent: Agent, rng: np.random.Generator) -> int:
    """Pushes the cart to the side to which a linear controller leans; sometimes to the wrong one."""
    if agent.random:
        return int(rng.integers(2))
    right = float(np.dot(agent.gains, seen)) > 0.0
    return int(right ^ agent.reverse ^ bool(rng.random() < agent.clumsy))


def _kinds(usual: Agent, gains: tuple[float, ...], body: Mapping[str, float]) -> dict[str, Agent]:
    return {
        "other gains": replace(usual, gains=gains),
        "random": replace(usual, random=True),
        "delayed": replace(usual, delay=2),
        "reversed": replace(usual, reverse=True),
        "other body": replace(usual, body=body),
        "sensor noise": replace(usual, sensor=1.0),
    }


_SWINGING, _BALANCING = Agent((8.0, 2.0), clumsy=0.1), Agent((0.05, 0.3, 3.0, 1.0), clumsy=0.05)
WORLDS = {
    "pendulum": World(
        "Pendulum-v1",
        swing_up,
        np.array([0.05, 0.05, 0.2]),
        None,
        _SWINGING,
        _kinds(_SWINGING, (5.0, 1.0), {"m": 1.3}),
    ),
    "cartpole": World(
        "CartPole-v1",
        balance,
        np.array([0.02, 0.1, 0.02, 0.1]),
        2,
        _BALANCING,
        _kinds(_BALANCING, (0.3, 1.0, 3.0, 1.0), {"length": 1.0, "polemass_length": 0.1}),
    ),
}


def linear(n: int, rng: np.random.Generator) -> Trajectories:
    """Simulates a linear plant with Gaussian noise, held at 0 by a proportional controller."""
    x, states, actions = rng.normal(size=(n, 2)), [], []
    for _ in range(STEPS):
        action = -0.5 * x[:, :1] + 0.2 * rng.normal(size=(n, 1))
        states.append(x)
        actions.append(action)
        x = 0.8 * x + np.hstack([action, 0.3 * x[:, :1]]) + 0.2 * rng.normal(size=(n, 2))
    return Trajectories.from_steps(list(np.stack(states, axis=1)), list(np.stack(actions, axis=1)))


# -------------------------------------------------------------------- methods


class Judged(NamedTuple):
    """Scores of sets of runs, and which runs are flagged."""

    scores: list[Array]  # low is odd
    flagged: list[Array]


Density = Callable[[Array], Callable[[Array], Array]]  # fits to steps (s, a); returns a score of each step


def gaussian(steps: Array) -> Callable[[Array], Array]:
    """Fits a Gaussian; scores by its log-density, up to a constant."""
    centre = steps.mean(axis=0)
    precision = np.linalg.inv(np.cov(steps.T) + 1e-9 * np.eye(steps.shape[1]))
    return lambda new: -0.5 * np.einsum("ni,ij,nj->n", new - centre, precision, new - centre)


def neighbours(steps: Array) -> Callable[[Array], Array]:
    """Scores by the mean distance from the five nearest steps."""
    tree = cKDTree(steps)
    return lambda new: -tree.query(new, k=5)[0].mean(axis=1)


def one_class_svm(steps: Array) -> Callable[[Array], Array]:
    """Fits scikit-learn's one-class SVM with its defaults."""
    model = OneClassSVM().fit(steps)
    return lambda new: np.asarray(model.decision_function(new))


def by_density(density: Density, past: Trajectories, tested: list[Trajectories]) -> Judged:
    """Scores runs by their mean step, and sets the threshold by cross-conformal calibration."""
    rows = np.hstack([past.columns["state"], past.columns["action"]]).astype(np.float64)
    centre, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)

    def steps(runs: Trajectories) -> Array:
        together = np.hstack([runs.columns["state"], runs.columns["action"]]).astype(np.float64)
        return np.asarray((together - centre) / spread)

    def means(score: Callable[[Array], Array], runs: Trajectories) -> Array:
        return np.asarray(np.add.reduceat(score(steps(runs)), runs.offsets[:-1]) / runs.lengths)

    fold = np.arange(len(past)) % FOLDS
    fitted = [density(steps(past[fold != k])) for k in range(FOLDS)]
    held_out = np.empty(len(past))
    for k, score in enumerate(fitted):
        held_out[fold == k] = means(score, past[fold == k])
    limit = level(RATE, Sample.of(held_out))
    scores = [np.mean([means(score, runs) for score in fitted], axis=0) for runs in tested]
    return Judged(scores, [of <= limit for of in scores])


def by_detector(detector: Detector, past: Trajectories, tested: list[Trajectories]) -> Judged:
    """Scores and decides with astray; a run for review is flagged, too."""
    detector.fit(past)
    tables = [detector.score(runs) for runs in tested]
    return Judged(
        [table["score"].to_numpy() for table in tables], [table["decision"].to_numpy() != "normal" for table in tables]
    )


METHODS: dict[str, Callable[[World, int, Trajectories, list[Trajectories]], Judged]] = {
    "default": lambda world, seed, past, tested: by_detector(Detector(seed=seed), past, tested),
    "default, simulator": lambda world, seed, past, tested: by_detector(
        Detector(dynamics=world.dynamics(), seed=seed), past, tested
    ),
    "kdd19, simulator": lambda world, seed, past, tested: by_detector(
        Detector(preset="kdd19", dynamics=world.dynamics(), seed=seed), past, tested
    ),
    "kdd19-fourier, simulator": lambda world, seed, past, tested: by_detector(
        Detector(preset="kdd19-fourier", dynamics=world.dynamics(), seed=seed), past, tested
    ),
    "Gaussian of (s, a)": lambda world, seed, past, tested: by_density(gaussian, past, tested),
    "5 nearest neighbours": lambda world, seed, past, tested: by_density(neighbours, past, tested),
    "one-class SVM": lambda world, seed, past, tested: by_density(one_class_svm, past, tested),
}


# -------------------------------------------------------------------- what is measured


def measure(name: str, seed: int, methods: list[str]) -> None:
    """Measures methods on one world with one seed, and appends a line for each to the file of results."""
    world, rng = WORLDS[name], np.random.default_rng(seed)
    past, normal = world.runs(RUNS, world.usual, rng), world.runs(NORMAL, world.usual, rng)
    odd = {kind: world.runs(ODD, agent, rng) for kind, agent in world.odd.items()}
    OUT.parent.mkdir(exist_ok=True)
    for method in methods:
        began = time.process_time()
        judged = METHODS[method](world, seed, past, [normal, *odd.values()])
        usual, *others = judged.scores
        line = {
            "world": name,
            "seed": seed,
            "method": method,
            "seconds": time.process_time() - began,
            "false alarms": float(judged.flagged[0].mean()),
            "AUROC": {kind: auroc(usual, scores) for kind, scores in zip(odd, others, strict=True)},
            "found": {kind: float(of.mean()) for kind, of in zip(odd, judged.flagged[1:], strict=True)},
        }
        print(json.dumps(line), flush=True)
        with OUT.open("a") as file:
            file.write(json.dumps(line) + "\n")


def auroc(usual: Array, odd: Array) -> float:
    """Returns the probability that an odd run scores lower than a usual one; ties count half."""
    return float((usual[:, None] > odd).mean() + 0.5 * (usual[:, None] == odd).mean())


def report() -> None:
    """Prints a table for each world: the means over the seeds, of the last line for each method and seed."""
    lines = {(of["world"], of["method"], of["seed"]): of for of in map(json.loads, OUT.read_text().splitlines())}
    for name, world in WORLDS.items():
        print(f"\n| {name}: AUROC | {' | '.join(world.odd)} | false alarms | found | seconds | seeds |")
        print("|---|" + "---|" * (len(world.odd) + 4))
        for method in METHODS:
            of = [line for key, line in lines.items() if key[:2] == (name, method)]
            if not of:
                continue
            areas = " | ".join(f"{np.mean([line['AUROC'][kind] for line in of]):.2f}" for kind in world.odd)
            alarms, seconds = (np.mean([line[what] for line in of]) for what in ("false alarms", "seconds"))
            found = np.mean([list(line["found"].values()) for line in of])
            print(f"| {method} | {areas} | {alarms:.1%} | {found:.0%} | {seconds:.0f} | {len(of)} |")


def alarms(seeds: int, runs: int, tested: int = 300) -> None:
    """Prints which share of normal runs the default flags, by world and seed."""
    sources: dict[str, Callable[[int, np.random.Generator], Trajectories]] = {
        name: lambda n, rng, world=world: world.runs(n, world.usual, rng)  # type: ignore[misc]
        for name, world in WORLDS.items()
    }
    for name, simulate in (sources | {"linear": linear}).items():
        shares = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            detector = Detector(seed=seed).fit(simulate(runs, rng))
            shares.append(float((detector.decide(simulate(tested, rng)) != "normal").mean()))
        each = " ".join(f"{share:.1%}" for share in shares)
        print(f"{name:<10} {runs} runs: {np.mean(shares):.1%} flagged ({each})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "report", "alarms"))
    parser.add_argument("--world", choices=list(WORLDS), default="pendulum")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", choices=list(METHODS), action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.world, given.seed, given.method or list(METHODS))
    elif given.what == "report":
        report()
    else:
        alarms(given.seeds, given.runs)
