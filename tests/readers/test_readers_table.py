"""Tables of fixes: many names, encodings, delimiters and units in; one set of trajectories out."""

from __future__ import annotations

import csv
import io
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from astray.core.errors import DataError, Place
from astray.core.fixes import ALIASES
from astray.core.times import Clock
from astray.core.trajectories import Trajectories
from astray.readers import ReadWarning, Report, iter_read, read
from astray.readers.delimited import Dialect, _parse, _parse_with_csv, read_blocks
from astray.readers.read_report import Intake
from astray.readers.suggest_columns import suggest_columns
from astray.readers.text_files import blocks_of_lines

T0 = 1_372_636_858


def write(folder: Path, text: str | bytes, name: str = "fixes.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def outcome(path: Path, **options: object) -> Trajectories | DataError:
    try:
        return read(path, **options)  # type: ignore[arg-type]
    except DataError as error:
        return error


def quietly(path: Path, **options: object) -> tuple[pl.DataFrame, Report]:
    report = Report()
    return read(path, report=report, **options).to_frame(), report  # type: ignore[arg-type]


# -------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "header",
    [
        "uid,t,lat,lng",
        "USER_ID,Timestamp,Latitude,Longitude",
        "agent,tst,y,x",
        "Vehicle-ID,DateTime,LAT,Long",
    ],
)
def test_columns_are_found_by_their_usual_names(tmp_path: Path, header: str) -> None:
    frame, _ = quietly(write(tmp_path, f"{header}\na,{T0},41.1,-8.6\n"))
    assert frame.row(0) == ("a", "2013-07-01T00:00:58Z", T0, 41.1, -8.6)


def test_unused_columns_are_ignored_and_reported(tmp_path: Path) -> None:
    text = f"speed,uid,t,lat,lon,note\n3.5,a,{T0},41.1,-8.6,hello\n"
    frame, report = quietly(write(tmp_path, text))
    assert frame.height == 1
    assert report.unused == ["speed", "note"]
    assert not report.assumptions


def test_columns_can_be_named_and_kept(tmp_path: Path) -> None:
    text = f"wer,wann,Breite,Länge,v,kind\na,{T0},41.1,-8.6,3.5,bus\na,{T0 + 1},41.2,-8.6,NA,bus\n"
    trips = read(
        write(tmp_path, text),
        **{
            "agent": "wer",
            "time": "wann",
            "lat": "Breite",
            "lon": "länge",
            "columns": ["v"],
            "context": ["kind"],
        },
    )
    np.testing.assert_array_equal(trips.columns["v"], [3.5, np.nan])
    assert trips.context["kind"].tolist() == ["bus"]
    with pytest.raises(DataError, match=r"no column named 'wo'; the file has 'wer'"):
        read(tmp_path / "fixes.csv", lat="wo")


def test_the_error_about_a_missing_column_lists_the_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fixes\.csv, row 1: no column for lon .*'lat', 'north'.*pass lon="):
        read(write(tmp_path, "t,lat,north\n1,2,3\n"))


def test_the_choice_between_two_columns_for_one_role_is_reported(tmp_path: Path) -> None:
    text = f"vehicle_id,user,t,lat,lon,x,y\nv,u,{T0},41.1,-8.6,500000,4000000\n"
    frame, report = quietly(write(tmp_path, text))
    assert frame["agent"].to_list() == ["u"]
    assert frame["lon"].to_list() == [-8.6]
    assert len(report.assumptions) == 1
    assert "'user' was taken as the agent, not 'vehicle_id'" in str(report.assumptions[0])


def test_without_an_agent_column_the_file_is_the_agent(tmp_path: Path) -> None:
    frame, _ = quietly(write(tmp_path, f"t,lat,lon\n{T0},41.1,-8.6\n", "ana.csv"))
    assert frame["agent"].to_list() == ["ana"]


def test_agents_in_a_column_without_a_name_are_not_merged(tmp_path: Path) -> None:
    rows = "".join(f"{who},{T0 + i},41.1,-8.6\n" for who in ("ana", "bob") for i in range(20))
    with pytest.raises(DataError, match=r"'' has 2 different values; if these are the agents, name that column"):
        read(write(tmp_path, f",t,lat,lon\n{rows}"))
    # The index that pandas writes, here of two tables one after the other, is no agent.
    counted = "".join(f"{i % 20},{T0 + i},41.1,-8.6\n" for i in range(100, 200))
    assert quietly(write(tmp_path, f",t,lat,lon\n{counted}", "ana.csv"))[0]["agent"].unique().to_list() == ["ana"]


def test_agents_are_not_merged_though_the_second_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{who},{T0 + i},41.1,-8.6\n" for who in ("bus 1", "bus 2") for i in range(500))
    file = write(tmp_path, f"Bus ID,t,lat,lon\n{rows}")
    monkeypatch.setattr("astray.readers.delimited.BLOCK_BYTES", 1000)
    with pytest.raises(DataError, match=r"'Bus ID' has 2 different values; if these are the agents, pass agent='Bus"):
        read(file)
    with pytest.raises(DataError, match=r"'Bus ID' has 2 different values"):
        list(iter_read(file, 100))


