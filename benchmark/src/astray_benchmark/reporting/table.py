"""A table of results, in Markdown, CSV and LaTeX (booktabs), with intervals."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from astray.core.atomic import replacing
from astray.core.errors import DataError
from astray_benchmark.metrics import Interval

ENDINGS = (".md", ".csv", ".tex")
MISSING = ("unfinished", "failed")
"""The tables of what is missing; their names may have a prefix."""

Cell = str | float | Interval | None

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "%": r"\%",
        "_": r"\_",
        "&": r"\&",
        "#": r"\#",
        "$": r"\$",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


@dataclass(frozen=True)
class Table:
    """A table of results.

    >>> table = Table("t", "Who wins", ("method", "LOF | R", "LOF | P"), (("a", 0.5, Interval(0.25, 0.2, 0.3)),))
    >>> print(table.markdown())
    ### Who wins
    <BLANKLINE>
    | method | LOF R | LOF P |
    |---|---|---|
    | a | 0.500 | 0.250 [0.200, 0.300] |
    <BLANKLINE>
    >>> print(table.csv())
    method,LOF R,LOF P,LOF P low,LOF P high
    a,0.5,0.25,0.2,0.3
    <BLANKLINE>
    """

    name: str  # of its files
    title: str
    columns: tuple[str, ...]  # "group | name" shares the head "group" with its neighbours of the same group
    rows: tuple[tuple[Cell, ...], ...]  # texts, numbers, intervals, or None for an empty cell
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise DataError(
                f"table {self.name!r}: a row of {len(wrong[0])} cells under {len(self.columns)} heads",
                remedy="give one head for each cell",
            )

    @property
    def heads(self) -> list[str]:
        """Returns the heads, each in one line."""
        return [column.replace(" | ", " ") for column in self.columns]

    def markdown(self) -> str:
        """Returns the table in Markdown, under its heading, with the note below."""
        lines = [f"### {self.title}", "", _piped(self.heads), "|" + "---|" * len(self.columns)]
        lines += [_piped([said(cell).replace("|", "\\|") for cell in row]) for row in self.rows]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def csv(self) -> str:
        """Returns the numbers as CSV, to nine decimals; an interval takes three columns."""
        wide = [any(isinstance(row[i], Interval) for row in self.rows) for i in range(len(self.columns))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = zip(self.heads, wide, strict=True)
        writer.writerow([x for head, w in heads for x in ((head, f"{head} low", f"{head} high") if w else (head,))])
        for row in self.rows:
            writer.writerow([x for cell, w in zip(row, wide, strict=True) for x in _flat(cell, w)])
        return text.getvalue()

    def latex(self) -> str:
        r"""Returns a floating table for booktabs, with common heads over ``\cmidrule``s like the paper's tables."""
        groups = [column.partition(" | ") for column in self.columns]
        lines = [r"\begin{table*}", r"\small\centering", rf"\caption{{{_escaped(self.title)}}}"]
        lines += [rf"\label{{tab:{self.name}}}", rf"\begin{{tabular}}{{l{'c' * (len(self.columns) - 1)}}}", r"\toprule"]
        if any(bar for _, bar, _ in groups):
            top, rules, at = [], [], 1
            for head, members in groupby(groups, key=lambda g: g[0] if g[1] else ""):
                span = len(list(members))
                top.append(rf"\multicolumn{{{span}}}{{c}}{{{_escaped(head)}}}")
                rules += [rf"\cmidrule(lr){{{at}-{at + span - 1}}}"] if head else []
                at += span
            lines += [" & ".join(top) + r" \\", " ".join(rules)]
        lines += [" & ".join(_escaped(name if bar else group) for group, bar, name in groups) + r" \\", r"\midrule"]
        for row in self.rows:
            if row[0] == "Avg":
                lines.append(r"\midrule")
            lines.append(" & ".join(_escaped(said(cell)) for cell in row) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {_escaped(self.note)}"] if self.note else []
        return "\n".join([*lines, r"\end{table*}", ""])


def write(tables: Sequence[Table], folder: Path) -> None:
    """Writes every table three times: ``name.md``, ``name.csv``, ``name.tex``; removes lists of what was missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (path for name in MISSING for path in folder.glob(f"*{name}.*") if path.suffix in ENDINGS):
        stale.unlink()
    for table in tables:
        for ending, text in (("md", table.markdown()), ("csv", table.csv()), ("tex", table.latex())):
            with replacing(folder / f"{table.name}.{ending}") as file:
                file.write(text.encode())


def said(cell: Cell) -> str:
    """Formats a cell, with three decimals for numbers and none for whole numbers.

    >>> said(0.12345), said(7), said(None), said(Interval(0.5, float("nan"), float("nan"))), said(float("inf"))
    ('0.123', '7', '', '0.500', '∞')
    """
    match cell:
        case None:
            return ""
        case Interval(mean, low, high) if math.isfinite(low):
            return f"{said(mean)} [{low:.3f}, {high:.3f}]"
        case Interval(mean, _, _):
            return said(mean)
        case float():
            return f"{cell:.3f}" if math.isfinite(cell) else "∞" if cell > 0 else "–"
        case _:
            return str(cell)


def _flat(cell: Cell, wide: bool) -> list[str | float]:
    values: list[Cell] = list(cell) if isinstance(cell, Interval) else [cell, *([None, None] if wide else [])]
    return [_plain(value) for value in values]


def _plain(value: Cell) -> str | float:
    """Rounds a value to digits that are the same on all machines; returns empty text for NaN."""
    if isinstance(value, float):
        return "" if math.isnan(value) else round(value, 9) + 0.0  # + 0.0 turns -0.0 into 0.0
    return value if isinstance(value, (str, int)) else ""


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.translate(_LATEX).replace("–", "--").replace("≤", r"$\leq$").replace("∞", r"$\infty$")
