"""GeoLife for the protocols: the ten people with the most trips, each told from the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from astray.readers import Report, read_geolife
from astray_benchmark.people_data import Cleaned, People, clean

MIN_FIXES = 100


@dataclass(frozen=True)
class GeoLife(People):
    """Trials on GeoLife 1.3; the path is that of its folder ``Data``. Choose parameters on :meth:`others`.

    Parameters
    ----------
    cache
        A Parquet file to keep what was parsed in; without it every process parses the folder.
    """

    cache: str | None = None
    min_fixes: ClassVar[int] = MIN_FIXES

    @property
    def name(self) -> str:
        """Returns its name on the command line."""
        return "geolife"

    @property
    def data(self) -> Cleaned:
        """Returns the cleaned trips, and the account of what was dropped."""
        return _cleaned(self.path, self.cache)

    def others(self, least: int = 250) -> list[str]:
        """Returns the users outside the ten who have at least ``least`` trips left: to choose parameters on."""
        left = Counter(self.data.trips.agent_ids.tolist())
        return [user for user in self.data.most_active if left[user] >= least and user not in self.usual]


@lru_cache(maxsize=1)
def _cleaned(folder: str, cache: str | None) -> Cleaned:
    return clean(read_geolife(folder, cache=cache, skip_bad=True, report=Report()), MIN_FIXES)
