"""GeoLife for the protocols: cleaned of short trips and copies, and drawn into trials, one person at a time.

The users are split in halves by the seed: trips that are submitted as somebody else's, or left in a training set, come
from one half; the population of the background and the strangers that a shared reward is learned from come from the
other. Nobody stands in both, and the person who is tested stands in neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.benchmark import guards
from astray.benchmark.injections import INJECTORS, NEED_A_POOL, inject
from astray.benchmark.injectors import submitted_as
from astray.benchmark.methods import Lesson, Strangers
from astray.benchmark.protocols import Case, Setting, Trial
from astray.benchmark.simulated_data import claim, in_time, shuffled
from astray.benchmark.streams import intruder, intrusion
from astray.errors import DataError
from astray.readers import Report, read_geolife
from astray.trajectories import Trajectories

Ints = NDArray[np.int64]

PEOPLE = 10  # are tested
ANOMALIES = 10  # in each test set: the paper's recalls are multiples of 0.1
MIN_FIXES = 100
POPULATION = 4000  # trips of other people that a person is told from: the reward learns from those with many
KINDS = tuple(kind for kind in INJECTORS if kind not in NEED_A_POOL)  # are put into a person's own trips in P3
LEAST_HISTORY = 5  # training trips without which nobody is tested


class Cleaned(NamedTuple):
    """GeoLife as P1 wants it.

    Attributes
    ----------
    trips
        The trips that are long enough and no copies.
    most_active
        The users by the number of their trips of at least 100 fixes, copies included, most first.
    account
        What was read, and what was left out and why: reason to number of trips.
    sha256
        Of all that was read, before anything was left out.
    together
        Pairs of trips that two users made together: neither may stand for "somebody else" to the other.
    """

    trips: Trajectories
    most_active: tuple[str, ...]
    account: dict[str, int]
    sha256: str
    together: Ints

    def companions(self, people: Iterable[str]) -> Ints:
        """The trips of others that were made together with one of these people."""
        a, b = np.isin(self.trips.agent_ids[self.together], sorted(people)).T
        return np.unique(np.r_[self.together[a & ~b, 1], self.together[b & ~a, 0]])


def clean(trips: Trajectories, min_fixes: int = MIN_FIXES) -> Cleaned:
    """Drop short trips and copies: see :func:`astray.benchmark.guards.copies`.

    Besides byte-identical files under two users GeoLife has some that differ by a few fixes at an end; both go.
    """
    marks = guards.fingerprints(trips)
    times = Counter(marks)
    long = trips.lengths >= min_fixes
    active = Counter(trips.agent_ids[long].tolist())  # in the order of the users where numbers are equal
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


def halves(trips: Trajectories, seed: int) -> tuple[Ints, Ints]:
    """Two halves of the users: positions of the trips that may be injected, and of those for a background."""
    users = np.random.default_rng([seed, 1]).permutation(sorted(trips.agents))
    injected = np.isin(trips.agent_ids, users[: len(users) // 2])
    return np.flatnonzero(injected), np.flatnonzero(~injected)


def split(trips: Trajectories, own: Ints, n_test: int, how: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions to learn from and to test on: drawn at random, or the last ones; the earlier stand first."""
    start = trips.columns["time"][trips.offsets[own]]
    own = own[np.argsort(start, kind="stable")]
    if how == "random":
        held = np.zeros(len(own), np.bool_)
        held[rng.choice(len(own), n_test, replace=False)] = True
    elif how == "chronological":
        held = np.arange(len(own)) >= len(own) - n_test
    else:
        raise DataError(f"a split {how!r}", remedy="give random or chronological")
    return own[~held], own[held]


