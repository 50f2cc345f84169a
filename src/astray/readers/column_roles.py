"""Finds the column of each role (time, lat, lon, agent, trajectory) by the names of the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import Columns, DataError, Place
from astray.core.fixes import ALIASES, REQUIRED, candidates, plain

MARKS: Mapping[str, str] = {
    "visible": "marked as not visible, which is how Movebank marks outliers",
    "valid": "marked as not valid, as Traccar does where the receiver had no fix",
}
"""Columns that are false where a fix must not be used, each with the reason for the report."""

DATES = ("date", "utc_date", "gps_date", "date_utc", "local_date", "event_date")
"""Columns of dates; they are read if the time column holds times of day, or if there is no time column."""

_LIKE_ID = re.compile(r"(?:^|[^A-Za-z])(?i:id|identifier|name|nr|no|number|code)$|[a-z](?:ID|Id|No|Nr|Name)$")

_FALSE = ("false", "f", "0", "no")


@dataclass(frozen=True)
class Roles:
    """The position of each role's column, remarks about other columns that fit a role, and the unused columns."""

    positions: Mapping[str, int]
    rivals: tuple[str, ...]
    unused: tuple[str, ...]


def marks(names: Sequence[str]) -> dict[str, int]:
    """Returns the positions of the columns that mark fixes which must not be used."""
    bare = [plain(name) for name in names]
    return {mark: bare.index(mark) for mark in MARKS if mark in bare}


def is_false(values: pl.Series) -> NDArray[np.bool_]:
    """Returns a mask of the values that mean false, as a truth value, a number or text."""
    return values.cast(pl.String).str.strip_chars().str.to_lowercase().is_in(_FALSE).fill_null(False).to_numpy()


def marked_bad(said: Mapping[str, Any]) -> str:
    """Returns why one fix must not be used, or empty text; the one-row form of :func:`marks` and :func:`is_false`."""
    return next((why for mark, why in MARKS.items() if str(said.get(mark)).strip().lower() in _FALSE), "")


def like_ids(names: Sequence[str]) -> list[str]:
    """Returns the columns whose names look like identifiers; a column without a name may be one, too.

    >>> like_ids(["Unit ID", "busNo", "speed", "valid", "rider_name", ""])
    ['Unit ID', 'busNo', 'rider_name', '']
    """
    return [name for name in names if not name or _LIKE_ID.search(name)]


def is_porto(names: Sequence[str]) -> bool:
    """Returns True for the columns of the Porto data."""
    return {"TRIP_ID", "POLYLINE"} <= {plain(name).upper() for name in names}


def header_score(names: Sequence[str]) -> int:
    """Returns how much these names look like a header: the number of roles that they match, more for Porto's."""
    return len(candidates(names)) + 5 * is_porto(names)


def resolve(file: object, names: Sequence[str], asked: Mapping[str, str | None], keep: Sequence[str] = ()) -> Roles:
    """Finds the column of each role: the one in ``asked``, else the first with a known name.

    >>> roles = resolve("t.csv", ["UID", "lng", "Latitude", "tst", "speed"], {})
    >>> dict(roles.positions), roles.unused
    ({'time': 3, 'lat': 2, 'lon': 1, 'agent': 0}, ('speed',))
    """
    bare = [plain(name) for name in names]
    positions: dict[str, int] = {}
    rivals: list[str] = []
    possible = candidates(names)
    for role in ALIASES:
        wanted = asked.get(role)
        if wanted is not None:
            positions[role] = position(file, names, wanted)
        elif found := possible.get(role):
            positions[role] = found[0]
            # x and y beside lon and lat are not rivals: lon and lat are always preferred.
            others = [names[i] for i in found[1:] if role not in ("lat", "lon") or bare[i] == bare[found[0]]]
            if others:
                rivals.append(f"{names[found[0]]!r} was taken as the {role}, not {', '.join(map(repr, others))}")
    wanted = asked.get("date")
    date = (
        next((bare.index(name) for name in DATES if name in bare), None)
        if wanted is None
        else position(file, names, wanted)
    )
    if date is not None and date not in positions.values():
        positions["date" if "time" in positions else "time"] = date
    missing = [role for role in REQUIRED if role not in positions]
    if missing:
        shown = ", ".join(repr(name) for name in names[:20]) or "none"
        known = "; ".join(f"{role}: {', '.join(ALIASES[role][:5])}, ..." for role in missing)
        raise DataError(
            f"no column for {' and '.join(missing)} was recognised among {shown}",
            place=Place(str(file), 1),
            remedy=("pass ", Columns(tuple(missing)), f" (known are {known})"),
        )
    used = {*positions.values(), *marks(names).values(), *(position(file, names, name) for name in keep)}
    unused = tuple(name for i, name in enumerate(names) if i not in used)
    return Roles(positions, tuple(rivals), unused)


def position(file: object, names: Sequence[str], wanted: str) -> int:
    """Returns the position of a column; the exact name wins over one that differs only in case."""
    if wanted in names:
        return list(names).index(wanted)
    bare = [plain(name) for name in names]
    if plain(wanted) in bare:
        return bare.index(plain(wanted))
    remedy = f"the file has {', '.join(map(repr, names[:20]))}"
    raise DataError(f"no column named {wanted!r}", place=Place(str(file), 1), remedy=remedy)
