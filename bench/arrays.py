"""Measures, for states and actions, how many normal runs are flagged, by length, and the memory for long runs.

    python bench/arrays.py [--seeds 3]

One process, an agent that stabilises a noisy plant while its mood drifts, is learned from runs of one length or of
several, and scored at three lengths. Every column should flag the same share of normal runs: the 5 % asked for.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np

from astray import Detector, Trajectories

LENGTHS = (60, 300, 1500)
RATE = 0.05


def process(n: int, steps: int, rng: np.random.Generator, gain: float = 0.5) -> Trajectories:
    """Simulates runs of one process: the action depends on the state, and on a mood that changes slowly."""
    x, mood, states, actions = rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), [], []
    for _ in range(steps):
        mood = 0.95 * mood + 0.31 * rng.normal(size=(n, 1))
        a = -gain * x[:, :1] + 0.3 * mood + 0.2 * rng.normal(size=(n, 1))
        states.append(x)
        actions.append(a)
        x = 0.8 * x + np.hstack([a, 0.3 * x[:, :1]]) + 0.2 * rng.normal(size=(n, 2))
    return Trajectories.from_steps(list(np.stack(states, axis=1)), list(np.stack(actions, axis=1)))


def flagged(seeds: int, n: int = 300, tested: int = 300) -> None:
    """Learns at each length, and at all three; prints the share of new runs that is flagged at each length."""
    heads = "".join(f"{f'{steps:,} steps':>14}" for steps in LENGTHS)
    print(f"{f'flagged at {RATE:.0%}':<22}{heads}   another gain, {LENGTHS[1]} steps")
    for learned in (*((steps,) for steps in LENGTHS), LENGTHS):
        shares, found = [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            runs = Trajectories.concat([process(n // len(learned), steps, rng) for steps in learned])
            detector = Detector(seed=seed, false_alarm_rate=RATE).fit(runs)
            new = [process(tested, steps, rng) for steps in LENGTHS]
            shares.append([(detector.decide(t) != "normal").mean() for t in new])
            found.append((detector.decide(process(100, LENGTHS[1], rng, gain=0.2)) != "normal").mean())
        cells = "".join(f"{share:>14.1%}" for share in np.mean(shares, axis=0))
        print(f"{'learned at ' + ', '.join(map(str, learned)):<22}{cells}   {np.mean(found):.0%}", flush=True)


def memory() -> None:
    """Prints the peak memory of fitting and scoring, beside the runs themselves."""
    print(f"\n{'runs':>6}{'steps':>8}{'data':>10}{'fit':>10}{'score':>10}   processor seconds")
    for n, steps in ((300, 300), (300, 3000), (1000, 3000)):
        rng = np.random.default_rng(0)
        runs = Trajectories.from_steps(list(rng.normal(size=(n, steps, 4))), list(rng.normal(size=(n, steps, 2))))
        began, peaks = time.process_time(), []
        detector = Detector(iterations=3)
        for work in (detector.fit, detector.score):
            tracemalloc.start()
            work(runs)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        data = sum(values.nbytes for values in runs.columns.values())
        sizes = "".join(f"{size / 1e6:>7.0f} MB" for size in (data, *peaks))
        print(f"{n:>6}{steps:>8}{sizes}   {time.process_time() - began:.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    flagged(parser.parse_args().seeds)
    memory()
