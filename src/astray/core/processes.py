"""Spreads work over processes, and delays interrupts."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import signal
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from astray.core.errors import AstrayError

Task = TypeVar("Task")
Result = TypeVar("Result")

AHEAD = 4  # for each process, the most tasks that are submitted and not yet consumed


def cores(n_jobs: int) -> int:
    """Returns the number of processes that ``n_jobs`` asks for; -1 means one for each core."""
    if n_jobs != -1:
        return max(1, n_jobs)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Drain:
    """A barrier among tasks: those after it begin only when the results of all those before it have been consumed."""


def spread(
    work: Callable[[Task], Result],
    tasks: Iterable[Task | Future[Result] | Drain],
    n_processes: int,
    ahead: int = AHEAD,
    executor: Executor | None = None,
) -> Generator[Result, None, None]:
    """Yields the results of tasks in their order; if ``n_processes`` is 1, this process does the work itself.

    Each process keeps the first ``work`` that it receives, with its state. A task is taken from ``tasks`` only when a
    process has room for it, so memory does not grow with their number; a task may be a future. Close the generator
    (:func:`contextlib.closing`) to cancel unfinished tasks; they also end when this process is killed.

    >>> list(spread(abs, [-1, 2], 1))
    [1, 2]
    """
    if executor is not None:
        key = secrets.token_hex(8)
        yield from _in_turn(lambda task: executor.submit(_perform_kept, key, work, task), tasks, ahead * n_processes)
    elif n_processes > 1:
        with _pool(work, n_processes) as pool:
            yield from _in_turn(lambda task: pool.submit(_perform, task), tasks, ahead * n_processes)
    else:
        for task in tasks:
            if not isinstance(task, Drain):
                yield task.result() if isinstance(task, Future) else work(task)


def _in_turn(
    submit: Callable[[Task], Future[Result]], tasks: Iterable[Task | Future[Result] | Drain], most: int
) -> Generator[Result, None, None]:
    """Yields the results of tasks in order; at most ``most`` tasks are submitted and not yet consumed."""
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            if not isinstance(task, Drain):
                with undisturbed():
                    waiting.append(task if isinstance(task, Future) else submit(task))
            while waiting and (len(waiting) >= most or isinstance(task, Drain) or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for given_up in waiting:
            given_up.cancel()


@contextlib.contextmanager
def _pool(work: Callable[[Any], Any], n_processes: int) -> Iterator[Executor]:
    """Yields a pool of processes, which end with the block or with this process."""
    # A fork would copy the locks that the threads of libraries hold.
    context = multiprocessing.get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n_processes, context, _begin, (work, lifeline))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise AstrayError(
            "a worker process was killed, perhaps because memory ran out, or the program that started it has no "
            '`if __name__ == "__main__":`; what was finished is kept',
            remedy="try again with fewer workers, such as 1",
        ) from error
    finally:
        with undisturbed():
            held.close()
            pool.shutdown(cancel_futures=True)
            lifeline.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delays Ctrl-C and SIGTERM until the block ends; processes that start inside it never get Ctrl-C.

    A terminal sends Ctrl-C to all its processes, and the main one ends the others. A new process inherits the blocked
    signals, so it is not interrupted even while it imports.
    """
    if not hasattr(signal, "pthread_sigmask"):  # such as on Windows
        yield
        return
    resource_tracker.ensure_running()  # its first start would unblock the signals
    late: list[int] = []
    mine = threading.current_thread() is threading.main_thread()  # only it handles signals
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if mine and signal.getsignal(n) is not None]
    before = {number: signal.signal(number, lambda number, _: late.append(number)) for number in numbers}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in late:
            signal.raise_signal(arrived)


class Aside(Generic[Task, Result]):
    """Runs work in a second process, so that this one need not wait; starts the process when it is first needed.

    The process receives ``work`` once, and keeps its state. If it is killed, its unfinished tasks fail with
    :class:`~concurrent.futures.process.BrokenProcessPool`, and the next task starts a new process.
    """

    def __init__(self, work: Callable[[Task], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._pool: Executor | None = None
        self._running = contextlib.ExitStack()

    def submit(self, task: Task) -> Future[Result]:
        """Submits a task; tasks are done in the order of their submission."""
        with self._lock, undisturbed():
            try:
                return self._started().submit(_perform, task)
            except BrokenProcessPool:
                self._stop()
                return self._started().submit(_perform, task)

    def _started(self) -> Executor:
        if self._pool is None:
            self._pool = self._running.enter_context(_pool(self._work, 1))
        return self._pool

    def _stop(self) -> None:
        self._pool = None
        self._running.close()

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        with self._lock:
            self._stop()


# -------------------------------------------------------------------- in a worker

_work: Callable[[Any], Any]


def _begin(work: Callable[[Any], Any], lifeline: Connection) -> None:
    """Stores the work in a new process, which ends when the process at the other end of the lifeline has ended."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()


def _end_with_parent(lifeline: Connection) -> None:
    wait([lifeline])
    os._exit(1)


def _perform(task: Any) -> Any:
    return _work(task)


MOST_KEPT = 2  # pieces of work, with their state, that a process of an executor keeps
_kept: OrderedDict[str, Callable[[Any], Any]] = OrderedDict()
_one_at_a_time = threading.Lock()  # an executor may have several threads in a process


def _perform_kept(key: str, work: Callable[[Any], Any], task: Any) -> Any:
    """Does a task in a process of the caller's executor, with the first ``work`` received there under this ``key``."""
    with _one_at_a_time:
        work = _kept.setdefault(key, work)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
        return work(task)
