"""What a reader says: what it refused, what it left out, and what it took for granted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Option, Place, Remedy, Spelling, joined, sentence, spelled
from astray.core.fixes import Fault
from astray.core.times import POLARS_ERRORS, Clock

FilePath: TypeAlias = str | PathLike[str]
Progress: TypeAlias = Callable[[int, int], None]

WHOLE_FILE = "a whole file could not be read"

LISTED = 1000
"""How many skipped places of each reason a report lists; all of them are counted."""


class ReadWarning(UserWarning):
    """Something was left out or taken for granted while reading; pass ``report=`` to receive it as data."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """One place that was left out; ``row`` counts as a spreadsheet does, None is the whole file."""

    file: str
    row: int | None
    reason: str
    unit: str = "row"

    def __str__(self) -> str:
        return sentence(Place(self.file, self.row, self.unit), self.reason, "")


@dataclass(frozen=True, slots=True)
class Assumption:
    """What a file did not say and its reader had to suppose, and what to do if that is wrong."""

    file: str
    reason: str
    remedy: Remedy = ""

    def __str__(self) -> str:
        return self.told()

    def told(self, spelling: Spelling = str) -> str:
        """The whole in words; ``spelling`` says how an option is given."""
        return sentence(self.file, self.reason, self.remedy, spelling)


@dataclass
class Report:
    """What happened while reading: pass an empty one as ``report=`` and look at it afterwards.

    Attributes
    ----------
    counts
        Reason to number of places (rows, trips, files) that were left out for it.
    skipped
        The places themselves, the first 1000 of each reason.
    assumptions
        What the data did not say and the reader had to suppose; worth checking.
    cut
        How many trips were cut from fixes that name none.
    refused
        How many of those left out would have been refused without ``skip_bad``.
    columns, unused
        Of tables: which column plays which part, and those that play none.
    times
        How the times are written.
    names_no_zone
        Whether some of the times name no zone.
    named_after
        Agents that the data do not name: each has the name of its "file" or "folder".
    varied
        Further columns of tables, of which a trajectory has one value, to the number of trajectories with several.
    notes
        What was recognised or repaired without doubt.

    Examples
    --------
    >>> report = Report()
    >>> place = Skipped("taxi.csv", 7, "latitude outside [-90, 90] (91.0)")
    >>> report.add(place, kind="latitude outside [-90, 90]")
    >>> print(report)
    1 left out: latitude outside [-90, 90]
      taxi.csv, row 7: latitude outside [-90, 90] (91.0)
    """

    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    cut: int = 0
    refused: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    times: str = ""
    names_no_zone: bool = False
    named_after: dict[str, str] = field(default_factory=dict)
    varied: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def n_skipped(self) -> int:
        """How many places were left out in all."""
        return sum(self.counts.values())

    def add(self, place: Skipped, kind: str) -> None:
        """Count one place left out for a reason of this kind, and list it unless the list is full."""
        self.add_all(iter([place]), 1, kind)

    def add_all(self, places: Iterator[Skipped], count: int, kind: str) -> None:
        """Count places left out for a reason of this kind, and list as many as the list still takes."""
        before = self.counts.get(kind, 0)
        self.counts[kind] = before + count
        self.skipped.extend(islice(places, max(LISTED - before, 0)))

    def assume(self, file: object, reason: str, remedy: Remedy = "") -> None:
        """Record a supposition about a file, once."""
        assumption = Assumption(str(file), reason, remedy)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)

    def note(self, text: str) -> None:
        """Record a fact, once."""
        if text not in self.notes:
            self.notes.append(text)

    def rename(self, name: Callable[[str], str]) -> None:
        """Change the names of files everywhere."""
        self.skipped = [replace(s, file=name(s.file), reason=name(s.reason)) for s in self.skipped]
        self.assumptions = [replace(a, file=name(a.file), reason=name(a.reason)) for a in self.assumptions]
        self.notes = [name(text) for text in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [[s.file, s.row, s.reason, s.unit] for s in self.skipped]
        return {
            "counts": self.counts,
            "skipped": rows,
            "assumptions": [[a.file, a.reason, spelled(a.remedy)] for a in self.assumptions],
            "notes": self.notes,
            "refused": self.refused,
        }

    def update(self, values: Mapping[str, Any]) -> None:
        """Add what another report said, given as :meth:`to_dict` gave it."""
        for kind, count in values["counts"].items():
            self.counts[str(kind)] = self.counts.get(str(kind), 0) + int(count)
        self.skipped.extend(Skipped(*row) for row in values["skipped"])
        for assumption in values["assumptions"]:
            self.assume(*assumption)
        for text in values["notes"]:
            self.note(text)
        self.refused += int(values["refused"])

    def left_out(self) -> list[str]:
        """How many were left out for each reason, in words."""
        return [f"{count:,} left out: {kind}" for kind, count in self.counts.items()]

    def __str__(self) -> str:
        return self.told()

    def told(self, spelling: Spelling = str) -> str:
        """The whole in words; ``spelling`` says how an option is given."""
        lines = self.left_out()
        if self.cut:
            remedy = ("pass ", Option("trips", "as-given"), " to keep all fixes of an agent together")
            lines.append(sentence("", f"cut at gaps and stays into trips: {self.cut:,}", remedy, spelling))
        supposed = [assumption.told(spelling) for assumption in self.assumptions]
        for texts, count in ((self.skipped, self.n_skipped), (supposed, len(supposed))):
            lines += [f"  {text}" for text in texts[:5]]
            lines += [f"  and {count - 5:,} more"] if count > 5 else []
        return "\n".join(lines) or "nothing was left out"


class Intake:
    """The rule of one reading (refuse what is bad, or leave it out) and its record.

    Without a report to write to, what was left out or supposed is said in a :class:`ReadWarning` at the end.
    """

    def __init__(self, skip_bad: bool, report: Report | None) -> None:
        self.skip_bad = skip_bad
        self.report = Report() if report is None else report
        self.supposed_trips = False
        self._first: DataError | None = None  # what was wrong with the first file that could not be read
        self._remedy: Remedy = ""  # for the first row that was left out
        self._warn = report is None

    def __enter__(self) -> Intake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        said = self.report.counts or self.report.assumptions or self.supposed_trips
        if error is None and self._warn and said:
            warnings.warn(str(self.report), ReadWarning, stacklevel=3)

    def take_times(self, file: object, clock: Clock) -> None:
        """Record how the times of a file are written, and what had to be supposed about them."""
        self.report.times = clock.told()
        self.report.names_no_zone |= clock.naive
        for remark in clock.remarks():
            self.report.assume(file, *remark)

    def leave_out(self, file: object, row: int | None, reason: str, *, detail: str = "", unit: str = "row") -> None:
        """Leave something out that is no error of the file, but say so."""
        self.report.add(Skipped(str(file), row, reason + detail, unit), kind=reason)

    def leave_out_all(self, file: object, rows: NDArray[np.int64], reason: str) -> None:
        """The same of many rows."""
        if len(rows):
            self.report.add_all((Skipped(str(file), row, reason) for row in rows.tolist()), len(rows), reason)

    def refuse(
        self,
        file: object,
        row: int | None,
        reason: str,
        remedy: Remedy,
        *,
        detail: str = "",
        unit: str = "row",
    ) -> None:
        """Refuse the reading because of one place, or leave that place out."""
        if self.skip_bad:
            self._remedy = self._remedy or remedy
            self.report.refused += 1
            self.leave_out(file, row, reason, detail=detail, unit=unit)
            return
        raise DataError(
            reason + detail,
            place=Place(str(file), row, unit),
            remedy=joined(remedy, (", or pass ", Option("skip_bad", True), " to leave it out")),
        )

    def break_off(self, error: DataError, something_before: bool) -> None:
        """Refuse a file that is broken somewhere, or leave out the rest of it, if something stands before that."""
        if not self.skip_bad or not something_before:
            raise error
        place = error.place if isinstance(error.place, Place) else Place(str(error.place))
        self.report.refused += 1
        self.leave_out(place.file, place.row, "the rest of a broken file", detail=f": {error.reason}", unit=place.unit)

    def nothing(self, file: object, what: str) -> DataError:
        """The refusal of a file in which nothing usable was found, or of the first of several such files."""
        first = self._first
        if first is not None:
            n = self.report.counts[WHOLE_FILE]
            reason = first.reason if n == 1 else f"{first.reason} (none of {n:,} files can be read)"
            return DataError(reason, place=first.place, remedy=first.remedy)
        why = "; ".join(self.report.left_out()) or "it is empty, or has column names alone"
        remedy = self._remedy or "look at the file, and at the options"
        if self.report.skipped:
            skipped = self.report.skipped[0]
            detail = skipped.reason.removeprefix(next(iter(self.report.counts)))
            why += f", first {Place(skipped.file, skipped.row, skipped.unit)}{detail}"
        return DataError(f"no usable {what} ({why})", place=Place(str(file)), remedy=remedy)

    def sift(
        self, file: object, rows: NDArray[np.int64], faults: Sequence[Fault], *, unit: str = "row"
    ) -> NDArray[np.bool_]:
        """Refuse the rows with faults, or leave them out; returns which rows are good.

        A row is charged with the first of its faults. ``rows`` gives the number of each row in its file.
        """
        good = np.ones(len(rows), dtype=np.bool_)
        for fault in faults:
            bad = np.flatnonzero(fault.rows & good)
            if not len(bad):
                continue
            good[bad] = False
            if self.skip_bad:
                places = (Skipped(str(file), int(rows[i]), fault.reason + fault.detail(i), unit) for i in bad.tolist())
                self._remedy = self._remedy or fault.remedy
                self.report.refused += len(bad)
                self.report.add_all(places, len(bad), fault.reason)
            else:
                i = int(bad[0])
                detail = fault.detail(i) + (f" and in {len(bad) - 1:,} more" if len(bad) > 1 else "")
                self.refuse(file, int(rows[i]), fault.reason, fault.remedy, detail=detail, unit=unit)
        return good

    @contextmanager
    def sparing_the_rest(self, file: object, of: int) -> Iterator[None]:
        """Where bad data are left out, leave out one file ``of`` many; the only one is refused, by its name."""
        try:
            yield
        except DataError as error:
            error.place = error.place or Place(str(file))
            if not self.skip_bad or of == 1:
                raise
            self._first = self._first or error
            skipped = Skipped(str(file), None, error.reason)
            self.report.refused += 1
            self.report.add(skipped, kind=WHOLE_FILE)


def share_of(progress: Progress | None, i: int, n: int) -> Progress | None:
    """The progress of file ``i`` as a share of that of all ``n`` files."""
    if progress is None or n == 1:
        return progress

    def scaled(done: int, total: int) -> None:
        progress(i * 1000 + (1000 * done) // max(total, 1), n * 1000)

    return scaled


@contextmanager
def refusing(file: object, what: str, remedy: str) -> Iterator[None]:
    """Turn what the operating system and polars raise about a file into one typed refusal, which names the file."""
    place = Place(str(file))
    try:
        yield
    except DataError as error:
        error.place = error.place or place
        raise
    except OSError as error:
        raise DataError(f"{error.strerror or error}", place=place, remedy=_os_remedy(error)) from error
    except POLARS_ERRORS as error:
        said = [] if isinstance(error, pl.exceptions.PanicException) else str(error).strip().splitlines()
        reason = f"{what} ({said[0]})" if said else what  # a panic speaks of polars, not of the file
        raise DataError(reason, place=place, remedy=remedy) from error


def _os_remedy(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "check the path, and that nothing removes files while they are read"
        case IsADirectoryError():
            return "give a file, not a folder"
        case PermissionError():
            return "make the file readable"
        case _:
            return "check the disk and try again"
