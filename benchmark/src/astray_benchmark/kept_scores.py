"""Packs the scores of a results folder into a few small files, ``scores/*.parquet``, which suffice for its tables.

``trips`` holds every trip's scores to four digits or more, truncated and not rounded, so that each stays on the same
side of -2; ``streams`` holds decisions and questions. There are too many scores of single fixes to keep, so ``fixes``
and ``prefixes`` hold the figures of every draw. ``asked`` lists the cases that commands asked for, finished or not. No
file contains places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from astray.core.atomic import replacing
from astray_benchmark import measures, runner

FOLDER, ASKED = "scores", "asked"

_TRIPS = (
    *(*measures.KEY, "trip", "kind", "nth", "score", "normality", "uncertainty", "p_value"),
    *("fit_seconds", "calibrate_seconds", "shared_seconds", "score_seconds", "n_train"),
)
_STREAMS = (*measures.KEY, "trip", "flagged", "answers")
_CUT = ("score", "normality", "uncertainty")
_LOW_BITS = np.uint32(0xFF)  # the bits to drop of a number's 24; the rest has a precision of one in thirty thousand
_SMALLER = {
    **dict.fromkeys(("score", "normality", "uncertainty", "p_value"), pl.Float32),
    **dict.fromkeys(("trip", "nth", "answers"), pl.Int32),
}


def pack(out: Path) -> None:
    """Writes a folder's finished cases into ``scores/``; keeps earlier scores there of cases that were not run again.

    So a study can continue from its kept scores.
    """
    made: dict[str, Callable[[], Iterator[pl.DataFrame]]] = {
        runner.TRIPS: lambda: _rows(out, runner.TRIPS, _TRIPS),
        runner.STREAMS: lambda: _rows(out, runner.STREAMS, _STREAMS),
        runner.FIXES: lambda: (measures.of_fixes(part) for part in _cases(out, runner.FIXES)),
        runner.PARTS: lambda: (measures.of_prefixes(part) for part in _cases(out, runner.PARTS)),
    }
    for table, parts in made.items():
        found = [part for part in parts() if len(part)]
        if found:
            rows, path = pl.concat(found, how="diagonal_relaxed"), out / FOLDER / f"{table}.parquet"
            if path.exists():
                kept = pl.read_parquet(path).join(rows, on=measures.KEY, how="anti", nulls_equal=True)
                rows = pl.concat([kept, rows], how="diagonal_relaxed")
            rows = rows.sort(*measures.KEY, maintain_order=True)
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as file:
                rows.write_parquet(file, compression="zstd", compression_level=19)


def ask(out: Path, jobs: Sequence[runner.Job]) -> None:
    """Adds the cases that a command asks for to those that earlier commands asked for."""
    path = out / FOLDER / f"{ASKED}.parquet"
    rows = pl.DataFrame([job.key for job in jobs], infer_schema_length=None)
    if path.exists():
        rows = pl.concat([pl.read_parquet(path), rows], how="diagonal_relaxed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        rows.select(measures.KEY).unique(maintain_order=True).write_parquet(file, compression="zstd")


def unfinished(out: Path) -> pl.DataFrame:
    """Returns a row for each method and setting with how many cases were asked for, and how many are finished."""
    asked, trips = (read_kept(out, table) for table in (ASKED, runner.TRIPS))
    if asked is None:  # of a version that did not note it
        return pl.DataFrame()
    none = pl.LazyFrame(schema=asked.collect_schema())
    done = (none if trips is None else trips.select(measures.KEY)).unique().with_columns(finished=True)
    return (
        asked.join(done, on=measures.KEY, how="left", maintain_order="left", nulls_equal=True)
        .group_by("method", "family", *measures.SETTING, maintain_order=True)
        .agg(pl.col("finished").count(), pl.len().alias("asked"))
        .filter(pl.col("finished") < pl.col("asked"))
        .collect()
    )


def read_kept(out: Path, table: str) -> pl.LazyFrame | None:
    """Reads a packed table of a folder; returns None if there is none."""
    path = out / FOLDER / f"{table}.parquet"
    if not path.exists():
        return None
    found = pl.scan_parquet(path)
    names = found.collect_schema().names()
    if table == runner.STREAMS:
        trips = read_kept(out, runner.TRIPS)
        assert trips is not None
        same = [*measures.KEY, "trip"]
        return found.join(trips.select(*same, "kind", "score"), on=same, how="left", maintain_order="left")
    if table == runner.TRIPS:
        found = found.with_columns(pl.col("normality").fill_null(pl.col("score")))
    # Read a 32-bit number as the shortest decimal that rounds to it: 0.02 instead of 0.0199999996.
    short = [name for name, kind in _SMALLER.items() if kind == pl.Float32 and name in names]
    return found.with_columns(pl.col(short).cast(pl.String).cast(pl.Float64)) if short else found


def _rows(out: Path, table: str, columns: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    for part in _cases(out, table):
        rows = part.select(name for name in columns if name in part.columns)
        if "normality" in rows.columns:  # do not store a score that is equal to it
            rows = rows.with_columns(
                pl.when(pl.col("normality") != pl.col("score")).then(pl.col("normality")).alias("normality")
            )
        rows = rows.cast({name: kind for name, kind in _SMALLER.items() if name in rows.columns})
        yield rows.with_columns(_cut(rows[name]) for name in _CUT if name in rows.columns)


def _cut(values: pl.Series) -> pl.Series:
    """Truncates 32-bit numbers towards zero by dropping their lowest bits; null stays null."""
    known = values.fill_null(np.nan).to_numpy()
    cut = (known.view(np.uint32) & ~_LOW_BITS).view(np.float32)
    return pl.Series(values.name, np.where(np.isnan(known), np.float32(np.nan), cut)).fill_nan(None)


def _cases(out: Path, table: str) -> Iterator[pl.DataFrame]:
    for path in sorted((out / table).glob("**/*.parquet")):
        yield pl.read_parquet(path)
