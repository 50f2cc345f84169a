"""What each part brings: what is looked for, what the reward has learned from, encoder, preset; on simulated people.

    python bench/ablation.py [--seeds 2] [--people 5] [--workers 2]

The same people, trips and injections for every row (see ``bench/detection.py`` for who is in the population). Each row
changes one thing about the default; `astray benchmark ... -m ablation` compares the same variants by protocol. ``swap``
is the AUROC on somebody else's trips, ``behaviour`` the mean AUROC over detour, reversed, wrong time, loiter and
speeding; ``false alarms`` is the share of normal trips that is flagged; ``spread`` is the uncertainty of somebody
else's trips over that of normal ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing

import numpy as np
from sklearn.metrics import roc_auc_score

from astray import Detector, simulate
from astray.core.processes import spread
from astray_benchmark.variants import VARIANTS, WHOLE

BEHAVIOUR = ("detour", "reversed", "wrong-time", "loiter", "speeding")
ROWS = {WHOLE: {}, **VARIANTS}


def run(job: tuple[int, int, int]) -> list[dict[str, object]]:
    """One person of one city: every variant, every kind."""
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
    for label, options in ROWS.items():
        began = time.process_time()
        fitted = Detector(seed=seed, **options).fit(train.agent(name), population=population)
        seconds = time.process_time() - began
        areas, flagged, spread = {}, [], np.nan
        for kind, trips in cases.items():
            truth = trips.context["kind"] != ""
            if 0 < truth.sum() < len(truth):
                table = fitted.score(trips)
                areas[kind] = float(roc_auc_score(truth, -table["score"].to_numpy()))
                flagged.append(float((table["decision"] != "normal").to_numpy()[~truth].mean()))
                if kind == "agent-swap":
                    unsure = table["uncertainty"].to_numpy()
                    spread = float(unsure[truth].mean() / unsure[~truth].mean())
        rows.append(
            {
                "row": label,
                "swap": areas.get("agent-swap", np.nan),
                "behaviour": float(np.mean([v for k, v in areas.items() if k in BEHAVIOUR])),
                "false alarms": float(np.mean(flagged)),
                "spread": spread,
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
    with closing(spread(run, jobs, args.workers)) as parts:
        for done, part in enumerate(parts, 1):
            rows += part
            print(f"\r{done}/{len(jobs)} people", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    columns = ("swap", "behaviour", "false alarms", "spread", "seconds")
    print(f"means over {args.seeds} x {args.people} people\n")
    print("| row | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for label in ROWS:
        mine = [r for r in rows if r["row"] == label]
        means = [np.nanmean([float(str(r[c])) for r in mine]) for c in columns]
        print(f"| {label} | " + " | ".join(f"{m:.3f}" if m < 10 else f"{m:.1f}" for m in means) + " |")


if __name__ == "__main__":
    main()
