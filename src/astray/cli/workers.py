"""Scoring on several cores: batches of trips go to processes, tables come back in order.

A process loads the model itself and never needs the training library.
"""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.cli.console import Advance
from astray.cli.reading import joined
from astray.detectors.fleet import FleetDetector
from astray.detectors.fleet_features import by_agent
from astray.errors import UnknownAgentWarning
from astray.processes import spread
from astray.scoring.scores import chunks
from astray.settings import Settings
from astray.storage import load
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.cli.reading import Batch
    from astray.detectors.agent import IRLDetector

Array = NDArray[Any]

AT_A_TIME = 100_000
"""Fixes of a fleet's trips, about, that a process is given at a time."""

KEPT_BYTES = 128 << 20
"""Memory that a process keeps for the next batch, when that of the last one is no longer used."""


@dataclass
class Scorer:
    """Scores trips, or with ``fixes`` every fix of them, by the model in a file and the settings that were given.

    The model is loaded when the first trips come, by each process itself.
    """

    model: Path
    settings: Settings
    fixes: bool = False

    @cached_property
    def detector(self) -> IRLDetector | FleetDetector:
        """The model."""
        _keep_memory()
        return load(self.model).set_params(**self.settings.given(["min_history", "time_zone"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Scorer, (self.model, self.settings, self.fixes)

    def __call__(self, trips: Trajectories) -> pl.DataFrame:
        """The table of some trips."""
        if self.fixes:
            return self.detector.score_fixes(trips)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownAgentWarning)  # they are named at the end, all at once
            return self.detector.score(trips, **self.settings.given(["eps", "gamma", "false_alarm_rate"]))


def scored(
    scorer: Scorer, batches: Iterator[Batch], n: int, advance: Advance = lambda share: None
) -> Generator[tuple[pl.DataFrame, Batch], None, None]:
    """The tables of all batches in order, by ``n`` processes; close it, so that none outlives an error.

    Trips of a fleet go to the processes agent by agent, so that what is known of an agent is read once for many of
    them; the tables are in the order of the trips all the same.
    """
    fleet = isinstance(scorer.detector, FleetDetector)
    given: deque[_Task] = deque()

    def tasks() -> Iterator[Trajectories]:
        before = 0.0
        for trips, share in joined(batches) if fleet else batches:
            order = by_agent(trips) if fleet else np.arange(len(trips))
            pieces = list(_agents_together(trips, order)) if fleet else [slice(0, len(trips))]
            for k, piece in enumerate(pieces, start=1):
                come = before + (share - before) * k / len(pieces)
                given.append(_Task(trips, share, order[piece], come, k == len(pieces)))
                yield trips[order[piece]] if fleet else trips
            before = share

    held: list[tuple[Array, pl.DataFrame]] = []
    with closing(spread(scorer, tasks(), n)) as tables:
        for table in tables:
            task = given.popleft()
            held.append((task.positions, table))
            if task.is_last:
                whole = _in_order(held, task.trips, scorer.fixes) if fleet else table
                yield whole, (task.trips, task.share)
                held = []
            else:
                advance(task.come)


class _Task(NamedTuple):
    """Some trips of a batch, by their positions in it."""

    trips: Trajectories
    share: float
    positions: Array
    come: float  # which share of everything is done with it
    is_last: bool  # of its batch


def _agents_together(trips: Trajectories, order: Array) -> Iterator[slice]:
    """Pieces of trips in an order agent by agent, none of which ends within an agent."""
    ids, lengths = trips.agent_ids[order], trips.lengths[order]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    for some in chunks(np.add.reduceat(lengths, starts), AT_A_TIME):
        yield slice(int(starts[some.start]), int(starts[some.stop]) if some.stop < len(starts) else len(ids))


def _in_order(parts: list[tuple[Array, pl.DataFrame]], trips: Trajectories, fixes: bool) -> pl.DataFrame:
    """The tables of parts of a batch as one, in the order of its trips."""
    position = np.concatenate([positions for positions, _ in parts])
    whole = pl.concat([table for _, table in parts])
    at = np.repeat(position, trips.lengths[position]) if fixes else position
    return whole[np.argsort(at, kind="stable")]


def _keep_memory() -> None:
    """Let the C library keep what is no longer used: every batch needs as much again.

    By default glibc may give it back after each chunk and ask for it anew, page by page, which takes up to a tenth of
    the time. Other libraries know nothing of this (mallopt), and are left as they are.
    """
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, KEPT_BYTES // 4)  # 32 MB, the most that it takes
        mallopt(trim_threshold, KEPT_BYTES)
