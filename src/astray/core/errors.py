"""Errors, with place, reason and remedy as fields, so that the command line and the service can word them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from astray.core.text import harmless


class Place(NamedTuple):
    """The place of an error: a file and, in it, a row (numbered as in a spreadsheet), a line or a feature."""

    file: str
    row: int | None = None
    unit: str = "row"

    def __str__(self) -> str:
        return self.file if self.row is None else f"{self.file}, {self.unit} {self.row}"


class Option(NamedTuple):
    """An option that would help. As text it is a Python argument; the command line makes a flag of it."""

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


class Columns(NamedTuple):
    """Columns of a table that the caller should name."""

    roles: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{role}='NAME'" for role in self.roles)


class Call(NamedTuple):
    """A function that would help."""

    name: str

    def __str__(self) -> str:
        return f"{self.name}()"


Part: TypeAlias = Option | Columns | Call
Remedy: TypeAlias = str | tuple[str | Part, ...]
"""What to do: text, or a sequence of texts, options, columns and functions, which each caller spells its own way."""

Spelling: TypeAlias = Callable[[Part], str]


def spelled(remedy: Remedy, spelling: Spelling = str) -> str:
    """Returns a remedy in words; ``spelling`` writes its options, by default as Python does.

    >>> remedy = ("correct the fix, or pass ", Option("skip_bad", True))
    >>> spelled(remedy), spelled(remedy, lambda option: f"--{option.name}")
    ('correct the fix, or pass skip_bad=True', 'correct the fix, or pass --skip_bad')
    """
    if isinstance(remedy, str):
        return remedy
    return "".join(part if isinstance(part, str) else spelling(part) for part in remedy)


def joined(*remedies: Remedy) -> tuple[str | Part, ...]:
    """Joins remedies into one."""
    return tuple(part for remedy in remedies for part in ((remedy,) if isinstance(remedy, str) else remedy))


def sentence(place: object, reason: str, remedy: Remedy, spelling: Spelling = str) -> str:
    """Returns ``place: reason; remedy`` without empty parts, with control characters escaped."""
    words = f"{place}: {reason}" if place else reason
    return harmless(f"{words}; {spelled(remedy, spelling)}" if remedy else words)


def some_names(names: Sequence[str], most: int = 5) -> str:
    """Returns the first names of a list as text, and how many more there are.

    >>> some_names(["ana"]), some_names([f"p{i}" for i in range(7)])
    ('ana', 'p0, p1, p2, p3, p4 and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def instead_of(name: str, names: Sequence[str]) -> str:
    """Returns a remedy for a name that is not among these: the one that is most like it, and which there are.

    >>> instead_of("anna", ["ana", "bob"]), instead_of("x", ["ana"])
    ('did you mean ana? there are ana, bob', 'there is ana')
    """
    close = difflib.get_close_matches(name, names, 1)
    there = f"there {'is' if len(names) == 1 else 'are'} {some_names(names)}"
    return f"did you mean {close[0]}? {there}" if close else there


class AstrayError(Exception):
    """The base of every error that astray raises on purpose.

    Parameters
    ----------
    reason
        What is wrong.
    place
        Where: a file, a :class:`Place` in it, or text.
    remedy
        What to do about it.

    Examples
    --------
    >>> error = AstrayError("no column for lat", place=Place("a.csv", 1), remedy=("pass ", Option("lat", "NAME")))
    >>> print(error)
    a.csv, row 1: no column for lat; pass lat='NAME'
    >>> error.place.row, error.reason
    (1, 'no column for lat')
    """

    def __init__(self, reason: str, *, place: Place | Path | str = "", remedy: Remedy = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy
        self.place = Place(str(place)) if isinstance(place, Path) else place

    def __str__(self) -> str:
        return self.told()

    def told(self, spelling: Spelling = str) -> str:
        """Returns the whole message; ``spelling`` writes the options in it."""
        return sentence(self.place, self.reason, self.remedy, spelling)


class DataError(AstrayError, ValueError):
    """The data given cannot be used."""


class TrainingError(AstrayError, RuntimeError):
    """Learning failed (a loss that is not a number, a reward that explodes); the previous model is unchanged."""


class NotFittedError(AstrayError, AttributeError):
    """The object has not been fitted yet, so it has no results."""


class InUseError(AstrayError, RuntimeError):
    """Another process is changing the file; nothing was changed here."""


class MissingPackageError(AstrayError, ImportError):
    """An optional package is not installed; the remedy is the line that installs it."""


class ModelFileError(AstrayError, ValueError):
    """A model file cannot be read or written; an older file of that name is untouched."""


class Terminated(SystemExit):
    """Somebody ended the program by SIGTERM; not an error of the data or of the code that was running."""


class UnknownAgentWarning(UserWarning):
    """The model does not know the agents of some trips, so it cannot score these trips; they go to review."""


class OverlapWarning(UserWarning):
    """Some training runs share steps, so they are not independent and p-values are too optimistic."""
