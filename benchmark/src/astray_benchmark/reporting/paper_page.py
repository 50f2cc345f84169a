"""Makes one page of the paper's tables beside ours, from the results of its two data sets in the folders of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from astray.core.atomic import replacing
from astray.core.settings import PAPER_PRESETS
from astray_benchmark import manifest as manifests
from astray_benchmark import measures
from astray_benchmark.examples import PICTURE
from astray_benchmark.measures import SURE
from astray_benchmark.protocols import Setting, chosen
from astray_benchmark.reporting import irregular_tables, printed
from astray_benchmark.reporting.results import INTERVALS, draws_of, flagging, parts_of, percent, read
from astray_benchmark.reporting.table import Cell, Table, write

PAGE = "paper.md"
METHODS = ("lof", "ocsvm", "fnn-ae", "lstm-ae", "kdd19")
"""The methods of the paper; the scores of kdd19 give IRL-AD and, with its uncertainty, IRL-ADU."""

VARIANTS = tuple(preset for preset in PAPER_PRESETS if preset not in METHODS)
"""Variants of ours that learn by the paper's algorithms."""

PROTOCOLS = {"geolife": "p1", "porto": "p2"}
"""The data sets of the paper, each with its protocol; the results of each are in a folder of this name."""

SHORT = {"recall": "R", "precision": "P", "f1": "F1"}
LONG = {"recall": "Recall", "precision": "Precision", "f1": "F1 score", "auroc": "AUROC", "ap": "AP"}
UNKNOWN = float("nan")  # of a cell: a dash


def settings(dataset: str) -> tuple[Setting, ...]:
    """Returns the settings of a data set that the paper has.

    >>> [s.name for s in settings("geolife")]
    ['rate=0.05,split=random', 'rate=0.1,split=random']
    """
    protocol = PROTOCOLS[dataset]
    return chosen(dataset, [protocol], splits=["random"])[protocol]


class Sheet(NamedTuple):
    """The figures of one setting, of ours and of the paper, by the names of the rows."""

    name: str  # of the data
    theirs: Mapping[str, printed.Printed]
    ours: Mapping[str, pl.DataFrame]
    trips: pl.DataFrame  # our scores

    @property
    def rows(self) -> list[str]:
        """Returns the paper's methods, whether they were run or not, and then further methods that were."""
        return list(dict.fromkeys([*self.theirs, *self.ours]))

    def cell(self, row: str, metric: str) -> Cell:
        """Returns our figure with its interval; a dash if the method was not run."""
        return measures.interval(self.ours[row], metric) if row in self.ours else UNKNOWN


@dataclass(frozen=True)
class Study:
    """A folder with the results of the paper's data sets."""

    out: Path

    @cached_property
    def manifests(self) -> dict[str, Mapping[str, Any]]:
        """Returns the manifests of the data sets that were run."""
        found = {name: manifests.read(self.out / name) for name in PROTOCOLS}
        return {name: manifest for name, manifest in found.items() if manifest is not None}

    @cached_property
    def sheets(self) -> dict[str, list[Sheet]]:
        """Returns the figures of each setting, by data set; of a data set that was not run, only the paper's."""
        return {name: [self._sheet(name, setting) for setting in settings(name)] for name in PROTOCOLS}

    def _sheet(self, dataset: str, setting: Setting) -> Sheet:
        people = setting.family == "person"
        name = f"GeoLife, {percent(setting.rate)}" if people else f"TST, {setting.reading}"
        theirs = printed.GEOLIFE[setting.rate] if people else printed.PORTO
        manifest = self.manifests.get(dataset)
        scores = None if manifest is None else read(self.out / dataset, manifest)
        trips = pl.DataFrame() if scores is None else measures.of_setting(scores, [setting])
        if manifest is None or not len(trips):
            return Sheet(name, theirs, {}, trips)
        ways = [way for method in manifest["methods"] for way in (method, method + SURE)]
        figures = parts_of(measures.of_trips(trips), ways)
        return Sheet(name, theirs, {_row(way): part for way, part in figures}, trips)


