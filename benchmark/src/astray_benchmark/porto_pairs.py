"""Pairs of places (P8): taxi trips between two cells of 400 m, each scored by a model of the other ones.

Anomalies are injected (the kinds of P3 that change the route) or real: trips much longer than others of their pair. No
setting was ever chosen by results on the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.projection import METRES_A_DEGREE, Projection
from astray.core.trajectories import Trajectories
from astray.features.grid import cells
from astray.features.paths import paths_of
from astray_benchmark import guards
from astray_benchmark.array_types import Ints
from astray_benchmark.calibration import FOLDS
from astray_benchmark.contenders import Lesson
from astray_benchmark.injections import inject
from astray_benchmark.porto_data import POOL, Catalogue, Porto, gather
from astray_benchmark.protocols import Case, Trial
from astray_benchmark.trial_parts import claim

CELL = 400.0  # metres
UNUSUAL = 0.05  # the share of a pair's trips, the longest ones, that are unusual
A_TAXI = 5  # the most trips of one taxi in the population, because taxis have no habits to learn
ROUTES = ("point-jitter", "segment-shift", "detour", "splice")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of places, and the trips for their trials; positions are those in ``trips``."""

    chosen: dict[str, Ints]  # name of a pair to the positions of its trips
    beside: dict[str, Ints]  # name of a pair to the trips from a neighbouring cell to the same end, for splices
    others: Ints  # trips of the whole city
    trips: Trajectories

    def trial(self, case: Case) -> Trial:
        """Draws a trial of one pair: tests every trip, some of them changed; methods learn from unchanged trips."""
        if case.subject not in self.chosen:
            raise DataError(f"no pair of places {case.subject!r}", remedy=f"there are {', '.join(self.chosen)}")
        at, beside = self.chosen[case.subject], self.beside[case.subject]
        others = np.setdiff1d(self.others, np.r_[at, beside])
        guards.no_trip_twice(pair=at, spliced_with=beside, population=others)
        rng = np.random.default_rng([case.seed, 6, crc32(case.subject.encode())])
        own, s = self.trips[at], case.setting
        fold = rng.permutation(len(own)) % FOLDS
        if s.reading == "unusual":
            test, kind = own, np.where(unusual(own), "unusual", "")
        else:
            kinds = [kind for kind in ROUTES if kind != "splice" or len(beside)]
            made = inject(own, kinds, s.rate, rng, pool=self.trips[beside], fewer=True)
            test, kind = made.trips, made.kind
        source = np.array([f"{a}/{t}" for a, t in zip(own.agent_ids, own.trajectory_ids, strict=True)])
        order = rng.permutation(len(test))
        return Trial(
            Lesson(claim(own, POOL, "trip"), self.trips[others], pooled=True),
            claim(test[order], POOL, "test"),
            kind[order],
            source[order],
            folds=(fold, fold[order]),
        )


def unusual(trips: Trajectories) -> NDArray[np.bool_]:
    """Returns a mask of the longest trips between the same places, measured without faulty fixes."""
    paths, _ = paths_of(trips, Projection.centred_on(trips.columns["lat"], trips.columns["lon"]))
    xy, path = paths.columns["xy"], paths.trajectory_of_row
    metres = np.hypot(*np.diff(xy, axis=0).T) * (np.diff(path) == 0)
    length = np.bincount(paths.context["trip"][path[:-1]], metres, len(trips))
    longest = np.zeros(len(trips), np.bool_)
    longest[np.argsort(-length, kind="stable")[: max(1, round(UNUSUAL * len(trips)))]] = True
    return longest


def frequent(listed: Catalogue, least: int) -> dict[str, Ints]:
    """Finds pairs of different cells with enough trips of at most 50 minutes, the most frequent first."""
    row, column = _cells(listed)
    usable = np.flatnonzero(listed.normal & ((row[0] != row[1]) | (column[0] != column[1])))
    both = np.stack([*row, *column])[:, usable]
    found, pair, count = np.unique(both, axis=1, return_inverse=True, return_counts=True)
    wanted = np.flatnonzero(count >= least)
    wanted = wanted[np.argsort(-count[wanted], kind="stable")]
    by_pair = np.split(usable[np.argsort(pair, kind="stable")], np.cumsum(count)[:-1])
    return {_name(found[:, i]): by_pair[i] for i in wanted.tolist()}


def neighbours(listed: Catalogue, trips: Ints) -> Ints:
    """Finds trips that begin in a cell next to a pair's and end in the pair's last cell.

    A spliced trip ends where its partner ended; in any other cell its end would give it away.
    """
    (begin, end), (left, right) = _cells(listed)
    near = listed.normal.copy()
    for values, within in ((begin, 1), (left, 1), (end, 0), (right, 0)):
        near &= np.abs(values - values[trips[0]]) <= within
    return np.setdiff1d(np.flatnonzero(near), trips)


def _cells(listed: Catalogue) -> tuple[Ints, Ints]:
    """Returns rows and columns of the cells where trips begin and end: (2, trips) each."""
    lat, lon = listed.ends.T[[0, 2]], listed.ends.T[[1, 3]]
    row, column = cells(np.stack([lon, lat]) * METRES_A_DEGREE, CELL, 0.0)
    return row.astype(np.int64), column.astype(np.int64)


def _name(pair: Ints) -> str:
    """Names a pair after the middles of its cells, in degrees."""
    rows, columns = pair[:2], pair[2:]
    lat = (rows + 0.5) * CELL / METRES_A_DEGREE
    lon = (columns + 0.5) * CELL / METRES_A_DEGREE / np.cos(np.radians(lat))
    return "-".join(f"{y:.3f},{x:.3f}" for y, x in zip(lat, lon, strict=True))


@lru_cache(maxsize=1)
def fetched(porto: Porto) -> Pairs:
    """Reads the trips of some pairs, chosen evenly from the most to the least frequent, in one streamed pass."""
    listed = porto.data
    known = frequent(listed, porto.least)
    if not known:
        raise DataError(f"no two places have {porto.least} trips between them", remedy="give more data")
    names = list(known)
    chosen = {
        names[i]: known[names[i]] for i in np.linspace(0, len(names) - 1, min(porto.pairs, len(names))).astype(int)
    }
    beside = {name: neighbours(listed, at) for name, at in chosen.items()}
    usable = np.random.default_rng(7).permutation(np.flatnonzero(listed.normal))[: 4 * porto.others]
    wanted = np.unique(np.concatenate([*chosen.values(), *beside.values(), usable]))
    trips = gather(porto.file, wanted)

    def among(positions: Ints) -> Ints:
        return np.searchsorted(wanted, positions)

    return Pairs(
        {name: among(at) for name, at in chosen.items()},
        {name: among(at) for name, at in beside.items()},
        _some_of_each(trips, among(usable), porto.others),
        trips,
    )


def _some_of_each(trips: Trajectories, positions: Ints, most: int) -> Ints:
    """Returns the first ``most`` positions, with at most :data:`A_TAXI` trips of one taxi."""
    met: dict[str, int] = {}
    kept = []
    for i in positions.tolist():
        taxi = str(trips.agent_ids[i])
        met[taxi] = met.get(taxi, 0) + 1
        if met[taxi] <= A_TAXI:
            kept.append(i)
    return np.array(kept[:most], np.int64)
