"""The page: one file that asks for nothing, in which the data stays data, and that draws what the pictures draw."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explained_trip import CAME, NEVER, a_trip

import astray.plots
from astray.core.errors import DataError
from astray.core.text import harmless
from astray.explain import Reason
from astray.plots import explanation_page, save_page
from astray.plots.html_page import SCRIPTS, bundle
from astray.plots.style import COLOURS, ODD

ASSETS = Path(astray.plots.__file__).parent / "assets"
WICKED = "</script><img src=x onerror=alert(1)><!--{{script}}&amp;\u2028'\""


class Reading(HTMLParser):
    """A page as a browser takes it apart: the elements, and the text inside scripts, styles and the rest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.inside.append((self.tags[-1][0] if self.tags else "", data))

    @property
    def scripts(self) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == "script"]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    read: dict[str, Any] = json.loads(found[1], parse_constant=refuse)
    return read


def unrolled(differences: Sequence[int], unit: float) -> np.ndarray:
    return np.cumsum(differences) / unit


# -------------------------------------------------------------------- nothing from outside


def test_the_page_refers_to_no_other_host_and_its_policy_forbids_requests() -> None:
    page = explanation_page(a_trip())
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"(?m)^\s*//.*$", "", page))
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|\bimport\b", page)
    reading = Reading(page)
    for tag, attributes in reading.tags:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert tag != "link" or attributes["href"] == "data:,"
    policy = next(a["content"] or "" for t, a in reading.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_policy_allows_only_this_script_and_this_style() -> None:
    page = explanation_page(a_trip())
    for tag, directive in (('<script type="module">', "script-src"), ("<style>", "style-src")):
        inside = page.split(tag)[1].split("</", 1)[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in page


# -------------------------------------------------------------------- data stays data


def test_harmful_names_and_words_stay_text() -> None:
    trip = a_trip(WICKED)
    wicked = replace(
        trip,
        agent=WICKED,
        fault=np.where(trip.fault != "", WICKED, ""),
        segments=(replace(trip.segments[0], words=WICKED),),
        reasons=(Reason(WICKED, 1.0, "end"),),
    )
    page = explanation_page([wicked, trip])
    plain = Reading(explanation_page([trip, trip]))
    reading = Reading(page)
    assert [tag for tag, _ in reading.tags] == [tag for tag, _ in plain.tags]
    assert reading.scripts == plain.scripts
    read = data_of(page)["trips"][0]
    assert read["faults"][0][1] == WICKED
    assert read["trajectory"] == read["agent"] == read["grounds"][0] == harmless(WICKED)
    assert read["segments"][0]["words"] == f"out of place: {harmless(WICKED)}"


def test_the_script_writes_text_and_never_markup() -> None:
    scripts = "".join((ASSETS / name).read_text("utf-8") for name in SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", scripts)


def test_without_scripts_the_page_shows_the_explanation_in_words() -> None:
    page = explanation_page(a_trip())
    inside = page.split("<noscript>")[1].split("</noscript>")[0]
    assert f"out of place: {CAME}" in inside
    assert f"\n  {NEVER}; 25 % of the way is new\n" in inside


def test_the_reasons_stand_first_under_the_heading_of_a_trip_that_is_not_normal() -> None:
    first, *_ = data_of(explanation_page(a_trip()))["trips"][0]["grounds"]
    assert first == "Never ended here before (0 of 304 past trips); 25 % of the way is new"
    normal = replace(a_trip(score=0.4), decision="normal")
    assert not any("ended here" in line for line in data_of(explanation_page(normal))["trips"][0]["grounds"])


# -------------------------------------------------------------------- what the page holds


def test_fixes_are_held_to_a_tenth_of_a_metre_and_their_scores_to_a_hundredth() -> None:
    rng = np.random.default_rng(0)
    trip = a_trip()
    trip = replace(trip, lat=trip.lat + rng.normal(0, 0.01, 40), lon=trip.lon + rng.normal(0, 0.01, 40))
    read = data_of(explanation_page(trip))["trips"][0]
    for degrees, written in zip((trip.lat, trip.lon), read["way"], strict=True):
        assert np.abs(unrolled(written, 1e6) - degrees).max() * 111_195 < 0.1
    assert np.allclose(unrolled(read["time"], 10) + read["start"], trip.time)
    known = np.arange(40) != 30
    assert np.array_equal(np.array(read["normality"])[known] / 100.0, trip.normality[known])
    assert read["normality"][30] is None
    assert read["uncertainty"][30] is None
    assert read["faults"] == [[30, "impossible speed"]]
    assert read["passed"][:2] == [40, 40]
    assert (read["eps"], read["leave"], read["history"]) == (-2.0, -1.0, 304)
    assert [(s["first"], s["last"], s["at"]) for s in read["segments"]] == [(10, 19, "21:30–21:39")]


def test_the_page_has_the_colours_of_the_pictures() -> None:
    page = explanation_page(a_trip())
    stops = page.split("const LIGHT = ")[1].split(";")[0]
    assert re.findall(r'\[(-?\d), "(#\w+)"\]', stops) == [(f"{n:g}", colour) for n, colour in COLOURS]
    assert f"--odd: {ODD}" in page


def test_trips_are_listed_from_the_least_normal_and_those_without_a_score_last() -> None:
    nothing = np.full(40, np.nan)
    scoreless = replace(
        a_trip("none", np.nan),
        normality=nothing,
        uncertainty=nothing,
        segments=(),
        fault=np.full(40, "repeated"),
    )
    page = explanation_page([a_trip("b", -1.0), scoreless, a_trip("a", -4.0)])
    assert [trip["trajectory"] for trip in data_of(page)["trips"]] == ["a", "b", "none"]
    assert data_of(page)["trips"][2]["score"] is None


def test_page_and_picture_show_the_same_extent_and_unit_of_time() -> None:
    trip = a_trip()
    (shown,) = data_of(explanation_page(trip))["trips"]
    assert shown["away"] is None
    assert shown["unit"] == ["minutes", 60.0]
    (far,) = data_of(explanation_page(replace(trip, habitual=((trip.lat + 18.0, trip.lon),))))["trips"]
    assert far["away"] == "↑ habitual ways 2,002 km to the north"
    west, south, east, north = far["frame"]
    assert 0 <= north - south < east - west < 2 * np.ptp(trip.lon)


def test_the_page_holds_a_shared_way_once() -> None:
    data = data_of(explanation_page([a_trip("a"), a_trip("b")]))
    assert len(data["ways"]) == 2
    assert [trip["habitual"] for trip in data["trips"]] == [[0, 1], [0, 1]]


def test_the_page_marks_a_long_stop() -> None:
    trip = a_trip()
    lon = trip.lon.copy()
    lon[10:22] = lon[10]
    assert data_of(explanation_page(trip))["trips"][0]["stop"] is None
    lat, lon_stood, minutes = data_of(explanation_page(replace(trip, lon=lon)))["trips"][0]["stop"]
    assert (lat, lon_stood, minutes) == (41.15, pytest.approx(lon[10], abs=1e-6), 11)


def test_states_and_actions_have_no_map() -> None:
    steps = replace(
        a_trip(),
        time=np.arange(40.0),
        lat=np.zeros(0),
        lon=np.zeros(0),
        passed=np.zeros(0),
        habitual=(),
        expected=(),
    )
    read = data_of(explanation_page(steps))["trips"][0]
    assert read["start"] is None
    assert read["passed"] is None
    assert "way" not in read


def test_equal_trips_give_equal_pages_and_no_trips_are_refused() -> None:
    assert explanation_page(a_trip()) == explanation_page([a_trip()])
    with pytest.raises(DataError, match="at least one"):
        explanation_page([])


def test_pages_are_files_that_end_in_html(tmp_path: Path) -> None:
    page = explanation_page(a_trip(WICKED))
    save_page(page, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == page
    assert len(page) < 60_000
    with pytest.raises(DataError, match=r"\.html"):
        save_page(page, tmp_path / "page.png")
    with pytest.raises(DataError, match="make it first"):
        save_page(page, tmp_path / "nowhere" / "page.html")


# -------------------------------------------------------------------- the script itself


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the page's script with")
def test_the_script_reads_back_what_was_written(tmp_path: Path) -> None:
    # Across the antimeridian, where longitudes jump but places must not.
    trip = a_trip()
    trip = replace(trip, lon=(179.96 + 0.002 * np.arange(40) + 180.0) % 360.0 - 180.0, habitual=(), expected=())
    page = explanation_page(trip)
    (tmp_path / "page.mjs").write_text(page.split('<script type="module">')[1].split("</script>")[0], "utf-8")
    checked = subprocess.run(["node", "--check", tmp_path / "page.mjs"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    ask = f"""
    const data = {json.dumps(data_of(page))};
    const trip = readTrip(data.trips[0], data.ways);
    const colour = palette(stopsOf("light"));
    console.log(JSON.stringify({{
      places: trip.places, usable: trip.usable, words: wordsOf(trip, 12), fault: wordsOf(trip, 30),
      box: boxAround(trip.places), frame: trip.frame,
      colours: [-9, -4, -2.5, 1, 7].map(colour), lengths: [0.3, 1, 1999, 2000, 7e4].map(roundLength),
    }}));
    """
    (tmp_path / "ask.mjs").write_text(bundle(SCRIPTS[:-1]) + ask, "utf-8")
    said = json.loads(subprocess.run(["node", tmp_path / "ask.mjs"], capture_output=True, text=True, check=True).stdout)
    assert np.allclose(said["places"], np.column_stack([trip.lon, trip.lat]), atol=1e-6)
    west, south, east, north = said["box"]
    assert (east - west, north - south) == (pytest.approx(0.078), 0.0)
    assert said["frame"] == pytest.approx(said["box"], abs=1e-5)
    assert said["usable"] == [i for i in range(40) if i != 30]
    assert said["words"] == [
        "21:32:00 UTC",
        "normality −3.00 ± 0.20",
        "0 of 304 past trips came through here",
        "in segment 1",
    ]
    assert said["fault"] == ["21:50:00 UTC", "left out as faulty: impossible speed"]
    assert said["colours"] == ["rgb(127,39,4)", "rgb(127,39,4)", "rgb(224,110,21)", "rgb(11,74,143)", "rgb(11,74,143)"]
    assert said["lengths"] == [0.2, 1, 1000, 2000, 50_000]