def _row(way: str) -> str:
    """Returns the name of a row: for the paper's methods as it calls them.

    >>> _row("ocsvm"), _row("kdd19 + uncertainty"), _row("astray")
    ('One-class SVM', 'IRL-ADU', 'astray')
    """
    return printed.PAPER_NAMES[way] if way.removesuffix(SURE) in METHODS else way


def parts(out: Path) -> list[Path]:
    """Returns the folders of the data sets that were run; none if this is not the folder of a study."""
    return [out / name for name in PROTOCOLS if (out / name / manifests.NAME).exists()]


def write_page(out: Path) -> list[Table]:
    """Writes ``paper.md`` and the tables of a study's folder; returns the tables."""
    study = Study(out)
    if not any(sheet.ours for sheets in study.sheets.values() for sheet in sheets):
        raise manifests.no_results(out)
    sections = list(_sections(study))
    made = [table for _, tables in sections for table in tables]
    write(made, out / "tables")
    text = [line for words, tables in sections for line in (words, "", *(table.markdown() for table in tables))]
    with replacing(out / PAGE) as file:
        file.write("\n".join(text).encode())
    return made


def _sections(study: Study) -> Iterator[tuple[str, list[Table]]]:
    """Yields the sections of the page: words, and the tables after them."""
    sheets = [sheet for those in study.sheets.values() for sheet in those]
    low, high = study.sheets["geolife"]
    yield _head(study), [averages(sheets)]
    yield "## Table 1", [table_1(high, study.sheets["porto"])]
    words = (
        "## Tables 2 and 3\n\nThe paper does not say who its ten users are, and it labelled some of their trips as "
        "anomalous by hand. So its rows cannot be matched with ours; compare the averages."
    )
    yield words, [table_users("table_2_users", "Table 2", low), table_users("table_3_users", "Table 3", high)]
    if (study.out / "geolife" / PICTURE).exists():
        words = (
            "## Normality over a trip\n\nThe paper's Figure 3 for one of our people: a normal trip, the person's own "
            "trip with a detour put into it (nobody has labelled real ones), and somebody else's. Fixed rules chose "
            "them: the person and draw whose AUROC is the median; among trips of ten minutes to two hours, the normal "
            "one nearest to the upper quartile of the scores, the first from the median on that a detour suits, and "
            "the foreign one nearest to the lower quartile."
        )
        yield f"{words}\n\n![A normal, a partly anomalous and a foreign trip](geolife/{PICTURE})", []
    yield "## What gamma decides (IRL-ADU)", [gammas(sheets), spreads(sheets)]
    missing = [
        table
        for name, manifest in study.manifests.items()
        for table in irregular_tables.missing(study.out / name, manifest, f"{name}_", f"{name}: ")
    ]
    if missing:
        yield "## What is missing", missing


def _head(study: Study) -> str:
    """Returns the head of the page: the commands, the code and the data."""
    lines = ["# The paper's tables, beside ours", ""]
    for name in PROTOCOLS:
        manifest = study.manifests.get(name)
        if manifest is None:
            lines += [f"**{name} was not run**, so our figures for it are missing.", ""]
            continue
        commits = ", ".join(code["commit"] or "unknown" for code in manifest["codes"])
        people = manifest["settings"].get("people")
        lines += [*(f"    {command}" for command in manifest["commands"]), ""]
        lines += [
            f"{name}: run at commit {commits}; data SHA-256 {manifest['data_sha256']}; {manifest['machine']}."
            + (f" People: {', '.join(people)}." if people else ""),
            "",
        ]
    lines.append(f"Tables made at commit {manifests.commit() or 'unknown'}. The paper: Oh and Iyengar, KDD 2019.")
    return "\n".join(lines)


# -------------------------------------------------------------------- tables


