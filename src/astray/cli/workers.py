"""Provides a command with workers, on this machine's cores or on a cluster, and shows their progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from astray.cli.console import Advance, progress, say
from astray.core.processes import cores
from astray.core.settings import Settings
from astray.core.text import number_of
from astray.jobs.cluster import connected
from astray.jobs.work import Step, Watch, Workers

if TYPE_CHECKING:
    from astray.cli.inputs import Source
    from astray.core.trajectories import Trajectories
    from astray.jobs.slabs import Batch

EVERY = 30.0
"""Seconds between two reports of what each worker has done."""


@contextmanager
def at_work(what: str, settings: Settings, *, few: bool) -> Iterator[tuple[Workers, Watch]]:
    """Yields the workers, and a function that shows progress; for ``few`` trips this process is the only worker."""
    with ExitStack() as stack:
        workers = Workers(1 if few else cores(settings.workers or -1))
        if settings.cluster is not None:
            workers = stack.enter_context(connected(settings.cluster))
        done = stack.enter_context(progress(what, quiet=settings.quiet))
        done_so_far = WorkDone(done)
        reported = time.monotonic()

        def watch(step: Step) -> None:
            nonlocal reported
            done_so_far.add(step)
            if settings.verbose and time.monotonic() - reported > EVERY:
                reported = time.monotonic()
                say(done_so_far.by_worker(), quiet=settings.quiet)

        yield workers, watch
        if settings.verbose:
            say(done_so_far.by_worker(), quiet=settings.quiet)


def enrol(
    model: Path, source: Source, part: tuple[int, int] | None, look: Callable[[Trajectories], None] | None = None
) -> int:
    """Counts trips for the fleet in a file and returns their number; calls ``look`` with them beforehand."""
    from astray.jobs.enrolment import enrolled
    from astray.jobs.slabs import in_part

    batches, few = source.weighed()

    def looked_at() -> Iterator[Batch]:
        for trips, share in in_part(batches, part):
            if look is not None:
                look(trips)
            yield trips, share

    with at_work(f"counting {source.name}", source.settings, few=few) as (workers, watch):
        return enrolled(model.absolute(), looked_at(), workers, watch)


class WorkDone:
    """Counts what jobs have done: agents, fixes a second, and each worker's share.

    >>> done_so_far = WorkDone(lambda share, more="": print(f"{share:.0%}", more.split(",")[0]))
    >>> done_so_far.add(Step(0.5, ["ana", "bob"], 800, "here:1", 0.2))
    50% 2 agents
    >>> done_so_far.add(Step(1.0, ["bob", "cem"], 200, "here:2", 0.1))
    100% 3 agents
    >>> print(done_so_far.by_worker())
    here:1: 1 job, 800 fixes, 4,000 a second of processor time
    here:2: 1 job, 200 fixes, 2,000 a second of processor time
    """

    def __init__(self, advance: Advance) -> None:
        self._advance, self._began = advance, time.monotonic()
        self._agents: set[str] = set()
        self._fixes = 0
        self._workers: dict[str, Counter[str]] = {}

    def add(self, step: Step) -> None:
        """Counts a finished job, and shows it."""
        self._agents.update(step.agents)
        self._fixes += step.fixes
        if step.worker:  # without a worker, an earlier run did the job
            mine = self._workers.setdefault(step.worker, Counter())
            mine.update(jobs=1, fixes=step.fixes, ms=round(1e3 * step.seconds))
        pace = self._fixes / max(time.monotonic() - self._began, 1e-3)
        self._advance(step.share, f"{number_of(len(self._agents), 'agent')}, {pace:,.0f} fixes/s")

    def by_worker(self) -> str:
        """Returns a line for each worker that says what it has done."""
        lines = []
        for worker, did in sorted(self._workers.items()):
            pace = f"{did['fixes'] / max(did['ms'] / 1e3, 1e-3):,.0f} a second of processor time"
            lines.append(f"{worker}: {number_of(did['jobs'], 'job')}, {number_of(did['fixes'], 'fix')}, {pace}")
        return "\n".join(lines)
