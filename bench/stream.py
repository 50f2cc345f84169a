"""The stream: what a deployment lives through (protocol P7). A person's trips in the order of time, some a stranger's.

    python bench/stream.py GEOLIFE [--cache FILE] [--people 004,167] [--seeds 2]

After the training period each trip is scored, decided, and then (a) nothing is learned, (b) what was not flagged is
(`observe`), (c) likewise, and questions are answered by somebody who knows, (d) everything is, (e) every normal trip is
(a bound). Once with 5 % strangers spread over the stream, once with an intruder: one stranger who makes 10 of 20
consecutive trips. GEOLIFE is the folder `Data` of your copy; by default the ten people of the published table. The
reward goes on learning from people none of whom is tested or injected.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse

import numpy as np

from astray import FleetDetector, Trajectories
from astray.benchmark.geolife_data import ANOMALIES, GeoLife, halves
from astray.benchmark.injectors import submitted_as
from astray.benchmark.metrics import auroc, average_precision
from astray.benchmark.protocols import Case, Setting, Trial
from astray.benchmark.simulated_data import claim, in_time

WAYS = ("a nothing", "b unflagged", "c with questions", "d everything", "e every normal")


def strangers(trial: Trial) -> tuple[Trajectories, np.ndarray]:
    """The test trips in the order of time, and which are a stranger's."""
    start = trial.test.columns["time"][trial.test.offsets[:-1]]
    order = np.argsort(start, kind="stable")
    return trial.test[order], (trial.kind != "")[order]


def intruder(data: GeoLife, trial: Trial, case: Case) -> tuple[Trajectories, np.ndarray]:
    """The person's own test trips, and among 20 in a row 10 consecutive ones of one stranger."""
    rng = np.random.default_rng([case.seed, int(case.subject)])
    trips, alien = strangers(trial)
    own = trips[~alien]
    everybody = data.data.trips
    foreign = np.setdiff1d(halves(everybody, case.seed)[0], data.data.companions([case.subject]))
    foreign = foreign[everybody.agent_ids[foreign] != case.subject]
    who, count = np.unique(everybody.agent_ids[foreign], return_counts=True)
    theirs = in_time(everybody[foreign[everybody.agent_ids[foreign] == rng.choice(who[count >= ANOMALIES])]])
    first = int(rng.integers(len(theirs) - ANOMALIES + 1))
    begin = int(rng.integers(len(own) // 4, 3 * len(own) // 4))
    # Ten of theirs and ten of the person's, in an order drawn at random; each at about the time of one of these.
    turn = rng.permutation(2 * ANOMALIES) < ANOMALIES
    beside = np.minimum(begin + np.cumsum(~turn), len(own) - 1)
    mixed, said, mine, other = [own[:begin]], [False] * begin, begin, first
    for foreign_turn, at in zip(turn.tolist(), beside.tolist(), strict=True):
        if foreign_turn:
            mixed.append(submitted_as(theirs[other], own[int(at)]))
            other += 1
        else:
            mixed.append(own[mine])
            mine += 1
        said.append(foreign_turn)
    mixed.append(own[mine:])
    said += [False] * (len(own) - mine)
    return claim(Trajectories.concat(mixed), case.subject, "stream"), np.array(said)


def run(fleet: FleetDetector, trips: Trajectories, foreign: np.ndarray, way: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Scores, flags and the number of answers."""
    scores, flagged, answers = np.zeros(len(trips)), np.zeros(len(trips), bool), 0
    strange = dict(zip(trips.ids, foreign.tolist(), strict=True))
    for i in range(len(trips)):
        trip = trips[i : i + 1]
        scores[i] = np.nan_to_num(fleet.score_samples(trip)[0])
        flagged[i] = fleet.predict(trip)[0] < 0
        if way[0] in "bc":
            fleet.observe(trip)
            while way[0] == "c" and fleet.questions_:
                question = fleet.questions_[0]
                answers += 1
                fleet.answer(question, mine=np.mean([strange[t] for t in question.trips]) < 0.5)
        elif way[0] == "d" or (way[0] == "e" and not foreign[i]):
            fleet.enroll(trip)
    return scores, flagged, answers


def figures(foreign: np.ndarray, scores: np.ndarray, flagged: np.ndarray, answers: int) -> list[float]:
    """What the table has columns for."""
    third = len(scores) // 3
    f1 = 2 * (flagged & foreign).sum() / max(flagged.sum() + foreign.sum(), 1)
    alarms = [float(flagged[part][~foreign[part]].mean()) for part in (slice(third), slice(-third, None))]
    return [auroc(scores, foreign), average_precision(scores, foreign), f1, *alarms, answers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cache")
    parser.add_argument("--people", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", default="abcde")
    given = parser.parse_args()
    data = GeoLife(given.folder, given.cache, tuple(p for p in given.people.split(",") if p))
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(given.seeds):
        fleet = None
        for who in data.subjects(Setting()):
            case = Case(Setting(split="chronological"), who, seed)
            trial = data.trial(case)
            assert trial.lesson.strangers is not None
            fleet = fleet or FleetDetector(seed=seed).fit(trial.lesson.strangers.trips())
            streams = {"strangers": strangers(trial), "intruder": intruder(data, trial, case)}
            for kind, (trips, foreign) in streams.items():
                for way in (w for w in WAYS if w[0] in given.ways):
                    fleet.enroll(trial.lesson.train)
                    rows.setdefault((kind, way), []).append(figures(foreign, *run(fleet, trips, foreign, way)))
                    fleet.forget(who)
            print(who, seed, {" ".join(k): np.round(v[-1], 2).tolist() for k, v in rows.items()}, flush=True)
    print(f"{'':30}{'AUROC':>8}{'AP':>8}{'F1':>8}{'first':>8}{'last':>8}{'asked':>8}")
    for (kind, way), values in rows.items():
        print(f"{kind + ', ' + way:30}" + "".join(f"{v:8.3f}" for v in np.mean(values, axis=0)))


if __name__ == "__main__":
    main()
