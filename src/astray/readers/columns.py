"""Which column of a table plays which part."""

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
"""Columns that are false where a fix is not to be used, and why it is not."""

DATES = ("date", "utc_date", "gps_date", "date_utc", "local_date", "event_date")
"""Columns of dates, which count where the column of times holds times of day, or where there is none."""

_LIKE_ID = re.compile(r"(?:^|[^A-Za-z])(?i:id|identifier|name|nr|no|number|code)$|[a-z](?:ID|Id|No|Nr|Name)$")

_FALSE = ("false", "f", "0", "no")


@dataclass(frozen=True)
class Roles:
    """For each part the position of its column, and what was found on the way."""

    positions: Mapping[str, int]
    rivals: tuple[str, ...]
    unused: tuple[str, ...]


def marks(names: Sequence[str]) -> dict[str, int]:
    """Where the columns stand that mark fixes which are not to be used."""
    bare = [plain(name) for name in names]
    return {mark: bare.index(mark) for mark in MARKS if mark in bare}


def is_false(values: pl.Series) -> NDArray[np.bool_]:
    """Which values are false, in any way of writing it."""
    return values.cast(pl.String).str.strip_chars().str.to_lowercase().is_in(_FALSE).fill_null(False).to_numpy()


def marked_bad(said: Mapping[str, Any]) -> str:
    """Why one fix is not to be used, or empty text: the one-row form of the marks of a table."""
    return next((why for mark, why in MARKS.items() if str(said.get(mark)).strip().lower() in _FALSE), "")


def like_ids(names: Sequence[str]) -> list[str]:
    """Columns that by their names hold identifiers of something; one without a name may hold anything.

    >>> like_ids(["Unit ID", "busNo", "speed", "valid", "rider_name", ""])
    ['Unit ID', 'busNo', 'rider_name', '']
    """
    return [name for name in names if not name or _LIKE_ID.search(name)]


def recognised(names: Sequence[str]) -> int:
    """How many of the parts these columns can play."""
    return len(candidates(names))


def resolve(file: object, names: Sequence[str], asked: Mapping[str, str | None], keep: Sequence[str] = ()) -> Roles:
    """Find the column of each part: the one asked for, else the first alias that is there.

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
            # A column pair such as x, y beside lon, lat is no rival: preference settles it.
            others = [names[i] for i in found[1:] if role not in ("lat", "lon") or bare[i] == bare[found[0]]]
            if others:
                rivals.append(f"{names[found[0]]!r} was taken as the {role}, not {', '.join(map(repr, others))}")
    wanted = asked.get("date")
    date = _first(bare, DATES) if wanted is None else position(file, names, wanted)
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


def _first(bare: Sequence[str], aliases: Sequence[str]) -> int | None:
    """Where the first of some names stands."""
    return next((bare.index(alias) for alias in aliases if alias in bare), None)


def position(file: object, names: Sequence[str], wanted: str) -> int:
    """Where the column of this name stands; the exact name counts before one that differs in case only."""
    if wanted in names:
        return list(names).index(wanted)
    bare = [plain(name) for name in names]
    if plain(wanted) in bare:
        return bare.index(plain(wanted))
    remedy = f"the file has {', '.join(map(repr, names[:20]))}"
    raise DataError(f"no column named {wanted!r}", place=Place(str(file), 1), remedy=remedy)
