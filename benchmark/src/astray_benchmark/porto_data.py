"""Porto taxi trips for the protocols: a pooled model, tested on beginnings of long trips (P2) or on injections (P3).

The file is too large for memory, so it is streamed: once to list the trips, and once for each trial to fetch the trips
that it draws. The trips for all pairs of places of P8 (:mod:`astray_benchmark.porto_pairs`) are fetched at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.readers import Report, iter_porto
from astray_benchmark import guards
from astray_benchmark.array_types import Bools, Floats, Ints
from astray_benchmark.contenders import Lesson
from astray_benchmark.injections import inject
from astray_benchmark.injectors import DAY, INJECTORS
from astray_benchmark.protocols import Case, Setting, Trial, crop
from astray_benchmark.trial_parts import claim, shuffled

if TYPE_CHECKING:
    from astray_benchmark.porto_pairs import Pairs


CITY = (41.1579, -8.6291)  # latitude and longitude of the middle of Porto
AROUND = 0.5  # degrees; trips that go farther are GPS faults or leave the region
LONGEST = 200  # steps of 15 s: 50 minutes; longer trips are the anomalies
CAP = 100  # steps of a long trip that the reading "cap" keeps
MIN_FIXES = 10  # with fewer, a meter was switched on and off again
TEST_DAYS = 1 / 3  # the share of the days to test on
POOL = "pool"  # the name of the only subject
SIZES = {"matched": (1800, 200), "cap": (600, 600)}  # normal trips and anomalies in the test set of P2
TRAIN = 5000  # trips to learn from
INJECTED = 2000  # test trips of P3
PARTNERS = 40_000  # trips to splice routes with, which are neither learned from nor tested
PAIRS = 20  # pairs of places that P8 tests
LEAST = 100  # trips that a pair needs
OTHERS = 2000  # trips between other places, the population of P8
KINDS = tuple(kind for kind in INJECTORS if kind != "agent-swap")  # one pooled model knows no agents
FILES = ("train.csv", "porto_trips.parquet")


class Catalogue(NamedTuple):
    """A list of the trips to draw from, in the order of the file."""

    day: Ints  # the day on which each trip began (UTC, since 1970)
    fixes: Ints  # the number of fixes of each trip
    usable: Bools  # True if a trip stays around the city and has enough fixes
    ends: Floats  # latitude and longitude of each trip's first and last fix: (trips, 4)
    account: dict[str, int]  # the numbers of trips read, and of those left out for each reason
    sha256: str  # the hash of the file

    @property
    def normal(self) -> Bools:
        """Returns the usable trips of at most 50 minutes."""
        return self.usable & (self.fixes <= LONGEST + 1)

    @property
    def long(self) -> Bools:
        """Returns the usable trips of more than 50 minutes: the anomalies of P2."""
        return self.usable & (self.fixes > LONGEST + 1)


def catalogue(file: str | Path) -> Catalogue:
    """Lists the trips of a Porto file, CSV or Parquet, in one streamed pass."""
    report = Report()
    day, fixes, outside, ends = [], [], [], []
    for batch in iter_porto(file, skip_bad=True, report=report):
        away = np.maximum(np.abs(batch.columns["lat"] - CITY[0]), np.abs(batch.columns["lon"] - CITY[1]))
        outside.append(np.maximum.reduceat(away, batch.offsets[:-1]) > AROUND)
        day.append((batch.columns["time"][batch.offsets[:-1]] // DAY).astype(np.int64))
        fixes.append(batch.lengths)
        places = np.column_stack([batch.columns["lat"], batch.columns["lon"]])
        ends.append(np.hstack([places[batch.offsets[:-1]], places[batch.offsets[1:] - 1]]))
    days, sizes, left = np.concatenate(day), np.concatenate(fixes), np.concatenate(outside)
    short = ~left & (sizes < MIN_FIXES)
    usable = ~left & ~short
    account = {
        "trips read": len(days),
        **{f"not read: {reason}": count for reason, count in report.counts.items()},
        f"dropped: leave {AROUND:g} degrees around the city": int(left.sum()),
        f"dropped: under {MIN_FIXES} fixes": int(short.sum()),
        "normal trips": int((usable & (sizes <= LONGEST + 1)).sum()),
        "trips over 50 minutes": int((usable & (sizes > LONGEST + 1)).sum()),
    }
    with open(file, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    return Catalogue(days, sizes, usable, np.concatenate(ends), account, sha256)


def gather(file: str | Path, positions: Ints) -> Trajectories:
    """Fetches trips by their positions in the catalogue, in the order given, in one streamed pass."""
    wanted = np.unique(positions)
    found, first = [], 0
    for batch in iter_porto(file, skip_bad=True, report=Report()):
        here = wanted[(wanted >= first) & (wanted < first + len(batch))] - first
        if len(here):
            found.append(batch[here])
        first += len(batch)
        if len(wanted) and first > wanted[-1]:
            break
    if sum(map(len, found)) < len(wanted) or not len(wanted):
        raise DataError(
            "the file does not have all the wanted trips", place=file, remedy="if it has changed, run the command again"
        )
    return Trajectories.concat(found)[np.searchsorted(wanted, positions)]


def days(listed: Catalogue, how: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Returns the days to learn from and the days to test on: a third, at random or the last."""
    every = np.unique(listed.day[listed.usable])
    n_test = round(TEST_DAYS * len(every))
    if not 0 < n_test < len(every):
        raise DataError(
            f"the trips cover {len(every)} days", remedy="give trips of more days, to train and test on different ones"
        )
    if how == "chronological":
        return every[:-n_test], every[-n_test:]
    mixed = rng.permutation(every)
    return np.sort(mixed[n_test:]), np.sort(mixed[:n_test])