def test_a_file_without_a_header_is_rejected_unless_names_are_given(tmp_path: Path) -> None:
    file = write(tmp_path, "1,2008-02-02 15:36:08,116.51172,39.92123\n1,2008-02-02 15:46:08,116.51135,39.93883\n")
    with pytest.raises(DataError, match=r"row 1: the first line is data.*names="):
        read(file)
    frame, _ = quietly(file, names=["agent", "time", "lon", "lat"])
    assert frame["lat"].to_list() == [39.92123, 39.93883]


# -------------------------------------------------------------------- writing


def test_a_spreadsheet_of_southern_europe_is_read(tmp_path: Path) -> None:
    text = f"\ufeffutilizador;user;t;lat;lon\r\nJoão;Zoë;{T0};41,1579;-8,6291\r\n"
    frame, report = quietly(write(tmp_path, text.encode("utf-8")))
    assert frame.drop("trajectory").row(0) == ("Zoë", T0, 41.1579, -8.6291)
    assert not report.assumptions


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_lines_may_end_with_carriage_returns_alone(tmp_path: Path, encoding: str) -> None:
    text = f"user;t;lat;lon\rZoë;{T0};41,1;-8,6\rZoë;{T0 + 5};41,2;-8,6\r"
    frame, _ = quietly(write(tmp_path, text.encode(encoding)))
    assert frame["lat"].to_list() == [41.1, 41.2]
    file = write(tmp_path, text.replace("41,2", "north").encode(encoding))
    with pytest.raises(DataError, match=r"row 3: latitude is missing or not a finite number \(north\)"):
        read(file)


def test_latin_1_is_read_and_reported(tmp_path: Path) -> None:
    text = f"user;t;lat;lon\nana;{T0};41.1;-8.6\nJoão;{T0};41.1;-8.6\n"
    frame, report = quietly(write(tmp_path, text.encode("latin-1")))
    assert frame["agent"].to_list() == ["ana", "João"]
    assert "latin-1" in str(report.assumptions[0])
    with pytest.warns(ReadWarning, match="latin-1"):
        read(tmp_path / "fixes.csv")
    _, told = quietly(tmp_path / "fixes.csv", encoding="latin-1")
    assert not told.assumptions


def test_utf_16_as_spreadsheets_export_it_is_read(tmp_path: Path) -> None:
    text = f"user\tt\tlat\tlon\r\nŁucja\t{T0}\t41.1\t-8.6\r\n"
    frame, _ = quietly(write(tmp_path, text.encode("utf-16")))
    assert frame["agent"].to_list() == ["Łucja"]


def test_two_encodings_in_one_file_are_rejected(tmp_path: Path) -> None:
    lines = [f"user,t,lat,lon\nŁ,{T0},41.1,-8.6\n".encode()]
    lines += [f"a,{T0 + i},41.1,-8.6\n".encode() for i in range(9)] + [f"é,{T0},41.1,-8.6\n".encode("latin-1")]
    file = write(tmp_path, b"".join(lines))
    with pytest.raises(DataError, match=r"row 12: .*continues in another encoding"):
        list(blocks_of_lines(file, Intake(False, None), block_bytes=64))


def test_quoted_fields_may_hold_delimiters_quotes_and_line_breaks(tmp_path: Path) -> None:
    text = f'user,t,lat,lon,note\n"a, ""b""",{T0},41.1,-8.6,"two\nlines"\nd,{T0},95,-8.6,\n'
    with pytest.raises(DataError, match=r"row 4: latitude outside \[-90, 90\] \(95\)"):
        read(write(tmp_path, text))
    frame, _ = quietly(tmp_path / "fixes.csv", skip_bad=True)
    assert frame["agent"].to_list() == ['a, "b"']


def test_the_error_about_an_open_quotation_names_the_row(tmp_path: Path) -> None:
    text = f'user,t,lat,lon\na,{T0},41.1,-8.6\n"b,{T0},41.1,-8.6\nc,{T0},41.1,-8.6\n'
    with pytest.raises(DataError, match=r"fixes\.csv, row \d+: .*quotation marks"):
        read(write(tmp_path, text))


def test_blank_rows_are_ignored_and_row_numbers_stay_right(tmp_path: Path) -> None:
    text = f"\nuser,t,lat,lon\n\na,{T0},41.1,-8.6\n,,,\n\nb,{T0},x,-8.6\n\n"
    with pytest.raises(DataError, match=r"row 7: latitude is missing or not a finite number \(x\)"):
        read(write(tmp_path, text))


def test_a_decimal_comma_in_a_comma_separated_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 2: more fields than the 4 columns.*decimal commas"):
        read(write(tmp_path, f"user,t,lat,lon\na,{T0},41,1,-8,6\n"))


# -------------------------------------------------------------------- places


