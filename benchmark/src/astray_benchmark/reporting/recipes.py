"""The recipes for tables and figures, from ``recipes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class TableRecipe:
    """The recipe for a table.

    ``name``, ``title``, ``note`` and the heads of ``columns`` are templates, with the words that ``tabulate.py`` lists.
    """

    name: str  # of its files
    protocols: tuple[str, ...]
    title: str = ""
    source: str = ""  # of its figures: see Results.frame
    columns: Mapping[str, str] = field(default_factory=dict)  # head to "STATISTIC METRIC [ARGUMENT]"
    rows: Mapping[str, str] = field(default_factory=lambda: {"method": "method"})  # head to the column with row names
    nesting: tuple[str, ...] = ()  # the columns of rows, the outermost first; by default in the order of the heads
    last: Mapping[str, str] = field(default_factory=dict)  # a last row over all draws: its name and its statistic
    metrics: tuple[str, ...] = ("",)  # the metrics; there is one table for each
    each: tuple[str, ...] = ()  # columns of the setting; there is one table for each of their values
    where: Mapping[str, Any] = field(default_factory=dict)  # column to value; the table uses only such rows
    same_draws: str = ""  # a column; the table uses only the draws of a method that exist for all its values
    least_kinds: int = 1  # the fewest kinds of anomaly for which there is a table
    ways: str = "all"  # "ranked" leaves out ways to decide with the same ranking as another one
    note: str = ""
    words: Mapping[str, str] = field(default_factory=dict)  # {words} of the title, by metric or reading
    rules: Mapping[str, str] = field(default_factory=dict)  # {rule} of the note, by metric
    warnings: Mapping[str, str] = field(default_factory=dict)  # the beginning of the note, by reading
    comparison: str = ""  # {comparison} of the note, if there are rows to compare
    irregular: str = ""  # the function of irregular_tables.py that makes the table instead


@dataclass(frozen=True)
class FigureRecipe:
    """The recipe for a figure. The fields after ``heading`` are for lines, the last one for kinds."""

    name: str  # of its files; a name with {setting} makes a figure for each setting
    protocols: tuple[str, ...]
    kind: str  # the drawing: see DRAWINGS of figures.py
    heading: str
    source: str = ""  # of its numbers: see Results.frame
    x: str = ""  # the column of the x axis
    label: str = ""  # of the x axis
    panels: Mapping[str, str] = field(default_factory=dict)  # metric to the label of its y axis
    over: str = ""  # the clusters of intervals, if they are not people, cities or draws


def table_recipes(protocol: str) -> list[TableRecipe]:
    """Returns the recipes for a protocol's tables, in the order of the report."""
    return [recipe for recipe in _read()[0] if protocol in recipe.protocols]


def figure_recipes(protocol: str) -> list[FigureRecipe]:
    """Returns the recipes for a protocol's figures."""
    return [recipe for recipe in _read()[1] if protocol in recipe.protocols]


@cache
def _read() -> tuple[list[TableRecipe], list[FigureRecipe]]:
    given = tomllib.loads(files(__package__).joinpath("recipes.toml").read_text("utf-8"))
    by_name = {table["name"]: table for table in given["table"]}
    tables = [{**by_name.get(table.get("like", ""), {}), **table} for table in given["table"]]
    return [TableRecipe(**_fields(table)) for table in tables], [FigureRecipe(**_fields(f)) for f in given["figure"]]


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name != "like"}
