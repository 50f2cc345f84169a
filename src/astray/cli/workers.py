"""Scoring on several cores: batches of trips go to worker processes, tables come back in order.

A worker loads the model itself and never needs the training library. Few batches are under way at a time, so memory
does not grow with the file. Each worker hangs on a pipe of its own: if either end dies, the other one notices.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from astray.errors import AstrayError
from astray.modelfile import load
from astray.processes import undisturbed
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.cli.reading import Batch
    from astray.detectors.estimator import Detector

AHEAD = 4
"""Batches for each worker that are under way, or done but not yet their turn, at most."""

KEPT_BYTES = 128 << 20
"""Memory that a process keeps for the next batch, when that of the last one is no longer used."""


@dataclass(frozen=True)
class Question:
    """What is asked of every trip: a row each, or with ``fixes`` a row a fix; None is the model's own threshold."""

    fixes: bool = False
    eps: float | None = None
    gamma: float | None = None
    false_alarm_rate: float | None = None
    min_history: float | None = None

    def of(self, detector: Detector, trips: Trajectories) -> pl.DataFrame:
        """The answer for some trips."""
        if self.fixes:
            return detector.score_fixes(trips)
        if self.min_history is not None:
            detector.set_params(min_history=self.min_history)
        return detector.score(trips, eps=self.eps, gamma=self.gamma, false_alarm_rate=self.false_alarm_rate)


class Answer(NamedTuple):
    """The table of a batch, with the batch."""

    table: pl.DataFrame
    trips: Trajectories
    share: float


@dataclass
class _Job:
    trips: Trajectories
    share: float
    table: pl.DataFrame | None = None


class _Worker(NamedTuple):
    process: SpawnProcess
    pipe: Connection


def answers(
    model: Path, detector: Detector, question: Question, batches: Iterator[Batch], n: int
) -> Generator[Answer, None, None]:
    """The tables of all batches in order, by ``n`` processes; by this one if ``n`` is 1.

    Close it (:func:`contextlib.closing`), so that no process outlives an error.
    """
    _keep_memory()
    if n <= 1:
        for trips, share in batches:
            yield Answer(question.of(detector, trips), trips, share)
        return
    # Processes that begin anew: a fork would copy polars' threads in the middle of whatever they are doing.
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        with undisturbed():
            workers += (_started(context, model, question) for _ in range(n))
        yield from _in_order(workers, batches)
    except (EOFError, ConnectionError) as error:
        raise AstrayError(
            "a worker process was killed, perhaps because memory ran out; try again with --workers 1"
        ) from error
    finally:
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _started(context: SpawnContext, model: Path, question: Question) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, model, question), daemon=True)
    process.start()
    theirs.close()  # else we would not notice that the worker died
    return _Worker(process, ours)


def _in_order(workers: list[_Worker], batches: Iterator[Batch]) -> Iterator[Answer]:
    idle = deque(worker.pipe for worker in workers)
    busy: dict[Connection, _Job] = {}
    jobs: deque[_Job] = deque()

    def collect(timeout: float | None) -> None:
        """Take what workers have finished; wait for the first, unless there is no time."""
        for pipe in wait(list(busy), timeout):
            assert isinstance(pipe, Connection)
            answer = pipe.recv()
            if isinstance(answer, Exception):
                raise answer
            busy.pop(pipe).table = answer
            idle.append(pipe)

    def finished() -> Iterator[Answer]:
        while jobs and jobs[0].table is not None:
            job = jobs.popleft()
            assert job.table is not None
            yield Answer(job.table, job.trips, job.share)

    for trips, share in batches:
        # A worker that is idle waits for us, so that sending never waits for a worker.
        while not idle or len(jobs) >= AHEAD * len(workers):
            collect(None)
            yield from finished()
        pipe = idle.popleft()
        _send(pipe, trips)
        busy[pipe] = _Job(trips, share)
        jobs.append(busy[pipe])
        collect(0)
        yield from finished()
    while jobs:
        collect(None)
        yield from finished()


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


def _send(pipe: Connection, trips: Trajectories) -> None:
    """Trips to a worker; their columns, which are nearly all of it, straight out of memory."""
    columns = {name: np.ascontiguousarray(values) for name, values in trips.columns.items()}
    shapes = {name: (values.dtype, values.shape) for name, values in columns.items()}
    pipe.send((shapes, trips.offsets, trips.agent_ids, trips.trajectory_ids, trips.context))
    for values in columns.values():
        pipe.send_bytes(values.reshape(-1).view(np.uint8).data)


# -------------------------------------------------------------------- in a worker


def _receive(pipe: Connection) -> Trajectories:
    """Trips from the parent."""
    shapes, *rest = pipe.recv()
    columns = {name: np.empty(shape, dtype) for name, (dtype, shape) in shapes.items()}
    for values in columns.values():
        pipe.recv_bytes_into(values.reshape(-1).view(np.uint8).data)
    return Trajectories._trusted(columns, *rest)


def _serve(pipe: Connection, model: Path, question: Question) -> None:
    """Answer until the parent hangs up, or is no more."""
    _keep_memory()
    with contextlib.suppress(EOFError, ConnectionError):
        detector: Detector | None = None
        while True:
            trips = _receive(pipe)
            try:
                detector = load(model) if detector is None else detector
                answer: object = question.of(detector, trips)
            except Exception as error:  # for the parent, who knows what to say
                answer = error
            pipe.send(answer)
