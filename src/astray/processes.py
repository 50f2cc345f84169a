"""Work spread over processes: started without a disturbance, ended with whoever wants the results."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
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
) -> Generator[tuple[str, Result], None, None]:
    """The results of named tasks, as they are finished; a task is made when somebody is free to take it.

    The processes are spawned, since those that are forked inherit locks which libraries hold. With one process, the
    work is done in this one. When the iteration is left, or this process is no more, what is under way is given up.

    >>> sorted(spread(abs, [("a", -1), ("b", 2)], 1))
    [('a', 1), ('b', 2)]
    """
    if n_processes <= 1:
        for name, task in tasks:
            yield name, _named(name, work, task)
        return
    context = multiprocessing.get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    staff: list[SpawnProcess] = []
    busy: dict[Connection, _Worker] = {}
    waiting = iter(tasks)
    try:
        for name, task in itertools.islice(waiting, n_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs, lifeline), daemon=True)
            with undisturbed():
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
        held.close()
        lifeline.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Nothing interrupts the start of a process half-way; and those that start here are deaf to Ctrl-C.

    Ctrl-C reaches the whole group, and it is for whoever gives the work to end those who do it. A new process inherits
    which signals are blocked, so that it hears nothing even while it imports. What comes meanwhile is heard afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not everywhere
        yield
        return
    resource_tracker.ensure_running()  # a process of multiprocessing's own; its start would unblock what is blocked
    late: list[int] = []
    mine = threading.current_thread() is threading.main_thread()  # signals are heard there alone
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
                'memory, or since the program has no `if __name__ == "__main__":`; what was finished is kept. '
                "Try again, perhaps with fewer processes"
            ) from None


def _serve(work: Callable[[Any], Any], tasks: Connection, lifeline: Connection) -> None:
    """One task after the other, until the one who gives them has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the tasks
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            name, task = tasks.recv()
            try:
                answer: object = _named(name, work, task)
            except Exception as error:  # whatever it is, it is told, and raised over there
                answer = error
            tasks.send(answer)


def _end_with(lifeline: Connection) -> None:
    """End this process, whatever it is doing, when nobody holds the other end any more: its giver was killed."""
    wait([lifeline])
    os._exit(1)


def _named(name: str, work: Callable[[Task], Result], task: Task) -> Result:
    """The result; an error says which task it is about."""
    try:
        return work(task)
    except AstrayError as error:
        raise type(error)(f"{name!r}: {error}") from error