def test_swapped_latitude_and_longitude_are_rejected(tmp_path: Path) -> None:
    rows = "".join(f"a,{T0 + i},116.{i},39.9\n" for i in range(9))
    file = write(tmp_path, "uid,t,lat,lon\n" + rows + f"a,{T0 + 9},39.9,116.3\n")
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=r"fixes\.csv: latitude and longitude are swapped \(9 of 10"):
            read(file, skip_bad=skip_bad)
    frame, _ = quietly(file, lat="lon", lon="lat", skip_bad=True)
    assert frame["lat"].unique().to_list() == [39.9]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("91,-8.6", r"latitude outside \[-90, 90\] \(91\)"),
        ("-90.0001,-8.6", "latitude outside"),
        ("41.1,361", "longitude outside"),
        ("nan,-8.6", "latitude is missing or not a finite number"),
        ("41.1,-inf", "longitude is missing or not a finite number"),
        ("41.1,", "longitude is missing or not a finite number"),
        ("41.1N,-8.6", r"latitude is missing or not a finite number \(41.1N\)"),
        ("0,0", r"\(0, 0\) is what a receiver without a fix writes"),
        ("0.0,-0.0", r"\(0, 0\)"),
    ],
)
def test_bad_places_are_an_error_with_their_row_or_skipped(tmp_path: Path, place: str, reason: str) -> None:
    good = "".join(f"a,{T0 + i},41.1,-8.6\n" for i in range(3))
    file = write(tmp_path, f"uid,t,lat,lon\n{good}a,{T0 + 5},{place}\n{good}")
    with pytest.raises(DataError, match=rf"fixes\.csv, row 5: {reason}.*skip_bad=True"):
        read(file)
    frame, report = quietly(file, skip_bad=True)
    assert frame.height == 6
    assert [(s.file, s.row) for s in report.skipped] == [(str(file), 5)]


def test_zero_ok_accepts_the_place_0_0(tmp_path: Path) -> None:
    file = write(tmp_path, f"uid,t,lat,lon\na,{T0},0,0\na,{T0 + 1},0,0.1\n")
    assert read(file, zero_ok=True).n_rows == 2


def test_poles_and_the_antimeridian_are_places_and_a_place_has_one_longitude(tmp_path: Path) -> None:
    rows = [(90, 0), (-90, 180), (-16.8, 179.9), (-16.8, -179.9), (-16.8, 180.1), (41, 351.4), (41, -180)]
    text = "uid,t,lat,lon\n" + "".join(f"a,{T0 + i},{lat},{lon}\n" for i, (lat, lon) in enumerate(rows))
    frame, _ = quietly(write(tmp_path, text))
    assert frame["lat"].to_list() == [lat for lat, _ in rows]
    np.testing.assert_allclose(frame["lon"], [0, 180, 179.9, -179.9, -179.9, -8.6, -180])


# -------------------------------------------------------------------- times


@pytest.mark.parametrize("factor", [1, 10**3, 10**6, 10**9])
def test_the_unit_of_times_is_found_from_their_magnitude(tmp_path: Path, factor: int) -> None:
    frame, _ = quietly(write(tmp_path, f"t,lat,lon\n{T0 * factor},41,-8\n{(T0 + 15) * factor},41,-8\n"))
    assert frame["time"].to_list() == [T0, T0 + 15]
    pl.DataFrame({"t": [T0 * factor], "lat": [41.0], "lon": [-8]}).write_parquet(tmp_path / "p.parquet")
    assert quietly(tmp_path / "p.parquet")[0]["time"].to_list() == [T0]


def test_mixed_time_units_are_an_error_or_the_minority_is_skipped(tmp_path: Path) -> None:
    text = f"t,lat,lon\n{T0}000,41,-8\n{T0 + 1},41,-8\n{T0 + 2}000,41,-8\n0,41,-8\n{T0 + 3}000,41,-8\n"
    with pytest.raises(DataError, match=r"row 3: times of different units are mixed: .*not in ms.*and in 1 more"):
        read(write(tmp_path, text))
    frame, report = quietly(tmp_path / "fixes.csv", skip_bad=True)
    assert frame["time"].to_list() == [T0, T0 + 2, T0 + 3]
    assert [s.row for s in report.skipped] == [3, 5]


def test_small_times_are_seconds_since_another_start_and_that_is_reported(tmp_path: Path) -> None:
    frame, report = quietly(write(tmp_path, "t,lat,lon\n0,41,-8\n15.5,41,-8\n"))
    assert frame["time"].to_list() == [0, 15.5]
    assert "before 1973" in str(report.assumptions[0])
    frame, report = quietly(tmp_path / "fixes.csv", time_unit="ms")
    assert frame["time"].to_list() == [0, 0.0155]
    assert not report.assumptions


def test_a_date_without_punctuation_is_not_taken_for_milliseconds(tmp_path: Path) -> None:
    file = write(tmp_path, "t,lat,lon\n20081023025304,41,-8\n")
    with pytest.raises(DataError, match=r"row 2: time is not a plausible number .*time_format"):
        read(file)
    assert quietly(file, time_format="%Y%m%d%H%M%S")[0]["time"].to_list() == [1_224_730_384]
    stored = tmp_path / "a.parquet"
    pl.DataFrame({"t": [20081023025304], "lat": [41.0], "lon": [-8.0]}).write_parquet(stored)
    assert quietly(stored, time_format="%Y%m%d%H%M%S")[0]["time"].to_list() == [1_224_730_384]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2013-07-01T00:00:58Z", T0),
        ("2013-07-01 00:00:58Z", T0),
        ("2013-07-01T00:00:58.250Z", T0 + 0.25),
        ("2013-07-01T02:00:58+02:00", T0),
        ("2013-07-01 02:00:58 +0200", T0),
        ("2013-06-30T19:30:58-04:30", T0),
        ("2013-07-01T01:00:58+01", T0),
        ("2013-07-01 00:00:58 UTC", T0),
        ("2013-07-01 00:00:58", T0),
        ("2013/07/01 00:00:58", T0),
        ("2013-07-01T00:00:58.5", T0 + 0.5),
        ("2013-07-01 00:01", T0 + 2),
        ("2013-07-01", T0 - 58),
    ],
)
def test_iso_times_are_read_with_and_without_zone(tmp_path: Path, text: str, seconds: float) -> None:
    frame, report = quietly(write(tmp_path, f"t,lat,lon\n{text},41,-8\n"))
    assert frame["time"].to_list() == [seconds]
    naive = not any(mark in text[10:] for mark in ("Z", "+", "-", "UTC"))
    assert [("read as UTC" in str(a)) for a in report.assumptions] == [True] * naive


