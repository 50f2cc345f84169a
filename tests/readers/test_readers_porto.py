"""Porto taxi trips: the CSV as published, as spreadsheets leave it, and as Parquet."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray.core.errors import DataError
from astray.readers import Report, iter_porto, iter_read, read
from astray.readers.porto import parse_polylines

NAMES = [
    *("TRIP_ID", "CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "TAXI_ID"),
    *("TIMESTAMP", "DAY_TYPE", "MISSING_DATA", "POLYLINE"),
]
ROUTE = [[-8.618643, 41.141412], [-8.618499, 41.141376], [-8.620326, 41.14251]]


def trip(number: int = 0, **changes: object) -> dict[str, object]:
    stamp, taxi = 1372636858 + number, 20000589
    row: dict[str, object] = {
        "TRIP_ID": f"{stamp}6{taxi}",
        "CALL_TYPE": "C",
        "ORIGIN_CALL": "",
        "ORIGIN_STAND": "",
        "TAXI_ID": str(taxi),
        "TIMESTAMP": str(stamp),
        "DAY_TYPE": "A",
        "MISSING_DATA": "False",
        "POLYLINE": json.dumps(ROUTE, separators=(",", ":")),
    }
    return row | changes


def write_csv(path: Path, rows: list[dict[str, object]], delimiter: str = ",", quoting: int = csv.QUOTE_ALL) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, NAMES, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_trip_is_its_polyline_every_15_seconds_from_its_timestamp(tmp_path: Path) -> None:
    trips = read(write_csv(tmp_path / "train.csv", [trip(CALL_TYPE="B", ORIGIN_STAND="7"), trip(9)]))
    assert trips.agent_ids.tolist() == ["20000589"] * 2
    assert trips.trajectory_ids.tolist() == ["1372636858620000589", "1372636867620000589"]
    assert trips[0].columns["time"].tolist() == [1372636858, 1372636873, 1372636888]
    assert trips[0].columns["lon"].tolist() == [p[0] for p in ROUTE]
    assert trips[0].columns["lat"].tolist() == [p[1] for p in ROUTE]
    assert {name: values.tolist() for name, values in trips.context.items()} == {
        "CALL_TYPE": ["B", "C"],
        "ORIGIN_CALL": ["", ""],
        "ORIGIN_STAND": ["7", ""],
        "DAY_TYPE": ["A", "A"],
    }


def test_empty_and_incomplete_trips_are_skipped_and_one_point_is_a_trip(tmp_path: Path) -> None:
    rows = [
        trip(0, POLYLINE="[]"),
        trip(1, MISSING_DATA="True"),
        trip(2, POLYLINE="[[-8.6,41.1]]"),
        trip(3, MISSING_DATA="TRUE", POLYLINE="[]"),
    ]
    file = write_csv(tmp_path / "train.csv", rows)
    report = Report()
    trips = read(file, report=report)
    assert trips.lengths.tolist() == [1]
    assert [(s.row, s.reason.split(":")[0]) for s in report.skipped] == [
        (3, "MISSING_DATA"),
        (5, "MISSING_DATA"),
        (2, "a trip without fixes"),
    ]
    assert report.n_skipped == 3
    assert len(read(file, keep_missing=True, report=Report())) == 2


def test_null_call_types_and_columns_that_are_null_throughout_remove_nothing(tmp_path: Path) -> None:
    nothing = dict.fromkeys(["CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "DAY_TYPE", "MISSING_DATA"])
    frame = pl.DataFrame([trip(i) | nothing for i in range(3)]).with_columns(
        pl.col("TAXI_ID", "TIMESTAMP").cast(pl.Int64), pl.col(*nothing).cast(pl.String)
    )
    frame.write_parquet(tmp_path / "porto.parquet")
    trips = read(tmp_path / "porto.parquet")
    assert len(trips) == 3
    assert trips.context["CALL_TYPE"].tolist() == ["", "", ""]
    spelt = read(write_csv(tmp_path / "train.csv", [trip(i) | dict.fromkeys(nothing, "NA") for i in range(3)]))
    assert len(spelt) == 3
    assert spelt.context["ORIGIN_CALL"].tolist() == ["", "", ""]


@pytest.mark.parametrize("mangled", ["1.37E+018", "1,37E+18", "1.372636858E+18", "1E+18"])
def test_trip_ids_that_a_spreadsheet_mangled_are_restored_or_rejected(tmp_path: Path, mangled: str) -> None:
    file = write_csv(tmp_path / "train.csv", [trip(i, TRIP_ID=mangled) for i in range(3)], delimiter=";")
    if mangled == "1E+18":  # too few digits are left to be sure
        with pytest.raises(DataError, match="row 2: TRIP_ID"):
            read(file)
        return
    report = Report()
    trips = read(file, report=report)
    assert trips.trajectory_ids.tolist() == [f"{1372636858 + i}620000589" for i in range(3)]
    assert "restored" in report.notes[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"TIMESTAMP": "NA"}, "TIMESTAMP"),
        ({"TIMESTAMP": "1372636858000"}, "TIMESTAMP"),
        ({"TAXI_ID": ""}, "TAXI_ID is missing"),
        ({"TRIP_ID": "NA"}, "TRIP_ID"),
        ({"POLYLINE": "[[-8.6,41.1],[-8.6,4"}, "POLYLINE is not"),
        ({"POLYLINE": ""}, "POLYLINE is not"),
        ({"POLYLINE": "[[-8.6,41.1,3]]"}, "POLYLINE is not"),
        ({"POLYLINE": "[[-8.6]]"}, "POLYLINE is not"),
        ({"POLYLINE": '[["-8.6","41.1"]]'}, "POLYLINE is not"),
        ({"POLYLINE": "[[-8.6,41.1]],[[1,2]]"}, "POLYLINE is not"),
        ({"POLYLINE": "[[-8.6,91]]"}, "latitude outside"),
        ({"POLYLINE": "[[-8.6,41.1],[0,0]]"}, r"\(0, 0\)"),
        ({"POLYLINE": "[[NaN,41.1]]"}, "longitude is missing or not"),
    ],
)
def test_an_error_names_the_row_of_the_bad_trip(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    file = write_csv(tmp_path / "train.csv", [trip(0), trip(1, **change), trip(2)])
    with pytest.raises(DataError, match=f"train.csv, row 3: .*{reason}"):
        read(file)
    report = Report()
    trips = read(file, skip_bad=True, report=report)
    assert trips.trajectory_ids.tolist() == ["1372636858620000589", "1372636860620000589"]
    assert trips.n_rows == 6
    assert report.n_skipped == 1


def test_batches_hold_whole_trips_and_together_the_whole_file(tmp_path: Path) -> None:
    rows = [trip(i, POLYLINE=json.dumps([[-8.6 - j / 1e4, 41.1] for j in range(1 + i % 5)])) for i in range(23)]
    text = write_csv(tmp_path / "train.csv", rows, quoting=csv.QUOTE_MINIMAL)
    pl.DataFrame(rows).write_parquet(tmp_path / "porto.parquet", row_group_size=5)
    whole = read(text)
    for file in (text, tmp_path / "porto.parquet"):
        calls: list[tuple[int, int]] = []
        batches = list(iter_porto(file, 4, progress=lambda done, total, calls=calls: calls.append((done, total))))
        assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]
        np.testing.assert_array_equal(np.concatenate([b.columns["lon"] for b in batches]), whole.columns["lon"])
        np.testing.assert_array_equal(np.concatenate([b.columns["time"] for b in batches]), whole.columns["time"])
        assert calls[-1][0] == calls[-1][1]
    assert [len(batch) for batch in iter_read(text, batch_rows=500)] == [10, 10, 3]


def test_a_porto_file_without_trips_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable trip"):
        read(write_csv(tmp_path / "a.csv", []))
    with pytest.raises(DataError, match=r"no usable trip.*without fixes"):
        read(write_csv(tmp_path / "b.csv", [trip(POLYLINE="[]")]))
    (tmp_path / "c.csv").write_text("TRIP_ID,POLYLINE\n1,[]\n")
    with pytest.raises(DataError, match="column TAXI_ID is missing"):
        read(tmp_path / "c.csv")


coordinates = st.floats(-90, 90, allow_nan=False).map(lambda x: round(x, 6))
routes = st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(routes, min_size=1, max_size=8), st.booleans())
def test_polylines_are_parsed_to_the_last_bit(paths: list[list[tuple[float, float]]], spaced: bool) -> None:
    texts = [json.dumps(path, separators=None if spaced else (",", ":")) for path in paths]
    lon, lat, lengths, bad = parse_polylines(pl.Series(texts))
    assert not bad.any()
    assert lengths.tolist() == [len(path) for path in paths]
    assert lon.tolist() == [x for path in paths for x, _ in path]
    assert lat.tolist() == [y for path in paths for _, y in path]


@settings(deadline=None)
@given(st.lists(st.text('[],-.0123456789eE \n"x', max_size=20) | st.none(), max_size=5))
def test_unreadable_polylines_are_marked_and_the_others_keep_their_numbers(texts: list[str | None]) -> None:
    lon, lat, lengths, bad = parse_polylines(pl.Series(texts, dtype=pl.String))
    assert len(lon) == len(lat) == lengths.sum()
    assert ((lengths == 0) == bad).all()
    starts = np.r_[0, np.cumsum(lengths)]
    for i in np.flatnonzero(~bad):
        numbers = [float(word) for word in re.sub(r"[\[\],]", " ", texts[i] or "").split()]
        here = slice(starts[i], starts[i + 1])
        assert np.column_stack([lon[here], lat[here]]).ravel().tolist() == numbers
