"""The name of a trip: its agent and its id among that agent's trips."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from astray.core.errors import DataError, some_names


class TripId(NamedTuple):
    """The name of a trip, the same in files, in the live feed, in models and in tables.

    The two parts stay separate because either may contain a slash. As text it reads ``agent/trajectory``, for people;
    :func:`find_trips` finds the trip for such a text.

    >>> trip = TripId("ana", "2024-05-03T08:00:00Z")
    >>> print(trip)
    ana/2024-05-03T08:00:00Z
    """

    agent: str
    trajectory: str

    def __str__(self) -> str:
        return f"{self.agent}/{self.trajectory}" if self.agent else self.trajectory

    def is_called(self, name: str) -> bool:
        """Returns True if ``name`` is this trip's trajectory or its ``agent/trajectory``."""
        return name in (self.trajectory, str(self))


def find_trips(
    names: Iterable[TripId | str], known: Iterable[TripId], *, among: str = "trips here", remedy: str = ""
) -> list[TripId]:
    """Returns the known trip for each name.

    A name is ``agent/trajectory``, or the trajectory alone if only one agent has it. An unknown or ambiguous name is an
    error.

    Parameters
    ----------
    names
        The names that a person uses; or ids, which must be known, too.
    known
        The ids of all trips.
    among, remedy
        What the error message calls these trips, and what it advises if one is missing.

    Examples
    --------
    >>> known = [TripId("ana", "1"), TripId("ana", "2"), TripId("bob", "1")]
    >>> find_trips(["bob/1", "2"], known)
    [TripId(agent='bob', trajectory='1'), TripId(agent='ana', trajectory='2')]
    >>> find_trips(["1"], known)
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: '1' is the name of 2 trips: '1' of 'ana', '1' of 'bob'; name it as agent/trajectory
    >>> find_trips(["3"], known)
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: no trip named '3' is among the 3 trips here; there are ana/1, ana/2, bob/1
    """
    asked, there = list(names), dict.fromkeys(known)
    whole = {name: [name] if isinstance(name, TripId) and name in there else [] for name in asked}
    alone: dict[str, list[TripId]] = {name: [] for name in asked if isinstance(name, str)}
    for trip in there if alone else ():
        if trip.trajectory in alone:
            alone[trip.trajectory].append(trip)
        if (text := str(trip)) in whole:
            whole[text].append(trip)
    found = []
    for name in asked:
        # If a name is the full name of one trip, do not take it for the trajectory of another as well.
        meant = whole[name] or (alone[name] if isinstance(name, str) else [])
        if not meant:
            said = remedy or (f"there are {some_names([str(trip) for trip in there])}" if there else "")
            raise DataError(f"no trip named {str(name)!r} is among the {len(there):,} {among}", remedy=said)
        if len(meant) > 1:
            which = some_names([f"{trip.trajectory!r} of {trip.agent!r}" for trip in sorted(meant)])
            how = "by its trajectory alone" if whole[name] else "as agent/trajectory"
            raise DataError(f"{str(name)!r} is the name of {len(meant):,} trips: {which}", remedy=f"name it {how}")
        found += meant
    return found