def test_local_times_need_a_zone_and_an_ambiguous_hour_is_rejected(tmp_path: Path) -> None:
    text = "t,lat,lon\n2013-10-27 00:30:00,41,-8\n2013-10-27 01:30:00,41,-8\n2013-10-27 02:30:00,41,-8\n"
    file = write(tmp_path, text)
    with pytest.raises(DataError, match=r"row 3: this hour occurs twice or never in Europe/Lisbon.*with an offset"):
        read(file, time_zone="Europe/Lisbon")
    frame, report = quietly(file, time_zone="Europe/Lisbon", skip_bad=True)
    assert frame["time"].to_list() == [1_382_830_200, 1_382_841_000]
    assert [s.row for s in report.skipped] == [3]
    spring = write(tmp_path, "t,lat,lon\n2014-03-30 01:30:00,41,-8\n", "spring.csv")
    with pytest.raises(DataError, match="row 2: this hour occurs twice or never in Europe/Lisbon"):
        read(spring, time_zone="Europe/Lisbon")
    stamps = pl.DataFrame({"t": [None, datetime(2014, 3, 30, 1, 30), datetime(2014, 4, 1)], "lat": 41.0, "lon": -8.0})
    stamps.write_parquet(tmp_path / "spring.parquet")
    _, report = quietly(tmp_path / "spring.parquet", time_zone="Europe/Lisbon", skip_bad=True)
    assert [(s.row, s.reason.split()[0]) for s in report.skipped] == [(1, "time"), (2, "this")]
    with pytest.raises(DataError, match=r"time_zone='Mars/Base'"):
        read(file, time_zone="Mars/Base")


@pytest.mark.parametrize("text", ["", "NA", "yesterday", "2013-02-30 00:00:00", "inf", "12:00:00"])
def test_the_error_about_an_invalid_time_names_the_row(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, f"t,lat,lon\n2013-07-01 00:00:58,41,-8\n2013-07-01 00:00:59,41,-8\n{text},41,-8\n")
    with pytest.raises(DataError, match=r"row 4: time is missing or not understood") as refused:
        read(file)
    with pytest.raises(DataError) as refused_in_a_zone:
        read(file, time_zone="Europe/Lisbon")
    assert str(refused_in_a_zone.value) == str(refused.value)  # no fault of daylight saving


def test_other_formats_of_time_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path, "t,lat,lon\n01/07/2013 02:00:58 +0200,41,-8\n")
    assert quietly(file, time_format="%d/%m/%Y %H:%M:%S %z")[0]["time"].to_list() == [T0]


offsets = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@settings(deadline=None)
@given(
    st.datetimes(datetime(1975, 1, 1), datetime(2199, 1, 1), timezones=offsets | st.none()),
    st.sampled_from("T "),
)
def test_whatever_python_writes_as_iso_is_read(moment: datetime, separator: str) -> None:
    seconds, faults = Clock().seconds(pl.Series([moment.isoformat(sep=separator)]))
    assert not any(fault.rows.any() for fault in faults)
    expected = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    assert seconds[0] == pytest.approx(expected.timestamp(), abs=2e-6)


def test_parquet_date_times_are_read_in_their_zone(tmp_path: Path) -> None:
    naive = pl.Series("time", [datetime(2013, 7, 1, 0, 0, 58)])
    for unit in ("ms", "us", "ns"):
        series = naive.cast(pl.Datetime(unit)).dt.replace_time_zone("Europe/Lisbon")
        pl.DataFrame({"time": series, "lat": [41.0], "lon": [-8.0]}).write_parquet(tmp_path / "a.parquet")
        frame, report = quietly(tmp_path / "a.parquet")
        assert frame["time"].to_list() == [T0 - 3600]
        assert not report.assumptions
    pl.DataFrame({"time": naive, "lat": [41.0], "lon": [-8.0]}).write_parquet(tmp_path / "b.parquet")
    frame, report = quietly(tmp_path / "b.parquet")
    assert frame["time"].to_list() == [T0]
    assert "UTC" in str(report.assumptions[0])


# -------------------------------------------------------------------- grouping


def test_fixes_in_any_order_are_grouped_and_sorted(tmp_path: Path) -> None:
    rows = [(a, t, T0 + s) for a in ("b", "a") for t in ("2", "1") for s in range(5)]
    random.Random(0).shuffle(rows)
    text = "uid,trip,t,lat,lon\n" + "".join(f"{a},{t},{s},41.1,-8.6\n" for a, t, s in rows)
    trips = read(write(tmp_path, text))
    keys = list(zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True))
    assert keys == list(dict.fromkeys((a, t) for a, t, _ in rows))
    for one in trips:
        assert (one.columns["time"] - T0).tolist() == [0, 1, 2, 3, 4]


