"""Makes tables from recipes: chooses the draws, splits them into rows, and computes a statistic for each cell.

The templates of a recipe may use {dataset}; {split}, {rate}, {share} (the rate in percent) and {reading} of the
setting; {metric}, {words}; {eps}, {p} and {two} (the rate of false alarms, as a number and in percent), {promise},
{buffer}; {ours} (the head of our figures beside the paper's); and in notes {intervals}, {flagging}, {rule},
{comparison} and {settings}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl

from astray_benchmark import measures
from astray_benchmark.calibration import RATE
from astray_benchmark.measures import SURE
from astray_benchmark.protocols import PREFIXES, Setting
from astray_benchmark.reporting import irregular_tables, printed
from astray_benchmark.reporting.recipes import TableRecipe, table_recipes
from astray_benchmark.reporting.results import (
    BASE_RATE,
    INTERVALS,
    Results,
    deciding,
    draws_of,
    flagging,
    in_words,
    mean_of,
    of_what,
    parts_of,
    percent,
)
from astray_benchmark.reporting.table import Cell, Table

_OVER = re.compile(r"\{(kind|ratio|contamination|history|method)\}")


def tables(results: Results, protocol: str) -> list[Table]:
    """Makes all tables of a protocol; neighbouring recipes with one table for each setting alternate by setting."""
    made: list[Table] = []
    for each, group in groupby(table_recipes(protocol), key=lambda recipe: recipe.each):
        recipes = list(group)
        for setting in results.settings if each else (None,):
            for recipe in recipes:
                made += table(recipe, results, setting)
    return made


def table(recipe: TableRecipe, results: Results, setting: Setting | None = None) -> list[Table]:
    """Makes the tables of one recipe, one for each metric; returns an empty list if nothing was run."""
    if recipe.irregular:
        return irregular_tables.TABLES[recipe.irregular](results)
    frame = results.frame(recipe.source)
    if frame is None:
        return []
    if recipe.same_draws:
        frame = measures.on_the_same_draws(frame, recipe.same_draws)
    wanted = {**recipe.where, **{column: getattr(setting, column) for column in recipe.each}}
    if wanted:
        frame = frame.filter(pl.col(column) == value for column, value in wanted.items())
    if not len(frame) or (recipe.least_kinds > 1 and frame["kind"].n_unique() < recipe.least_kinds):
        return []
    sheets = [_Sheet(recipe, results, setting, frame, metric) for metric in recipe.metrics]
    return [sheet.table() for sheet in sheets if sheet.parts]


class Column(NamedTuple):
    """A column: its head, the statistic of its cells, and the values that select a row's draws for it."""

    head: str
    statistic: str
    metric: str
    argument: str
    where: tuple[str, Any] | None


