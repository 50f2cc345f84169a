"""Measures how often open trips raise an alert: normal trips, which should not, and somebody else's.

    python bench/alarms.py                     (simulated people; some two minutes)
    python bench/alarms.py --geolife Data      (GeoLife users outside the ten of the tables; some five minutes)

The shipped reward learns nothing here; others' trips are only counted. A third of a person's trips, at most 30, are
held out and sent fix by fix, as by a feed; then 20 trips of others in the person's name. An alert counts if it is open
at any fix. A trip is scored about every interval, so it has many chances to be flagged; yet the share of normal trips
that raise an alert should be about the share of finished trips that are flagged, 2 %.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import astray
from astray import Detector, Trajectories
from astray.core.threads import one_thread
from astray.simulate import city

CITIES, PEOPLE = (50, 70), 5
USERS = ("004", "140", "030", "014", "039", "084")
OTHERS = ("000", "002", "003", "010", "011", "013", "022", "034", "037", "112", "115", "142", "167")
MIN_FIXES, MOST_TRIPS = 100, 220

Person = tuple[str, Trajectories, Trajectories]  # a name, the person's trips, those of others


def simulated() -> Iterator[Person]:
    for seed in CITIES:
        trips = city(people=8, days=45, seed=seed).trips
        for agent in trips.agents[:PEOPLE]:
            yield f"city {seed}, {agent}", trips.agent(agent), trips.without(agent)


def geolife(folder: Path) -> Iterator[Person]:
    def trips_of(user: str, most: int) -> Trajectories:
        trips = astray.read(folder / user, format="geolife")
        long = np.flatnonzero(trips.lengths >= MIN_FIXES)
        return trips[np.sort(np.random.default_rng(0).permutation(long)[:most])]

    others = Trajectories.concat([trips_of(user, 40) for user in OTHERS])
    for user in USERS:
        yield f"user {user}", trips_of(user, MOST_TRIPS), others


def alerted(detector: Detector, agent: str, trips: Trajectories) -> tuple[float, float]:
    """Returns the share of trips that raise an alert while open, and the share that is flagged when finished."""
    under_way, whole = [], []
    for i in range(len(trips)):
        session = detector.open(agent, score_steps=False)
        columns = (trips[i : i + 1].columns[name].tolist() for name in ("time", "lat", "lon"))
        # With a trip name, because gaps and stays must not end the trip.
        scores = [session.update(fix, trip="one") for fix in zip(*columns, strict=True)]
        final = session.close()
        under_way.append(any(score.alert for score in scores))
        whole.append(final is not None and final.decision != "normal")
    return float(np.mean(under_way)), float(np.mean(whole))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--geolife", type=Path)
    folder = arguments.parse_args().geolife
    warnings.simplefilter("ignore")
    print("| | past trips | normal: alert under way | normal: flagged | others: alert under way | others: flagged |")
    print("|---|---|---|---|---|---|")
    table = []
    for name, own, others in simulated() if folder is None else geolife(folder):
        rng = np.random.default_rng(1)
        held_out = np.isin(np.arange(len(own)), rng.permutation(len(own))[: min(30, len(own) // 3)])
        detector = Detector(preset="shared", sharing={"max_agents": 1})
        detector.fit(own[~held_out], population=others)
        foreign, (agent,) = others[np.sort(rng.permutation(len(others))[:20])], own.agents
        with one_thread():
            found = (*alerted(detector, agent, own[held_out]), *alerted(detector, agent, foreign))
        table.append(found)
        print(f"| {name} | {(~held_out).sum()} | " + " | ".join(f"{share:.1%}" for share in found) + " |", flush=True)
    print("| mean | | " + " | ".join(f"**{share:.1%}**" for share in np.mean(table, axis=0)) + " |")


if __name__ == "__main__":
    main()