def test_missing_agents_are_rejected_and_an_agent_may_be_called_na(tmp_path: Path) -> None:
    file = write(tmp_path, f"uid,t,lat,lon\nNA,{T0},41,-8\n,{T0},41,-8\n")
    with pytest.raises(DataError, match="row 3: the agent is missing"):
        read(file)
    assert quietly(file, skip_bad=True)[0]["agent"].to_list() == ["NA"]


def test_the_files_of_a_folder_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    write(tmp_path / "days", f"uid,t,lat,lon\na,{T0 + 9},41.2,-8\nb,{T0},41,-8\n", "2.csv")
    write(tmp_path / "days", f"uid;tst;lng;lat\na;{T0}000;-8;41,1\n", "1.csv")
    pl.DataFrame({"user": ["a"], "time": [T0 + 5], "lat": [41.15], "lon": [-8.0]}).write_parquet(
        tmp_path / "days" / "3.parquet"
    )
    calls: list[tuple[int, int]] = []
    trips = read(tmp_path / "days", progress=lambda done, total: calls.append((done, total)))
    assert trips.agents == ["a", "b"]
    assert trips[0].columns["lat"].tolist() == [41.1, 41.15, 41.2]
    assert calls[-1][0] == calls[-1][1]
    write(tmp_path / "days", b"", "4.csv")
    with pytest.raises(DataError, match=r"4\.csv: the file is empty"):
        read(tmp_path / "days")
    report = Report()
    assert read(tmp_path / "days", skip_bad=True, report=report).n_rows == 4
    assert report.skipped[0].file.endswith("4.csv")


# -------------------------------------------------------------------- broken files


def test_broken_parquet_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "fixes.parquet"
    pl.DataFrame({"t": [T0] * 500, "lat": [41.0] * 500, "lon": [-8.0] * 500}).write_parquet(file)
    whole = file.read_bytes()
    for content in (whole[:-9], whole[: len(whole) // 2], whole[:-8] + b"\xff\xff\xff\x7fPAR1", b"PAR1PAR1"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"fixes\.parquet: not a whole Parquet file"):
            read(file)
    file.write_bytes(b"")
    with pytest.raises(DataError, match="empty"):
        read(file)


@pytest.mark.parametrize("change", [{"lat": [[41.0]]}, {"lat": [True]}, {"t": [timedelta(1)]}, {"uid": [b"\xff\xfe"]}])
def test_parquet_columns_of_an_unusable_type_are_rejected(tmp_path: Path, change: dict[str, object]) -> None:
    good = {"t": [T0], "lat": [41.0], "lon": [-8.0], "uid": ["a"]}
    pl.DataFrame(good | change).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet"):
        read(tmp_path / "a.parquet")


def test_paths_that_are_not_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "nowhere.csv")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(DataError, match=r"folder\.csv: nothing in this folder"):
        read(folder)
    with pytest.raises(DataError, match="nothing in this folder is recognised"):
        read(folder, format="table")
    (folder / "a.csv").write_text("t,lat,lon\n1372636858,41,-8\n")
    (folder / "b.csv").write_text("t,lat,lon\n1372636858,41,-8\n")
    with pytest.raises(DataError, match="several files where one was expected; stream the files one by one"):
        next(iter_read(folder))
    for format in ("table", "porto", "gpx", "geojson", "geolife"):
        with pytest.raises(DataError, match="there is no such file or folder"):
            read(tmp_path / "nowhere", format=format)


def test_a_file_that_vanishes_between_two_batches_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "fixes.parquet"
    write_long(file, 600_000)
    batches = iter_read(file, batch_rows=1000)
    next(batches)
    file.unlink()
    with pytest.raises(DataError, match=r"fixes\.parquet: No such file.*while they are read"):
        list(batches)


@settings(deadline=None)
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".parquet", ".gpx", ".json", ".plt", ""]))
@example(content=b"t,lat,lon\n\x00", suffix=".csv")
@example(content=b"t,lat,lon\n" + b"\xff" * 50, suffix=".csv")
@example(content=b"\xff\xfet,lat", suffix=".csv")
@example(content=b'"t,lat,lon', suffix=".csv")
@example(content=b'uid,t,lat,lon\n"', suffix=".csv")
@example(content=b"{" * 100_000, suffix=".json")
@example(content=b"[" * 100_000, suffix=".geojson")
@example(content=b"PAR1" + bytes(20) + b"PAR1", suffix=".parquet")
def test_any_bytes_are_read_or_raise_a_data_error(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), content, "garbage" + suffix)
        for skip_bad in (False, True):
            with pytest.raises(DataError, match="garbage"):
                read(file, skip_bad=skip_bad, report=Report())


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b), min_size=4, max_size=4), st.booleans())
def test_garbage_in_a_row_is_an_error_or_skipped(cells: list[bytes], skip_bad: bool) -> None:
    good = f"a,{T0},41.1,-8.6\n".encode()
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), b"uid,t,lat,lon\n" + good + b",".join(cells) + b"\n" + good)
        report = Report()
        result = outcome(file, skip_bad=skip_bad, report=report)
        if isinstance(result, DataError):
            assert str(file) in str(result)
        else:
            blank = any("blank" in note for note in report.notes)
            assert result.n_rows + report.n_skipped + blank == 3


cell_text = st.text('ab ",;\n\r1.é', max_size=5)