@dataclass(frozen=True)
class _Sheet:
    """One table while it is made."""

    recipe: TableRecipe
    results: Results
    setting: Setting | None
    frame: pl.DataFrame
    metric: str

    @cached_property
    def parts(self) -> dict[str, pl.DataFrame]:
        """Returns the draws of each method in the table."""
        every = [*self.results.methods, BASE_RATE]
        methods = deciding(every, self.metric) if self.metric else every
        if self.recipe.ways == "ranked":
            methods = [method for method in methods if not method.endswith(SURE)]
        return dict(parts_of(self.frame, methods))

    @cached_property
    def printed(self) -> Mapping[str, printed.Printed]:
        """Returns the paper's figures for this setting, by the names of its methods."""
        return printed.beside(self.results.dataset, self.setting)

    def table(self) -> Table:
        """Fills in the recipe."""
        columns = list(self._columns())
        rows = [(*names, *(self._cell(column, part) for column in columns)) for names, part in self._rows()]
        rows = [row for row in rows if any(cell is not None for cell in row[len(self.recipe.rows) : -1])]
        for name, statistic in self.recipe.last.items():
            rows.append((name, *(self._cell(column._replace(statistic=statistic), self.frame) for column in columns)))
        words = self._words()
        rule = self.recipe.rules.get(self.metric, "").format(**words)
        comparison = self.recipe.comparison if len(self.parts) > 1 else ""
        run = "; ".join(of_what(s) for s in self.results.settings if self._has(s))
        note = self.recipe.note.format(**words, rule=rule, comparison=comparison, settings=run)
        warning = self.recipe.warnings.get(words["reading"], "")
        heads = (*self.recipe.rows, *(column.head for column in columns))
        said = self.recipe.words.get(self.metric or words["reading"], "").format(**words)
        title = self.recipe.title.format(**words, words=said)
        return Table(self.recipe.name.format(**words), title, heads, tuple(rows), warning + note)

    def _words(self) -> dict[str, Any]:
        setting = self.setting or Setting()
        return {
            "dataset": self.results.dataset,
            "split": setting.split,
            "rate": setting.rate,
            "share": percent(setting.rate),
            "reading": setting.reading,
            "metric": self.metric,
            "eps": measures.EPS,
            "p": f"{RATE:g}",
            "two": percent(RATE),
            "promise": measures.PROMISE,
            "buffer": measures.BUFFER,
            "ours": "ours" if self.printed else f"at {measures.EPS:g}",
            "intervals": INTERVALS,
            "flagging": flagging(self.parts),
        }

    def _has(self, setting: Setting) -> bool:
        """Returns True if draws of a setting are in this table's source."""
        chosen = all(getattr(setting, column) == value for column, value in self.recipe.where.items())
        return chosen and len(measures.of_setting(self.results.trips.lazy(), [setting])) > 0

    # ---------------------------------------------------------------- rows and columns

    def _rows(self) -> Iterator[tuple[tuple[str, ...], pl.DataFrame]]:
        """Splits the draws by the columns that name the rows."""
        groups: list[tuple[dict[str, Any], pl.DataFrame]] = [({}, self.frame)]
        for column in self.recipe.nesting or tuple(self.recipe.rows.values()):
            groups = [
                ({**names, column: value}, part)
                for names, whole in groups
                for value, part in self._split(whole, column)
            ]
        for names, part in groups:
            yield tuple(in_words(column, names[column]) for column in self.recipe.rows.values()), part

    def _split(self, whole: pl.DataFrame, column: str) -> list[tuple[Any, pl.DataFrame]]:
        """Splits draws by a column: methods and settings in the order of the command, other values by occurrence."""
        found = {key[0]: part for key, part in whole.partition_by(column, as_dict=True, maintain_order=True).items()}
        order = self._values(column)
        return [(value, found[value]) for value in (found if order is None else order) if value in found]

    def _values(self, column: str) -> Sequence[Any] | None:
        """Returns the values of a column in the order of tables; None if tables keep the order of the data."""
        if column == "method":
            return list(self.parts)
        if column == "ratio":
            return PREFIXES
        if column == "kind":
            return sorted(self.frame["kind"].unique().to_list())
        if column in measures.SETTING:
            known = set(self.frame[column].to_list())  # perhaps only a part of the study was run
            return [v for v in dict.fromkeys(getattr(s, column) for s in self.results.settings) if v in known]
        return None

    def _columns(self) -> Iterator[Column]:
        """Yields the columns; neighbouring heads with values of the same setting alternate by value."""
        words = self._words()

        def column(head: str, said: str, where: tuple[str, Any] | None = None) -> Column:
            filled = {**words, where[0]: in_words(*where)} if where else words
            statistic, metric, argument = (*said.format(**words).split(" ", 2), "", "")[:3]
            return Column(head.format(**filled), statistic, metric, argument, where)

        def over(item: tuple[str, str]) -> str:
            found = _OVER.search(item[0])
            return found[1] if found else ""

        for name, group in groupby(self.recipe.columns.items(), key=over):
            items = list(group)
            if name:
                for value in self._values(name) or ():
                    yield from (column(head, said, (name, value)) for head, said in items)
            else:
                yield from (found for item in items if self._applies(found := column(*item)))

    def _applies(self, column: Column) -> bool:
        """Returns False for a column that has nothing to compare with."""
        match column.statistic:
            case "printed":
                return bool(self.printed)
            case "behind":
                return len(self.parts) > 1
            case "change":
                return {self._unchanged, float(column.argument)} <= set(self.frame[self.recipe.same_draws].to_list())
        return True

    # ---------------------------------------------------------------- cells

    def _cell(self, column: Column, part: pl.DataFrame) -> Cell:
        if column.where is not None:
            part = part.filter(pl.col(column.where[0]) == column.where[1])
        metric, method = column.metric, part["method"][0] if len(part) else ""
        match column.statistic:
            case "count":
                return part.select("subject", "seed").n_unique() if self.recipe.same_draws else draws_of(part)
            case "printed":
                row = self.printed.get(printed.PAPER_NAMES.get(method, ""))
                return getattr(row, metric) if row else None
            case "behind" | "gained":
                base = column.argument or next(iter(self.parts))
                if method == base or base not in self.parts:
                    return None
                on = [name for name in (*measures.DRAW, "kind") if name in part.columns]
                return measures.difference(part, self.parts[base], metric, on)
            case "change":
                at = pl.col(self.recipe.same_draws)
                now, before = part.filter(at == float(column.argument)), part.filter(at == self._unchanged)
                return measures.difference(now, before, metric, ("subject", "seed"))
        return STATISTICS[column.statistic](part, metric)

    @property
    def _unchanged(self) -> Any:
        return getattr(self.results.settings[0], self.recipe.same_draws)


def _interval(part: pl.DataFrame, metric: str) -> Cell:
    return measures.interval(part, metric, measures.bounds(metric)) if len(part) else None


def _of_people(part: pl.DataFrame, metric: str) -> pl.Series:
    return part.group_by("subject").agg(pl.col(metric).mean())[metric]


STATISTICS: dict[str, Callable[[pl.DataFrame, str], Cell]] = {
    "interval": _interval,
    "centre": lambda part, metric: measures.interval(part, metric).mean,
    "mean": mean_of,
    # A mean of infinite delays would be useless.
    "median": lambda part, metric: float(part[metric].median()),  # type: ignore[arg-type]
    "lowest": lambda part, metric: float(_of_people(part, metric).min()),  # type: ignore[arg-type]
    "highest": lambda part, metric: float(_of_people(part, metric).max()),  # type: ignore[arg-type]
}
"""The statistics of cells: the mean over people with its interval, or alone (centre); the plain mean over draws; ...

Those that compare with something else are "printed" (the paper's figure), "behind" (the difference from the first
row), "gained" (from the method that is the argument) and "change" (from the first setting to the argument).
"""
