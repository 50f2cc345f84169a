"""The data set "trips": any file that astray reads, with trips of four agents or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from astray.core.errors import DataError
from astray.readers import Report, read
from astray_benchmark.people_data import PEOPLE, Cleaned, People, clean

MIN_FIXES = 10  # below, a receiver was switched on and off again
LEAST_AGENTS = 4  # so that each half has one beside the one who is tested


@dataclass(frozen=True)
class AgentsTrips(People):
    """Trials on the trips of a file. A third of the agents are tested, ten at most; the others are the background."""

    min_fixes: ClassVar[int] = MIN_FIXES
    fewer: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Returns its name on the command line."""
        return "trips"

    @property
    def data(self) -> Cleaned:
        """Returns the cleaned trips, and the account of what was not read and what was dropped."""
        return _cleaned(self.path)

    @property
    def usual(self) -> Sequence[str]:
        """Returns the agents with the most trips: a third of them, ten at most."""
        return self.data.most_active[: min(PEOPLE, len(self.data.most_active) // 3 or 1)]


@lru_cache(maxsize=1)
def _cleaned(path: str) -> Cleaned:
    report = Report()
    found = clean(read(path, skip_bad=True, report=report), MIN_FIXES)
    if len(found.most_active) < LEAST_AGENTS:
        raise DataError(
            f"the benchmark tells agents from each other, and there are {len(found.most_active)} with trips of "
            f"{MIN_FIXES} fixes or more",
            place=path,
            remedy=f"give trips of {LEAST_AGENTS} agents or more; astray check says how a file is read",
        )
    left_out = {f"not read: {reason}": count for reason, count in report.counts.items()}
    return found._replace(account=found.account | left_out)