@settings(deadline=None)
@given(st.lists(st.lists(cell_text, min_size=3, max_size=3), min_size=1, max_size=5), st.sampled_from(",;\t|"))
def test_the_fast_parser_agrees_with_the_exact_one(rows: list[list[str]], delimiter: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    body = text.getvalue().encode()
    dialect, wanted = Dialect(delimiter, ("x", "y", "z"), 0, None), {"x": 0, "y": 1, "z": 2}
    fast = _parse(Path("f"), body, dialect, wanted, 1)
    slow = _parse_with_csv(Path("f"), body, dialect, wanted, 1)
    assert fast.rows.tolist() == slow.rows.tolist()
    for a, b in zip(fast.frame.iter_rows(), slow.frame.iter_rows(), strict=True):
        assert [value or None for value in a] == [value or None for value in b]


@settings(deadline=None)
@given(st.lists(st.lists(cell_text.map(lambda s: s.replace("\r", "")), min_size=3, max_size=3), max_size=30))
def test_the_size_of_blocks_does_not_change_the_result(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "blocks.csv"
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["x", "y", "z"], *rows])
    dialect, wanted = Dialect(",", ("x", "y", "z"), 1, None), {"x": 0, "y": 1, "z": 2}
    whole = list(read_blocks(file, dialect, wanted, Intake(False, Report()), None, 1000))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("astray.readers.delimited.BLOCK_BYTES", 50)
        pieces = list(read_blocks(file, dialect, wanted, Intake(False, Report()), None, 1000))
    assert [r for b in pieces for r in b.rows] == [r for b in whole for r in b.rows]
    texts = [[tuple(value or "" for value in row) for b in bs for row in b.frame.iter_rows()] for bs in (whole, pieces)]
    assert texts[0] == texts[1] == [tuple(row) for row in rows if any(row)]


# -------------------------------------------------------------------- round trip


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, str, float, float, float]]]:
    """A table written in one of many ways, and the fixes that are in it."""
    delimiter = draw(st.sampled_from(",;\t|"))
    comma = draw(st.booleans()) and delimiter != ","
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]))
    style = draw(st.sampled_from(["s", "ms", "us", "iso", "iso-z", "iso-offset"]))
    names = {role: draw(st.sampled_from(aliases)) for role, aliases in ALIASES.items()}
    names = {role: draw(st.sampled_from([str.upper, str.title, str.lower]))(name) for role, name in names.items()}
    order = draw(st.permutations([*names, "unknown"]))
    label = st.text("abzABZ019_é ,;\"'", min_size=1, max_size=6).filter(lambda s: s.strip() == s)
    place = st.floats(-90, 90).map(lambda x: round(x, 6) + 0.0)
    keys = draw(st.lists(st.tuples(label, label), min_size=1, max_size=3, unique=True))
    fixes = []
    for agent, trajectory in keys:
        for i in range(draw(st.integers(1, 3))):
            lat, lon = draw(place), draw(place.filter(bool))
            fixes.append((agent, trajectory, float(T0 + 60 * i), lat, lon))

    def written(time: float) -> str:
        moment = datetime.fromtimestamp(time, UTC)
        match style:
            case "iso":
                return moment.strftime("%Y-%m-%d %H:%M:%S")
            case "iso-z":
                return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            case "iso-offset":
                return moment.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
            case _:
                return str(int(time) * {"s": 1, "ms": 10**3, "us": 10**6}[style])

    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerow([names.get(role, "whatever") for role in order])
    for agent, trajectory, time, lat, lon in fixes:
        numbers = {"lat": repr(lat), "lon": repr(lon)}
        if comma:
            numbers = {role: number.replace(".", ",") for role, number in numbers.items()}
        cells = {"agent": agent, "trajectory": trajectory, "time": written(time), "unknown": "?"} | numbers
        writer.writerow([cells[role] for role in order])
    return text.getvalue().encode(encoding), fixes


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_a_written_table_is_read_back_in_any_dialect(
    table: tuple[bytes, list[tuple[str, str, float, float, float]]],
) -> None:
    content, fixes = table
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), content)
        frame, report = quietly(file)
        assert frame.drop("utc_offset", strict=False).rows() == fixes
        assert report.n_skipped == 0
        streamed = pl.concat([batch.to_frame() for batch in iter_read(file, batch_rows=1, report=Report())])
        assert streamed.drop("utc_offset", strict=False).rows() == fixes


# -------------------------------------------------------------------- streaming


def write_long(path: Path, n_rows: int, per_trip: int = 500) -> None:
    i = np.arange(n_rows)
    trip = i // per_trip
    frame = pl.DataFrame(
        {
            "uid": trip // 10,
            "trip": trip,
            "t": T0 + 15 * i,
            "lat": 41 + (i % 997) / 1e4,
            "lon": -8 - (i % 991) / 1e4,
        }
    )
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path, row_group_size=100_000)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_batches_hold_whole_trajectories_and_together_the_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"long{suffix}"
    write_long(file, 700_000)
    batches = list(iter_read(file, batch_rows=150_000))
    assert len(batches) > 2
    assert all(set(batch.lengths.tolist()) == {500} for batch in batches)
    whole = read(file)
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(np.concatenate([b.columns[name] for b in batches]), whole.columns[name])
    assert np.concatenate([b.trajectory_ids for b in batches]).tolist() == whole.trajectory_ids.tolist()