def averages(sheets: Sequence[Sheet]) -> Table:
    """Makes the summary: recall, precision and F1 of the paper and of ours, and what the paper does not have."""
    rows: list[tuple[Cell, ...]] = []
    for sheet in sheets:
        cost = dict(measures.costs(sheet.trips).select("method", "learn_seconds").iter_rows()) if sheet.ours else {}
        for name in sheet.rows:
            theirs, ours = sheet.theirs.get(name), sheet.ours.get(name)
            method = "" if ours is None else str(ours["method"][0]).removesuffix(SURE)
            rows.append(
                (
                    *(sheet.name, name),
                    *(getattr(theirs, metric) if theirs else None for metric in SHORT),
                    *(sheet.cell(name, metric) for metric in LONG),
                    cost.get(method, UNKNOWN),
                    0 if ours is None else draws_of(ours),
                )
            )
    columns = ("data", "method", *(f"paper | {head}" for head in SHORT.values()))
    columns += (*(f"ours | {SHORT.get(metric, head)}" for metric, head in LONG.items()), "seconds of a fit", "draws")
    note = (
        f"{_deciding(sheets)} IRL-ADU ranks trips as IRL-AD does, so AUROC and AP are the same. The paper does not say "
        "how many taxi trips it tested and where it cropped the long ones: “cap” (as many long trips as normal ones, "
        "cropped at 25 minutes) and “matched” (one in ten, cropped to the lengths of normal ones) are two readings. "
        f"Seconds: the median processor time to fit, and to calibrate, one draw. {INTERVALS}"
    )
    return Table("averages", "At a glance", columns, tuple(rows), note)


def table_1(geolife: Sheet, pools: Sequence[Sheet]) -> Table:
    """Makes the paper's Table 1, with our columns beside its own, and AUROC and AP, which it does not have."""
    sheets = [geolife, *pools]
    names = dict.fromkeys(name for sheet in sheets for name in sheet.rows)
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        for i, (metric, said) in enumerate(LONG.items()):
            theirs = [getattr(s.theirs.get(name), metric, None) for s in (geolife, pools[0])]
            ours = [sheet.cell(name, metric) for sheet in sheets]
            rows.append((name if i == 0 else "", said, theirs[0], ours[0], theirs[1], *ours[1:]))
    of_pools = (f"TST | ours, {sheet.name.removeprefix('TST, ')}" for sheet in pools)
    heads = ("Method", "", "GeoLife | paper", "GeoLife | ours", "TST | paper", *of_pools)
    title = "Table 1: average F1, recall and precision; GeoLife at 10 %"
    return Table("table_1", title, heads, tuple(rows), f"{_deciding(sheets)} {INTERVALS}")


def table_users(name: str, title: str, sheet: Sheet) -> Table:
    """Makes the paper's Table 2 or 3: its users as printed, then ours, with the averages of both."""
    rate = next(rate for rate, theirs in printed.GEOLIFE.items() if theirs is sheet.theirs)
    users = printed.GEOLIFE_USERS[rate]
    names = sheet.rows

    def of_paper(said: str, figures: Mapping[str, printed.Printed]) -> tuple[Cell, ...]:
        blank = (None, None, None)
        return (said, *(cell for row in names for cell in figures.get(row, blank)))

    rows = [of_paper(f"paper, U{i + 1}", {row: users[row][i] for row in users}) for i in range(10)]
    rows.append(of_paper("paper, average", sheet.theirs))
    for who in sheet.trips["subject"].unique(maintain_order=True) if sheet.ours else ():
        own = {row: part.filter(pl.col("subject") == who) for row, part in sheet.ours.items()}
        cells = [measures.interval(own[row], m).mean if row in own else UNKNOWN for row in names for m in SHORT]
        rows.append((f"ours, {who}", *cells))
    rows.append(("ours, average", *(sheet.cell(row, metric) for row in names for metric in SHORT)))
    columns = ("Data", *(f"{row} | {short}" for row in names for short in SHORT.values()))
    note = f"{_deciding([sheet])} Each of our people: the mean over the draws. {INTERVALS}"
    return Table(name, f"{title}: GeoLife by person, {percent(rate)} anomalies", columns, tuple(rows), note)


