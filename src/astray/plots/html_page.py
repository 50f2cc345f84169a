"""Writes explanations to one HTML file, with a map that can be moved and zoomed; the file loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.atomic import check_target, replacing
from astray.core.errors import DataError
from astray.core.text import harmless
from astray.explain import Explanation, Way
from astray.plots.map_extent import frame
from astray.plots.style import ODD
from astray.plots.trip_text import clock_unit, grounds, heading, long_stop, rows_of, span, usable_fixes

Array = NDArray[Any]

SCRIPTS = (
    *(f"shared/{name}.js" for name in ("normality", "canvas", "map", "chart", "trip")),
    *("read_trip.js", "page.js"),
)
"""The modules of the page; each imports only those before it. The page of the service shares those in ``shared``."""
PLACES = 1e6  # places are written in millionths of a degree, about a tenth of a metre


def explanation_page(explanation: Explanation | Sequence[Explanation]) -> str:
    """Returns explanations as one HTML page with a map that can be moved and zoomed.

    The page works without a network, and its content security policy forbids it to load anything. It shows what
    :func:`~astray.plots.explanation_figure` shows; point at a fix, on the map or on the curve, to see its scores. Of
    several trips the reader chooses one from a list, the least normal first. The page shows where somebody went, so it
    is as private as the trips.

    Parameters
    ----------
    explanation
        The result of a detector's ``explain``; one, or several.

    Examples
    --------
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=7, seed=0).trips
    >>> detector = Detector(iterations=2, seed=0).fit(trips.agent("p00"), population=trips.agent("p01"))
    >>> page = explanation_page([detector.explain(trips, i) for i in (3, -1)])
    >>> page.startswith("<!doctype html>"), "http://" in page or "https://" in page
    (True, False)
    """
    shown = [explanation] if isinstance(explanation, Explanation) else list(explanation)
    if not shown:
        raise DataError("there is no trip to show", remedy="give at least one explanation")
    shown.sort(key=lambda e: np.inf if np.isnan(e.score) else e.score)
    ways: dict[str, int] = {}  # the page holds each habitual way once, however many trips share it
    trips = [_trip(e, ways) for e in shown]
    data = {"ways": [json.loads(way) for way in ways], "trips": trips}
    style = (_asset("shared/map.css") + _asset("page.css")).replace("{{odd}}", ODD)
    script = bundle(SCRIPTS)
    parts = {
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "title": html.escape(heading(shown[0]) if len(shown) == 1 else f"{len(shown)} trips"),
        "words": html.escape(harmless("\n\n".join(str(e) for e in shown), lines=True)),
        "style": style,
        "data": _json(data),
        "script": script,
    }
    # One pass over the template, so that no text of the data is taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: parts[placeholder[1]], _asset("page.html"))


def save_page(page: str, path: str | Path) -> None:
    """Writes a page to an HTML file, whole or not at all."""
    check_target(Path(path), (".html", ".htm"))
    with replacing(Path(path)) as file:
        file.write(page.encode("utf-8"))


def _trip(e: Explanation, ways: dict[str, int]) -> dict[str, Any]:
    """Returns a trip as the page's script reads it; adds its habitual ways to ``ways`` unless they are there."""
    usable = usable_fixes(e)
    on_map = len(e.lat) > 0
    start = float(e.time[0]) if on_map else None
    since = e.time - e.time[0] if on_map else e.time
    when = f"{e.zone.clock(e.time[0]):%a %d %b %H:%M}" if on_map else ""
    return {
        "agent": harmless(e.agent),
        "trajectory": harmless(e.trajectory),
        "about": " · ".join(filter(None, [harmless(e.agent), when])),
        "heading": heading(e),
        "grounds": [harmless(line) for line in grounds(e)],
        "decision": e.decision,
        "score": None if np.isnan(e.score) else round(e.score, 2),
        "history": round(e.history),
        "eps": e.eps,
        "leave": e.leave,
        "start": start,
        "zone": e.zone.name,
        "ahead": _changes(e.zone.offsets(e.time)) if on_map else [],
        "unit": clock_unit(e),
        "time": _differences(since * 10),
        "normality": _whole(100 * np.where(usable, e.normality, np.nan)),
        "uncertainty": _whole(100 * np.where(usable, e.uncertainty, np.nan)),
        "passed": _whole(e.passed) if len(e.passed) else None,
        "faults": [[int(i), str(e.fault[i])] for i in np.flatnonzero(e.fault != "")],
        "segments": [
            {"first": int(rows[0]), "last": int(rows[-1]), "at": span(e, segment), "words": harmless(str(segment))}
            for segment in e.segments
            if len(rows := rows_of(segment, usable))
        ],
        **(_on_map(e, usable, ways) if on_map else {}),
    }


def _on_map(e: Explanation, usable: NDArray[np.bool_], ways: dict[str, int]) -> dict[str, Any]:
    """Returns the entries that only a trip on a map has."""
    shown = frame(e)
    stop = None
    if (found := long_stop(shown.centre.to_metres(e.lat, e.lon)[usable], e.time[usable])) is not None:
        stop = [*(round(float(degrees), 6) for degrees in shown.centre.to_degrees(found.place)), round(found.minutes)]
    (south, north), (west, east) = shown.centre.to_degrees(np.stack([shown.low, shown.high]))
    written = [json.dumps(_way(way)) for way in e.habitual]
    return {
        "frame": [round(float(v), 6) for v in (west, south, west + (east - west) % 360.0, north)],
        "away": None if shown.away is None else str(shown.away),
        "way": _way((e.lat, e.lon)),
        "habitual": [ways.setdefault(way, len(ways)) for way in written],
        "expected": [_way(way) for way in e.expected],
        "stop": stop,
    }


def _changes(offsets: Array) -> list[list[int]]:
    """Returns the fixes at which the offset from UTC changes, each with the new offset in seconds.

    >>> _changes(np.array([0.0, 0.0, 3600.0, 3600.0]))
    [[0, 0], [2, 3600]]
    """
    return [[int(i), int(offsets[i])] for i in np.flatnonzero(np.diff(offsets, prepend=np.nan) != 0)]


def _way(way: Way) -> list[list[int]]:
    return [_differences(degrees * PLACES) for degrees in way]


def _differences(values: Array) -> list[int]:
    """Returns the first value and then the differences between neighbours, as whole numbers.

    >>> _differences(np.array([10.2, 11.9, 11.0]))
    [10, 2, -1]
    """
    return [int(v) for v in np.diff(np.rint(values), prepend=0.0)]


def _whole(values: Array) -> list[int | None]:
    """Returns values as whole numbers; None for NaN."""
    return [int(v) if np.isfinite(v) else None for v in np.rint(values)]


def _json(data: Any) -> str:
    """Returns JSON for a script element: no text in it can end the element."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def bundle(names: Sequence[str]) -> str:
    """Joins modules into one script, without imports and exports, because all of them share one scope."""
    return "".join(re.sub(r"(?m)^export ", "", re.sub(r"(?ms)^import [^;]*;\n", "", _asset(name))) for name in names)


def _asset(name: str) -> str:
    return files("astray.plots").joinpath("assets", *name.split("/")).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns the hash by which a content security policy allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
