"""Compares two ways to score open trips: by running sums, row by row, and by the batch code on all cached rows.

    python bench/engine.py             (about four minutes; --quick for a first look)

Many trips are open at once. In each tick every trip gets a fix, and trips with a new row are scored. Both engines take
in the same fixes, in turns after each tick, and must give the same scores. Times are processor time of one thread.

running
    `score_open`, which the product uses: each open trip keeps sums over its rows, and a new row is added to them.
batch
    Each open trip keeps its points, and the steps, keys and familiarity of its rows. A tick makes the steps of all
    trips from their last points with `steps_of`, makes the keys of all new rows in one call, concatenates the cached
    rows of all trips and computes the statistics with the functions that score a file.

The goal is 2,000 fixes a second of processor time, and 99 of 100 ticks within 50 ms. Measured on one core that was
shared with other programs; both engines gave the same scores to the last bit:

    trips a tick   rows a trip   running: fixes/s, p99   batch: fixes/s, p99
               1           495      6,954      0.56 ms     1,672     1.53 ms
              10           354      8,635      1.74 ms     4,144     3.52 ms
             100           331     16,496      7.78 ms     9,266    14.86 ms
           1,000           100     17,318     83.07 ms    10,998   126.29 ms

The batch engine is too slow for single fixes, as in `watch` and in single posts to the service, and slower at every
other size. For one trip, `steps_of` takes 190 microseconds and `OpenPath` 5; `keys_of` 110 to 160 and `StepKeys` 20 to
30; `statistics` 700, and 110 to add a row to running sums and compute the statistics from these.

So beside each batch function that single fixes need, the product has a form for one row in the same file: `OpenPath`
beside `steps_of`, `StepKeys` beside `keys_of`, `MotionSums` beside `TripRows.motion`, `count_rows` beside `statistics`,
`features_of_step` beside `features`. The same functions compute what follows from the sums (motion, words, keys and
statistics of trips) for open trips and for files, and trips of one model are scored together.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import gc
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray import Detector, Trajectories
from astray.core.projection import Projections
from astray.core.trips import Cutter
from astray.features.familiarity import Frames, familiarity_to_each, keys_of
from astray.features.paths import make_paths
from astray.features.popularity import Popularity
from astray.features.statistics import members, statistics_of, windows
from astray.features.steps import Steps, steps_of
from astray.features.trip_rows import TripRows
from astray.runtime.trip import OpenTrip, score_open
from astray.scoring.normality import normality_of
from astray.simulate import city

Array = NDArray[Any]
Fix = tuple[float, float, float]

WANTED_RATE, WANTED_P99 = 2000, 50e-3
SIZES = (1, 10, 100, 1000)


@dataclass(eq=False)
class CachedTrip:
    """An open trip as the batch engine keeps it: its last points, and its rows with their keys and familiarity."""

    model: Any
    unfinished: Any
    maker: Array  # the agent's number in the popularity
    cutter: Cutter
    points: list[Fix] = field(default_factory=list)  # time, and metres east and north
    start: float = 0.0
    origin: tuple[float, float] = (0.0, 0.0)
    tick: int = -1
    rows: int = 0
    numbers: Array = field(default_factory=lambda: np.empty((16, 6)))  # time, first, location, velocity
    familiar: Array = field(default_factory=lambda: np.empty((16, 0), np.float32))
    there: Array = field(default_factory=lambda: np.empty((16, 0), np.float32))

    def put(self, numbers: Array, familiar: Array, there: Array) -> None:
        """Adds a row."""
        if self.rows == 0:
            self.familiar = np.empty((16, len(familiar)), np.float32)
            self.there = np.empty((16, len(there)), np.float32)
        if self.rows == len(self.numbers):
            for name in ("numbers", "familiar", "there"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.empty_like(old)]))
        self.numbers[self.rows], self.familiar[self.rows], self.there[self.rows] = numbers, familiar, there
        self.rows += 1


class Batch:
    """Scores open trips by the functions that score a file."""

    def __init__(self, fleet: Detector, seconds: dict[str, float]) -> None:
        self.reward, self.seconds = fleet.reward_, seconds

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds the processor time of a block to a part."""
        began = time.process_time()
        yield
        self.seconds[name] += time.process_time() - began

    def tick(self, trips: list[CachedTrip], fixes: list[Fix]) -> dict[int, tuple[float, float]]:
        """Takes in one fix of each trip; returns the scores of the trips that have a new row, by their positions."""
        featurizer = trips[0].model.featurizer
        config = featurizer.config
        with self.part("steps"):
            steps = self._steps(trips, fixes, config.interval, featurizer.encoder.lags)
            ticks = np.floor(steps.elapsed / config.interval + 0.5).astype(np.int64)
            due = []
            for i, (trip, now) in enumerate(zip(trips, ticks.tolist(), strict=True)):
                if now != trip.tick or trip.rows == 0:
                    due.append(i)
                trip.tick = now
            steps, some = steps[np.array(due, np.int64)], [trips[i] for i in due]
        if not due:
            return {}
        frames = Frames.of([trip.model.featurizer.frame for trip in some])
        with self.part("keys"):
            keys = keys_of(steps, config.habits, frames)
        with self.part("look-ups"):
            memories = [trip.model.featurizer.memory for trip in some]
            familiar = familiarity_to_each(keys, memories)
            there = np.array(
                [
                    trip.model.featurizer.popularity.encode(own[None], config.habits, trip.maker)[0]
                    for trip, own in zip(some, keys, strict=True)
                ]
            )
        with self.part("statistics"):
            numbers = np.column_stack([steps.time, steps.first, steps.location, steps.velocity])
            for trip, *row in zip(some, numbers, familiar, there, strict=True):
                trip.put(*row)
            found = self._statistics(some, frames, memories, config)
        with self.part("reward"):
            scales = [trip.unfinished for trip in some]
            assert self.reward.trip is not None
            n, spread, _ = normality_of(self.reward.trip(found), [s.weights for s in scales], [s.trip for s in scales])
            return {i: (a, b) for i, a, b in zip(due, n.tolist(), spread.tolist(), strict=True)}

    def _steps(self, trips: list[CachedTrip], fixes: list[Fix], interval: float, lags: tuple[float, ...]) -> Steps:
        """Returns the step that led each trip to its last point, computed from the points that the step depends on."""
        reach = max((interval, *lags))
        for trip, (when, lat, lon) in zip(trips, fixes, strict=True):
            trip.cutter.update(when, lat, lon)
            x, y = trip.model.featurizer.projection.place(lat, lon)
            if not trip.points:
                trip.start, trip.origin = when, (x, y)
            trip.points.append((when, x, y))
            while len(trip.points) > 1 and trip.points[1][0] <= when - reach:
                del trip.points[0]
        points = np.array([point for trip in trips for point in trip.points])
        ends = np.cumsum([len(trip.points) for trip in trips])
        last = ends - 1
        steps = steps_of(make_paths(points[:, 0], points[:, 1:], np.append(0, ends)), interval, lags)[last]
        elapsed = steps.time - np.array([trip.start for trip in trips])
        origin = np.array([trip.origin for trip in trips])
        first = elapsed == 0
        whole = dict(vars(steps), elapsed=elapsed, origin=origin, first=first)
        return Steps(**whole)

    def _statistics(self, trips: list[CachedTrip], frames: Frames, memories: list[Any], config: Any) -> Array:
        """Returns the `statistics` of the cached rows, each trip's by its agent's memory."""
        lengths = np.array([trip.rows for trip in trips])
        starts = np.cumsum(lengths) - lengths
        numbers = np.concatenate([trip.numbers[: trip.rows] for trip in trips])
        familiar = np.concatenate([trip.familiar[: trip.rows] for trip in trips])
        there = np.concatenate([trip.there[: trip.rows] for trip in trips])
        n, nothing = len(trips), np.zeros((len(numbers), 0))
        steps = Steps(
            location=numbers[:, 2:4],
            velocity=numbers[:, 4:6],
            window=numbers[:, 0],
            origin=numbers[:, 2:4],
            elapsed=numbers[:, 0],
            time=numbers[:, 0],
            trail=nothing,
            trip=np.repeat(np.arange(n), lengths),
            first=numbers[:, 1] > 0,
            given=nothing,
        )
        # TripRows projects the places where trips begin, and then those where they stop.
        both = Frames(Projections(*(np.tile(values, 2) for values in frames.projection)), frames.utc_offset)
        rows = TripRows(steps, np.zeros((len(numbers), 0, 2), np.uint64), both, n, np.zeros(n, bool))  # type: ignore[arg-type]

        def mean(values: Array) -> Array:
            return np.add.reduceat(values, starts, axis=0, dtype=np.float64) / lengths[:, None]

        last = starts + lengths - 1
        low, high = windows(familiar, starts, lengths, config.window_rows)
        over = np.stack([mean(familiar), low, high, familiar[starts], familiar[last], mean(familiar == 0)], axis=2)
        cells = Popularity(config.popularity)
        new = familiar[:, [config.habits.index(habit) for habit in cells.habits]] == 0
        others = np.stack([mean(there), there[starts], there[last], mean(there * new)], axis=2)
        alike = familiarity_to_each(rows.looked_up, memories)
        past = np.log1p([memory.history for memory in memories])
        found = np.column_stack([over.reshape(n, -1), alike, rows.motion, others.reshape(n, -1), past])
        known = statistics_of(config.habits, config.popularity)
        found[:, members(known, "end") | members(known, "destination")] = np.nan
        return found.astype(np.float32)


