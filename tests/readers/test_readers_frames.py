"""Tables in memory; libraries that are not installed are stood in for by what they are known by."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import astray
from astray.core.errors import DataError
from astray.readers import Report

T0 = 1_372_636_858
FIXES = {"uid": ["ana", "ana", "bob"], "trip": ["a", "a", "b"], "t": [T0, T0 + 15, T0], "lat": [41.1, 41.2, 41.3]}
FIXES |= {"lng": [-8.6, -8.7, -8.8]}


@pytest.mark.parametrize(
    "table", [pl.DataFrame(FIXES), pl.LazyFrame(FIXES), pd.DataFrame(FIXES), pa.table(FIXES), dict(FIXES)]
)
def test_tables_of_polars_pandas_and_pyarrow_give_the_same_trips(table: Any) -> None:
    trips = astray.read(table)
    assert (trips.agents, trips.trajectory_ids.tolist(), trips.lengths.tolist()) == (["ana", "bob"], ["a", "b"], [2, 1])
    assert trips.columns["time"].tolist() == [T0, T0 + 15, T0]
    assert trips.columns["lon"].tolist() == [-8.6, -8.7, -8.8]


def test_a_table_in_memory_is_checked_as_a_file_is() -> None:
    bad = pd.DataFrame(FIXES | {"lat": [41.1, 91, 41.3]})
    with pytest.raises(DataError, match=r"the table, row 1: latitude outside \[-90, 90\]"):
        astray.read(bad)
    report = Report()
    assert astray.read(bad, skip_bad=True, report=report).n_rows == 2
    assert report.counts == {"latitude outside [-90, 90]": 1}
    with pytest.raises(DataError, match=r"no column for lat was recognised .*pass lat='NAME'"):
        astray.read(pd.DataFrame(FIXES).rename(columns={"lat": "Breite"}))
    with pytest.raises(DataError, match="not a data frame, but int"):
        astray.read(7)


@pytest.mark.parametrize(
    "change",
    [
        {"uid": ["ana", 7, 2.5]},
        {"lat": np.array([41.1, "north", None], object)},
        {"lat": np.array([41.1 + 0j] * 3)},
        {"lat": pd.arrays.SparseArray([41.1, 41.2, 41.3])},
    ],
)
def test_an_object_that_is_not_a_table_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"the table cannot be converted \(.*\); give each column a different name"):
        astray.read(pd.DataFrame(FIXES | change))
    twice = pd.DataFrame(FIXES).rename(columns={"trip": "lat"})
    with pytest.raises(DataError, match="the table cannot be converted"):
        astray.read(twice)
    with pytest.raises(DataError, match="the table cannot be converted"):
        astray.read({"lat": [1], "lon": [1, 2, 3]})


@pytest.mark.parametrize("library", [pl, pd])
def test_nan_is_not_a_name_of_an_agent(library: Any) -> None:
    for column, role in (("uid", "agent"), ("trip", "trajectory")):
        table = library.DataFrame(FIXES | {column: [1.5, float("nan"), 2.5]})
        with pytest.raises(DataError, match=f"the table, row 1: the {role} is missing"):
            astray.read(table)
        found = astray.read(table, skip_bad=True, report=Report())
        assert {*found.agent_ids, *found.trajectory_ids} >= {"1.5", "2.5"}
        assert found.n_rows == 2


def test_a_pandas_index_with_a_name_or_times_becomes_a_column() -> None:
    frame = pd.DataFrame({"lat": [41.1, 41.2], "lon": [-8.6, -8.7]}, index=pd.to_datetime([T0, T0 + 15], unit="s"))
    assert astray.read(frame, report=Report()).columns["time"].tolist() == [T0, T0 + 15]
    local = frame.tz_localize("UTC").tz_convert("Europe/Lisbon")
    assert astray.read(local, report=Report()).columns["time"].tolist() == [T0, T0 + 15]
    named = pd.DataFrame(FIXES).set_index(["uid", "trip"])
    assert astray.read(named).agents == ["ana", "bob"]


class GeoFrame(pd.DataFrame):
    """What a GeoDataFrame of points is known by: a geometry with x and y, a reference system, and a way to convert."""

    _metadata = ["crs"]  # noqa: RUF012

    @property
    def _constructor(self) -> type[GeoFrame]:
        return GeoFrame

    @property
    def geometry(self) -> Any:
        places = np.array(self["geom"].to_list())
        x, y = pd.Series(places[:, 0]), pd.Series(places[:, 1])
        return SimpleNamespace(name="geom", x=x, y=y)

    def to_crs(self, epsg: int) -> GeoFrame:
        assert epsg == 4326
        degrees = [(x / 100_000, y / 100_000) for x, y in self["geom"]]
        return geo(degrees, SimpleNamespace(is_geographic=True))


def geo(places: list[tuple[float, float]], crs: object) -> GeoFrame:
    columns = {"user_id": ["7", "7"], "tracked_at": pd.to_datetime([T0, T0 + 15], unit="s", utc=True), "geom": places}
    frame = GeoFrame(columns)
    frame.crs = crs
    return frame


DEGREES = [(-8.6, 41.1), (-8.7, 41.2)]


@pytest.mark.parametrize(
    ("places", "crs"),
    [
        (DEGREES, SimpleNamespace(is_geographic=True)),
        (DEGREES, None),
        ([(-860_000.0, 4_110_000.0), (-870_000.0, 4_120_000.0)], SimpleNamespace(is_geographic=False)),
    ],
)
def test_positionfixes_of_trackintel_are_read(places: Any, crs: object) -> None:
    trips = astray.read(geo(places, crs), report=Report())
    assert (trips.agents, trips.columns["time"].tolist()) == (["7"], [T0, T0 + 15])
    assert trips.columns["lat"].tolist() == pytest.approx([41.1, 41.2])
    assert trips.columns["lon"].tolist() == pytest.approx([-8.6, -8.7])


def test_a_geometry_without_points_is_rejected() -> None:
    class Line:
        name = "geom"

        @property
        def x(self) -> Any:
            raise ValueError("x attribute access only provided for Point geometries")

    lines = SimpleNamespace(crs=None, geometry=Line())
    with pytest.raises(DataError, match=r"the geometry is not points .*; give one point per row"):
        astray.read(lines)


@dataclass
class Moving:
    """What a Trajectory of MovingPandas is known by."""

    df: Any
    id: object
    obj_id: object = None


def moving(name: object, begin: int, who: object = None) -> Moving:
    times = pd.DatetimeIndex(pd.to_datetime([begin, begin + 15], unit="s"), name="t")
    frame = GeoFrame({"traj_id": ["x", "x"], "geom": DEGREES}, index=times)
    frame.crs = None
    return Moving(frame, name, who)


def test_trajectories_of_movingpandas_are_read_under_their_ids() -> None:
    one = astray.read(moving(17, T0), report=Report())
    assert (one.agents, one.trajectory_ids.tolist(), one.columns["time"].tolist()) == ([""], ["17"], [T0, T0 + 15])
    several = SimpleNamespace(trajectories=[moving("a", T0, "ana"), moving("b", T0 + 60, "bob")])
    trips = astray.read(several, report=Report())
    assert (trips.agents, trips.trajectory_ids.tolist()) == (["ana", "bob"], ["a", "b"])
