"""Enrols agents in jobs: workers count the trips of some agents at a time, and this process writes the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from astray.core.processes import Drain, spread
from astray.core.trajectories import Trajectories
from astray.detector import Detector, load
from astray.jobs.slabs import Batch, agent_by_agent, slabs
from astray.jobs.work import HERE, Step, Timed, Watch, Workers, keep_memory, unwatched
from astray.model.file import ModelFile
from astray.model.store import Row, shard_of
from astray.scoring.scores import chunks

HELD_BYTES = 64 << 20
"""About how many bytes of rows are written at a time."""

MEASURED_TRIPS = 5_000
"""About how many kept trips one job measures; an agent with more gets a whole job."""

Change = tuple[str, Row | None, bytes | None]
"""An agent, its new row (None removes it), and the checksum that the agent had before."""


class Rows(NamedTuple):
    """What an enrolling job returns."""

    rows: list[Change]
    counted: int  # trips
    unmeasured: list[str]  # agents whose trips are counted but not measured yet


@dataclass(frozen=True, eq=False)
class Enrolling:
    """A job: to count the trips of these agents, if any, and to ``measure`` the agents if no more trips follow."""

    agents: list[str]
    trips: Trajectories | None = None
    measure: bool = True


@dataclass
class Enroller:
    """Counts trips for the fleet in a file, and measures agents; it only reads the file."""

    model: Path

    @cached_property
    def fleet(self) -> Detector:
        """The fleet, loaded by each process when its first job comes."""
        keep_memory()
        return load(self.model)

    def __reduce__(self) -> tuple[Any, ...]:
        return Enroller, (self.model,)

    def __call__(self, job: Enrolling) -> Rows:
        """Runs a job, and returns the rows of its agents."""
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
    """Counts trips for the fleet in a file, writes the rows of finished jobs, and returns the number of trips.

    Each agent is measured once: with the last slab, or after it if the agent has no trips there. Until then, a fleet
    that is loaded from the file measures an agent's trips when it needs them.
    """
    file = ModelFile.open(model)
    given: deque[tuple[Enrolling, float]] = deque()  # jobs, and the share of all work that is done after each
    unmeasured: set[str] = set()
    held: list[Change] = []  # rows to write together

    def write() -> None:
        if held:
            with file.changing() as change:
                for row in held:
                    change.put(*row)
            held.clear()

    def tasks() -> Iterator[Enrolling | Drain]:
        before = 0.0
        for trips, share, is_last in slabs(batches):
            pieces = agent_by_agent(trips)
            for k, positions in enumerate(pieces, start=1):
                some = trips[positions]
                job = Enrolling(some.agents, some, is_last)
                given.append((job, before + (share - before) * k / len(pieces)))
                yield job
            before = share
            yield Drain()
            write()  # the next slab begins with what this one has counted
        agents = sorted(unmeasured, key=lambda agent: (shard_of(agent), agent))
        n_trips = np.array([entry.trips if (entry := file.entry(agent)) else 0 for agent in agents], np.int64)
        for some_agents in chunks(n_trips, MEASURED_TRIPS):
            given.append((Enrolling(agents[some_agents]), 1.0))
            yield given[-1][0]

    counted = 0
    with closing(spread(Timed(Enroller(model)), tasks(), workers.n, executor=workers.executor)) as results:
        for (rows, n, still_unmeasured), worker, seconds in results:
            job, share = given.popleft()
            counted += n
            unmeasured.difference_update(job.agents)
            unmeasured.update(still_unmeasured)
            held += rows
            if sum(len(row.data) for _, row, _ in held if row is not None) > HELD_BYTES:
                write()
            watch(Step(share, job.agents, 0 if job.trips is None else job.trips.n_rows, worker, seconds))
    write()
    file.close()
    return counted
