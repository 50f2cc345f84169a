"""The stream: what a deployment lives through (protocol P7). A person's trips in the order of time, some a stranger's.

    python bench/stream.py GEOLIFE [--cache FILE] [--people 004,167] [--seeds 2]

After the training period each trip is scored, decided, and then (a) nothing is learned, (b) what was not flagged is
(`observe`), (c) likewise, and questions are answered by somebody who knows, (d) everything is, (e) every normal trip is
(a bound). Once with 5 % strangers spread over the stream, once with an intruder: one stranger who makes 10 of 20
consecutive trips. GEOLIFE is the folder `Data` of your copy; by default the ten people of the published table.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse

import numpy as np

from astray import IRLDetector, Trajectories
from astray.benchmark.geolife_data import GeoLife
from astray.benchmark.metrics import auroc, average_precision
from astray.benchmark.protocols import Case, Setting, Trial
from astray.mdp.view import trip_names

WAYS = ("a nothing", "b unflagged", "c with questions", "d everything", "e every normal")


def stream(trial: Trial, intruder: bool, rng: np.random.Generator) -> tuple[Trajectories, np.ndarray]:
    """The test trips in the order of time, and which are a stranger's; an intruder's stand together."""
    test, foreign = trial.test, trial.kind != ""
    start = test.columns["time"][test.offsets[:-1]]
    order = np.argsort(start, kind="stable")
    if not intruder:
        return test[order], foreign[order]
    own, theirs = order[~foreign[order]], order[foreign[order]]
    begin = int(rng.integers(len(own) // 4, 3 * len(own) // 4))
    window = np.sort(rng.choice(20, len(theirs), replace=False))
    mixed = list(own)
    for place, trip in zip(window, theirs, strict=True):
        mixed.insert(begin + int(place), trip)
    mixed = np.array(mixed)
    return test[mixed], foreign[mixed]


def run(
    detector: IRLDetector, trips: Trajectories, foreign: np.ndarray, way: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """Scores, flags and the number of answers."""
    scores, flagged, answers = np.zeros(len(trips)), np.zeros(len(trips), bool), 0
    strange = dict(zip(trip_names(trips), foreign.tolist(), strict=True))
    for i in range(len(trips)):
        trip = trips[i : i + 1]
        scores[i] = detector.score_samples(trip)[0]
        flagged[i] = detector.predict(trip)[0] < 0
        if way[0] in "bc":
            detector.observe(trip)
            while way[0] == "c" and detector.questions_:
                question = detector.questions_[0]
                answers += 1
                detector.answer(question, mine=np.mean([strange[t] for t in question.trips]) < 0.5)
        elif way[0] == "d" or (way[0] == "e" and not foreign[i]):
            detector.set_params(strays=False).partial_fit(trip)
    return scores, flagged, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cache")
    parser.add_argument("--people", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", default="abc")
    parser.add_argument("--rate", type=float, default=0.05)
    given = parser.parse_args()
    data = GeoLife(given.folder, given.cache, tuple(p for p in given.people.split(",") if p))
    rows: dict[tuple[bool, str], list[list[float]]] = {}
    for seed in range(given.seeds):
        for who in data.subjects(Setting()):
            trial = data.trial(Case(Setting(rate=given.rate, split="chronological"), who, seed))
            fitted = IRLDetector(seed=seed).fit(trial.lesson.train, population=trial.lesson.population)
            fitted.save("stream.tmp")
            for intruder in (False, True):
                trips, foreign = stream(trial, intruder, np.random.default_rng([seed, int(who)]))
                for way in (w for w in WAYS if w[0] in given.ways):
                    scores, flagged, answers = run(_again("stream.tmp"), trips, foreign, way)
                    third = len(trips) // 3
                    hits = (flagged & foreign).sum()
                    f1 = 2 * hits / max(flagged.sum() + foreign.sum(), 1)
                    alarms = [
                        float(flagged[part][~foreign[part]].mean()) for part in (slice(third), slice(-third, None))
                    ]
                    rows.setdefault((intruder, way), []).append(
                        [auroc(scores, foreign), average_precision(scores, foreign), f1, *alarms, answers]
                    )
            print(who, seed, {k: np.round(v[-1], 2).tolist() for k, v in rows.items()}, flush=True)
    os.remove("stream.tmp")
    print(f"{'':32}{'AUROC':>8}{'AP':>8}{'F1':>8}{'first':>8}{'last':>8}{'asked':>8}")
    for (intruder, way), values in rows.items():
        mean = np.mean(values, axis=0)
        print(f"{'intruder, ' if intruder else 'strangers, '}{way:20}" + "".join(f"{v:8.3f}" for v in mean))


def _again(path: str) -> IRLDetector:
    import astray

    model = astray.load(path)
    assert isinstance(model, IRLDetector)
    return model


if __name__ == "__main__":
    main()
