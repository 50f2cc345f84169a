"""Defines workers and reports of finished jobs, and keeps a killed run's unfinished work for the next run."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

KEPT_BYTES = 128 << 20
"""How much free memory a process keeps for the next job."""


class Workers(NamedTuple):
    """Where jobs run: in ``n`` processes of this machine, or in an executor with about ``n`` workers."""

    n: int = 1
    executor: Executor | None = None


HERE = Workers()
"""This process alone."""


class Step(NamedTuple):
    """A finished job, for the display of progress."""

    share: float  # of all work that is done after this job
    agents: Sequence[str]
    fixes: int
    worker: str
    seconds: float  # of processor time


Watch = Callable[[Step], object]


def unwatched(step: Step) -> None:
    """Shows no progress."""


class Done(NamedTuple, Generic[Result]):
    """The result of a job, the worker that did it, and its processor time."""

    result: Result
    worker: str
    seconds: float


@dataclass
class Timed(Generic[Task, Result]):
    """Runs jobs, and returns each result with the name of the worker and the processor time."""

    work: Callable[[Task], Result]

    def __call__(self, task: Task) -> Done[Result]:
        """Runs a job."""
        began = time.process_time()
        result = self.work(task)
        return Done(result, f"{platform.node()}:{os.getpid()}", time.process_time() - began)


@contextlib.contextmanager
def unfinished_work(output: Path, inputs: Iterable[Path], *settings: object) -> Iterator[Path]:
    """Yields the path of a hidden file or folder beside an output, for unfinished work; removes it on success.

    Another run with the same inputs and settings gets the same path, and continues the work. What runs with other
    inputs or settings have left for this output is removed.
    """
    seen = [(str(path), stat.st_size, stat.st_mtime_ns) for path in inputs for stat in [path.stat()]]
    name = hashlib.blake2b(repr((seen, settings)).encode(), digest_size=6).hexdigest()
    here = output.with_name(f".{output.name}.{name}.unfinished")
    for left in output.parent.glob(f".{glob.escape(output.name)}.*.unfinished*"):
        if not left.name.startswith(here.name):
            _remove(left)
    yield here
    _remove(here)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def keep_memory() -> None:
    """Makes the C library keep freed memory, because every job needs as much again.

    By default glibc may return it after each chunk and request it again page by page, which takes up to a tenth of the
    time. Other C libraries have no ``mallopt``, and are left as they are.
    """
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, KEPT_BYTES // 4)  # 32 MB, the most that it takes
        mallopt(trim_threshold, KEPT_BYTES)
