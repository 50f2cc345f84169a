"""Prepares people's trips for the protocols: reads them, drops short trips and copies, and draws trials of one person.

The seed splits the users into halves. Foreign trips, which are submitted as the tested person's or left in a training
set, come from one half. The population for the background, and the strangers for learning a shared reward, come from
the other half. So no person is in both groups, and the tested person is in neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.readers import Report, read, read_geolife
from astray_benchmark import guards
from astray_benchmark.array_types import Ints
from astray_benchmark.contenders import Lesson, Strangers
from astray_benchmark.injections import inject
from astray_benchmark.injectors import DAY, INJECTORS, NEED_A_POOL, WEEK
from astray_benchmark.protocols import Case, Setting, Trial
from astray_benchmark.trial_parts import anomalies_for, claim, in_time, intruder, intrusion, shuffled, submitted

PEOPLE = 10  # the number of people to test
ANOMALIES = 10  # in each test set: the paper's recalls are multiples of 0.1
POPULATION = 4000  # trips of other people for the background
KINDS = tuple(kind for kind in INJECTORS if kind not in NEED_A_POOL)  # P3 injects them into a person's own trips
NO_PAIRS = np.zeros((0, 2), np.int64)
LEAST_HISTORY = 5  # training trips that a person needs to be tested
LEAST_AGENTS = 4  # agents that a file of trips needs, so that each half has one besides the tested person


class Cleaned(NamedTuple):
    """People's trips after cleaning."""

    trips: Trajectories  # those that are long enough and not copies
    most_active: tuple[str, ...]  # the users by their number of trips that are long enough, including copies
    account: dict[str, int]  # the numbers of trips read, and of those left out for each reason
    sha256: str  # the hash of all trips, before any were left out
    together: Ints  # pairs of trips that two users made together, so that neither is foreign to the other user

    def companions(self, people: Iterable[str]) -> Ints:
        """Returns the trips that others made together with one of these people."""
        return _made_along(self.together, np.isin(self.trips.agent_ids, sorted(people)))


def _made_along(together: Ints, which: NDArray[np.bool_]) -> Ints:
    """Returns the trips outside a set that were made together with a trip in the set."""
    a, b = which[together].T
    return np.unique(np.r_[together[a & ~b, 1], together[b & ~a, 0]])


def clean(trips: Trajectories, min_fixes: int) -> Cleaned:
    """Drops short trips and copies (:func:`astray_benchmark.guards.copies`).

    GeoLife has trips that occur under two users; some are byte-identical, others differ by a few fixes at an end. It
    drops both kinds.
    """
    marks = guards.fingerprints(trips)
    times = Counter(marks)
    long = trips.lengths >= min_fixes
    active = Counter(trips.agent_ids[long].tolist())  # users with equal numbers stay in their order
    kept = trips[long]
    copied = guards.copies(kept)
    identical = np.array([times[mark] > 1 for mark in marks], np.bool_)
    account = {
        "trips read": len(trips),
        "users": len(trips.agents),
        "byte-identical trips": int(identical.sum()),
        "groups of byte-identical trips": sum(count > 1 for count in times.values()),
        f"dropped: under {min_fixes} fixes": int((~long).sum()),
        "dropped: byte-identical": int((copied & identical[long]).sum()),
        "dropped: the same but for some fixes": int((copied & ~identical[long]).sum()),
        "trips left": int((~copied).sum()),
        "users left": len(kept[~copied].agents),
    }
    left = kept[~copied]
    pairs = guards.together(left)
    account["pairs made together by two users"] = len(pairs)
    most_active = tuple(user for user, _ in active.most_common())
    return Cleaned(left, most_active, account, guards.fingerprint(trips, marks), pairs)


