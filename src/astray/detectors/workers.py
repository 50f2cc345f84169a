"""Tasks spread over processes that learn, and that nobody has to wait for when they are no longer wanted."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from astray.errors import AstrayError, TrainingError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores(n_jobs: int) -> int:
    """The number of processes that ``n_jobs`` asks for; -1 for as many as there are cores to run on."""
    if n_jobs != -1:
        return max(1, n_jobs)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    work: Callable[[Task], Result], tasks: Iterable[tuple[str, Task]], n_processes: int
) -> Iterator[tuple[str, Result]]:
    """The results of named tasks, as they are finished; a task is made when somebody is free to take it.

    The processes are spawned, since those that are forked inherit locks which learning libraries hold. With one
    process, the work is done in this one. When the iteration is left, whatever is under way is given up.

    >>> sorted(spread(abs, [("a", -1), ("b", 2)], 1))
    [('a', 1), ('b', 2)]
    """
    if n_processes <= 1:
        for name, task in tasks:
            yield name, _named(name, work, task)
        return
    context = multiprocessing.get_context("spawn")
    staff: list[SpawnProcess] = []
    busy: dict[Connection, _Worker] = {}
    waiting = iter(tasks)
    try:
        for name, task in itertools.islice(waiting, n_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            with _deaf_to_interrupts():
                process.start()
                staff.append(process)
            # With the other end in the worker's hands alone, each side learns when the other one has gone.
            theirs.close()
            busy[ours] = _Worker(name, ours, staff[-1])
            busy[ours].give(task)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker = busy.pop(ready)
                yield worker.name, worker.result()
                for name, task in itertools.islice(waiting, 1):
                    busy[ready] = worker._replace(name=name)
                    busy[ready].give(task)
    finally:
        for process in staff:
            process.terminate()
        for process in staff:
            process.join()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start here do not hear Ctrl-C, not even while they import: they inherit that it is blocked.

    It reaches the whole group, and whoever gives the tasks ends those who work on them. This process hears it later.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not everywhere
        yield
        return
    resource_tracker.ensure_running()  # a process of multiprocessing's own; its start would unblock what is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker(NamedTuple):
    """A process, and the task that it has."""

    name: str
    end: Connection
    process: SpawnProcess

    def give(self, task: Any) -> None:
        with self._alive():
            self.end.send((self.name, task))

    def result(self) -> Any:
        with self._alive():
            answer = self.end.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            self.process.join()
            raise TrainingError(
                f"the process that worked on {self.name!r} ended (code {self.process.exitcode}): perhaps for want of "
                'memory, or since the program has no `if __name__ == "__main__":`; nothing was changed. Use fewer jobs'
            ) from None


def _serve(work: Callable[[Any], Any], tasks: Connection) -> None:
    """One task after the other, until the one who gives them has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the tasks
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            name, task = tasks.recv()
            try:
                answer: object = _named(name, work, task)
            except Exception as error:  # whatever it is, it is told, and raised over there
                answer = error
            tasks.send(answer)


def _named(name: str, work: Callable[[Task], Result], task: Task) -> Result:
    """The result; an error says which task it is about."""
    try:
        return work(task)
    except AstrayError as error:
        raise type(error)(f"{name!r}: {error}") from error
