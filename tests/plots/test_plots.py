"""Pictures: they draw whatever an explanation may hold, and say what they mean."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from explained_trip import START, a_trip
from matplotlib.figure import Figure

from astray.core.errors import DataError
from astray.plots import Known, explanation_figure, history_figure, save_figure, scores_figure, trips_figure


def text_of(figure: Figure, folder: Path) -> str:
    """All that is written in a figure, as it stands in its SVG file."""
    save_figure(figure, folder / "figure.svg")
    return "\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", (folder / "figure.svg").read_text("utf-8")))


def test_a_picture_shows_the_decision_the_scores_and_the_segments(tmp_path: Path) -> None:
    said = text_of(explanation_figure(a_trip()), tmp_path)
    assert "Anomaly: trip t7 of ann, Wed 19 Feb 2025, 21:20 (UTC)" in said
    assert "Never ended here before (0 of 304 past trips); 25 % of the way is new" in said.splitlines()
    assert "N(τ) = −3.1 ± 0.2: at or under the threshold of −2" in said.splitlines()
    assert "p = 0.04: about 1 normal trip in 25 scores as low" in said
    assert "21:30–21:39  out of place: 0 of 304 past trips came through this street" in said
    for label in ("habitual ways", "not normal", "expected way", "faulty fixes", "start", "end", "1 km"):
        assert label in said.splitlines(), label
    for label in ("minutes since the start", "normality n(s, a)", "opens: −2", "closes: −1"):
        assert label in said.splitlines(), label


def test_the_legend_lists_only_what_the_map_shows(tmp_path: Path) -> None:
    trip = a_trip()
    plain = replace(
        trip,
        segments=(),
        habitual=(),
        expected=(),
        fault=np.full(40, "", dtype="U20"),
        normality=np.full(40, 0.5),
        lo=np.full(40, 0.1),
        hi=np.full(40, 0.9),
        decision="normal",
        score=0.4,
        p_value=0.6,
    )
    said = text_of(explanation_figure(plain), tmp_path)
    assert "Normal: trip t7" in said
    assert "about 60 % of normal trips score as low" in said
    assert "ever ended here" not in said
    assert not {"habitual ways", "not normal", "expected way", "faulty fixes"} & set(said.splitlines())


def test_a_kilometre_is_as_long_eastwards_as_northwards() -> None:
    # At 60 degrees north a degree of longitude is half as long as one of latitude.
    trip = a_trip()
    north = replace(trip, lat=np.full(40, 60.0), lon=np.linspace(10.0, 10.2, 40), habitual=(), expected=())
    axes = explanation_figure(north).axes[0]
    line = next(line for line in axes.lines if len(line.get_xdata()) == 39)  # all fixes but the faulty one
    width = np.ptp(np.asarray(line.get_xdata(), float))
    assert width == pytest.approx(0.2 * 111.195 / 2, rel=1e-3)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    assert (right - left) / box.width == pytest.approx((top - bottom) / box.height, rel=1e-6)


def test_a_trip_far_from_its_habitual_ways_still_shows_them() -> None:
    trip = a_trip()
    axes = explanation_figure(replace(trip, habitual=((trip.lat + 0.2, trip.lon),))).axes[0]
    assert axes.get_ylim()[1] > 0.2 * 111.19


def test_a_very_distant_trip_fills_the_map_and_a_note_says_where_the_habitual_ways_are(tmp_path: Path) -> None:
    trip = a_trip()
    figure = explanation_figure(replace(trip, habitual=((trip.lat + 18.0, trip.lon),)))
    assert np.ptp(figure.axes[0].get_xlim()) < 2 * np.ptp(trip.lon) * 111.2
    said = text_of(figure, tmp_path).splitlines()
    assert "↑ habitual ways 2,002 km to the north" in said
    assert "habitual ways" not in said  # none is drawn


def test_a_distant_faulty_fix_does_not_change_the_extent_of_the_map(tmp_path: Path) -> None:
    trip = a_trip()
    lat = np.where(trip.fault == "", trip.lat, 0.0)
    figure = explanation_figure(replace(trip, lat=lat))
    assert figure.axes[0].get_ylim() == explanation_figure(trip).axes[0].get_ylim()
    assert text_of(figure, tmp_path).splitlines().count("faulty fixes") == 1  # in time, and none on the map


@pytest.mark.parametrize(("apart", "unit"), [(1.0, "seconds"), (60.0, "minutes"), (600.0, "hours")])
def test_time_has_a_unit_that_suits_the_trip(apart: float, unit: str, tmp_path: Path) -> None:
    figure = explanation_figure(replace(a_trip(), time=START + apart * np.arange(40), segments=()))
    axes = figure.axes[-1]
    assert f"{unit} since the start" in text_of(figure, tmp_path).splitlines()
    left, right = axes.get_xlim()
    assert sum(left <= tick <= right for tick in axes.get_xticks()) >= 4


def test_the_legend_of_the_time_leaves_its_label_free(tmp_path: Path) -> None:
    figure = explanation_figure(a_trip())  # with a faulty fix, which is in the legend
    save_figure(figure, tmp_path / "figure.png")
    axes = figure.axes[-1]
    legend = axes.get_legend()
    assert legend is not None
    assert not axes.xaxis.label.get_window_extent().overlaps(legend.get_window_extent())


def test_a_short_segment_shows_seconds_and_its_own_aspect(tmp_path: Path) -> None:
    trip = a_trip()
    short = replace(trip.segments[0], end_time=trip.segments[0].start_time + 20.0, aspect="route")
    said = text_of(explanation_figure(replace(trip, segments=(short,))), tmp_path)
    assert "21:30:00–21:30:20  unusual way: 0 of 304" in said
    assert "over the whole trip: out of place; in segment 1: unusual way" in said


def test_a_threshold_is_rounded_and_the_worst_part_of_the_trip_is_named(tmp_path: Path) -> None:
    said = text_of(explanation_figure(replace(a_trip(), eps=-2.58587, leave=-1.292935, trip_normality=-1.4)), tmp_path)
    assert "N(τ) = −1.4 ± 0.2, the worst of it −3.1: at or under the threshold of −2.59" in said.splitlines()
    assert {"opens: −2.59", "closes: −1.29"} <= set(said.splitlines())


def test_a_segment_without_a_single_fix_under_the_threshold_is_explained(tmp_path: Path) -> None:
    assert "no single fix is at or under −5" in text_of(explanation_figure(replace(a_trip(), eps=-5.0)), tmp_path)
    assert "no single fix" not in text_of(explanation_figure(a_trip()), tmp_path)


def test_a_trip_across_the_antimeridian_stays_in_one_piece() -> None:
    lon = (179.96 + 0.002 * np.arange(40) + 180.0) % 360.0 - 180.0
    axes = explanation_figure(replace(a_trip(), lon=lon, habitual=(), expected=())).axes[0]
    assert np.ptp(axes.get_xlim()) < 30.0


def test_a_long_stop_is_marked(tmp_path: Path) -> None:
    trip = a_trip()
    lon = trip.lon.copy()
    lon[10:22] = lon[10]
    assert "stood 11 minutes" in text_of(explanation_figure(replace(trip, lon=lon)), tmp_path)
    assert "stood" not in text_of(explanation_figure(trip), tmp_path)


def test_nothing_is_drawn_across_a_gap_in_time() -> None:
    trip = a_trip()
    time = trip.time + np.where(np.arange(40) >= 25, 3600.0, 0.0)
    curve = explanation_figure(replace(trip, time=time)).axes[-1].lines[2]
    assert np.flatnonzero(np.isnan(np.asarray(curve.get_ydata(), float))).tolist() == [25]


@pytest.mark.parametrize("n", [1, 2])
def test_short_trips_can_be_drawn(n: int, tmp_path: Path) -> None:
    trip = a_trip()
    arrays = {name: getattr(trip, name)[:n] for name in ("time", "lat", "lon", "normality", "uncertainty", "lo", "hi")}
    save_figure(explanation_figure(replace(trip, **arrays, fault=trip.fault[:n], segments=())), tmp_path / "short.png")
    assert (tmp_path / "short.png").stat().st_size > 1000


def test_a_trip_without_a_usable_fix_can_be_drawn_and_says_so(tmp_path: Path) -> None:
    nothing = np.full(40, np.nan)
    trip = replace(
        a_trip(),
        normality=nothing,
        uncertainty=nothing,
        lo=nothing,
        hi=nothing,
        fault=np.full(40, "repeated"),
        segments=(),
        expected=(),
        score=np.nan,
        trip_normality=np.nan,
        p_value=np.nan,
        decision="review",
    )
    said = text_of(explanation_figure(trip), tmp_path)
    assert "For review" in said
    assert "no usable fix, so no score" in said


def test_trips_one_below_the_other_show_the_threshold_and_what_is_known_to_be_wrong(tmp_path: Path) -> None:
    trip = a_trip()
    odd = replace(trip, normality=np.where(np.arange(40) < 20, -7.0, 0.0), score=-3.5)
    wrong = np.arange(40) < 10
    figure = trips_figure([trip, odd], ["Hers", "Another's"], {1: Known("the detour", wrong)})
    first, first_in_time, second, second_in_time = figure.axes
    said = text_of(figure, tmp_path).splitlines()
    assert [said.count(words) for words in ("threshold: −2", "opens: −2")] == [2, 0]
    assert sum(line.startswith(("Hers: N(τ) = ", "Another's: N(τ) = ")) for line in said) == 2
    assert said.count("the detour") == 2  # on the map and in time
    assert not any(line.get_label() == "the detour" for line in (*first.lines, *first_in_time.lines))
    (bar,) = (line for line in second_in_time.lines if line.get_label() == "the detour")
    assert len(bar.get_xdata()) == 10
    assert second_in_time.get_ylim()[0] == pytest.approx(-7.3)  # of normality, however wide its band is
    assert first.get_position().x1 < first_in_time.get_position().x0
    assert second.get_position().y1 < first.get_position().y0


def test_states_and_actions_have_no_map(tmp_path: Path) -> None:
    trip = a_trip()
    steps = replace(
        trip,
        time=np.arange(40.0),
        lat=np.zeros(0),
        lon=np.zeros(0),
        habitual=(),
        expected=(),
        segments=(replace(trip.segments[0], start_time=10.0, end_time=19.0, words="state 1 lies above its mean"),),
    )
    figure = explanation_figure(steps)
    said = text_of(figure, tmp_path)
    assert len(figure.axes) == 1
    assert "step" in said.splitlines()
    assert "10–19  out of place: state 1 lies above its mean" in said


def test_training_curves_show_the_measures_of_the_history(tmp_path: Path) -> None:
    history = pl.DataFrame({"iteration": [0, 1, 2], "loss": [1.0, 0.7, 0.6], "held_out_loss": [1.0, 0.6, 0.8]})
    said = text_of(history_figure(history), tmp_path).splitlines()
    assert {"loss", "loss on held-out trips", "best", "iteration"} <= set(said)
    assert "entropy of the policy" not in said
    with pytest.raises(DataError, match="training_history_"):
        history_figure(history.select("iteration"))


def test_the_histogram_counts_scores_at_or_under_the_threshold(tmp_path: Path) -> None:
    scores = [-3.0, -2.0, -1.9, 0.0, 0.5, np.nan]
    said = text_of(scores_figure(scores, ["detour", "", "loiter", "", "", ""]), tmp_path)
    assert "threshold −2: 2 of 5 trips at or under it" in said
    assert {"normal", "detour", "loiter", "normal (3)", "anomalous (2)"} <= set(said.splitlines())
    assert "anomalous" not in text_of(scores_figure(scores), tmp_path)


def test_no_bar_of_the_histogram_crosses_the_threshold() -> None:
    axes = scores_figure(np.linspace(-3, 1, 50), eps=-1.9).axes[0]
    edges = [patch.get_x() for patch in axes.patches]
    assert np.isclose(edges, -1.9).any()


def test_scores_without_matching_labels_are_refused() -> None:
    with pytest.raises(DataError, match="one label per score"):
        scores_figure([0.0, 1.0], ["detour"])
    with pytest.raises(DataError, match="nothing to draw"):
        scores_figure([np.nan])


def test_files_are_png_or_svg_and_the_same_every_time(tmp_path: Path) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")):
        save_figure(explanation_figure(a_trip()), tmp_path / name)
        first = (tmp_path / name).read_bytes()
        assert first.startswith(start)
        save_figure(explanation_figure(a_trip()), tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    with pytest.raises(DataError, match=r"\.png or \.svg"):
        save_figure(Figure(), tmp_path / "a.pdf")
    with pytest.raises(DataError, match="make it first"):
        save_figure(Figure(), tmp_path / "nowhere" / "a.png")


def test_matplotlib_is_imported_only_to_draw() -> None:
    check = "import sys, astray.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