def halves(trips: Trajectories, seed: int, together: Ints = NO_PAIRS) -> tuple[Ints, Ints]:
    """Splits the users into halves; returns the trips that may be injected, and those for a background.

    The background leaves out trips that its people made together with people of the other half, because a method that
    learned from one of the two trips would know the other.
    """
    users = np.random.default_rng([seed, 1]).permutation(sorted(trips.agents))
    injected = np.isin(trips.agent_ids, users[: len(users) // 2])
    return np.flatnonzero(injected), np.setdiff1d(np.flatnonzero(~injected), _made_along(together, injected))


@dataclass(frozen=True)
class People(ABC):
    """Makes trials of one person at a time. Each process reads the data once, for the first trial."""

    path: str
    people: tuple[str, ...] = ()  # the people to test; by default those with most trips. Tune parameters on others
    population: int = POPULATION  # the number of trips of other people that a method may learn from
    name: ClassVar[str]
    min_fixes: ClassVar[int]
    fewer: ClassVar[bool] = False  # True to test a person with few trips on fewer trips than in the paper

    @abstractmethod
    def load(self) -> Cleaned:
        """Reads and cleans the trips."""

    @property
    def data(self) -> Cleaned:
        """Returns the cleaned trips, with an account of those dropped."""
        return _loaded(self)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Returns the tested people, the size of the background, and the account of dropped trips."""
        people = list(self.subjects(Setting()))
        return {"people": people, "population": self.population, "min_fixes": self.min_fixes} | self.data.account

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of all trips that were read."""
        return self.data.sha256

    @property
    def usual(self) -> Sequence[str]:
        """Returns the people to test by default; even if others are tested, no method learns from them beforehand."""
        return self.data.most_active[:PEOPLE]

    def subjects(self, setting: Setting) -> Sequence[str]:
        """Returns the people who are tested."""
        unknown = sorted(set(self.people).difference(self.data.most_active))
        if unknown:
            raise DataError(
                f"nobody called {unknown[0]!r} has trips of {self.min_fixes} fixes or more",
                remedy=f"there are {', '.join(self.data.most_active[:PEOPLE])}, ...",
            )
        return self.people or self.usual

    def trial(self, case: Case) -> Trial:
        """Draws a trial of one person."""
        if case.setting.family not in ("person", "stream", "injected"):
            raise DataError(f"{self.name} has no {case.setting.family} trials", remedy="it has P1, P3 to P7 and P9")
        key = f"{self.name}-{self.fingerprint[:12]}-{case.seed}-{'+'.join(self.people)}"
        strangers = Strangers(key, lambda: self._strangers(case.seed))
        return draw(self.data.trips, case, self.population, strangers, self.data.together, fewer=self.fewer)

    def _strangers(self, seed: int) -> Trajectories:
        """Returns the trips of those users whose trips are never injected, without the tested people."""
        trips, tested = self.data.trips, {*self.usual, *self.people}
        crowd = np.setdiff1d(halves(trips, seed, self.data.together)[1], self.data.companions(tested))
        return trips[crowd[~np.isin(trips.agent_ids[crowd], sorted(tested))]]


@lru_cache(maxsize=1)
def _loaded(people: People) -> Cleaned:
    return people.load()


@dataclass(frozen=True)
class GeoLife(People):
    """Trials on GeoLife 1.3, of the ten people with the most trips; ``path`` is its folder ``Data``."""

    cache: str | None = None  # a Parquet file for the parsed trips; without it, every process parses the folder
    name: ClassVar[str] = "geolife"
    min_fixes: ClassVar[int] = 100

    def load(self) -> Cleaned:
        """Reads and cleans the trips of the folder."""
        return clean(read_geolife(self.path, cache=self.cache, skip_bad=True, report=Report()), self.min_fixes)


@dataclass(frozen=True)
class AgentsTrips(People):
    """Trials on trips of any file that astray can read; a third of the agents are tested, ten at most."""

    name: ClassVar[str] = "trips"
    min_fixes: ClassVar[int] = 10  # with fewer, a receiver was switched on and off again
    fewer: ClassVar[bool] = True

    @property
    def usual(self) -> Sequence[str]:
        """Returns the agents with the most trips: a third of them, ten at most."""
        return self.data.most_active[: min(PEOPLE, len(self.data.most_active) // 3 or 1)]

    def load(self) -> Cleaned:
        """Reads and cleans the trips of the file; adds the skipped places to the account."""
        report = Report()
        found = clean(read(self.path, skip_bad=True, report=report), self.min_fixes)
        if len(found.most_active) < LEAST_AGENTS:
            raise DataError(
                f"the benchmark compares agents, but there are {len(found.most_active)} with trips of "
                f"{self.min_fixes} fixes or more",
                place=self.path,
                remedy=f"give trips of {LEAST_AGENTS} agents or more; astray check says how a file is read",
            )
        not_read = {f"not read: {reason}": count for reason, count in report.counts.items()}
        return found._replace(account=found.account | not_read)


# -------------------------------------------------------------------- draws


def draw(
    trips: Trajectories,
    case: Case,
    population: int = POPULATION,
    strangers: Strangers | None = None,
    together: Ints = NO_PAIRS,
    *,
    fewer: bool = False,
) -> Trial:
    """Draws one person's trial: 10 foreign trips and normal ones, in number by the rate; methods learn from the rest.

    The test set depends only on the person, the seed, the rate and the split, so that different contaminations and
    histories are compared on the same trips. Foreign trips keep their hour and weekday and are moved by whole weeks to
    about the time of one of the person's trips, so that dates do not give them away. ``together`` holds pairs of trips
    that two people made together: those made with the person show the person's own behaviour, so they are left out.

    A stream is in the order of time. For the reading "strangers" it is the test set of the same draw with a split by
    time. For "intruder" the ten foreign trips are consecutive trips of one stranger, moved by whole days so that they
    follow each other.

    P3 makes anomalies from the person's own unseen trips; it leaves out kinds that need other trips.
    """
    s, person = case.setting, case.subject
    who = crc32(person.encode())
    rng = np.random.default_rng([case.seed, 4 if s.injected else 2, who])
    train, normal = _own(trips, case, rng, fewer)
    foreign, crowd = _others(trips, case, together)
    if s.injected:
        crowd = np.sort(rng.permutation(crowd)[:population])
        guards.no_trip_twice(train=train, normal=normal, population=crowd)
        made = inject(trips[normal], KINDS, s.rate, rng, fewer=True)
        lesson = Lesson(claim(in_time(trips[train]), person, "trip"), trips[crowd], strangers)
        return shuffled(lesson, made.trips, made.kind, made.truth, rng)

    foreign = rng.permutation(foreign)
    wanted = anomalies_for(len(normal), s.rate)
    anomalies, foreign = foreign[:wanted], foreign[wanted:]
    if len(anomalies) < wanted:
        raise DataError(f"only {len(anomalies)} trips of other users can be injected", remedy="read more users")
    crowd = np.sort(rng.permutation(crowd)[:population])
    places = rng.choice(normal, wanted, replace=False)
    order = rng.permutation(len(normal) + wanted)  # so that the position in the set does not give a trip away
    period = WEEK
    if s.reading == "intruder":
        anomalies = intruder(trips, np.r_[anomalies, foreign], wanted, rng)
        places, period = normal[intrusion(len(normal), wanted, rng)], DAY

    later = np.random.default_rng([case.seed, 3, who])
    if s.history:
        train = np.sort(later.permutation(train)[: s.history]) if s.split == "random" else train[-s.history :]
    n_strays = round(s.contamination / (1.0 - s.contamination) * len(train))
    if n_strays > len(foreign):
        raise DataError(
            f"the contamination needs {n_strays} trips of others, but there are {len(foreign)}",
            remedy="read more users",
        )
    strays = foreign[:n_strays]
    when = later.choice(train, len(strays))

    guards.no_trip_twice(train=train, normal=normal, anomalies=anomalies, strays=strays, population=crowd)
    guards.nobody_in_both(
        subject=[person], injected=trips.agent_ids[np.r_[anomalies, strays]], population=trips.agent_ids[crowd]
    )
    learned = in_time(Trajectories.concat([trips[train], submitted(trips, strays, when)]))
    test = Trajectories.concat([trips[normal], submitted(trips, anomalies, places, period)])
    source = np.array(list(map(str, trips[np.r_[normal, anomalies]].ids)))
    kind = np.r_[np.full(len(normal), ""), np.full(wanted, s.reading or "agent-swap")]
    if s.family == "stream":
        order = np.argsort(test.columns["time"][test.offsets[:-1]], kind="stable")
    test = claim(test[order], person, "test")
    lesson = Lesson(claim(learned, person, "trip"), trips[crowd], strangers)
    return Trial(lesson, test, kind[order], source[order])


def _own(trips: Trajectories, case: Case, rng: np.random.Generator, fewer: bool) -> tuple[Ints, Ints]:
    """Splits the person's trips into those to learn from and those to test; if ``fewer``, tests at most half."""
    own = np.flatnonzero(trips.agent_ids == case.subject)
    n_test = round(ANOMALIES * (1.0 - case.setting.rate) / case.setting.rate)
    n_test = min(n_test, len(own) // 2) if fewer else n_test
    if len(own) < n_test + LEAST_HISTORY:
        raise DataError(
            f"user {case.subject!r} has {len(own)} trips; the test takes {n_test}, learning needs {LEAST_HISTORY}",
            remedy="test somebody else",
        )
    return split(trips, own, n_test, case.setting.split, rng)


def split(trips: Trajectories, own: Ints, n_test: int, how: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Splits positions, at random or by time, into those to learn from and those to test, each in order of time."""
    own = own[np.argsort(trips.columns["time"][trips.offsets[own]], kind="stable")]
    if how == "chronological":
        held = np.arange(len(own)) >= len(own) - n_test
    else:
        held = np.zeros(len(own), np.bool_)
        held[rng.choice(len(own), n_test, replace=False)] = True
    return own[~held], own[held]


def _others(trips: Trajectories, case: Case, together: Ints) -> tuple[Ints, Ints]:
    """Returns the positions of others' trips that may be injected, and of those for a background."""
    own = trips.agent_ids == case.subject
    along = _made_along(together, own)
    injected, crowd = (np.setdiff1d(half[~own[half]], along) for half in halves(trips, case.seed, together))
    return injected, crowd
