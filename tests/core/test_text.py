"""Text for people: names do no harm, numbers agree with nouns, and nothing is cut off."""

from __future__ import annotations

import io
import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray import Detector
from astray.cli import commands, load_command, main
from astray.cli import score as score_command
from astray.cli.console import _bar
from astray.cli.running import as_flag
from astray.core.errors import DataError, Option
from astray.core.text import harmless
from astray.core.trajectories import Trajectories
from astray.core.writers import write_table
from astray.explain import Explanation
from astray.explain.segment_phrases import ASKED, MANNERS, counts_in_words
from astray.features.encoders import FamiliarityEncoder
from astray.plots import explanation_figure, explanation_page, save_figure, save_page, scores_figure
from astray.plots.trips_map import fixes_figure
from astray.readers import Report, read
from astray.simulate import city
from fitted import featurizer_of

WICKED = [
    "\x1b[2J\x1b]0;owned\x07",
    "=cmd()|' /C calc'!A0",
    "</script><img src=x onerror=alert(1)>",
    "two\nlines\r",
    "\u202eright to left\u200f",
    "[/red][bold]",
    "$x^{$ and $ \\frac",
    "../../etc/passwd",
    "; rm -rf ~ `id` $(id)",
    "long " * 38,
]


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=2, days=10, seed=0).trips


@pytest.fixture(scope="module")
def detector(trips: Trajectories) -> Detector:
    return Detector().fit(trips.agent("p00"))


@pytest.fixture(scope="module")
def strange(trips: Trajectories, detector: Detector) -> Explanation:
    """Explains a trip of another person, which has segments."""
    return next(e for i in range(len(trips)) if (e := detector.explain(trips.agent("p01"), i)).segments)


def test_names_that_look_alike_are_shown_differently() -> None:
    for letter in ("\xad", "\u200b", "\u2060", "\ufeff"):
        assert harmless(f"ana{letter}") == "ana" + ascii(letter)[1:-1]
    for name in ("ana maría", "علی\u200cرضا", "👩\u200d🚒"):  # these joiners belong to their words
        assert harmless(name) == name


def harmful(text: str) -> bool:
    return bool(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e]", text))


# -------------------------------------------------------------------- names


@pytest.mark.parametrize("name", WICKED)
def test_any_name_is_harmless_in_words_pictures_and_pages(name: str, strange: Explanation, tmp_path: Path) -> None:
    e = replace(strange, agent=name, trajectory=name)
    assert not harmful(str(e))
    assert len(str(e).splitlines()) == len(str(strange).splitlines())
    save_figure(explanation_figure(e), tmp_path / "trip.svg")
    svg = (tmp_path / "trip.svg").read_text("utf-8")
    ElementTree.fromstring(svg)
    assert not harmful(svg)
    page = explanation_page([e, strange])
    save_page(page, tmp_path / "trip.html")
    assert page.count("</script>") == explanation_page([strange, strange]).count("</script>")
    assert not harmful(page)