@dataclass(frozen=True)
class Porto:
    """Trials on the Porto taxi trips.

    The path is that of a file (CSV or Parquet, in the columns of train.csv), or of a folder with ``train.csv`` or
    ``porto_trips.parquet``. The other fields are numbers of trips to draw, described at their defaults.
    """

    path: str
    train: int = TRAIN
    sizes: tuple[tuple[str, tuple[int, int]], ...] = tuple(SIZES.items())
    injected: int = INJECTED
    partners: int = PARTNERS
    pairs: int = PAIRS  # the draws of a pair do not depend on this number
    least: int = LEAST
    others: int = OTHERS
    name: ClassVar[str] = "porto"

    @property
    def file(self) -> Path:
        """Returns the path of the file."""
        path = Path(self.path)
        if not path.is_dir():
            return path
        found = [path / name for name in FILES if (path / name).is_file()]
        if not found:
            raise DataError(f"neither {' nor '.join(FILES)} is in this folder", place=path, remedy="name the file")
        return found[0]

    @property
    def data(self) -> Catalogue:
        """Returns the list of trips; made once in each process."""
        return _catalogue(str(self.file))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Returns the numbers of trips to draw, and the account of dropped ones."""
        sizes = {reading: list(size) for reading, size in self.sizes}
        drawn = {"train": self.train, "sizes": sizes, "injected": self.injected, "partners": self.partners}
        drawn |= {"least": self.least, "others": self.others}
        return drawn | {"kinds": list(KINDS)} | self.data.account

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of the file."""
        return self.data.sha256

    def subjects(self, setting: Setting) -> Sequence[str]:
        """Returns the pool of all taxis, or the pairs of places."""
        return list(self._pairs.chosen) if setting.family == "pair" else [POOL]

    @property
    def _pairs(self) -> Pairs:
        from astray_benchmark.porto_pairs import fetched

        return fetched(self)

    def trial(self, case: Case) -> Trial:
        """Draws a trial: trips of some days to learn from, and trips of other days to test."""
        s = case.setting
        if s.family in ("person", "stream") or s.contamination or s.history:
            raise DataError("a protocol that Porto does not have", remedy="give p2, p3 or p8")
        if s.family == "pair":
            return self._pairs.trial(case)
        return self._injected(case) if s.injected else self._long(case)

    def _long(self, case: Case) -> Trial:
        """Draws a trial of P2: normal trips, and beginnings of long ones."""
        s, listed = case.setting, self.data
        if s.reading not in dict(self.sizes):
            raise DataError(f"no reading {s.reading!r} of P2", remedy=f"there are {', '.join(dict(self.sizes))}")
        rng = np.random.default_rng([case.seed, 4])
        past, future = days(listed, s.split, rng)
        n_normal, n_long = dict(self.sizes)[s.reading]
        normal = _some(listed.normal & np.isin(listed.day, future), n_normal, "normal trips to test", rng)
        long = _some(listed.long & np.isin(listed.day, future), n_long, "trips over 50 minutes to test", rng)
        train = _some(listed.normal & np.isin(listed.day, past), self.train, "trips to learn from", rng)
        # "matched" uses the length of each normal test trip once, so that lengths do not give the anomalies away.
        sizes = rng.permutation(listed.fixes[normal])[:n_long] if s.reading == "matched" else np.full(n_long, CAP + 1)
        guards.no_trip_twice(train=train, normal=normal, long=long)
        guards.nobody_in_both(training_days=listed.day[train], test_days=listed.day[np.r_[normal, long]])
        got = gather(self.file, np.r_[train, normal, long])
        learned, plain, wrong = np.split(np.arange(len(got)), np.cumsum([len(train), len(normal)]))
        test = Trajectories.concat([got[plain], crop(got[wrong], sizes)])
        kind = np.r_[np.full(n_normal, ""), np.full(n_long, "long")]
        return shuffled(Lesson(claim(got[learned], POOL, "trip"), pooled=True), test, kind, None, rng)

    def _injected(self, case: Case) -> Trial:
        """Draws a trial of P3: normal trips, some of them made anomalous."""
        s, listed = case.setting, self.data
        rng = np.random.default_rng([case.seed, 5])
        past, future = days(listed, s.split, rng)
        normal = _some(listed.normal & np.isin(listed.day, future), self.injected, "trips to test", rng)
        left = listed.normal & np.isin(listed.day, past)
        train = _some(left, self.train, "trips to learn from", rng)
        left[train] = False
        partners = _some(left, min(self.partners, int(left.sum())), "trips to splice with", rng)
        guards.no_trip_twice(train=train, normal=normal, partners=partners)
        guards.nobody_in_both(training_days=listed.day[train], test_days=listed.day[normal])
        got = gather(self.file, np.r_[train, normal, partners])
        learned, plain, pool = np.split(np.arange(len(got)), np.cumsum([len(train), len(normal)]))
        made = inject(got[plain], KINDS, s.rate, rng, pool=got[pool])
        return shuffled(Lesson(claim(got[learned], POOL, "trip"), pooled=True), made.trips, made.kind, made.truth, rng)


def _some(which: Bools, count: int, what: str, rng: np.random.Generator) -> Ints:
    """Draws positions of some trips, without replacement."""
    found = np.flatnonzero(which)
    if not 0 < count <= len(found):
        raise DataError(
            f"{count} {what} are needed, but there are {len(found)}", remedy="ask for fewer, or give more data"
        )
    return rng.choice(found, count, replace=False)


@lru_cache(maxsize=1)
def _catalogue(file: str) -> Catalogue:
    return catalogue(file)
