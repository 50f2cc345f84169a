"""What each part brings: encoder, background, objective, heads or networks, presets; on simulated people.

    python bench/ablation.py [--seeds 2] [--people 5] [--workers 2]

The same people, trips and injections for every row (see ``bench/detection.py`` for who is in the background). Each row
changes one thing about the default. ``swap`` is the AUROC on somebody else's trips, ``behaviour`` the mean AUROC over
detour, reversed, wrong time, loiter and speeding; ``spread`` is the heads' spread on moved trips over that on left-out
ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parent))
from astray import simulate
from astray.irl.config import KDD19, LearnConfig
from astray.irl.reward import RewardConfig
from astray.mdp.counterfactuals import KINDS
from astray.mdp.familiarity import HEADING, ORIGIN, PLACE
from astray.mdp.view import ViewConfig
from astray.mdp.world import GeoWorld
from engine import Engine

DEFAULT = LearnConfig()
BEHAVIOUR = ("detour", "reversed", "wrong-time", "loiter", "speeding")
ROWS: dict[str, tuple[LearnConfig, ViewConfig, str]] = {
    "default": (DEFAULT, ViewConfig(), "trip"),
    "encoder: fourier": (DEFAULT, ViewConfig(encoder="fourier"), "trip"),
    "encoder: raw": (DEFAULT, ViewConfig(encoder="raw"), "trip"),
    "habits: place, heading, origin only": (DEFAULT, ViewConfig(habits=PLACE + HEADING + ORIGIN), "trip"),
    "background: no policy": (replace(DEFAULT, rollouts=0), ViewConfig(), "trip"),
    "background: policy only": (replace(DEFAULT, weights=(("policy", 1.0),)), ViewConfig(), "trip"),
    "background: population only": (
        replace(DEFAULT, rollouts=0, weights=(("population", 1.0),)),
        ViewConfig(),
        "trip",
    ),
    "background: explore only": (replace(DEFAULT, rollouts=0, weights=(("explore", 1.0),)), ViewConfig(), "trip"),
    "one aspect": (replace(DEFAULT, aspects=False), ViewConfig(), "trip"),
    "explorers: place only": (replace(DEFAULT, explorers=KINDS["place"]), ViewConfig(), "trip"),
    "objective: Eq. 9, T = horizon": (replace(DEFAULT, objective="trajectory"), ViewConfig(), "trip"),
    "objective: Eq. 9, T = 1": (replace(DEFAULT, objective="trajectory", temperature=1.0), ViewConfig(), "trip"),
    "one head an iteration": (replace(DEFAULT, all_heads=False), ViewConfig(), "trip"),
    "10 networks of 1 head": (replace(DEFAULT, reward=RewardConfig(heads=1, networks=10)), ViewConfig(), "trip"),
    "randomised priors": (replace(DEFAULT, reward=RewardConfig(random_prior=1.0)), ViewConfig(), "trip"),
    "preset kdd19": (KDD19, ViewConfig(encoder="raw"), "step"),
}


def run(job: tuple[int, int, int]) -> list[dict[str, object]]:
    seed, person, people = job
    sim = simulate.city(people=2 * people, days=60, seed=seed)
    train, test = sim.split(test_share=0.25)
    watched = set(train.agents[:people])
    name = train.agents[person]
    population = train[np.array([a not in watched for a in train.agent_ids.tolist()])]
    unseen = test[np.array([a in watched for a in test.agent_ids.tolist()])]
    cases = {
        kind: sim.inject(unseen, kinds=(kind,), rate=0.2, seed=seed + 1000).agent(name)
        for kind in ("agent-swap", *BEHAVIOUR)
    }
    rows: list[dict[str, object]] = []
    for label, (config, view, scale) in ROWS.items():
        began = time.perf_counter()
        fitted = Engine.fit(train.agent(name), population, seed, config, view, scale)
        seconds = time.perf_counter() - began
        world = GeoWorld.of(train.agent(name), fitted.view)
        own = world.demonstrations()
        left = fitted.learned.posterior(own.features[fitted.learned.unseen.all(axis=1)[own.trip]])
        left = left if len(left) else fitted.learned.posterior(own.features)
        moved = fitted.learned.posterior(world.imagine(100, ("shift",), np.random.default_rng(0)).features)
        areas = {}
        for kind, trips in cases.items():
            truth = trips.context["kind"] != ""
            if 0 < truth.sum() < len(truth):
                areas[kind] = float(roc_auc_score(truth, -fitted.score(trips).score))
        rows.append(
            {
                "row": label,
                "swap": areas.get("agent-swap", np.nan),
                "behaviour": float(np.mean([v for k, v in areas.items() if k in BEHAVIOUR])),
                "spread": float(moved.std(axis=2).mean() / max(left.std(axis=2).mean(), 1e-9)),
                "ess": float(fitted.learned.history["effective_sample_size"].to_numpy()[-1]),
                "seconds": seconds,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--people", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    jobs = [(70 + s, p, args.people) for s in range(args.seeds) for p in range(args.people)]
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(args.workers) as pool:
        for done, part in enumerate(pool.map(run, jobs), 1):
            rows += part
            print(f"\r{done}/{len(jobs)} people", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    columns = ("swap", "behaviour", "spread", "ess", "seconds")
    print(f"means over {args.seeds} x {args.people} people\n")
    print("| row | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for label in ROWS:
        mine = [r for r in rows if r["row"] == label]
        means = [np.nanmean([float(str(r[c])) for r in mine]) for c in columns]
        print(f"| {label} | " + " | ".join(f"{m:.3f}" if m < 10 else f"{m:.1f}" for m in means) + " |")


if __name__ == "__main__":
    main()
