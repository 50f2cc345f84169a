"""Workers, reports of finished jobs, and what a run that was killed leaves for the next."""

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
"""Memory that a process keeps for the next job, when that of the last one is no longer used."""


class Workers(NamedTuple):
    """Where jobs run: in ``n`` processes of this machine, or in an executor that has about so many."""

    n: int = 1
    executor: Executor | None = None


HERE = Workers()
"""This process alone."""


class Step(NamedTuple):
    """A job that was done, for the display of progress."""

    share: float  # of everything that is done with it
    agents: Sequence[str]
    fixes: int
    worker: str
    seconds: float  # of processor time


Watch = Callable[[Step], None]


def unwatched(step: Step) -> None:
    """Show no progress."""


class Done(NamedTuple, Generic[Result]):
    """What a job gave, who did it, and in which time."""

    result: Result
    worker: str
    seconds: float


@dataclass
class Timed(Generic[Task, Result]):
    """Work with the name of the process that did it, and the time that it took."""

    work: Callable[[Task], Result]

    def __call__(self, task: Task) -> Done[Result]:
        """Do a task."""
        began = time.process_time()
        result = self.work(task)
        return Done(result, f"{platform.node()}:{os.getpid()}", time.process_time() - began)


@contextlib.contextmanager
def unfinished_work(output: Path, inputs: Iterable[Path], *settings: object) -> Iterator[Path]:
    """Where work for an output is kept until it is finished: a hidden file or folder beside it, gone if all went well.

    Another run from the same inputs, with the same settings, gets the same one, and goes on with it. What runs from
    others have left for this output is removed.
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
    """Let the C library keep what is no longer used: every job needs as much again.

    By default glibc may give it back after each chunk and ask for it anew, page by page, which takes up to a tenth of
    the time. Other libraries know nothing of this (mallopt), and are left as they are.
    """
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, KEPT_BYTES // 4)  # 32 MB, the most that it takes
        mallopt(trim_threshold, KEPT_BYTES)
