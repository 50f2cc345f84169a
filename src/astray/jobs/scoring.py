"""Scores trips in jobs: workers score the trips of some agents at a time; tables come in the order of the trips."""

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
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.atomic import replacing
from astray.core.errors import UnknownAgentWarning
from astray.core.processes import spread
from astray.core.settings import Settings
from astray.core.trajectories import Trajectories
from astray.detector import Detector, load
from astray.jobs.slabs import Batch, Slab, agent_by_agent, slabs
from astray.jobs.work import HERE, Done, Step, Timed, Watch, Workers, keep_memory, unwatched

Array = NDArray[Any]


@dataclass
class Scorer:
    """Scores trips, or with ``fixes`` every fix, with the model in a file and the given settings."""

    model: Path
    settings: Settings
    fixes: bool = False

    @cached_property
    def detector(self) -> Detector:
        """The model, loaded by each process when its first job comes."""
        keep_memory()
        return load(self.model).set_params(**self.settings.given(["min_history", "time_zone"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Scorer, (self.model, self.settings, self.fixes)

    def __call__(self, trips: Trajectories) -> pl.DataFrame:
        """Returns the table of some trips."""
        if self.fixes:
            return self.detector.score_fixes(trips)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownAgentWarning)  # the command names them at the end, all at once
            return self.detector.score(trips, **self.settings.given(["eps", "gamma", "false_alarm_rate"]))


class _Scoring(NamedTuple):
    """A job: some trips of a slab."""

    slab: Slab
    positions: Array  # in the slab
    share: float
    is_last: bool  # of its slab
    kept: Path | None  # where its table is kept until the run is finished


def scored(
    scorer: Scorer,
    batches: Iterable[Batch],
    workers: Workers = HERE,
    watch: Watch = unwatched,
    unfinished: Path | None = None,
) -> Generator[tuple[pl.DataFrame, Trajectories], None, None]:
    """Yields the tables of all trips, in their order, with the trips. Close it: else workers may outlive an error.

    Trips of a fleet go to the workers agent by agent, so that a worker reads the memory of an agent once for many of
    its trips. The folder ``unfinished`` keeps the tables of jobs for another run if this one is killed; see
    :func:`~astray.jobs.work.unfinished_work`.
    """
    fleet = not scorer.detector.is_one
    given: deque[_Scoring] = deque()

    def tasks() -> Iterator[Trajectories | Future[Done[pl.DataFrame]]]:
        before = 0.0
        for slab in slabs(batches) if fleet else (Slab(trips, share, False) for trips, share in batches):
            trips, share, _ = slab
            pieces = agent_by_agent(trips) if fleet else [np.arange(len(trips))]
            for k, positions in enumerate(pieces, start=1):
                some = trips[positions] if fleet else trips
                kept = None if unfinished is None else unfinished / f"{_digest(some)}.arrow"
                come = before + (share - before) * k / len(pieces)
                given.append(_Scoring(slab, positions, come, k == len(pieces), kept))
                yield some if kept is None or not kept.exists() else _done(pl.read_ipc(kept))
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
    """Concatenates the tables of the parts of a slab, in the order of its trips."""
    position = np.concatenate([positions for positions, _ in parts])
    whole = pl.concat([table for _, table in parts])
    at = np.repeat(position, trips.lengths[position]) if fixes else position
    return whole[np.argsort(at, kind="stable")]


def _keep(table: pl.DataFrame, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        table.write_ipc(file)


def _done(table: pl.DataFrame) -> Future[Done[pl.DataFrame]]:
    """Returns a finished future for a job that an earlier run has done."""
    future: Future[Done[pl.DataFrame]] = Future()
    future.set_result(Done(table, "", 0.0))
    return future


def _digest(trips: Trajectories) -> str:
    """Returns a digest of some trips."""
    digest = hashlib.blake2b(digest_size=16)
    for values in (trips.lengths, *trips.columns.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    texts = (trips.agent_ids, trips.trajectory_ids, *trips.context.values())
    digest.update(repr([values.tolist() for values in texts]).encode())
    return digest.hexdigest()