def test_streaming_an_ungrouped_file_is_an_error_at_the_row_where_that_shows(tmp_path: Path) -> None:
    rows = ["a,1", "a,1", "b,1", "a,2", "a,1"]
    file = write(tmp_path, "uid,trip,t,lat,lon\n" + "".join(f"{r},{T0 + i},41,-8\n" for i, r in enumerate(rows)))
    assert len(read(file)) == 3
    with pytest.raises(DataError, match=r"row 6: trajectory '1' of agent 'a' continues after another.*sort it"):
        list(iter_read(file))


def test_skipped_rows_of_a_stream_are_reported_and_warned_about_at_its_end(tmp_path: Path) -> None:
    file = write(tmp_path, f"uid,t,lat,lon\na,{T0},41,-8\na,{T0},91,-8\nb,{T0},41,-8\n")
    report = Report()
    assert sum(b.n_rows for b in iter_read(file, 1, skip_bad=True, report=report)) == 2
    assert report.n_skipped == 1
    with pytest.warns(ReadWarning, match="row 3"):
        list(iter_read(file, skip_bad=True))


def test_a_report_lists_some_and_counts_all(tmp_path: Path) -> None:
    good = f"a,{T0},41,-8\n" * 2000
    file = write(tmp_path, "uid,t,lat,lon\n" + good + f"a,{T0},91,-8\n" * 1500)
    _, report = quietly(file, skip_bad=True)
    assert report.counts == {"latitude outside [-90, 90]": 1500}
    assert len(report.skipped) == 1000
    assert "1,500 left out" in str(report)
    assert "and 1,495 more" in str(report)


PEAK = """
import sys
from pathlib import Path
from astray.readers import Report, iter_read, read

def peak():  # in kilobytes; getrusage would also count what the process was before it became this one
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""
STREAM = (
    PEAK
    + """
next(iter_read(sys.argv[2], batch_rows=100_000))
before = peak()
rows = sum(batch.n_rows for batch in iter_read(sys.argv[1], batch_rows=100_000))
print(rows, peak() - before)
"""
)
WHOLE = (
    PEAK
    + """
