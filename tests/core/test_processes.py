"""The pool of processes: results in order, clear errors, no process left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from astray.core.errors import AstrayError, DataError
from astray.core.processes import spread, undisturbed


class Counter:
    """Work that keeps a state in each process."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, task: int) -> tuple[int, int, int]:
        self.seen += 1
        return task * task, os.getpid(), self.seen


def refuse(task: int) -> int:
    if task == 3:
        raise DataError("row 3: no such place")
    return task


def die(task: int) -> int:
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def children() -> list[psutil.Process]:
    """Returns the worker processes, without multiprocessing's own tracker."""
    return [p for p in psutil.Process().children() if "resource_tracker" not in " ".join(p.cmdline())]


@pytest.mark.parametrize("n", [1, 2])
def test_results_come_in_the_order_of_the_tasks_and_the_work_keeps_its_state(n: int):
    done = list(spread(Counter(), range(20), n))
    assert [square for square, _, _ in done] == [i * i for i in range(20)]
    workers = {pid for _, pid, _ in done}
    assert workers == {os.getpid()} if n == 1 else os.getpid() not in workers
    for worker in workers:
        counts = [seen for _, pid, seen in done if pid == worker]
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("n", [1, 2])
def test_an_error_in_a_worker_is_raised_here_and_ends_the_workers(n: int):
    with pytest.raises(DataError, match="row 3: no such place"), closing(spread(refuse, range(9), n)) as results:
        list(results)
    assert not children()


def test_a_killed_worker_is_a_clear_error():
    with pytest.raises(AstrayError, match=r"a worker process was killed, .*; try again with fewer workers"):
        list(spread(die, range(9), 2))
    assert not children()


def test_tasks_are_made_when_there_is_room_and_leaving_ends_the_workers():
    made: list[int] = []

    def tasks() -> Iterator[int]:
        for i in range(1000):
            made.append(i)
            yield i

    with closing(spread(abs, tasks(), 2, ahead=3)) as results:
        assert next(results) == 0
        assert len(made) <= 6
        assert children()
    assert not children()


def test_an_interrupt_is_delayed_to_the_end_of_the_block():
    reached: list[str] = []

    def interrupted() -> None:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("end of the block")
        reached.append("after it")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached == ["end of the block"]
