"""What astray says when it refuses: where, why and what to do, as fields that each outlet puts into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from astray.core.text import harmless


class Place(NamedTuple):
    """Where something is wrong: a file, and in it a row as a spreadsheet counts, a line or a feature."""

    file: str
    row: int | None = None
    unit: str = "row"

    def __str__(self) -> str:
        return self.file if self.row is None else f"{self.file}, {self.unit} {self.row}"


class Option(NamedTuple):
    """An option that would help. Text writes it as Python does; the command line makes a flag of it."""

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


class Columns(NamedTuple):
    """Columns of a table that should be named, all at once."""

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
"""What to do: text, with the options and functions to use standing in it as data."""

Spelling: TypeAlias = Callable[[Part], str]


def spelled(remedy: Remedy, spelling: Spelling = str) -> str:
    """A remedy in words, its options as Python writes them or as another outlet does.

    >>> remedy = ("correct the fix, or pass ", Option("skip_bad", True))
    >>> spelled(remedy), spelled(remedy, lambda option: f"--{option.name}")
    ('correct the fix, or pass skip_bad=True', 'correct the fix, or pass --skip_bad')
    """
    if isinstance(remedy, str):
        return remedy
    return "".join(part if isinstance(part, str) else spelling(part) for part in remedy)


def joined(*remedies: Remedy) -> tuple[str | Part, ...]:
    """Remedies one after the other."""
    return tuple(part for remedy in remedies for part in ((remedy,) if isinstance(remedy, str) else remedy))


def sentence(place: object, reason: str, remedy: Remedy, spelling: Spelling = str) -> str:
    """``place: reason; remedy``, without what is empty; names of files and values in it are harmless to show."""
    words = f"{place}: {reason}" if place else reason
    return harmless(f"{words}; {spelled(remedy, spelling)}" if remedy else words)


def some_names(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, the others by number.

    >>> some_names(["ana"]), some_names([f"p{i}" for i in range(7)])
    ('ana', 'p0, p1, p2, p3, p4 and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


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
        """The whole in words; ``spelling`` says how an option is given."""
        return sentence(self.place, self.reason, self.remedy, spelling)


class DataError(AstrayError, ValueError):
    """The data given cannot be used."""


class TrainingError(AstrayError, RuntimeError):
    """Learning broke down (a loss that is not a number, a reward that explodes); the previous model stands."""


class NotFittedError(AstrayError, AttributeError):
    """A result was asked of something that has not been fitted yet."""


class InUseError(AstrayError, RuntimeError):
    """Another process is changing the file; nothing was changed here."""


class MissingPackageError(AstrayError, ImportError):
    """An optional package is not installed; the remedy is the line that installs it."""


class ModelFileError(AstrayError, ValueError):
    """A model file cannot be read or written; an older file of that name is untouched."""


class UnknownAgentWarning(UserWarning):
    """Trips are of agents that the model does not know: there is nothing to measure them by, so they are for review."""


class OverlapWarning(UserWarning):
    """Runs to learn from share steps: they are not independent, so p-values promise too much."""