def feeds(n: int, ticks: int, trips: Trajectories) -> list[list[Fix]]:
    """Returns the fixes of `n` long trips: a person's trips joined into one, begun at different points."""
    found = []
    for k in range(n):
        own = trips.agent(trips.agents[k % len(trips.agents)])
        clock, lat, lon = (own.columns[name] for name in ("time", "lat", "lon"))
        gap = np.diff(clock, prepend=clock[:1])
        # The next trip may begin elsewhere: the agent gets there at 30 m/s.
        there = 4e3 * np.hypot(np.diff(lat, prepend=lat[:1]), np.diff(lon, prepend=lon[:1]))
        rises = np.where((gap <= 0) | (gap > 120), np.clip(there, 60.0, 1100.0), gap)
        begin = 131 * (k // len(trips.agents)) % (own.n_rows - ticks)
        chosen = slice(begin, begin + ticks)
        clock = 1.7e9 + np.cumsum(rises[chosen])
        found.append(list(zip(clock.tolist(), lat[chosen].tolist(), lon[chosen].tolist(), strict=True)))
    return found


class Compared(NamedTuple):
    """Seconds of each tick by engine and of the batch engine's parts, rows per trip, and the largest difference."""

    took: dict[str, list[float]]
    parts: dict[str, float]
    rows: float
    off: float


def compare(fleet: Detector, trips: Trajectories, n: int, ticks: int) -> Compared:
    """Scores `n` open trips by both engines, tick by tick in turns."""
    agents = list(fleet.agents)
    sessions = [fleet.open(agents[k % len(agents)], score_steps=False, stay=None) for k in range(n)]
    cached, parts = [], defaultdict[str, float](float)
    for session in sessions:
        model = fleet.agent_model(session.agent, None)
        maker = model.featurizer.popularity.number_of([session.agent])
        cached.append(CachedTrip(model, model.unfinished, maker, Cutter(session.rules)))
    batch, took, off = Batch(fleet, parts), defaultdict[str, list[float]](list), 0.0
    fixes = list(zip(*feeds(n, ticks, trips), strict=True))
    gc.collect()
    gc.freeze()
    for i, now in enumerate(fixes):
        begun = time.process_time()
        for session, fix in zip(sessions, now, strict=True):
            session.begin(*fix)
        score_open(session.due for session in sessions if session.due is not None)
        between = time.process_time()
        found = batch.tick(cached, list(now))
        ended = time.process_time()
        if i:  # the first tick also makes what is made only once
            took["running"].append(between - begun)
            took["batch"].append(ended - between)
        for k, (normality, _) in found.items():
            trip = sessions[k]._open
            assert isinstance(trip, OpenTrip)
            off = max(off, abs(trip.so_far.normality - normality))
    return Compared(took, parts, float(np.mean([trip.rows for trip in cached])), off)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer ticks: only a first look")
    quick = parser.parse_args().quick
    people = city(people=12, days=28, seed=0).trips
    fleet = Detector(iterations=1, seed=0).fit(people[np.arange(len(people)) % 4 != 0])
    heads = ("trips", "rows", "engine", "fixes/s", "p50 ms", "p99 ms", "wanted", "off by")
    print("".join(f"{head:>12}" for head in heads))
    for n in SIZES:
        ticks = max(40 if n < 1000 else 20, (2000 if n == 1 else 1000 if n < 1000 else 300) // (10 if quick else 1))
        took, parts, rows, off = compare(fleet, people, n, ticks)
        for engine, seconds in took.items():
            rate, p99 = n * len(seconds) / sum(seconds), float(np.quantile(seconds, 0.99))
            met = "met" if rate >= WANTED_RATE and p99 < WANTED_P99 else "MISSED"
            times = (f"{1e3 * np.median(seconds):.2f}", f"{1e3 * p99:.2f}")
            cells = (n, f"{rows:.0f}", engine, f"{rate:,.0f}", *times, met, f"{off:.1e}")
            print("".join(f"{cell:>12}" for cell in cells), flush=True)
        mean = {name: 1e3 * spent / ticks for name, spent in parts.items()}
        print("    batch, ms a tick: " + ", ".join(f"{name} {spent:.2f}" for name, spent in mean.items()))


if __name__ == "__main__":
    main()
