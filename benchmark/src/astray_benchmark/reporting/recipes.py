"""Recipes of tables and figures, read from ``recipes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class TableRecipe:
    """What a table shows.

    ``name``, ``title``, ``note`` and the heads of ``columns`` are templates: ``tabulate.py`` lists the words that they
    may use.
    """

    name: str  # of its files
    protocols: tuple[str, ...]
    title: str = ""
    source: str = ""  # which figures of the protocol: see Results.frame
    columns: Mapping[str, str] = field(default_factory=dict)  # head to "STATISTIC METRIC [ARGUMENT]"
    rows: Mapping[str, str] = field(default_factory=lambda: {"method": "method"})  # head to the column that names rows
    nesting: tuple[str, ...] = ()  # the columns of rows from the outermost; in the order of the rows' heads if empty
    last: Mapping[str, str] = field(default_factory=dict)  # a row over everything: its name and its statistic
    metrics: tuple[str, ...] = ("",)  # one table each
    each: tuple[str, ...] = ()  # one table for each setting, of the rows that have its values in these columns
    where: Mapping[str, Any] = field(default_factory=dict)  # only rows with these values
    same_draws: str = ""  # only draws that a method has at all values of this column
    least_kinds: int = 1  # no table with fewer kinds of anomaly
    ways: str = "all"  # "ranked": without ways to decide that rank like another one
    note: str = ""
    words: Mapping[str, str] = field(default_factory=dict)  # {words} of the title, by metric or reading
    rules: Mapping[str, str] = field(default_factory=dict)  # {rule} of the note, by metric
    warnings: Mapping[str, str] = field(default_factory=dict)  # put before the note, by reading
    comparison: str = ""  # {comparison} of the note, if there are rows to compare
    irregular: str = ""  # the function of irregular_tables.py that makes it instead


@dataclass(frozen=True)
class FigureRecipe:
    """What a figure shows."""

    name: str  # of its files; {setting} stands for the setting, one figure each
    protocols: tuple[str, ...]
    kind: str  # the drawing: see DRAWINGS of figures.py
    heading: str
    source: str = ""  # of lines: which figures of the protocol
    x: str = ""  # of lines: the column that the x axis shows
    label: str = ""  # of lines: the words below the x axis
    panels: Mapping[str, str] = field(default_factory=dict)  # of lines: metric to the words beside its y axis
    over: str = ""  # of kinds: what intervals are over, if not people, cities or draws


def table_recipes(protocol: str) -> list[TableRecipe]:
    """Returns the recipes of a protocol's tables, in the order of the report."""
    return [recipe for recipe in _read()[0] if protocol in recipe.protocols]


def figure_recipes(protocol: str) -> list[FigureRecipe]:
    """Returns the recipes of a protocol's figures."""
    return [recipe for recipe in _read()[1] if protocol in recipe.protocols]


@cache
def _read() -> tuple[list[TableRecipe], list[FigureRecipe]]:
    given = tomllib.loads(files(__package__).joinpath("recipes.toml").read_text("utf-8"))
    by_name = {table["name"]: table for table in given["table"]}
    tables = [{**by_name.get(table.get("like", ""), {}), **table} for table in given["table"]]
    return [TableRecipe(**_fields(table)) for table in tables], [FigureRecipe(**_fields(f)) for f in given["figure"]]


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name != "like"}
