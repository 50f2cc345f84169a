"""Decides what happens to bad data (raise an error, or skip and count it) and reports what was skipped or assumed."""

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
"""A report lists at most this many skipped places for each reason; it counts all of them."""


class ReadWarning(UserWarning):
    """Warns that a reader skipped or assumed something; pass ``report=`` to get the details as data instead."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A place that a reader skipped. ``row`` is numbered as a spreadsheet does; None means the whole file."""

    file: str
    row: int | None
    reason: str
    unit: str = "row"

    def __str__(self) -> str:
        return sentence(Place(self.file, self.row, self.unit), self.reason, "")


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption that the reader made where the file does not say, and what to do if it is wrong."""

    file: str
    reason: str
    remedy: Remedy = ""

    def __str__(self) -> str:
        return self.told()

    def told(self, spelling: Spelling = str) -> str:
        """Returns the full text; ``spelling`` writes the options in it."""
        return sentence(self.file, self.reason, self.remedy, spelling)


@dataclass
class Report:
    """Records what a reader skipped, assumed and found. Pass an empty one as ``report=`` and inspect it afterwards.

    Attributes
    ----------
    counts
        For each reason, the number of places (rows, trips, files) that the reader skipped.
    skipped
        The skipped places, at most 1000 for each reason.
    assumptions
        What the reader assumed because the data do not say it; worth checking.
    cut
        The number of trips that were cut from fixes without a trip name.
    refused
        The number of skipped places that would have raised an error without ``skip_bad``.
    columns, unused
        For tables: the column used for each role, and the columns that were not used.
    times
        The form of the times in the file.
    names_no_zone
        True if some times have no time zone.
    named_after
        Agents that the reader named because the data do not, mapped to the source of the name: "file" or "folder".
    varied
        For each context column with several values in one trajectory, the number of such trajectories.
    notes
        What the reader recognised or repaired with certainty.

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
        """Returns the number of skipped places."""
        return sum(self.counts.values())

    def add(self, place: Skipped, kind: str) -> None:
        """Counts one place skipped for this reason, and lists it unless the list is full."""
        self.add_all(iter([place]), 1, kind)

    def add_all(self, places: Iterator[Skipped], count: int, kind: str) -> None:
        """Counts places skipped for this reason, and lists them until the list is full."""
        before = self.counts.get(kind, 0)
        self.counts[kind] = before + count
        self.skipped.extend(islice(places, max(LISTED - before, 0)))

    def assume(self, file: object, reason: str, remedy: Remedy = "") -> None:
        """Records an assumption about a file, once."""
        assumption = Assumption(str(file), reason, remedy)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)

    def note(self, text: str) -> None:
        """Records a fact, once."""
        if text not in self.notes:
            self.notes.append(text)

    def rename(self, name: Callable[[str], str]) -> None:
        """Applies ``name`` to every text that may contain a file name."""
        self.skipped = [replace(s, file=name(s.file), reason=name(s.reason)) for s in self.skipped]
        self.assumptions = [replace(a, file=name(a.file), reason=name(a.reason)) for a in self.assumptions]
        self.notes = [name(text) for text in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        rows = [[s.file, s.row, s.reason, s.unit] for s in self.skipped]
        return {
            "counts": self.counts,
            "skipped": rows,
            "assumptions": [[a.file, a.reason, spelled(a.remedy)] for a in self.assumptions],
            "notes": self.notes,
            "refused": self.refused,
        }

    def update(self, values: Mapping[str, Any]) -> None:
        """Adds the contents of another report, given as the result of :meth:`to_dict`."""
        for kind, count in values["counts"].items():
            self.counts[str(kind)] = self.counts.get(str(kind), 0) + int(count)
        self.skipped.extend(Skipped(*row) for row in values["skipped"])
        for assumption in values["assumptions"]:
            self.assume(*assumption)
        for text in values["notes"]:
            self.note(text)
        self.refused += int(values["refused"])

    def left_out(self) -> list[str]:
        """Returns one line for each reason, with its count."""
        return [f"{count:,} left out: {kind}" for kind, count in self.counts.items()]

    def __str__(self) -> str:
        return self.told()

    def told(self, spelling: Spelling = str) -> str:
        """Returns the full text; ``spelling`` writes the options in it."""
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
    """Handles bad data during one call of a reader: raises an error, or (``skip_bad``) skips it and records that.

    If the caller gave no report, the end of the context emits a :class:`ReadWarning` about what was skipped or assumed.
    """

    def __init__(self, skip_bad: bool, report: Report | None) -> None:
        self.skip_bad = skip_bad
        self.report = Report() if report is None else report
        self.warn_of_cut = False
        self._first_bad_file: DataError | None = None
        self._first_remedy: Remedy = ""  # of the first skipped row
        self._warn = report is None

    def __enter__(self) -> Intake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        said = self.report.counts or self.report.assumptions or self.warn_of_cut
        if error is None and self._warn and said:
            warnings.warn(str(self.report), ReadWarning, stacklevel=3)

    def record_times(self, file: object, clock: Clock) -> None:
        """Records the form of the times in a file, and the assumptions about them."""
        self.report.times = clock.told()
        self.report.names_no_zone |= clock.naive
        for remark in clock.remarks():
            self.report.assume(file, *remark)

    def skip(self, file: object, row: int | None, reason: str, *, detail: str = "", unit: str = "row") -> None:
        """Skips and records a place that is no use but not an error."""
        self.report.add(Skipped(str(file), row, reason + detail, unit), kind=reason)

    def skip_rows(self, file: object, rows: NDArray[np.int64], reason: str) -> None:
        """Skips and records many rows for one reason."""
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
        """Raises an error about one place, or skips that place if bad data are skipped."""
        if self.skip_bad:
            self._first_remedy = self._first_remedy or remedy
            self.report.refused += 1
            self.skip(file, row, reason, detail=detail, unit=unit)
            return
        raise DataError(
            reason + detail,
            place=Place(str(file), row, unit),
            remedy=joined(remedy, (", or pass ", Option("skip_bad", True), " to leave it out")),
        )

    def stop_at_damage(self, error: DataError, found_before: bool) -> None:
        """Raises the error, or skips the rest of the file if bad data are skipped and something was found before."""
        if not self.skip_bad or not found_before:
            raise error
        place = error.place if isinstance(error.place, Place) else Place(str(error.place))
        self.report.refused += 1
        self.skip(place.file, place.row, "the rest of a broken file", detail=f": {error.reason}", unit=place.unit)

    def nothing_usable(self, file: object, what: str) -> DataError:
        """Returns the error for a file without usable data, or for the first of several such files."""
        first = self._first_bad_file
        if first is not None:
            n = self.report.counts[WHOLE_FILE]
            reason = first.reason if n == 1 else f"{first.reason} (none of {n:,} files can be read)"
            return DataError(reason, place=first.place, remedy=first.remedy)
        why = "; ".join(self.report.left_out()) or "it is empty, or has only column names"
        remedy = self._first_remedy or "check the file and the options"
        if self.report.skipped:
            skipped = self.report.skipped[0]
            detail = skipped.reason.removeprefix(next(iter(self.report.counts)))
            why += f", first {Place(skipped.file, skipped.row, skipped.unit)}{detail}"
        return DataError(f"no usable {what} ({why})", place=Place(str(file)), remedy=remedy)

    def good_rows(
        self, file: object, rows: NDArray[np.int64], faults: Sequence[Fault], *, unit: str = "row"
    ) -> NDArray[np.bool_]:
        """Returns a mask of the rows without faults; raises an error for the others, or skips them.

        A row with several faults is counted under the first. ``rows`` holds the number of each row in its file.
        """
        good = np.ones(len(rows), dtype=np.bool_)
        for fault in faults:
            bad = np.flatnonzero(fault.rows & good)
            if not len(bad):
                continue
            good[bad] = False
            if self.skip_bad:
                places = (Skipped(str(file), int(rows[i]), fault.reason + fault.detail(i), unit) for i in bad.tolist())
                self._first_remedy = self._first_remedy or fault.remedy
                self.report.refused += len(bad)
                self.report.add_all(places, len(bad), fault.reason)
            else:
                i = int(bad[0])
                detail = fault.detail(i) + (f" and in {len(bad) - 1:,} more" if len(bad) > 1 else "")
                self.refuse(file, int(rows[i]), fault.reason, fault.remedy, detail=detail, unit=unit)
        return good

    @contextmanager
    def skipping_bad_file(self, file: object, n_files: int) -> Iterator[None]:
        """Skips a file for which the block raises a DataError, if bad data are skipped and it is not the only file."""
        try:
            yield
        except DataError as error:
            error.place = error.place or Place(str(file))
            if not self.skip_bad or n_files == 1:
                raise
            self._first_bad_file = self._first_bad_file or error
            skipped = Skipped(str(file), None, error.reason)
            self.report.refused += 1
            self.report.add(skipped, kind=WHOLE_FILE)


def share_of(progress: Progress | None, i: int, n: int) -> Progress | None:
    """Returns a progress function for file ``i`` of ``n`` that reports the progress of all files together."""
    if progress is None or n == 1:
        return progress

    def scaled(done: int, total: int) -> None:
        progress(i * 1000 + (1000 * done) // max(total, 1), n * 1000)

    return scaled


@contextmanager
def raising_data_errors(file: object, what: str, remedy: str) -> Iterator[None]:
    """Turns errors of the operating system and of polars into a DataError that names the file."""
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
        reason = f"{what} ({said[0]})" if said else what  # a panic message is about polars, not about the file
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
