"""Which column of a table plays which part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from astray.errors import DataError, Option, Place
from astray.fixes import ALIASES, REQUIRED, candidates, plain


@dataclass(frozen=True)
class Roles:
    """For each part the position of its column, and what was found on the way."""

    positions: Mapping[str, int]
    rivals: tuple[str, ...]
    unused: tuple[str, ...]


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
    missing = [role for role in REQUIRED if role not in positions]
    if missing:
        role = missing[0]
        shown = ", ".join(repr(name) for name in names[:20]) or "none"
        known = ", ".join(ALIASES[role][:5])
        raise DataError(
            f"no column for {role} was recognised among {shown}",
            place=Place(str(file), 1),
            remedy=("name it: ", Option(role, "NAME"), f" (known are {known}, ...)"),
        )
    used = {*positions.values(), *(position(file, names, name) for name in keep)}
    unused = tuple(name for i, name in enumerate(names) if i not in used)
    return Roles(positions, tuple(rivals), unused)


def position(file: object, names: Sequence[str], wanted: str) -> int:
    """Where the column of this name stands; the exact name counts before one that differs in case only."""
    if wanted in names:
        return list(names).index(wanted)
    bare = [plain(name) for name in names]
    if plain(wanted) in bare:
        return bare.index(plain(wanted))
    remedy = f"the file has {', '.join(map(repr, names[:20]))}"
    raise DataError(f"no column named {wanted!r}", place=Place(str(file), 1), remedy=remedy)