@dataclass(frozen=True)
class GeoLife:
    """Trials on GeoLife. The data are read once in each process, when the first is asked for.

    Parameters
    ----------
    folder
        Where your copy of GeoLife 1.3 is: its folder ``Data``.
    cache
        A Parquet file to keep what was parsed in; without it every process parses the folder.
    people
        Who is tested; by default the ten with the most trips. Choose parameters on :meth:`others`, never on the ten.
    population
        How many trips of other people a method may learn from. A shared reward learns from people with many trips, so
        that a few hundred trips of a hundred and eighty people would teach it little.
    """

    folder: str
    cache: str | None = None
    people: tuple[str, ...] = ()
    population: int = POPULATION

    @property
    def name(self) -> str:
        """What the command calls it."""
        return "geolife"

    @property
    def data(self) -> Cleaned:
        """The cleaned trips, and the account of what was dropped."""
        return _cleaned(self.folder, self.cache)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Who is tested, how much background there is, and what was dropped."""
        people = list(self.subjects(Setting()))
        return {"people": people, "population": self.population, "min_fixes": MIN_FIXES} | self.data.account

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all trips that were read."""
        return self.data.sha256

    def subjects(self, setting: Setting) -> Sequence[str]:
        """The people who are tested."""
        return self.people or self.data.most_active[:PEOPLE]

    def others(self, least: int = 250) -> list[str]:
        """The users outside the ten with so many trips left: to choose parameters on."""
        left = Counter(self.data.trips.agent_ids.tolist())
        return [user for user in self.data.most_active[PEOPLE:] if left[user] >= least]

    def trial(self, case: Case) -> Trial:
        """One person, one draw."""
        s = case.setting
        if s.family not in ("person", "stream", "injected"):
            raise DataError(f"GeoLife has no {s.family} trials", remedy="it has P1, P3 to P7 and P9")
        key = f"geolife-{self.fingerprint[:12]}-{case.seed}-{'+'.join(self.people)}"
        strangers = Strangers(key, lambda: self._strangers(case.seed))
        beside = self.data.companions([case.subject])
        drawn = draw_injected if s.injected else draw
        return drawn(self.data.trips, case, self.population, strangers, beside)

    def _strangers(self, seed: int) -> Trajectories:
        """The half of the users that nothing is injected from, without anybody who is tested."""
        trips, tested = self.data.trips, {*self.data.most_active[:PEOPLE], *self.people}
        crowd = np.setdiff1d(halves(trips, seed)[1], self.data.companions(tested))
        return trips[crowd[~np.isin(trips.agent_ids[crowd], sorted(tested))]]


def draw(
    trips: Trajectories,
    case: Case,
    population: int = POPULATION,
    strangers: Strangers | None = None,
    companions: Ints | None = None,
) -> Trial:
    """One person's trial: 10 trips of others among as many normal ones as the rate asks for; the rest to learn from.

    The test set depends on the person, the seed, the rate and the split alone, so that figures with other
    contaminations and histories are of the same trips. Injected trips keep their hour and weekday and move by whole
    weeks to the time of a trip of the person's, so that dates tell nothing. ``companions`` are trips that others made
    together with the person: nobody else's behaviour, and so left out.

    A stream of strangers is the test set of the same draw by time, in the order of time. The ten trips of an intruder
    are consecutive ones of one stranger.
    """
    s, person = case.setting, case.subject
    who = crc32(person.encode())
    rng = np.random.default_rng([case.seed, 2, who])
    own = np.flatnonzero(trips.agent_ids == person)
    train, normal = _own(trips, case, own, rng)
    foreign, crowd = _others(trips, case, companions)
    foreign = rng.permutation(foreign)
    anomalies, foreign = foreign[:ANOMALIES], foreign[ANOMALIES:]
    if len(anomalies) < ANOMALIES:
        raise DataError(f"only {len(anomalies)} trips of other users can be injected", remedy="read more users")
    crowd = np.sort(rng.permutation(crowd)[:population])
    places = rng.choice(normal, ANOMALIES, replace=False)
    order = rng.permutation(len(normal) + ANOMALIES)  # so that the place in the set tells nothing
    if s.reading == "intruder":
        anomalies = intruder(trips, np.r_[anomalies, foreign], ANOMALIES, rng)
        beside, order = intrusion(len(normal), ANOMALIES, rng)
        places = normal[beside]

    later = np.random.default_rng([case.seed, 3, who])
    if s.history:
        train = np.sort(later.permutation(train)[: s.history]) if s.split == "random" else train[-s.history :]
    strays = foreign[: round(s.contamination / (1.0 - s.contamination) * len(train))]
    when = later.choice(train, len(strays))

    guards.no_trip_twice(train=train, normal=normal, anomalies=anomalies, strays=strays, population=crowd)
    guards.nobody_in_both(
        subject=[person], injected=trips.agent_ids[np.r_[anomalies, strays]], population=trips.agent_ids[crowd]
    )
    learned = in_time(Trajectories.concat([trips[train], *_submitted(trips, strays, when)]))
    test = Trajectories.concat([trips[normal], *_submitted(trips, anomalies, places)])
    source = np.array(list(map(str, trips[np.r_[normal, anomalies]].ids)))
    kind = np.r_[np.full(len(normal), ""), np.full(ANOMALIES, s.reading or "agent-swap")]
    if s.reading == "strangers":
        order = np.argsort(test.columns["time"][test.offsets[:-1]], kind="stable")
    test = claim(test[order], person, "test")
    guards.no_path_twice(learned, test)
    lesson = Lesson(claim(learned, person, "trip"), trips[crowd], strangers)
    return Trial(lesson, test, kind[order], source[order])


