"""Checks a fleet's file under kill -9: no change that was reported as saved is lost, and none is half saved.

    python bench/kills.py [--kills 50]        (about five minutes)

A process enrols, observes and forgets in turn, saves after each change and reports it; at a random moment it is killed.
Then this script opens the file, checks every row, and compares it with the reports: the file holds the last reported
change, with at most the one after it, and every agent is as if those changes had been made without a kill. The next
process continues with the same file. At the end two processes change the file at once: either both changes are there,
or one process reports that its change was refused.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import astray
from astray import Detector, Trajectories
from astray.core.errors import InUseError
from astray.simulate import city

PEOPLE, KNOWN, CHANGES = 6, 10, 400


def changed(fleet: Detector, trips: Trajectories, number: int) -> None:
    """Makes a change to a fleet, which depends only on its number and on the changes before."""
    agent = f"p{number % PEOPLE:02d}"
    mine = trips.agent(agent)
    turn = number // PEOPLE
    if agent not in fleet.agents:
        fleet.enroll(mine[:KNOWN])
    elif turn % 5 == 4:
        fleet.forget(agent)
    elif turn % 2:
        fleet.observe(mine[KNOWN + turn % 20 : KNOWN + turn % 20 + 2])
    else:
        fleet.enroll(mine[KNOWN + turn % 20 : KNOWN + turn % 20 + 3])


def work(model: Path, file: Path, first: int) -> None:
    """Changes a fleet until the process is killed, and reports each change after it is saved."""
    trips = Trajectories.from_frame(pl.read_parquet(file))
    fleet = astray.load(model)
    assert isinstance(fleet, Detector)
    print("begun", flush=True)
    for number in range(first, CHANGES):
        changed(fleet, trips, number)
        fleet.save(model)
        print(number, flush=True)


class Unkilled:
    """Makes the same changes without kills, to know what the file must hold after each."""

    def __init__(self, model: Path, trips: Trajectories) -> None:
        self.model, self.trips, self.done = model, trips, -1
        fleet = astray.load(model)
        assert isinstance(fleet, Detector)
        self.fleet = fleet

    def after(self, number: int) -> bytes:
        """Returns the model after a change, written whole so that bytes can be compared; ``number`` must rise."""
        while self.done < number:
            self.done += 1
            changed(self.fleet, self.trips, self.done)
            self.fleet.save(self.model)
        self.fleet.save(self.model.with_name("whole.astray"))
        return self.model.with_name("whole.astray").read_bytes()


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--enrol", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work[0]), Path(options.work[1]), int(options.work[2]))
        return
    if options.enrol:
        enrol(*map(Path, options.enrol[:2]), options.enrol[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        kill(Path(folder), options.kills, random.Random(options.seed))
        two_writers(Path(folder))


def kill(folder: Path, kills: int, chance: random.Random) -> None:
    """Kills a writer ``kills`` times."""
    trips = city(people=PEOPLE, days=10, seed=0).trips
    trips.to_frame().write_parquet(folder / "trips.parquet")
    known = Trajectories.concat([trips.agent(a)[:KNOWN] for a in trips.agents])
    Detector().fit(known).save(folder / "start.astray")
    Detector().fit(known).save(folder / "fleet.astray")
    unkilled = Unkilled(folder / "start.astray", trips)
    model, done, within, journals = folder / "fleet.astray", -1, 0, 0
    for _ in range(kills):
        child = started("--work", model, folder / "trips.parquet", done + 1)
        assert child.stdout is not None
        child.stdout.readline()
        began = time.monotonic()
        lines = [child.stdout.readline() for _ in range(chance.randrange(4))]
        # About in the middle of the next change, on any machine.
        lasted = (time.monotonic() - began) / len(lines) if lines else 0.2
        time.sleep(chance.uniform(0.0, 1.2 * lasted))
        child.send_signal(signal.SIGKILL)
        said = [int(line) for line in "".join([*lines, child.stdout.read()]).split() if line.isdigit()]
        child.wait()
        told = said[-1] if said else done
        journals += Path(f"{model}-journal").exists()
        fleet = astray.load(model)
        fleet.save(folder / "after.astray")
        after = (folder / "after.astray").read_bytes()
        there = next((n for n in (told, told + 1) if unkilled.after(n) == after), None)
        if there is None:
            raise SystemExit(f"after change {told} the file holds neither that nor the next one")
        within, done = within + (there == told + 1), there
    print(f"{kills} kills over {done + 1} changes: nothing lost, nothing half there", flush=True)
    print(f"{journals} left a journal that was rolled back; {within} came between a change and its report")


def enrol(model: Path, file: Path, agent: str) -> None:
    """Enrols an agent; the main function of a writer process."""
    trips = Trajectories.from_frame(pl.read_parquet(file)).agent(agent)
    for i in range(KNOWN, KNOWN + 12):
        while True:
            fleet = astray.load(model)
            assert isinstance(fleet, Detector)
            fleet.enroll(trips[i : i + 1])
            try:
                fleet.save(model)
            except InUseError:
                print("refused", flush=True)
                continue
            print(f"{trips.trajectory_ids[i]}", flush=True)
            break


def two_writers(folder: Path) -> None:
    """Lets two processes write at once: about two agents, and about the same one."""
    trips = Trajectories.from_frame(pl.read_parquet(folder / "trips.parquet"))
    known = Trajectories.concat([trips.agent(a)[:KNOWN] for a in trips.agents])
    for agents in (("p00", "p01"), ("p02", "p02")):
        model = folder / "two.astray"
        model.unlink(missing_ok=True)
        Detector().fit(known).save(model)
        both = [started("--enrol", model, folder / "trips.parquet", agent) for agent in agents]
        said = [child.communicate()[0].split() for child in both]
        fleet = astray.load(model)
        assert isinstance(fleet, Detector)
        for agent, words in zip(agents, said, strict=True):
            there = {trip.trajectory for trip in fleet.memories_[agent].counts.trip_ids}
            missing = [word for word in words if word != "refused" and word not in there]
            if missing:
                raise SystemExit(f"{agent}: {missing} was lost")
        for child in both:
            if child.returncode:
                raise SystemExit("a writer ended with an error")
        refused = sum(word == "refused" for words in said for word in words)
        print(
            f"two writers, {' and '.join(agents)}: 24 changes, all there; {refused} were refused, said so, and repeated"
        )


if __name__ == "__main__":
    main()
