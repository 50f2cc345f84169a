"""Protocols as data: each is a list of settings, with one draw for every person and seed.

A case is the key of one draw (the person to test, the seed, the rate of anomalies, ...); :meth:`Dataset.trial` makes
the trial of a case from the data, as a pure function. Cases that several protocols share are run once: P5 uses the
scores of P1 or P2, P4 those of P3, and P6 and P9 share cases with P1.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray_benchmark import guards
from astray_benchmark.contenders import Lesson

Value = float | str

RATES = (0.05, 0.1)
SPLITS = ("random", "chronological")
READINGS = ("matched", "cap")
STREAMS = ("strangers", "intruder")
PAIRS = ("routes", "unusual")
LABELLED = "labelled"
CONTAMINATIONS = (0.0, 0.02, 0.05, 0.1)
HISTORIES = (5, 10, 20, 50)
PREFIXES = tuple(round(0.1 * k, 1) for k in range(1, 11))
"""The shares of a trip to score, for the observed-ratio curve."""

_FAMILIES = {
    **{"": "person", LABELLED: LABELLED},
    **dict.fromkeys(STREAMS, "stream"),
    **dict.fromkeys(PAIRS, "pair"),
}  # all other readings are of a pool


@dataclass(frozen=True)
class Setting:
    """The settings of a draw; those that do not apply to a data set keep their defaults.

    >>> Setting(rate=0.1, split="chronological").name
    'rate=0.1,split=chronological'
    >>> Setting().name
    'rate=0.05,split=random'
    """

    rate: float = 0.05  # share of anomalies in the test set; 0 for all that there are
    split: str = "random"  # or chronological: train on the past, test on the future
    contamination: float = 0.0  # share of other people's trips in the training set, unlabelled
    history: int = 0  # number of training trips; 0 for all
    reading: str = ""  # of P2: matched or cap; of P7: strangers or intruder; of P8: routes or unusual; labelled
    injected: bool = False  # P3: every kind of injected anomaly, with the truth of every fix

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise DataError(f"a split {self.split!r}", remedy=f"give {' or '.join(SPLITS)}")

    @property
    def family(self) -> str:
        """Returns the kind of draw: a person, stream, pool, pair of places, injected anomalies, or labelled trips."""
        return "injected" if self.injected else _FAMILIES.get(self.reading, "pool")

    @property
    def name(self) -> str:
        """Returns a name for files."""
        parts: list[tuple[str, Value]] = [("rate", self.rate), ("split", self.split)]
        if self.reading:
            parts = [("reading", self.reading)]
        parts += [("contamination", self.contamination)] if self.contamination else []
        parts += [("history", self.history)] if self.history else []
        return ",".join(f"{key}={value}" for key, value in parts)


def slug(name: str) -> str:
    """Makes a name safe for files and folders; where it replaces letters, it adds a hash to keep names distinct.

    >>> slug("knn-location"), slug("astray:encoder=raw"), slug("..")
    ('knn-location', 'astray_encoder=raw-bf427bb9', '_-5ec1f7e7')
    """
    plain = re.sub(r"^\.*$|[^A-Za-z0-9=._-]", "_", name)
    return plain if plain == name else f"{plain[:80]}-{sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Case:
    """The key of one draw."""

    setting: Setting
    subject: str  # a person, a pair of places, or the pool
    seed: int

    @property
    def name(self) -> str:
        """Returns a name for files, which is always the same for the same case."""
        return f"{self.setting.family}/{self.setting.name}/{slug(self.subject)}/seed-{self.seed}"


@dataclass(frozen=True, eq=False)
class Trial:
    """The trips of a case. No method sees ``kind``, ``source`` and ``truth``.

    If methods learn from the trips to score, ``folds`` are the fold of each training trip and of each test trip; the
    trips of a fold are scored by a model of the other folds.
    """

    lesson: Lesson  # the data to learn from, without test trips
    test: Trajectories  # all under the subject's name; a stream is in the order of time
    kind: NDArray[np.str_]  # what is wrong with each test trip; empty for a normal one
    source: NDArray[np.str_]  # the original "agent/trajectory" of each trip
    truth: NDArray[np.bool_] | None = None  # True for anomalous fixes; None if only whole trips are anomalous
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __post_init__(self) -> None:
        if not len(self.kind) == len(self.source) == len(self.test):
            raise DataError(f"{len(self.kind)} labels for {len(self.test)} test trips", remedy="give one per trip")
        if self.truth is not None and len(self.truth) != self.test.n_rows:
            raise DataError(f"the truth of {len(self.truth)} fixes for {self.test.n_rows}", remedy="give one per fix")
        if self.truth is not None and self.folds is not None:
            raise DataError("the truth of fixes cannot be combined with folds", remedy="leave out one of them")
        for lesson, tested in self.parts():
            guards.no_path_twice(lesson.train, self.test[tested])

    def parts(self) -> Iterator[tuple[Lesson, NDArray[np.int64]]]:
        """Yields each lesson, with the positions of the test trips to score after it."""
        if self.folds is None:
            yield self.lesson, np.arange(len(self.test))
            return
        learned, tested = self.folds
        for fold in np.unique(tested).tolist():
            yield self.lesson._replace(train=self.lesson.train[learned != fold]), np.flatnonzero(tested == fold)


class Dataset(Protocol):
    """Makes the trials of a data set; every worker process gets a copy."""

    @property
    def name(self) -> str:
        """Returns geolife, porto, simulated, trips or labelled."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Returns everything besides a case's key that its outcome depends on, as plain values for the manifest."""

    @property
    def fingerprint(self) -> str:
        """Returns a hash of the data."""

    def subjects(self, setting: Setting) -> Sequence[str]:
        """Returns the subjects to test."""

    def trial(self, case: Case) -> Trial:
        """Makes the trial of a case; a pure function of its key."""


