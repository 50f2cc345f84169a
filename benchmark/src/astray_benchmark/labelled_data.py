"""Labelled trips, for P10: they show how many of the trips that people call wrong a method detects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.trajectories import Trajectories
from astray.readers import Report, read
from astray_benchmark import guards
from astray_benchmark.calibration import FOLDS
from astray_benchmark.contenders import Lesson
from astray_benchmark.people_data import LEAST_HISTORY
from astray_benchmark.protocols import Case, Setting, Trial
from astray_benchmark.trial_parts import claim, in_time

POOL = "all"  # the name of the one agent if all trips are pooled
NORMAL = {"0", "0.0", "false", "f", "no", "n", "none", "normal", "ok", "usual", "regular", "inlier"}
WRONG = {"1", "1.0", "true", "t", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier"}
"""Labels that say that something is wrong, but not what."""
EMPTY = {"", "nan", "null", "na"}


class Read(NamedTuple):
    """The trips of the files: those to learn from first, then the labelled ones."""

    trips: Trajectories
    kind: NDArray[np.str_]  # what is wrong with each trip; empty for a normal or unlabelled trip
    labelled: NDArray[np.bool_]
    mark: NDArray[np.str_]  # copies have the same mark
    account: dict[str, int]
    sha256: str


@dataclass(frozen=True)
class LabelledTrips:
    """Trials on labelled trips, one agent at a time; no method sees a label.

    If there is a past, methods learn from an agent's past trips and are tested on the labelled ones. Otherwise they
    learn from the labelled trips, including wrong ones, in folds: each trip is scored by a model of the other folds.

    The labels 0, false, no and normal mean that nothing is wrong with the trip. An empty label means the same if none
    of these occurs; otherwise the trip is unlabelled and is not tested.
    """

    path: str  # the file with the labelled table
    label: str  # the name of its column of labels
    past: str | None = None  # trips of the same agents to learn from
    people: tuple[str, ...] = ()  # the agents to test; by default all with enough trips, both normal and wrong
    pooled: bool = False  # True to treat all trips as those of one agent
    name: ClassVar[str] = "labelled"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Returns the tested agents, and an account of the trips."""
        learned = "the past" if self.past else f"the labelled trips as they are, in {FOLDS} folds"
        people = list(self.subjects(Setting()))
        said = {"label": self.label, "learned from": learned, "pooled": self.pooled, "people": people}
        return said | self._read.account

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of all trips that were read."""
        return self._read.sha256

    @property
    def _read(self) -> Read:
        return _read(self.path, self.label, self.past, self.pooled)

    @property
    def _able(self) -> Sequence[str]:
        """Returns the agents with normal and wrong trips, and enough to learn from."""
        found = self._read
        agents, wrong = found.trips.agent_ids, found.kind != ""
        normal, odd = (set(agents[found.labelled & sort].tolist()) for sort in (~wrong, wrong))
        learned = Counter(agents[~found.labelled if self.past else found.labelled].tolist())
        return sorted(who for who in normal & odd if learned[who] >= LEAST_HISTORY)

    def subjects(self, setting: Setting) -> Sequence[str]:
        """Returns the agents who are tested."""
        able, known = self._able, sorted(self._read.trips.agents)
        if unknown := [who for who in self.people if who not in known]:
            raise DataError(f"nobody is called {unknown[0]!r}", place=self.path, remedy=f"there are {', '.join(known)}")
        unable = [who for who in self.people if who not in able]
        if unable or not able:
            labels = ", ".join(name for name in self._read.account if name.startswith("label "))
            who = f"{unable[0]!r} has not" if unable else "nobody has"
            raise DataError(
                f"{who} labelled trips that are normal, others that are not, and {LEAST_HISTORY} to learn from "
                f"({labels})",
                place=self.path,
                remedy=f"{self.label} must be 0 or normal where nothing is wrong; trips of many agents may be --pooled",
            )
        return self.people or able

    def trial(self, case: Case) -> Trial:
        """Draws a trial of one agent's labelled trips; draws differ in the folds and in the methods' random numbers."""
        found, who = self._read, case.subject
        mine = found.trips.agent_ids == who
        tested = np.flatnonzero(mine & found.labelled)
        copies = np.isin(found.mark, found.mark[tested])
        others = np.flatnonzero(~mine & ~copies & (~found.labelled | (self.past is None)))
        rng = np.random.default_rng([case.seed, 7, crc32(who.encode())])
        order = rng.permutation(tested)  # so that the position in the set does not give a trip away
        learned, folds = np.flatnonzero(mine & ~found.labelled), None
        if self.past is None:
            learned, fold = tested, rng.permutation(len(tested)) % FOLDS
            folds = (fold, fold[np.searchsorted(tested, order)])
        population = found.trips[others] if len(others) and not self.pooled else None
        return Trial(
            Lesson(claim(found.trips[learned], who, "trip"), population, pooled=self.pooled),
            claim(found.trips[order], who, "test"),
            found.kind[order],
            np.array(list(map(str, found.trips[order].ids))),
            folds=folds,
        )


@lru_cache(maxsize=1)
def _read(path: str, label: str, past: str | None, pooled: bool) -> Read:
    report = Report()
    given = read(path, "table", skip_bad=True, report=report, context=(label,))
    if label in report.varied:
        raise DataError(
            f"{label!r} has several values within {report.varied[label]:,} trips",
            place=path,
            remedy="give each trip one label, and name the trips in another column",
        )
    said = [str(value).strip().lower() for value in given.context[label].tolist()]
    kind = np.array([meaning(value) for value in given.context[label].tolist()], np.str_)
    unsaid = np.isin(said, sorted(EMPTY)) & any(value in NORMAL for value in said)
    again = _is_repeated(given)
    tested, kind = _plain(given)[~(unsaid | again)], kind[~(unsaid | again)]
    account = {
        "labelled trips": len(tested),
        **{f"label {name or 'normal'!r}": count for name, count in sorted(Counter(kind.tolist()).items())},
        **{"left out: without a label": int(unsaid.sum()), "left out: twice": int((again & ~unsaid).sum())},
    }
    learned = tested[:0]
    if past is not None:
        learned = in_time(_plain(read(past, skip_bad=True, report=report)))
        copies = np.isin(_marks(learned), _marks(tested))
        learned = learned[~copies]
        account |= {"past trips": len(learned), "left out: past trips that are labelled ones": int(copies.sum())}
    trips = Trajectories.concat([learned, tested])
    sha256 = guards.fingerprint(trips)
    if pooled:
        trips = Trajectories(trips.columns, trips.offsets, np.full(len(trips), POOL), trips.trajectory_ids)
    account |= {f"not read: {reason}": count for reason, count in report.counts.items()}
    labelled = np.arange(len(trips)) >= len(learned)
    return Read(trips, np.r_[np.full(len(learned), ""), kind], labelled, _marks(trips), account, sha256)


def _is_repeated(trips: Trajectories) -> NDArray[np.bool_]:
    """Marks copies of earlier trips of the same agent."""
    marks = list(zip(trips.agent_ids.tolist(), _marks(trips).tolist(), strict=True))
    first = {mark: i for i, mark in reversed(list(enumerate(marks)))}
    return np.array([first[mark] != i for i, mark in enumerate(marks)], np.bool_)


def _marks(trips: Trajectories) -> NDArray[np.str_]:
    """Returns a mark that copies of a trip share, even with rounded places: times and places of three fixes."""
    begin, end = trips.offsets[:-1], trips.offsets[1:] - 1
    three = np.column_stack([begin, (2 * begin + end) // 3, end])
    seconds = np.round(trips.columns["time"])[three]
    places = [np.round(trips.columns[name][three], 3) + 0.0 for name in ("lat", "lon")]  # + 0.0 turns -0.0 into 0.0
    rows = np.column_stack([end - begin, seconds, *places])
    return np.array([" ".join(map(str, row)) for row in rows.tolist()], np.str_)


def _plain(trips: Trajectories) -> Trajectories:
    """Returns the trips with only their fixes and names."""
    columns = {name: trips.columns[name] for name in FIX_COLUMNS}
    return Trajectories(columns, trips.offsets, trips.agent_ids, trips.trajectory_ids)


def meaning(label: object) -> str:
    """Returns what is wrong with a trip by its label; empty text if it is normal.

    >>> [meaning(label) for label in ("detour", " Normal", True, "1", 0, None, "")]
    ['detour', '', 'anomaly', 'anomaly', '', '', '']
    """
    said = str(label).strip()
    if said.lower() in NORMAL | EMPTY:
        return ""
    return "anomaly" if said.lower() in WRONG else said