@pytest.mark.parametrize("name", WICKED)
def test_a_legend_shows_any_name(name: str, trips: Trajectories, tmp_path: Path) -> None:
    named = Trajectories(trips.columns, trips.offsets, [name] * len(trips), trips.trajectory_ids)
    save_figure(fixes_figure(named), tmp_path / "fixes.svg")
    save_figure(scores_figure([0.0, 1.0], ["", name]), tmp_path / "scores.svg")
    for file in ("fixes.svg", "scores.svg"):
        ElementTree.fromstring((tmp_path / file).read_text("utf-8"))


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    names = ["=cmd()", "+1+1", "@sum(1)", "-x", "-7.5", "ana"]
    frame = pl.DataFrame({"agent": names, "score": [-1.5] * len(names)})
    write_table(frame, tmp_path / "a.csv")
    written = pl.read_csv(tmp_path / "a.csv", infer_schema=False)
    assert written["agent"].to_list() == ["'=cmd()", "'+1+1", "'@sum(1)", "'-x", "-7.5", "ana"]
    assert written["score"].to_list() == ["-1.5"] * len(names)
    write_table(frame, tmp_path / "a.jsonl")
    kept = [json.loads(line)["agent"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert kept == names, "where there are no formulas names stay as they are"


def test_a_table_on_a_terminal_shows_names_whole_and_as_they_are(
    trips: Trajectories, detector: Detector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in WICKED:
        named = Trajectories(trips.columns, trips.offsets, [name] * len(trips), trips.trajectory_ids)
        score_command._show([detector.score(named[:2])])
        shown = capsys.readouterr().out
        assert not harmful(shown)
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown
        bare = "".join(line[: shown.splitlines()[1].index("trajectory")] for line in shown.splitlines()[2:])
        assert harmless(name).replace(" ", "")[:20] in bare.replace(" ", "")


def test_an_agent_named_after_a_file_has_a_harmless_name(tmp_path: Path) -> None:
    point = '<trkpt lat="45.{i}" lon="7"><time>2024-01-01T00:0{i}:00Z</time></trkpt>'
    track = "".join(point.format(i=i) for i in range(3))
    file = tmp_path / "a\x1b[2J.gpx"
    file.write_text(f"<gpx><trk><trkseg>{track}</trkseg></trk></gpx>")
    assert read(file, report=Report()).trajectory_ids.tolist() == ["a\\x1b[2J"]
    table = tmp_path / "b\x1b[2J.csv"
    table.write_text("time,lat,lon\n0,45,7\n60,45.1,7\n")
    assert read(table, report=Report()).agents == ["b\\x1b[2J"]


def test_names_in_files_other_than_tables_are_checked(tmp_path: Path) -> None:
    feature = {
        "type": "Feature",
        "properties": {"agent": "ana\x1b[2J", "coordTimes": ["2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z"]},
        "geometry": {"type": "LineString", "coordinates": [[7.0, 45.0], [7.1, 45.1]]},
    }
    file = tmp_path / "a.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    with pytest.raises(DataError, match="characters that cannot be shown"):
        read(file, report=Report())


def test_an_error_cannot_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    file.write_text("time,lat,lon,x\x1b[2J\n0,\x1b[2J,7,1\n")
    assert main(["check", str(file)]) == 1
    said = capsys.readouterr()
    assert not harmful(said.out + said.err)
    with pytest.raises(DataError) as error:
        read(file)
    assert not harmful(str(error.value))


def test_commands_to_paste_are_quoted() -> None:
    for option in (Option("lat", "a; rm -rf ~"), Option("delimiter", "; $(id)"), Option("time_zone", "x y")):
        assert len(shlex.split(as_flag(option))) == 2


def test_a_progress_bar_shows_any_name() -> None:
    for name in WICKED:
        with _bar(f"reading {name}") as advance:
            advance(0.5)


# -------------------------------------------------------------------- words


def test_one_past_trip_is_singular(strange: Explanation) -> None:
    e = replace(strange, history=1.0)
    assert "1 past trip)" in str(e)
    assert "learned from 1 past trip" in explanation_page(e)
    assert not re.search(r"\b1 (past )?trips", explanation_page(e) + str(e))


@pytest.mark.parametrize("aspect", list(ASKED))
def test_the_evidence_of_a_segment_is_about_its_aspect(aspect: str, detector: Detector) -> None:
    encoder = featurizer_of(detector).encoder
    assert isinstance(encoder, FamiliarityEncoder)
    phrases = [MANNERS[name] for name in ASKED[aspect]]
    for past in (0.0, 2.0, 20.0):  # unknown country, hardly known, well known
        words, _ = counts_in_words(np.full((3, len(encoder.habits)), past), encoder, -1, aspect)
        assert any(phrase in words.partition(";")[0] for phrase in phrases)


def test_an_expected_route_begins_on_the_trip(trips: Trajectories, detector: Detector) -> None:
    to_metres, found = featurizer_of(detector).projection.to_metres, 0
    for explanation in (detector.explain(trips, i) for i in range(len(trips))):
        path = to_metres(explanation.lat, explanation.lon)
        for way in explanation.expected:
            found += 1
            # A planned way may begin between two fixes.
            assert np.hypot(*(path - to_metres(*way)[0]).T).min() < 20.0
    assert found > 5


# -------------------------------------------------------------------- pictures


def test_every_number_in_a_picture_has_its_text(strange: Explanation) -> None:
    segment, n = strange.segments[0], len(strange.time)
    many = tuple(
        replace(segment, start=i, stop=i + 1, start_time=float(strange.time[i]), normality=-2.0 - i)
        for i in range(0, min(n, 40), 2)
    )
    many = tuple(s for s in many if np.isfinite(strange.normality[s.start]) and strange.fault[s.start] == "")
    figure = explanation_figure(replace(strange, segments=many))
    on_map, _, below = figure.axes
    said = {line.split()[0] for line in below.get_title(loc="left").splitlines() if not line.startswith(" ")}
    for axes in (on_map, below):
        numbers = {text.get_text() for text in axes.texts if text.get_text().isdigit()}
        assert numbers == said
    assert len(many) > len(said) > 3


def test_a_long_title_stays_in_the_picture(strange: Explanation) -> None:
    figure = explanation_figure(replace(strange, agent="a-name-without-end" * 8, trajectory="another " * 20))
    figure.savefig(io.BytesIO())  # lays it out
    for text in figure.texts:
        assert text.get_window_extent().x1 <= figure.bbox.x1
        assert text.get_window_extent().y1 <= figure.bbox.y1
    title, grounds = figure.texts
    assert title.get_window_extent().y0 >= grounds.get_window_extent().y1 - 1


def test_a_threshold_is_shown_with_two_digits() -> None:
    said = [text.get_text() for text in scores_figure([0.0], eps=-2.37245).axes[0].texts]
    assert said == ["threshold −2.37: 0 of 1 trip at or under it"]


# -------------------------------------------------------------------- 80 columns


def test_help_fits_a_terminal_and_its_examples_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) < 80
    for name in commands():
        doc = load_command(name).__doc__
        examples = [re.sub(r"\[/?\w+\]", "", line) for line in doc.partition("[b]Example")[2].splitlines()[1:]]
        assert max(len(line.removeprefix("    ")) for line in examples) <= 79, name


def test_the_description_of_a_model_fits_the_terminal(
    detector: Detector, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    detector.save("me.astray")
    assert main(["info", "me.astray"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
