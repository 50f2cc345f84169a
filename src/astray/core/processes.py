"""Work spread over processes: the one pool, and the one way to hold back interrupts."""

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

AHEAD = 4  # tasks for each process that are under way, or done before their turn, at most


def cores(n_jobs: int) -> int:
    """The number of processes that ``n_jobs`` asks for; -1 for as many as there are cores to run on."""
    if n_jobs != -1:
        return max(1, n_jobs)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Drain:
    """In the place of a task: nothing after it is begun before everything up to it is done and was looked at."""


def spread(
    work: Callable[[Task], Result],
    tasks: Iterable[Task | Future[Result] | Drain],
    n_processes: int,
    ahead: int = AHEAD,
    executor: Executor | None = None,
) -> Generator[Result, None, None]:
    """The results of tasks, in their order; by this process if ``n_processes`` is 1, or by any executor.

    A process keeps the work that it was given first, and its state. A task is made when there is room for it, so that
    memory does not grow with their number; one that is a future already is waited for in its turn. Close it
    (:func:`contextlib.closing`): what is under way is given up when the iteration is left, and when this process is
    killed.

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
    """The results of tasks in their order, of which at most so many are under way or done before their turn."""
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
    """Processes of this machine, which end when the block does, or with this process."""
    # Processes that begin anew: a fork would copy the locks that the threads of libraries hold.
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
    """Hold back Ctrl-C and SIGTERM until the end of the block; processes that start in it never get Ctrl-C.

    Ctrl-C goes to all processes of a terminal, and the one that gives the work ends the others. A new process inherits
    which signals are blocked, so that it is not interrupted even while it imports.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not everywhere
        yield
        return
    resource_tracker.ensure_running()  # a process of multiprocessing's own; its start would unblock what is blocked
    late: list[int] = []
    mine = threading.current_thread() is threading.main_thread()  # signals are handled there alone
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
    """One more process, for work that must not hold this one up; started when it is first needed.

    ``work`` is sent to it once, and keeps its state there. If the process is killed, what it had to do fails with
    :class:`~astray.core.errors.AstrayError`, and the next task has a new one.
    """

    def __init__(self, work: Callable[[Task], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._held: list[Connection] = []

    def submit(self, task: Task) -> Future[Result]:
        """Have a task done, after those that were given before."""
        with self._lock, undisturbed():
            try:
                return self._running().submit(_perform, task)
            except BrokenProcessPool:
                self._stop()
                return self._running().submit(_perform, task)

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            lifeline, held = context.Pipe(duplex=False)
            self._pool, self._held = ProcessPoolExecutor(1, context, _begin, (self._work, lifeline)), [held, lifeline]
        return self._pool

    def _stop(self) -> None:
        pool, self._pool = self._pool, None
        for end in self._held[:1]:
            end.close()  # the process ends with it
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        for end in self._held[1:]:
            end.close()
        self._held = []

    def close(self) -> None:
        """End the process, whatever it is doing."""
        with self._lock:
            self._stop()


# -------------------------------------------------------------------- in a worker

_work: Callable[[Any], Any]


def _begin(work: Callable[[Any], Any], lifeline: Connection) -> None:
    """Keep the work, and end when the process that holds the other end of the lifeline has ended."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    wait([lifeline])
    os._exit(1)


def _perform(task: Any) -> Any:
    return _work(task)


MOST_KEPT = 2  # works whose state a process of an executor keeps
_kept: OrderedDict[str, Callable[[Any], Any]] = OrderedDict()
_one_at_a_time = threading.Lock()  # an executor may have several threads in a process


def _perform_kept(key: str, work: Callable[[Any], Any], task: Any) -> Any:
    """Do a task for an executor whose processes have no beginning of ours: the first work under a key is kept."""
    with _one_at_a_time:
        work = _kept.setdefault(key, work)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
        return work(task)
