"""Times as people and spreadsheets write them."""

from __future__ import annotations

from datetime import UTC, datetime, time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray.core.errors import DataError
from astray.core.times import Clock, seconds_of
from astray.readers import Report, iter_read, read

T0 = 1_372_636_858  # 2013-07-01T00:00:58Z


def table(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def seconds(*texts: str, **said: str) -> list[float]:
    return Clock(**said).seconds(pl.Series(texts))[0].tolist()


@pytest.mark.parametrize(
    "texts",
    [
        ("1.7.2013 00:00:58", "13.7.2013 00:00:58"),
        ("01/07/2013 0:00:58", "13/07/2013 0:00:58"),
        ("7/1/2013 12:00:58 AM", "7/13/2013 12:00:58 a.m."),
        ("07-01-2013 00:00:58", "07-13-2013 00:00:58"),
        ("1 Jul 2013 00:00:58", "13-July-2013 00:00:58"),
        ("Jul 1, 2013 12:00:58 AM", "July 13, 2013 00:00:58Z"),
        ("1.7.13 00:00:58", "13.7.13 02:00:58 +0200"),
    ],
)
def test_a_number_above_12_or_a_point_shows_which_number_is_the_day(texts: tuple[str, str]) -> None:
    assert seconds(*texts) == [T0, T0 + 12 * 86_400]


def test_an_ambiguous_date_is_rejected_unless_date_order_is_given(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "t,lat,lon", "7/1/2013 0:00:58,41,-8", "8/1/2013 0:00:58,41,-8")
    with pytest.raises(
        DataError, match=r"a\.csv: 7/1/2013 0:00:58 can be in January or in July; say which: date_order="
    ):
        read(file)
    assert read(file, date_order="mdy", trips="as-given").columns["time"].tolist() == [T0, T0 + 31 * 86_400]
    assert read(file, date_order="dmy", trips="as-given").columns["time"][0] == seconds_of("2013-01-07T00:00:58Z")
    with pytest.raises(DataError, match="date_order='usual' is unknown; give one of dmy, mdy, ymd"):
        read(file, date_order="usual")


def test_the_date_order_of_the_first_block_holds_for_the_others() -> None:
    clock = Clock()
    clock.seconds(pl.Series(["31/12/2013 00:00"]))
    found, faults = clock.seconds(pl.Series(["1/7/2013 00:00:58", "12/31/2013 00:00"]))
    assert found[0] == T0
    assert [fault.rows.tolist() for fault in faults] == [[False, True], [False, False]]


def test_clocks_of_twelve_hours_are_read() -> None:
    texts = ("31/1/2013 12:00 AM", "31/1/2013 1:30 PM", "31/1/2013 12:00 PM")
    assert np.diff(seconds(*texts)).tolist() == [13.5 * 3600, -1.5 * 3600]


def test_dates_without_a_zone_are_read_in_the_given_zone() -> None:
    assert seconds("1.7.2013 02:00:58", zone="Europe/Berlin") == [T0]


@pytest.mark.parametrize(
    ("date", "clock"),
    [("2013-07-01", "00:00:58"), ("1.7.2013", "0:00:58"), ("20130701", "000058"), ("13/7/2013", "0:00:58")],
)
def test_a_date_column_and_a_time_column_are_joined(tmp_path: Path, date: str, clock: str) -> None:
    trips = read(table(tmp_path / "a.csv", "date,time,lat,lon", f"{date},{clock},41,-8"), report=Report())
    assert trips.columns["time"].tolist() == [T0 + (12 * 86_400 if "/" in date else 0)]


def test_columns_of_date_and_time_can_be_named_and_typed(tmp_path: Path) -> None:
    rows = {"Datum": [datetime(2013, 7, 1)], "Uhr": [time(0, 0, 58)], "lat": [41.0], "lon": [-8.0]}
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    trips = read(tmp_path / "a.parquet", date="Datum", time="Uhr", time_zone="UTC")
    assert trips.columns["time"].tolist() == [T0]


def test_a_column_of_dates_beside_whole_times_is_not_used(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "date,time,lat,lon", "2020-01-01,2013-07-01T00:00:58Z,41,-8")
    assert read(file).columns["time"].tolist() == [T0]
    alone = table(tmp_path / "b.csv", "date,lat,lon", "2013-07-01T00:00:58Z,41,-8")
    assert read(alone).columns["time"].tolist() == [T0]


def test_serial_dates_of_a_spreadsheet_are_recognised_and_reported(tmp_path: Path) -> None:
    days = 25_569 + (T0 + np.arange(4) * 15) / 86_400
    file = table(tmp_path / "a.csv", "t,lat,lon", *(f"{day:.9f},41,-8" for day in days))
    report = Report()
    assert read(file, report=report).columns["time"].tolist() == [T0 + 15.0 * i for i in range(4)]
    reasons = [assumption.reason for assumption in report.assumptions]
    assert "times look like a spreadsheet's serial dates and were read as such" in reasons
    assert read(file, time_unit="excel", time_zone="Europe/Berlin").columns["time"][0] == T0 - 7200
    assert [b.n_rows for b in iter_read(file, batch_rows=1)] == [4]


def test_seconds_since_another_start_are_not_taken_for_serial_dates() -> None:
    clock = Clock()
    found = clock.seconds(pl.Series([41_456.0, 41_456.5, 41_471.0]))[0]
    assert found.tolist() == [41_456.0, 41_456.5, 41_471.0]
    assert clock.unit == "s"


def test_times_are_read_alike_in_files_and_live() -> None:
    assert seconds_of("13.7.2013 00:00:58") == seconds("13.7.2013 00:00:58")[0] == T0 + 12 * 86_400
    with pytest.raises(DataError, match="can be in July or in January"):
        seconds_of("1/7/2013 00:00")
    assert datetime.fromtimestamp(seconds_of("31 Dec 2013"), UTC).year == 2013


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2024-10-27 02:10:00+99:99", "not understood"),
        ("2024-10-27T02:10:00+25:00", "not understood"),
        ("2024-10-27T02:10:00-24:00", "not understood"),
        ("9999-12-31T23:59:59Z", "after 2201"),
        ("0001-01-01 00:00:00", "before the year 1739"),
        ("01.01.2300", "after 2201"),
    ],
)
def test_impossible_offsets_and_years_are_rejected_in_files_and_live(text: str, reason: str) -> None:
    _, faults = Clock().seconds(pl.Series([text, "2024-10-27T02:10:00+14:00"]))
    assert [fault.rows.tolist() for fault in faults if fault.rows.any()] == [[True, False]]
    with pytest.raises(DataError, match=reason):
        seconds_of(text)


def test_a_given_unit_does_not_make_every_number_a_time() -> None:
    _, faults = Clock(unit="s").seconds(pl.Series([1.7e9, 1e300]))
    assert [fault.rows.tolist() for fault in faults if fault.rows.any()] == [[False, True]]
