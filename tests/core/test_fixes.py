"""Files and the live feed accept the same fixes with the same values, and refuse others for the same reasons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from astray.core.errors import DataError
from astray.core.fixes import ALIASES, MAX_NAME, label, label_faults, parts
from astray.core.times import UNITS
from astray.readers import Report, read
from astray.runtime.json_fixes import Message, Refused, parse, read_fix

T0 = 1_372_636_858

degrees = st.one_of(
    st.floats(-400, 400),
    st.integers(-400, 400),
    st.sampled_from([0, 0.0, -0.0, 90, -90, 180, -180, 360, -360, 90.0000001, 360.0000001, 1e300]),
    st.decimals(-400, 400, places=9).map(str),
    st.sampled_from(["41.5", " 41.5 ", "1e1", "41,5", "north", "", "NA", "inf", "nan", "1_0", "0x1"]),
    st.none(),
)
clock_times = st.datetimes().map(lambda d: d.replace(year=1900 + d.year % 200))
texts = st.one_of(
    clock_times.map(lambda d: d.isoformat()),
    clock_times.map(lambda d: d.isoformat(" ", "milliseconds") + "Z"),
    st.tuples(clock_times, st.integers(-14, 14)).map(lambda p: f"{p[0].isoformat()}{p[1]:+03d}:00"),
    st.tuples(clock_times, st.integers(0, 14)).map(lambda p: f"{p[0]:%Y-%m-%d %H:%M}+{p[1]:02d}30"),
    clock_times.map(lambda d: f"{d:%Y/%m/%d %H:%M:%S}"),
    clock_times.map(lambda d: f"{d:%Y%m%dT%H%M%S}"),
    st.sampled_from(
        ["soon", "", "2013-13-01T00:00:00Z", "2013-07-01T25:00:00Z", "2013-07-01T00:00:60Z", "2013-W27-1", "24:00"]
    ),
)
numbers = st.one_of(
    st.floats(-8e18, 8e18),
    st.integers(-(10**19), 10**19),
    st.sampled_from(list(UNITS.values())).flatmap(
        lambda unit: st.floats(0.9e8, 8e9).map(lambda s: math.floor(s * unit))
    ),
)


def in_a_file(folder: Path, time: object, lat: object, lon: object) -> tuple[float, float, float] | str:
    """Reads a fix from a table in which the other fixes are good and write their times in the same form."""
    unit = next((k for k in UNITS.values() if isinstance(time, (int, float)) and abs(time) <= 7.3e9 * k), 1)
    good = [T0 * unit + i for i in range(3)] if isinstance(time, (int, float)) else ["2013-07-01T00:00:58Z"] * 3
    rows = [*((t, 45, 7, "good") for t in good), (time, lat, lon, "odd")]
    file = folder / "fixes.csv"
    quoted = [["" if value is None else json.dumps(value).replace('\\"', '""') for value in row] for row in rows]
    file.write_text("time,lat,lon,trip\n" + "\n".join(",".join(row) for row in quoted) + "\n")
    report = Report()
    trips = read(file, skip_bad=True, report=report)
    odd = trips[trips.trajectory_ids == "odd"]
    if report.skipped:
        assert not len(odd)
        return report.skipped[0].reason
    (t,), (y,), (x,) = (odd.columns[name].tolist() for name in ("time", "lat", "lon"))
    return t, y, x


def live(time: object, lat: object, lon: object) -> tuple[float, float, float] | str:
    message = parse(json.dumps({"agent": "a", "time": time, "lat": lat, "lon": lon}))
    if isinstance(message, Refused):
        with pytest.raises(DataError) as refused:
            read_fix({"t": time, "latitude": lat, "lng": lon})
        assert refused.value.reason == message.reason
        return message.reason
    fix = message.time, message.lat, message.lon
    assert read_fix((time, lat, lon)) == read_fix(fix) == fix
    return fix


@given(st.one_of(numbers, texts), degrees, degrees)
@example(0, 0, 0)
@example(20081023025304, 45, 7)
@example("2013-07-01T00:00:58.1+01:00", 45, 7)
@example(T0, 45, 359.9)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_and_the_live_feed_agree_about_a_fix(tmp_path: Path, time: Any, lat: Any, lon: Any) -> None:
    def plain(outcome: tuple[float, float, float] | str) -> object:
        # An empty cell of a table means the same as null or an empty text in a message.
        return outcome.replace("()", "(None)") if isinstance(outcome, str) else outcome

    assert plain(live(time, lat, lon)) == plain(in_a_file(tmp_path, time, lat, lon))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_NAME + 2))
@example("\x1b[2J")
@example("\u202egnp.exe")
@example("x" * (MAX_NAME + 1))
@settings(max_examples=200, deadline=None)
def test_bad_names_are_rejected_for_the_same_reason_in_files_and_live(text: str) -> None:
    stripped = pl.Series([text.strip() or None], dtype=pl.String)
    in_column = [fault.reason for fault in label_faults("agent", stripped) if fault.rows[0]]
    if not in_column:
        assert [label("agent", text)] == stripped.to_list()
        return
    with pytest.raises(DataError) as refused:
        label("agent", text)
    assert in_column == [refused.value.reason]


@pytest.mark.parametrize("role", ALIASES)
def test_messages_know_every_column_name_that_tables_know(role: str) -> None:
    for alias in ALIASES[role]:
        assert parts({alias.upper(): 1, "other": 2}) == ({role: 1}, {"other": 2})


def test_the_preferred_of_two_names_counts_in_any_order() -> None:
    assert parts({"x": 1, "lon": 2, "speed": 3}) == parts({"lon": 2, "speed": 3, "x": 1}) == ({"lon": 2}, {"speed": 3})


def test_names_that_could_harm_a_terminal_are_rejected_in_files_and_live(tmp_path: Path) -> None:
    (tmp_path / "fixes.csv").write_text("agent,time,lat,lon\nana\x1b[2J,0,45,7\n")
    with pytest.raises(DataError, match="characters that cannot be shown"):
        read(tmp_path / "fixes.csv")
    message = parse(json.dumps({"agent": "ana\x1b[2J", "time": 0, "lat": 45, "lon": 7}))
    assert not isinstance(message, Message)
    assert message.reason == "the name of the agent holds characters that cannot be shown"
