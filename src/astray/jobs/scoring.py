"""Scoring jobs: trips go to processes some agents at a time, and tables come back in the order of the trips."""

from __future__ import annotations

import hashlib
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.atomic import replacing
from astray.core.errors import UnknownAgentWarning
from astray.core.processes import spread
from astray.core.settings import Settings
from astray.core.trajectories import Trajectories
from astray.jobs.slabs import Batch, Slab, agents_together, by_hash, slabs
from astray.jobs.work import HERE, Done, Result, Step, Timed, Watch, Workers, keep_memory, unwatched
from astray.model.fleet import FleetDetector
from astray.model.loading import load

if TYPE_CHECKING:
    from astray.model.agent import IRLDetector

Array = NDArray[Any]


@dataclass
class Scorer:
    """Scores trips, or with ``fixes`` every fix of them, by the model in a file and the settings that were given.

    The model is loaded when the first trips come, by each process itself; the training library is never needed.
    """

    model: Path
    settings: Settings
    fixes: bool = False

    @cached_property
    def detector(self) -> IRLDetector | FleetDetector:
        """The model."""
        keep_memory()
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


class _Scoring(NamedTuple):
    """Some trips of a slab that are scored by one job."""

    slab: Slab
    positions: Array  # in the slab
    share: float
    is_last: bool  # of its slab
    kept: Path | None  # where its table is kept until everything is done


def scored(
    scorer: Scorer,
    batches: Iterable[Batch],
    workers: Workers = HERE,
    watch: Watch = unwatched,
    unfinished: Path | None = None,
) -> Generator[tuple[pl.DataFrame, Trajectories], None, None]:
    """The tables of all trips, in their order, with the trips; close it, so that no process outlives an error.

    Trips of a fleet go to the processes agent by agent, so that what is known of an agent is read once for many of
    them; the tables are in the order of the trips all the same.

    Parameters
    ----------
    unfinished
        A folder where the tables of jobs are kept, for another run if this one is killed; see
        :func:`~astray.jobs.work.unfinished_work`.
    """
    fleet = isinstance(scorer.detector, FleetDetector)
    given: deque[_Scoring] = deque()

    def tasks() -> Iterator[Trajectories | Future[Done[pl.DataFrame]]]:
        before = 0.0
        for slab in slabs(batches) if fleet else (Slab(trips, share, False) for trips, share in batches):
            trips, share, _ = slab
            order = by_hash(trips) if fleet else np.arange(len(trips))
            pieces = agents_together(trips, order) if fleet else [slice(0, len(trips))]
            for k, piece in enumerate(pieces, start=1):
                some = trips[order[piece]] if fleet else trips
                kept = None if unfinished is None else unfinished / f"{_told_apart(some)}.arrow"
                come = before + (share - before) * k / len(pieces)
                given.append(_Scoring(slab, order[piece], come, k == len(pieces), kept))
                yield some if kept is None or not kept.exists() else _known(Done(pl.read_ipc(kept), "", 0.0))
            before = share

    held: list[tuple[Array, pl.DataFrame]] = []
    with closing(spread(Timed(scorer), tasks(), workers.n, executor=workers.executor)) as tables:
        for table, worker, seconds in tables:
            job = given.popleft()
            trips = job.slab.trips
            held.append((job.positions, table))
            if job.kept is not None and worker:
                _keep(table, job.kept)
            lengths = int(trips.lengths[job.positions].sum())
            watch(Step(job.share, np.unique(trips.agent_ids[job.positions]).tolist(), lengths, worker, seconds))
            if job.is_last:
                yield _in_order(held, trips, scorer.fixes) if fleet else table, trips
                held = []


def _in_order(parts: list[tuple[Array, pl.DataFrame]], trips: Trajectories, fixes: bool) -> pl.DataFrame:
    """The tables of parts of a slab as one, in the order of its trips."""
    position = np.concatenate([positions for positions, _ in parts])
    whole = pl.concat([table for _, table in parts])
    at = np.repeat(position, trips.lengths[position]) if fixes else position
    return whole[np.argsort(at, kind="stable")]


def _keep(table: pl.DataFrame, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        table.write_ipc(file)


def _known(result: Result) -> Future[Result]:
    """A task that needs not be done."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future


def _told_apart(trips: Trajectories) -> str:
    """What tells some trips from all others."""
    digest = hashlib.blake2b(digest_size=16)
    for values in (trips.lengths, *trips.columns.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    texts = (trips.agent_ids, trips.trajectory_ids, *trips.context.values())
    digest.update(repr([values.tolist() for values in texts]).encode())
    return digest.hexdigest()
