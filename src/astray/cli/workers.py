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
from typing import TYPE_CHECKING, Any

import polars as pl

from astray.errors import UnknownAgentWarning
from astray.processes import spread
from astray.settings import Settings
from astray.storage import load
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.cli.reading import Batch
    from astray.detectors.agent import IRLDetector
    from astray.detectors.fleet import FleetDetector

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


def scored(scorer: Scorer, batches: Iterator[Batch], n: int) -> Generator[tuple[pl.DataFrame, Batch], None, None]:
    """The tables of all batches in order, by ``n`` processes; close it, so that none outlives an error."""
    given: deque[Batch] = deque()

    def trips() -> Iterator[Trajectories]:
        for batch in batches:
            given.append(batch)
            yield batch[0]

    with closing(spread(scorer, trips(), n)) as tables:
        for table in tables:
            yield table, given.popleft()


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
