"""Enrolling jobs: processes count trips some agents at a time, and the rows that come back are written here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from astray.core.processes import Drain, spread
from astray.core.trajectories import Trajectories
from astray.detector import Detector, load
from astray.jobs.slabs import Batch, agents_together, by_hash, slabs
from astray.jobs.work import HERE, Step, Timed, Watch, Workers, keep_memory, unwatched
from astray.model.file import ModelFile
from astray.model.store import Row, shard_of

HELD_BYTES = 64 << 20
"""Rows of agents that are written together, about."""

MEASURED_TRIPS = 5_000
"""Trips of the agents that one job measures, about; an agent that keeps more is a job of its own."""


class Rows(NamedTuple):
    """What an enrolling job gives: rows of agents with the checksums they had before, to be written.

    ``unmeasured`` are those among the job's agents whose trips were counted, but are still to be measured.
    """

    rows: list[tuple[str, Row | None, bytes | None]]
    counted: int
    unmeasured: list[str]


@dataclass(frozen=True, eq=False)
class Enrolling:
    """A job: count trips of these agents, if there are any, and if no more are to come, measure the agents."""

    agents: list[str]
    trips: Trajectories | None = None
    measure: bool = True


@dataclass
class Enroller:
    """Counts trips for a fleet, or measures agents whose trips were counted; the fleet's file is only read."""

    model: Path

    @cached_property
    def fleet(self) -> Detector:
        """The fleet."""
        keep_memory()
        return load(self.model)

    def __reduce__(self) -> tuple[Any, ...]:
        return Enroller, (self.model,)

    def __call__(self, job: Enrolling) -> Rows:
        """The rows of the agents of a job."""
        memories = self.fleet.world_.memories
        try:
            counted = 0 if job.trips is None else self.fleet.enroll(job.trips)
            found = {agent: memories.peek(agent) for agent in job.agents}
            unmeasured = [agent for agent, memory in found.items() if memory is not None and not memory.measured]
            if job.measure:
                for agent in unmeasured:
                    memories[agent] = memories[agent]
                unmeasured = []
            return Rows(list(memories.changes(measured=job.measure)), counted, unmeasured)
        finally:
            memories.discard()


def enrolled(model: Path, batches: Iterable[Batch], workers: Workers = HERE, watch: Watch = unwatched) -> int:
    """Count trips for the fleet in a file; gives how many were counted.

    The rows of finished jobs are written on the way. An agent is measured once, with the last slab; those who have no
    trips in it afterwards, so that until then their trips are measured anew whenever they are asked for.
    """
    file = ModelFile.open(model)
    given: deque[tuple[Enrolling, float]] = deque()  # with the share that is done then
    waiting: set[str] = set()
    held = _Held(file)

    def tasks() -> Iterator[Enrolling | Drain]:
        before = 0.0
        for trips, share, is_last in slabs(batches):
            order = by_hash(trips)
            pieces = agents_together(trips, order)
            for k, piece in enumerate(pieces, start=1):
                some = trips[order[piece]]
                job = Enrolling(some.agents, some, is_last)
                given.append((job, before + (share - before) * k / len(pieces)))
                yield job
            before = share
            yield Drain()
            held.write()  # the next slab begins with what this one has counted
        for some_agents in _of_about(sorted(waiting, key=lambda agent: (shard_of(agent), agent)), file):
            given.append((Enrolling(some_agents), 1.0))
            yield given[-1][0]

    counted = 0
    with closing(spread(Timed(Enroller(model)), tasks(), workers.n, executor=workers.executor)) as results:
        for (rows, n, unmeasured), worker, seconds in results:
            job, share = given.popleft()
            counted += n
            waiting.difference_update(job.agents)
            waiting.update(unmeasured)
            held.add(rows)
            watch(Step(share, job.agents, 0 if job.trips is None else job.trips.n_rows, worker, seconds))
    held.write()
    file.close()
    return counted


class _Held:
    """Rows that are written together."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._rows: list[tuple[str, Row | None, bytes | None]] = []
        self._bytes = 0

    def add(self, rows: list[tuple[str, Row | None, bytes | None]]) -> None:
        """Hold some more, or write what is held if that is much."""
        self._rows += rows
        self._bytes += sum(len(row.data) for _, row, _ in rows if row is not None)
        if self._bytes > HELD_BYTES:
            self.write()

    def write(self) -> None:
        """Write what is held, all at once."""
        if self._rows:
            with self._file.changing() as change:
                for row in self._rows:
                    change.put(*row)
            self._rows, self._bytes = [], 0


def _of_about(agents: Sequence[str], file: ModelFile) -> Iterator[list[str]]:
    """Agents, some at a time, with about so many trips as one job measures."""
    some: list[str] = []
    trips = 0
    for agent in agents:
        entry = file.entry(agent)
        n = 0 if entry is None else entry.trips
        if some and trips + n > MEASURED_TRIPS:
            yield some
            some, trips = [], 0
        some.append(agent)
        trips += n
    if some:
        yield some