_P1 = tuple(Setting(rate=rate, split=split) for split, rate in itertools.product(SPLITS, RATES))
_P2 = tuple(Setting(rate=rate, reading=reading) for reading, rate in zip(READINGS, (0.1, 0.5), strict=True))
_P3 = (Setting(injected=True),)
_P6 = tuple(Setting(contamination=c) for c in CONTAMINATIONS)
_P7 = tuple(Setting(split="chronological", reading=stream) for stream in STREAMS)
_P8 = tuple(Setting(reading=reading) for reading in PAIRS)
_P9 = (*(Setting(history=n) for n in HISTORIES), Setting())

_OF_PEOPLE = {"p1": _P1, "p3": _P3, "p4": _P3, "p5": _P1, "p6": _P6, "p7": _P7, "p9": _P9}

PROTOCOLS: dict[str, dict[str, tuple[Setting, ...]]] = {
    "geolife": _OF_PEOPLE,
    "porto": {"p2": _P2, "p3": _P3, "p4": _P3, "p5": _P2, "p8": _P8},
    "simulated": _OF_PEOPLE,
    "trips": _OF_PEOPLE,
    "labelled": {"p10": (Setting(rate=0.0, reading=LABELLED),)},
}
"""The settings of each protocol of each data set."""


def protocols(dataset: str, names: Iterable[str]) -> list[str]:
    """Returns the named protocols in their order; ``all`` means every protocol of the data set.

    >>> protocols("porto", ["p5", "p2"]), protocols("geolife", ["all"])
    (['p2', 'p5'], ['p1', 'p3', 'p4', 'p5', 'p6', 'p7', 'p9'])
    """
    known = PROTOCOLS[dataset]
    wanted = [part.strip().lower() for name in names for part in name.split(",") if part.strip()]
    for name in wanted:
        if name != "all" and name not in known:
            raise DataError(f"no protocol {name!r} on {dataset}", remedy=f"there are {', '.join(known)}, or all")
    return [name for name in known if name in wanted or "all" in wanted]


def chosen(
    dataset: str, names: Iterable[str], rates: Sequence[float] = (), splits: Sequence[str] = ()
) -> dict[str, tuple[Setting, ...]]:
    """Returns the settings of some protocols, limited to the given rates and splits if there are any.

    It leaves out protocols without any such setting.

    >>> [s.name for s in chosen("geolife", ["p1"], rates=[0.1])["p1"]]
    ['rate=0.1,split=random', 'rate=0.1,split=chronological']
    >>> list(chosen("geolife", ["p1", "p6"], splits=["chronological"]))
    ['p1']
    """
    known = {name: PROTOCOLS[dataset][name] for name in names}
    found = {
        name: tuple(s for s in settings if (s.rate in rates or not rates) and (s.split in splits or not splits))
        for name, settings in known.items()
    }
    if not any(found.values()):
        every = [s for settings in known.values() for s in settings]
        asked = [f"--rate {rate:g}" for rate in rates] + [f"--split {split}" for split in splits]
        known_rates = ", ".join(f"{rate:g}" for rate in sorted({s.rate for s in every}))
        splits = ", ".join(dict.fromkeys(s.split for s in every))
        raise DataError(
            f"{', '.join(known)} on {dataset}: nothing is left with {' '.join(asked)}",
            remedy=f"there are the rates {known_rates} and the splits {splits}",
        )
    return {name: settings for name, settings in found.items() if settings}


def cases(
    dataset: Dataset,
    names: Iterable[str],
    seeds: Sequence[int],
    rates: Sequence[float] = (),
    splits: Sequence[str] = (),
) -> list[Case]:
    """Lists every case of some protocols once, for ``rates`` and ``splits`` as in :func:`chosen`.

    All cases of one seed come before those of the next, so that early results are already complete tables. The cases of
    a person follow each other, because most have the same population, which is then featurised once.
    """
    wanted = dict.fromkeys(s for settings in chosen(dataset.name, names, rates, splits).values() for s in settings)
    tested = {setting: dataset.subjects(setting) for setting in wanted}
    everybody = dict.fromkeys(subject for subjects in tested.values() for subject in subjects)
    return [
        Case(setting, subject, seed)
        for seed in seeds
        for subject in everybody
        for setting in wanted
        if subject in tested[setting]
    ]


def prefixes(trips: Trajectories, ratio: float) -> Trajectories:
    """Returns the first ``ratio`` of each trip's fixes, rounded up; at least two fixes if the trip has them.

    >>> trips = Trajectories.from_fixes(time=range(10), lat=[0] * 10, lon=[0] * 10)
    >>> prefixes(trips, 0.35).lengths
    array([4])
    """
    # Without the tolerance, 0.3 * 10 would be rounded up to 4 fixes.
    return crop(trips, np.maximum(np.ceil(ratio * trips.lengths - 1e-9).astype(np.int64), 2))


def crop(trips: Trajectories, fixes: NDArray[np.int64]) -> Trajectories:
    """Crops each trip to its first ``fixes`` fixes; shorter trips stay whole."""
    keep = np.minimum(fixes, trips.lengths)
    place = np.arange(trips.n_rows) - np.repeat(trips.offsets[:-1], trips.lengths)
    rows = place < np.repeat(keep, trips.lengths)
    columns = {name: values[rows] for name, values in trips.columns.items()}
    return Trajectories(columns, np.r_[0, np.cumsum(keep)], trips.agent_ids, trips.trajectory_ids, trips.context)
