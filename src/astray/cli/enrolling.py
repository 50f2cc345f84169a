"""Counts the trips of a source for the fleet in a file, for ``astray enroll`` and ``astray fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from astray.cli.inputs import Source
from astray.cli.workers import at_work
from astray.core.trajectories import Trajectories
from astray.jobs.enrolment import enrolled
from astray.jobs.slabs import Batch, in_part


def enrol(
    model: Path, source: Source, part: tuple[int, int] | None, look: Callable[[Trajectories], None] | None = None
) -> int:
    """Counts the trips of a source for the fleet in a file, with the workers of the settings; returns how many.

    ``look`` is given the trips before they are counted.
    """
    batches, few = source.weighed()
    with at_work(f"counting {source.name}", source.settings, few=few) as (workers, watch):
        return enrolled(model.absolute(), _looked_at(in_part(batches, part), look), workers, watch)


def _looked_at(batches: Iterable[Batch], look: Callable[[Trajectories], None] | None) -> Iterator[Batch]:
    for trips, share in batches:
        if look is not None:
            look(trips)
        yield trips, share