def draw_injected(
    trips: Trajectories,
    case: Case,
    population: int = POPULATION,
    strangers: Strangers | None = None,
    companions: Ints | None = None,
) -> Trial:
    """One person's trial with behaviour gone wrong: anomalies of the kinds of P3 made of the person's own unseen trips.

    Kinds that need other trips to be made of are left out.
    """
    s, person = case.setting, case.subject
    rng = np.random.default_rng([case.seed, 4, crc32(person.encode())])
    train, normal = _own(trips, case, np.flatnonzero(trips.agent_ids == person), rng)
    _, crowd = _others(trips, case, companions)
    crowd = np.sort(rng.permutation(crowd)[:population])
    guards.no_trip_twice(train=train, normal=normal, population=crowd)
    made = inject(trips[normal], KINDS, s.rate, rng, fewer=True)
    lesson = Lesson(claim(in_time(trips[train]), person, "trip"), trips[crowd], strangers)
    return shuffled(lesson, made.trips, made.kind, made.truth, rng)


def _own(trips: Trajectories, case: Case, own: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions of the person's trips to learn from and to test on."""
    n_normal = round(ANOMALIES * (1.0 - case.setting.rate) / case.setting.rate)
    if len(own) < n_normal + LEAST_HISTORY:
        raise DataError(
            f"user {case.subject!r} has {len(own)} trips; the test takes {n_normal}, learning needs {LEAST_HISTORY}",
            remedy="test somebody else",
        )
    return split(trips, own, n_normal, case.setting.split, rng)


def _others(trips: Trajectories, case: Case, companions: Ints | None) -> tuple[Ints, Ints]:
    """Positions of others' trips that may be injected, and of those for a background."""
    along = np.zeros(0, np.int64) if companions is None else companions
    injected, crowd = (
        np.setdiff1d(half[trips.agent_ids[half] != case.subject], along) for half in halves(trips, case.seed)
    )
    return injected, crowd


def _submitted(trips: Trajectories, foreign: Ints, own: Ints) -> list[Trajectories]:
    return [submitted_as(trips[int(i)], trips[int(j)]) for i, j in zip(foreign, own, strict=True)]


@lru_cache(maxsize=1)
def _cleaned(folder: str, cache: str | None) -> Cleaned:
    return clean(read_geolife(folder, cache=cache, skip_bad=True, report=Report()))