read(sys.argv[2], report=Report())
before = peak()
trips = read(sys.argv[1], report=Report())
print(trips.n_rows, peak() - before)
"""
)


def grown(program: str, long: Path, short: Path) -> tuple[int, int]:
    """Rows that were read, and by how many bytes the peak of memory was higher than for a short file."""
    command = [sys.executable, "-c", program, str(long), str(short)]
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    rows, kilobytes = map(int, out.split())
    return rows, kilobytes * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is measured on Linux only")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    write_long(tmp_path / "short.csv", 400_000)
    write_long(tmp_path / "long.csv", 1_500_000)
    rows, more = grown(STREAM, tmp_path / "long.csv", tmp_path / "short.csv")
    assert rows == 1_500_000
    assert more < (tmp_path / "long.csv").stat().st_size / 2


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is measured on Linux only")
@pytest.mark.parametrize("how", ["with trips", "without trips", "trips among each other"])
def test_reading_a_table_takes_little_more_memory_than_its_numbers(how: str, tmp_path: Path) -> None:
    for name, n in (("short", 200_000), ("long", 1_200_000)):
        write_long(tmp_path / f"{name}.parquet", n)
        table = pl.read_parquet(tmp_path / f"{name}.parquet")
        if how == "without trips":
            table = table.drop("trip")
        if how == "trips among each other":
            table = table.sort(pl.int_range(n) % 500, maintain_order=True)
        table.write_csv(tmp_path / f"{name}.csv")
    rows, more = grown(WHOLE, tmp_path / "long.csv", tmp_path / "short.csv")
    # Three numbers of eight bytes are kept of a fix; names would take ten times as much.
    assert more / rows < 2.5 * 24


def test_several_agents_are_not_merged_into_one_unasked(tmp_path: Path) -> None:
    file = tmp_path / "fixes.csv"
    rows = [f"{i % 3},{i},{T0 + i},41,-8" for i in range(30)]
    file.write_text("\n".join(["Unit ID,event_id,t,lat,lon", *rows]) + "\n")
    with pytest.raises(
        DataError, match=r"'Unit ID' has 3 different values; if these are the agents, pass agent='Unit ID'"
    ):
        read(file)
    assert read(file, agent="Unit ID").agents == ["0", "1", "2"]
    assert read(file, one_agent=True).agents == ["fixes"]
    # A value a row, or one for all, tells no agents apart.
    file.write_text("\n".join(["study_name,event_id,t,lat,lon", *(f"x,{row[2:]}" for row in rows[:9])]) + "\n")
    assert read(file).agents == ["fixes"]


def test_with_an_agent_that_the_caller_names_no_remark_says_whose_the_fixes_are(tmp_path: Path) -> None:
    file = write(tmp_path, f"t,lat,lon,weather\n{T0},41,-8,rain\n")
    cases = (({}, "so all fixes belong to one agent, 'fixes'; not"), ({"one_agent": True}, "was recognised; not"))
    for options, said in cases:
        _, report = quietly(file, **options)
        assert f"{said} used are 'weather'" in str(report.assumptions[0])


def test_agents_in_a_column_of_an_unknown_name_are_told_by_their_values(tmp_path: Path) -> None:
    agents, said = ("ana", "bob", "cem"), "'Wer' changes back and forth, and the place with it; if these are the"
    for turns, apart, told in ((lambda i: i % 3, 1, True), (lambda i: i % 3, 0, False), (lambda i: i // 20, 1, False)):
        who = [turns(i) for i in range(60)]
        rows = [f"{T0 + i},{41 + apart * k},-8,{agents[k]},{i % 3},n{i}\n" for i, k in enumerate(who)]
        for lines in (rows, sorted(rows, key=lambda row: row.split(",")[3])):  # grouped by agent, too
            file = write(tmp_path, "t,lat,lon,Wer,level,note\n" + "".join(lines))
            assert any(f"{said} agents, pass agent='Wer'" in remark for remark in odd(file)) == told


def odd(file: Path) -> list[str]:
    report = Report()
    read(file, report=report)
    return [str(assumption) for assumption in report.assumptions]


def test_times_that_are_cut_to_minutes_are_reported(tmp_path: Path) -> None:
    for every, told in ((10, True), (60, False)):
        times = (f"01/15/2025 19:{every * i // 60:02}" for i in range(30))
        rows = "".join(f"a,{time},{41 + i / 1000},-8\n" for i, time in enumerate(times))
        said = "25 of 30 fixes have the same time as the one before, and are not used; write times with their seconds"
        assert any(said in remark for remark in odd(write(tmp_path, f"agent,time,lat,lon\n{rows}"))) == told


def test_trips_of_many_days_and_trips_of_one_fix_are_reported(tmp_path: Path) -> None:
    rows = [f"a,{{}},{T0 + 3600 * i},{41 + i / 1000},-8" for i in range(200)]
    for name, said in (
        ("all", "as they are named, 1 of 1 trips last longer than 3 days; pass trips='cut'"),
        ("row {}", "as they are named, 200 of 200 trips have one fix; pass trips='cut'"),
        ("day", ""),
    ):
        names = [f"day {i // 20}" if name == "day" else name.format(i) for i in range(200)]
        table = "\n".join(["uid,trip,t,lat,lon", *(row.format(n) for row, n in zip(rows, names, strict=True))])
        found = odd(write(tmp_path, table))
        assert [text[: len(said)] for text in found] == ([said] if said else [])
        assert read(tmp_path / "fixes.csv", trips="cut", report=Report()).n_rows == 200


def test_the_same_trip_under_two_names_is_reported(tmp_path: Path) -> None:
    def rows(agent: str, trip: str, north: float = 0.0) -> list[str]:
        return [f"{agent},{trip},{T0 + i},{41 + i / 1000 + north},-8" for i in range(5)]

    table = ["uid,trip,t,lat,lon", *rows("a", "1"), *rows("a", "2", 0.1), *rows("b", "7")]
    said = "1 trip with the same fixes as another one, first 'b/7' as 'a/1'; leave them out"
    assert [text[: len(said)] for text in odd(write(tmp_path, "\n".join(table)))] == [said]
    table[-3] = table[-3].replace("-8", "-8.1")  # the ends alone do not make it the same
    assert odd(write(tmp_path, "\n".join(table))) == []


# -------------------------------------------------------------------- above, and without, column names


def test_lines_above_the_header_are_ignored_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    rows = "Time;Lat;Lon\n1372636858;41,1;-8,6\n1372636873;41,2;-8,7\n"
    for above in ("sep=;\n", "Vehicle report 2025\nmade by a fleet program, for you\n\n"):
        file.write_text(above + rows)
        report = Report()
        assert read(file, report=report).columns["lat"].tolist() == [41.1, 41.2]
        assert "above the column names" in report.notes[0]
        file.write_text(above + rows + "1372636880;91;0\n")
        with pytest.raises(DataError) as refusal:
            read(file)
        assert refusal.value.place == Place(str(file), above.count("\n") + 4)


def test_spaces_may_separate_columns(tmp_path: Path) -> None:
    file = tmp_path / "new_abboip.txt"
    file.write_text("37.75134 -122.39488 0 1213084687\n37.75136 -122.39527 0 1213084659\n")
    with pytest.raises(DataError, match="the first line is data, not column names"):
        read(file)
    trips = read(file, names=["lat", "lon", "occupied", "time"])
    assert trips.columns["lon"].tolist() == [-122.39527, -122.39488]
    file.write_text("lat lon time\n37.75134 -122.39488 1213084687\n")
    assert read(file).n_rows == 1


def test_the_error_about_bad_degrees_says_how_to_write_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,lat,lon\n1372636858,45°0.17'N,7°1.1'E\n")
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=r"45°0\.17'N.*give degrees as a number such as 45\.0016"):
            read(tmp_path / "a.csv", skip_bad=skip_bad, report=Report())


def test_suggested_columns_of_degrees_follow_hints_in_their_names(tmp_path: Path) -> None:
    rows = "".join(f"2025-01-06 08:0{i}:47,6.9{i}8,45.0{i}2,6.9{i}9,45.0{i}3\n" for i in range(9))
    (tmp_path / "a.csv").write_text("picked_up,pickup_longitude,pickup_latitude,off_longitude,off_latitude\n" + rows)
    found = suggest_columns(tmp_path / "a.csv", ("time", "lat", "lon"))
    assert found == {"time": "picked_up", "lon": "pickup_longitude", "lat": "pickup_latitude"}
