"""Fills the tables of results in the README and on the page of results from the tables that the benchmark wrote.

    python docs/make_results.py [--check]

A table stands between ``<!-- results: NAME -->`` and ``<!-- /results -->``. ``docs/results/shown.toml`` says what is
shown under each name:

    [NAME]
    table = "geolife/p1_random_0.05"             # docs/results/geolife/tables/p1_random_0.05.csv
    first = "method"                             # the head of the first column; "method" if it is left out
    columns = {AP = "AP", F1 = "p ≤ 0.02 F1"}    # heads here, and columns there; "" if each row says its words
    intervals = ["AP"]                           # of these heads, the interval too
    rows = [{method = "astray", said = "**astray**"}, {said = "*the paper*", F1 = "*.292*"}]

A row shows a method of the table (``method``), or of another one (``table``). A row may replace a column: ``F1 =
"ours F1"`` names another column, or is shown as it stands. A column of another table has the table before it:
``"porto/p2_matched: AP"``. Without rows the page shows all methods. ``where = {split = "random"}`` chooses among
several rows of a method, for all rows or in one; ``key`` is the column of methods if it is not "method". The best
figure of a column is bold: the highest, the lowest for heads in ``lowest``, none for those in ``plain``. A row whose
method was not run has dashes, and a table without figures says that it has not been measured yet. With ``table`` alone
the page shows the whole table, and its note, as the benchmark wrote them; with ``picture`` and ``says`` a picture.
"""

from __future__ import annotations

import csv
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", RESULTS / "README.md", RESULTS / "paper.md"]
SHOWN = RESULTS / "shown.toml"
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- /results -->)", re.DOTALL)
MISSING = "*Not measured yet.*"
NOT_RUN = "–"

Row = dict[str, Any]


def filled(text: str, shown: dict[str, Any], results: Path = RESULTS) -> str:
    """Returns a page with every table made anew, each by the recipe of its name."""
    return BLOCK.sub(lambda block: f"{block[1]}{table(shown[block[2]], results)}{block[4]}", text)


def recipes() -> dict[str, Any]:
    """Returns the recipe of each name."""
    return tomllib.loads(SHOWN.read_text("utf-8"))


def table(recipe: dict[str, Any], results: Path) -> str:
    """Returns a table in Markdown, or a remark that there is none yet."""
    if "picture" in recipe:
        there = (results / recipe["picture"]).exists()
        return f"\n![{recipe['says']}]({recipe['picture']})\n\n" if there else f"\n{MISSING}\n\n"
    if "columns" not in recipe:
        return whole(results, recipe["table"])
    heads: dict[str, str] = recipe["columns"]
    first = recipe.get("first", "method")
    given = recipe.get("rows")
    if given is None:
        known = read(results, recipe["table"])
        given = [{"method": name} for name in dict.fromkeys(row[recipe.get("key", "method")] for row in known)]
    lines = []
    figures: dict[str, list[float | None]] = {head: [] for head in heads}
    for row in given:
        cells = {head: cell(head, row, recipe, results) for head in heads}
        if "method" in row and not row_of(row, recipe, results):  # it was not run
            cells = {head: (cells[head][0] or NOT_RUN, None) for head in heads}
        for head, (_, value) in cells.items():
            figures[head].append(value)
        lines.append((row.get("said", row.get("method", "")), cells))
    if not any(value is not None for values in figures.values() for value in values):
        return f"\n{MISSING}\n\n"
    lowest = set(recipe.get("lowest", ()))
    best = {
        head: (min if head in lowest else max)(known)
        for head, values in figures.items()
        if len(known := [v for v in values if v is not None]) > 1 and head not in recipe.get("plain", ())
    }
    made = ["| " + " | ".join([first, *heads]) + " |", "|" + "---|" * (len(heads) + 1)]
    for said, cells in lines:
        shown = [
            f"**{words}**" if value is not None and said_alike(value, best.get(head)) else words
            for head, (words, value) in cells.items()
        ]
        made.append("| " + " | ".join([said, *shown]) + " |")
    return "\n" + "\n".join(made) + "\n\n"


def whole(results: Path, name: str) -> str:
    """Returns a table of results without its heading; a remark if it was never made."""
    folder, _, file = name.partition("/")
    path = results / folder / "tables" / f"{file}.md"
    text = path.read_text("utf-8").partition("\n\n")[2].strip() if path.exists() else MISSING
    return f"\n{text}\n\n"


def said_alike(value: float, other: float | None) -> bool:
    """Returns True if two figures look the same on a page."""
    return other is not None and number(value) == number(other)


def cell(head: str, row: Row, recipe: dict[str, Any], results: Path) -> tuple[str, float | None]:
    """Returns the text of a cell, and its figure."""
    elsewhere, _, column = row.get(head, recipe["columns"][head]).rpartition(": ")
    found = row_of(row | {"table": elsewhere} if elsewhere else row, recipe, results)
    if found is None or column not in found:
        return (column if head in row else ""), None  # words
    if not found[column]:
        return "", None
    value = float(found[column])
    low, high = found.get(f"{column} low", ""), found.get(f"{column} high", "")
    interval = f" [{number(float(low))}, {number(float(high))}]" if low and head in recipe.get("intervals", ()) else ""
    return number(value) + interval, value


def number(value: float) -> str:
    """Returns a figure as the pages write it.

    >>> number(0.98392), number(12.0), number(-0.05), number(0.99996), number(62.836), number(float("inf"))
    ('.984', '12', '-.050', '1.000', '62.8', '∞')
    """
    if math.isinf(value):
        return "∞"
    if abs(value) > 1:
        return str(int(value)) if value == int(value) else f"{value:.3g}"
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}")


def row_of(row: Row, recipe: dict[str, Any], results: Path) -> Row | None:
    """Returns the row of a method in its table; None if the table has no such row."""
    if "method" not in row:
        return None
    wanted = {recipe.get("key", "method"): row["method"], **recipe.get("where", {}), **row.get("where", {})}
    known = read(results, row.get("table", recipe["table"]))
    return next((r for r in known if all(r.get(name) == value for name, value in wanted.items())), None)


def read(results: Path, name: str) -> list[Row]:
    """Returns the rows of a table of results; no rows if the table was never made."""
    folder, _, file = name.partition("/")
    path = results / folder / "tables" / f"{file}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as content:
        return list(csv.DictReader(content))


def main() -> int:
    """Writes the pages, or names those that are not up to date."""
    shown = recipes()
    old = {page: page.read_text("utf-8") for page in PAGES}
    stale = [page for page, text in old.items() if filled(text, shown) != text]
    if "--check" in sys.argv:
        for page in stale:
            print(f"{page.relative_to(ROOT)} does not show what docs/results holds; run make pages", file=sys.stderr)
        return int(bool(stale))
    for page in stale:
        page.write_text(filled(old[page], shown), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