def gammas(sheets: Sequence[Sheet]) -> Table:
    """Shows how many flagged trips are too uncertain for IRL-ADU at several gamma, and what that changes."""
    rows: list[tuple[Cell, ...]] = []
    for sheet, method, part in _uncertain(sheets, measures.of_gamma):
        for gamma in measures.GAMMAS:
            at = part.filter(pl.col("gamma") == gamma)
            flagged, dropped, alarms, found = (
                int(at[name].sum()) for name in ("flagged", "dropped", "alarms_dropped", "anomalies_dropped")
            )
            share = dropped / flagged if flagged else UNKNOWN
            mean = (measures.interval(at, metric) for metric in ("precision", "recall", "f1"))
            rows.append((sheet, method, _said(gamma), flagged, dropped, share, alarms, found, *mean))
    counted = ("flagged", "too uncertain", "share", "false alarms among these", "anomalies among these")
    columns = ("data", "method", "gamma", *counted, "P", "R", "F1")
    note = (
        f"Trips flagged by IRL-AD (at {measures.EPS:g} or less), over all draws; how many of them have an uncertainty "
        "above gamma, so that IRL-ADU does not call them anomalies; and precision, recall and F1 of what is left. "
        f"Without gamma: IRL-AD. The paper's gamma is {measures.GAMMA:g}. A draw in which nothing is flagged has a "
        f"precision of 0. {INTERVALS}"
    )
    return Table("gamma", "Decisions that gamma changes", columns, tuple(rows), note)


def spreads(sheets: Sequence[Sheet]) -> Table:
    """Shows how uncertain the flagged trips are, anomalies and false alarms apart."""
    rows: list[tuple[Cell, ...]] = []
    for sheet, method, trips in _uncertain(sheets, lambda trips: trips):
        for said, kind in (("anomalies", pl.col("kind") != ""), ("false alarms", pl.col("kind") == "")):
            flagged = trips.filter((pl.col("score") <= measures.EPS) & kind)["uncertainty"].drop_nulls()
            levels = (flagged.quantile(share, "linear") if len(flagged) else None for share in (0.1, 0.5, 0.9))
            rows.append((sheet, method, said, len(flagged), *levels))
    columns = ("data", "method", "flagged", "trips", "uncertainty | 10 %", "uncertainty | median", "uncertainty | 90 %")
    note = "The uncertainty of flagged trips: quantiles over all draws. gamma separates only what differs here."
    return Table("uncertainty", "How uncertain the flagged trips are", columns, tuple(rows), note)


def _uncertain(
    sheets: Sequence[Sheet], measure: Callable[[pl.DataFrame], pl.DataFrame]
) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Yields data, method and figures for each method with an uncertainty."""
    for sheet in sheets:
        known = sheet.trips.filter(pl.col("uncertainty").is_not_null().any().over("method")) if sheet.ours else None
        if known is not None and len(known):
            for (method,), part in measure(known).partition_by("method", as_dict=True, maintain_order=True).items():
                yield sheet.name, str(method), part


def _said(gamma: float) -> str:
    return f"{gamma:g}" if gamma < float("inf") else "without"


def _deciding(sheets: Sequence[Sheet]) -> str:
    """Describes how trips are flagged."""
    ways = [str(part["method"][0]) for sheet in sheets for part in sheet.ours.values()]
    said = flagging(way for way in ways if not way.endswith(SURE))
    sure = f" IRL-ADU: only if the heads' spread is at most gamma, {measures.GAMMA:g}."
    return said + (sure if any(way.endswith(SURE) for way in ways) else "")
