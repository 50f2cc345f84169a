"""Trajectories: grouped, sorted and checked when they are made; slicing keeps whole trajectories."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Trajectories
from astray.core.errors import DataError
from astray.core.grouping import ROWS, put_in_order


def trips(lengths: tuple[int, ...] = (3, 1, 4, 2), agents: str = "abab") -> Trajectories:
    """Returns small trajectories in which each value shows its origin."""
    n = sum(lengths)
    return Trajectories(
        {
            "time": np.concatenate([np.arange(m) * 10.0 for m in lengths]),
            "lat": np.arange(n) / 100,
            "lon": -np.arange(n) / 100,
            "speed": np.arange(n),
        },
        np.r_[0, np.cumsum(lengths)],
        list(agents),
        [f"t{i}" for i in range(len(lengths))],
        {"call": np.array(["x", "y", "z", "w"])[: len(lengths)]},
    )


def same(a: Trajectories, b: Trajectories) -> bool:
    """Returns True if two sets hold the same values."""
    return (
        a.columns.keys() == b.columns.keys()
        and a.context.keys() == b.context.keys()
        and all(np.array_equal(a.columns[c], b.columns[c]) for c in a.columns)
        and all(np.array_equal(a.context[c], b.context[c]) for c in a.context)
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.agent_ids, b.agent_ids)
        and np.array_equal(a.trajectory_ids, b.trajectory_ids)
    )


# ---------------------------------------------------------------- read-only


@pytest.mark.parametrize(
    "made",
    [
        trips(),
        trips()[1],
        trips()[1:3],
        trips()[[2, 0]],
        trips().agent("a"),
        next(iter(trips())),
        trips().with_columns({"heart": np.arange(10.0)}, {"car": np.arange(4)}),
        Trajectories.concat([trips(), trips()]),
        Trajectories.from_frame(trips().to_frame(), columns=["speed"], context=["call"]),
        Trajectories.from_steps([np.zeros((5, 3))], [np.zeros(5)]),
        pickle.loads(pickle.dumps(trips())),
        copy.deepcopy(trips()),
    ],
    ids=lambda made: repr(made),
)
def test_arrays_of_trajectories_are_read_only(made: Trajectories):
    arrays = [*made.columns.values(), *made.context.values(), made.offsets, made.agent_ids, made.trajectory_ids]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[-1]
    with pytest.raises(TypeError, match="item assignment"):
        made.columns["lat"] = np.zeros(made.n_rows)  # type: ignore[index]


def test_arrays_of_the_caller_stay_writable():
    lat, offsets = np.zeros(3), np.array([0, 3])
    made = Trajectories({"time": np.arange(3.0), "lat": lat, "lon": np.zeros(3)}, offsets, ["a"], ["t"])
    assert lat.flags.writeable
    assert offsets.flags.writeable
    assert np.shares_memory(made.columns["lat"], lat)  # large data are not copied


# ---------------------------------------------------------------- slicing

INDICES: list[tuple[Any, list[int]]] = [
    (1, [1]),
    (-1, [3]),
    (np.int32(2), [2]),
    (np.array(2), [2]),
    (slice(1, 3), [1, 2]),
    (slice(None, None, -1), [3, 2, 1, 0]),
    (slice(0, 4, 2), [0, 2]),
    (slice(3, 1), []),
    ([2, 0, 2], [2, 0, 2]),
    ([-1, -4], [3, 0]),
    (np.array([True, False, False, True]), [0, 3]),
    ([], []),
]


@pytest.mark.parametrize(("index", "expected"), INDICES, ids=[str(i) for i, _ in INDICES])
def test_an_index_chooses_whole_trajectories(index: Any, expected: list[int]):
    t = trips()
    chosen = t[index]
    assert chosen.trajectory_ids.tolist() == [f"t{i}" for i in expected]
    assert chosen.agent_ids.tolist() == ["abab"[i] for i in expected]
    assert chosen.context["call"].tolist() == ["xyzw"[i] for i in expected]
    assert chosen.lengths.tolist() == [(3, 1, 4, 2)[i] for i in expected]
    rows = [row for i in expected for row in range(t.offsets[i], t.offsets[i + 1])]
    assert chosen.columns["speed"].tolist() == rows
    assert chosen.n_rows == len(rows)
    assert chosen.offsets[0] == 0


@pytest.mark.parametrize("index", [4, -5, [True, False], [0, 9]])
def test_an_index_out_of_range_is_an_index_error(index: Any):
    with pytest.raises(IndexError):
        trips()[index]


def test_slices_share_memory_and_arrays_copy():
    t = trips()
    assert np.shares_memory(t[1:3].columns["lat"], t.columns["lat"])
    assert np.shares_memory(t[2].columns["lat"], t.columns["lat"])
    assert all(np.shares_memory(one.columns["lat"], t.columns["lat"]) for one in t)
    assert not np.shares_memory(t[[1, 2]].columns["lat"], t.columns["lat"])


def test_a_slice_of_a_slice_is_a_slice():
    assert same(trips()[1:][1:3][-1], trips()[3])


def test_iterating_gives_the_trajectories_one_by_one():
    t = trips()
    assert len(list(t)) == len(t) == 4
    assert same(Trajectories.concat(t), t)


def test_agent_and_without_split_the_trajectories():
    t = trips()
    assert t.agents == ["a", "b"]
    assert t.agent("a").trajectory_ids.tolist() == ["t0", "t2"]
    assert t.without("a").trajectory_ids.tolist() == ["t1", "t3"]
    assert same(t.without("nobody"), t)
    with pytest.raises(DataError, match=r"'c'; there are a, b$"):
        t.agent("c")
    with pytest.raises(DataError, match=r"'bb'; did you mean b\? there are a, b$"):
        t.agent("bb")


def test_trajectory_of_row_gives_the_position_of_each_rows_trajectory():
    assert trips().trajectory_of_row.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 3, 3]


def test_concat_keeps_the_columns_that_all_parts_have():
    t = trips()
    assert same(Trajectories.concat([t[:1], t[1:3], t[3:]]), t)
    plain = Trajectories.from_fixes(time=[0.0], lat=[0.0], lon=[0.0], agent="c")
    both = Trajectories.concat([t, plain])
    assert list(both.columns) == ["time", "lat", "lon"]
    assert both.context == {}
    assert both.agents == ["a", "b", "c"]


def test_concat_rejects_an_empty_list_and_a_mixture_of_fixes_and_steps():
    with pytest.raises(DataError, match="at least one"):
        Trajectories.concat([])
    with pytest.raises(DataError, match="no column in common"):
        Trajectories.concat([trips(), Trajectories.from_steps([np.zeros((2, 2))], [np.zeros((2, 1))])])


# ---------------------------------------------------------------- making


def test_interleaved_and_unsorted_fixes_are_grouped_and_sorted():
    t = Trajectories.from_fixes(
        time=[20, 5, 0, 1, 10],
        lat=[0.2, 5.5, 0.0, 5.1, 0.1],
        lon=[0.0] * 5,
        agent=["a", "b", "a", "b", "a"],
        trajectory=["m"] * 5,
        columns={"row": [0, 1, 2, 3, 4]},
        context={"call": ["x", "y", "other", "y", "other"]},
    )
    assert t.agent_ids.tolist() == ["a", "b"]
    assert t.columns["row"].tolist() == [2, 4, 0, 3, 1]
    assert t.columns["time"].tolist() == [0, 10, 20, 1, 5]
    # Of the context the value at the trajectory's first fix in time is kept.
    assert t.context["call"].tolist() == ["other", "y"]


def test_fixes_of_one_time_keep_their_order():
    n = 20_000
    t = Trajectories.from_fixes(time=np.arange(n) % 2, lat=np.zeros(n), lon=np.zeros(n), columns={"row": np.arange(n)})
    assert t.columns["row"].tolist() == [*range(0, n, 2), *range(1, n, 2)]


def test_the_same_trajectory_id_of_two_agents_is_two_trajectories():
    t = Trajectories.from_fixes(time=[0, 0], lat=[0, 1], lon=[0, 0], agent=["a", "b"], trajectory=["1", "1"])
    assert len(t) == 2


def test_without_trajectory_ids_each_agent_has_one_trajectory():
    t = Trajectories.from_fixes(time=[3, 1, 2], lat=[0] * 3, lon=[0] * 3, agent=[7, 8, 7])
    assert t.agent_ids.tolist() == ["7", "8"]
    assert t.agent("7").columns["time"].tolist() == [2, 3]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=40),
)
def test_grouping_does_what_a_dictionary_of_lists_would_do(fixes: list[tuple[int, int, int]]):
    expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, (agent, label, time) in enumerate(fixes):
        expected.setdefault((agent, label), []).append((time, row))
    agent, label, time = np.array(fixes).T
    t = Trajectories.from_fixes(
        time=time,
        lat=np.zeros(len(time)),
        lon=np.zeros(len(time)),
        agent=agent,
        trajectory=label,
        columns={"row": np.arange(len(time))},
    )
    got = {(int(one.agent_ids[0]), int(one.trajectory_ids[0])): one.columns["row"].tolist() for one in t}
    # Sorting is stable: fixes of equal time keep their order.
    assert list(got.items()) == [(k, [row for _, row in sorted(v, key=lambda f: f[0])]) for k, v in expected.items()]


def test_empty_arrays_give_no_trajectories():
    t = Trajectories.from_fixes(time=[], lat=[], lon=[])
    assert len(t) == t.n_rows == len(t.agents) == 0
    assert t.to_frame().height == 0


def frame() -> pl.DataFrame:
    start = datetime(2024, 5, 1, 12, 0, 0, 500_000)
    return pl.DataFrame(
        {
            "when": [start + timedelta(seconds=s) for s in (30, 0, 15, 0)],
            "lat": [41.3, 41.1, 41.2, 45.0],
            "lng": [-8.6, -8.5, -8.4, 7.0],
            "uid": [1, 1, 1, 2],
            "trip": ["p", "p", "p", "q"],
            "alt": [3, 1, 2, 9],
            "call": ["A", "A", "A", "B"],
        }
    )


@pytest.mark.parametrize(
    "convert",
    [
        lambda f: f,
        lambda f: f.lazy(),
        lambda f: f.to_pandas(),
        lambda f: f.to_arrow(),
        lambda f: pa.RecordBatchReader.from_batches(f.to_arrow().schema, f.to_arrow().to_batches()),
        lambda f: f.to_dict(as_series=False),
        lambda f: pd.DataFrame(f.to_dict(as_series=False), index=[9, 8, 7, 6]).astype({"call": "category"}),
    ],
    ids=["polars", "lazy", "pandas", "pyarrow", "record batches", "mapping", "pandas with categories"],
)
def test_every_kind_of_table_gives_the_same_trajectories(convert: Any):
    t = Trajectories.from_frame(
        convert(frame()),
        time="when",
        lon="lng",
        agent="uid",
        trajectory="trip",
        columns=["alt"],
        context=["call"],
    )
    midday = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() + 0.5
    assert t.columns["time"].tolist() == [midday, midday + 15, midday + 30, midday]
    assert t.columns["lat"].tolist() == [41.1, 41.2, 41.3, 45.0]
    assert t.columns["lon"].tolist() == [-8.5, -8.4, -8.6, 7.0]
    assert t.columns["alt"].tolist() == [1, 2, 3, 9]
    assert t.agent_ids.tolist() == ["1", "2"]
    assert t.trajectory_ids.tolist() == ["p", "q"]
    assert t.context["call"].astype(str).tolist() == ["A", "B"]


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        (pl.Series([datetime(1970, 1, 2)]), 86_400.0),
        (pl.Series([datetime(1970, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))]), 86_400.0),
        (pl.Series([datetime(1970, 1, 2)]).cast(pl.Date), 86_400.0),
        (pl.Series([datetime(1970, 1, 2)]).cast(pl.Datetime("ms")), 86_400.0),
        (pl.Series([datetime(1970, 1, 2)]).cast(pl.Datetime("ns")), 86_400.0),
        (pl.Series([86_400]), 86_400.0),
        (pl.Series([86_400.25]), 86_400.25),
    ],
    ids=["naive", "with a zone", "date", "milliseconds", "nanoseconds", "integer", "float"],
)
def test_times_become_seconds_since_1970_in_utc(when: pl.Series, seconds: float):
    t = Trajectories.from_frame(pl.DataFrame({"time": when, "lat": [0.0], "lon": [0.0]}))
    assert t.columns["time"].tolist() == [seconds]


def test_a_data_frame_and_back_is_the_same():
    t = trips()
    back = Trajectories.from_frame(t.to_frame(), columns=["speed"], context=["call"])
    assert same(back, t)
    assert same(Trajectories.from_frame(t[1:3].to_frame(), columns=["speed"], context=["call"]), t[1:3])


def test_to_frame_splits_wide_columns():
    t = Trajectories.from_steps([np.arange(6).reshape(3, 2)], [np.arange(3)])
    assert t.to_frame().columns == ["agent", "trajectory", "state_0", "state_1", "action_0"]
    assert t.to_frame()["state_1"].to_list() == [1, 3, 5]


def test_with_columns_adds_and_checks():
    t = trips().with_columns({"alt": np.zeros(10)}, {"day": np.arange(4)})
    assert t[2].columns["alt"].shape == (4,)
    assert t[2].context["day"].tolist() == [2]
    with pytest.raises(DataError, match=r"'day' has the shape .* give one value for each trajectory"):
        t.with_columns(context={"day": [1]})
    with pytest.raises(DataError, match="time runs backwards"):
        t.with_columns({"time": np.arange(10)[::-1]})


def test_states_and_actions_must_match_in_number_and_width():
    t = Trajectories.from_steps([np.zeros((2, 3)), np.ones((4, 3))], [np.zeros(2), np.ones(4)], agent_ids=["a", "b"])
    assert t.columns["state"].shape == (6, 3)
    assert t.columns["action"].shape == (6, 1)  # a flat array is one number a step
    assert not t.is_gps
    with pytest.raises(DataError, match="trajectory 1 has 4 states and 3 actions"):
        Trajectories.from_steps([np.zeros((2, 3)), np.ones((4, 3))], [np.zeros(2), np.ones(3)])
    with pytest.raises(DataError, match=r"trajectory 1.*give the same number"):
        Trajectories.from_steps([np.zeros((2, 3)), np.ones((4, 2))], [np.zeros(2), np.ones(4)])
    with pytest.raises(DataError, match="2 arrays of states but 1 of actions"):
        Trajectories.from_steps([np.zeros((2, 3))] * 2, [np.zeros(2)])
    with pytest.raises(DataError, match="at least one"):
        Trajectories.from_steps([], [])


# ---------------------------------------------------------------- refusing

GOOD: dict[str, Any] = {
    "time": [0.0, 1.0, 2.0, 0.0, 1.0],
    "lat": [0.0] * 5,
    "lon": [0.0] * 5,
    "agent": ["ana", "ana", "ana", "bob", "bob"],
    "trajectory": ["a1", "a1", "a1", "b1", "b1"],
}


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("lat", np.nan, "latitude is missing or not a finite number"),
        ("lon", np.inf, "longitude is missing or not a finite number"),
        ("time", np.nan, "time is not a finite number"),
        ("lat", None, "latitude is missing or not a finite number"),
        ("lat", 91.0, r"latitude outside \[-90, 90\]; correct the fix \(degrees are expected; are lat and lon swapped"),
        ("lat", -90.001, "latitude outside"),
        ("lon", 361.0, "longitude outside"),
    ],
)
def test_the_error_about_a_bad_value_names_the_trajectory_and_the_fix(column: str, value: Any, complaint: str):
    bad = {**GOOD, column: [*GOOD[column][:4], value]}
    with pytest.raises(DataError, match=f"trajectory 'b1' of agent 'bob', fix 1: {complaint}"):
        Trajectories.from_fixes(**bad)


def test_poles_and_the_antimeridian_are_valid_places():
    t = Trajectories.from_fixes(time=[0, 1, 2], lat=[90, -90, 0], lon=[180, -180, 359.9])
    assert t.n_rows == 3


def test_time_must_not_run_backwards_inside_a_trajectory():
    columns = {"time": [0.0, 5.0, 5.0, 1.0, 0.5], "lat": np.zeros(5), "lon": np.zeros(5)}
    with pytest.raises(DataError, match="trajectory 'y' of agent 'a', fix 1: time runs backwards; sort"):
        Trajectories(columns, [0, 3, 5], ["a", "a"], ["x", "y"])
    assert len(Trajectories({**columns, "time": [0.0, 5.0, 5.0, 1.0, 1.5]}, [0, 3, 5], ["a", "a"], ["x", "y"])) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lat": [0.0] * 4}, "column 'lat' has the shape"),
        ({"lon": 0.0}, "column 'lon' has the shape"),
        ({"lat": np.zeros((5, 2))}, "column 'lat' has the shape"),
        ({"columns": {"alt": [1]}}, "column 'alt' has the shape"),
        ({"context": {"call": ["x"]}}, "column 'call' has the shape"),
        ({"agent": ["a", "b"]}, "the agent have the shape .* for 5 fixes"),
        ({"trajectory": ["a", "b"]}, "the trajectory have the shape .* for 5 fixes"),
        ({"time": ["noon"] * 5}, "'time' does not hold numbers"),
    ],
)
def test_ragged_columns_and_columns_of_text_are_rejected(change: dict[str, Any], complaint: str):
    with pytest.raises(DataError, match=complaint):
        Trajectories.from_fixes(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("columns", "offsets", "complaint"),
    [
        ({}, [0], "trajectories without a column"),
        ({"time": [0.0, 1.0], "lat": [0.0]}, [0, 2], "different numbers of rows"),
        ({"time": [0.0, 1.0]}, [0, 1], "the offsets do not fit the rows; let them run from 0 to the number of rows"),
        ({"time": [0.0, 1.0]}, [1, 2], "the offsets do not fit the rows"),
        ({"time": [0.0, 1.0]}, [0, 0, 2], "trajectory 0 is empty"),
        ({"time": [0.0, 1.0]}, [0, 3, 2], "trajectory 1 is empty"),
        ({"time": ["a", "b"]}, [0, 2], "not numbers; convert it"),
        ({"state": [[0.0], [np.nan]]}, [0, 2], "step 1: state is not a finite number"),
    ],
)
def test_the_structure_itself_is_checked(columns: dict[str, Any], offsets: list[int], complaint: str):
    ids = ["a"] * (len(offsets) - 1)
    with pytest.raises(DataError, match=complaint):
        Trajectories(columns, offsets, ids, ids)


def test_each_trajectory_needs_one_id():
    with pytest.raises(DataError, match=r"'agent_ids' has the shape .* give one value for each trajectory"):
        Trajectories({"time": [0.0, 1.0]}, [0, 2], ["a", "b"], ["x"])


@pytest.mark.parametrize("unit", ["D", "s", "ms", "ns"])
def test_date_times_of_numpy_are_seconds_whatever_their_unit(unit: str):
    days = np.array(["2025-01-01", "2025-01-02"], f"datetime64[{unit}]")
    trips = Trajectories.from_fixes(time=days, lat=[0.0, 0.0], lon=[0.0, 0.0])
    assert trips.columns["time"].tolist() == [1735689600.0, 1735776000.0]
    days[1] = np.datetime64("NaT")
    with pytest.raises(DataError, match="time is not a finite number"):
        Trajectories.from_fixes(time=days, lat=[0.0, 0.0], lon=[0.0, 0.0])
    with pytest.raises(DataError, match="'lat' holds datetime64"):
        Trajectories.from_fixes(time=[0, 1], lat=days, lon=[0.0, 0.0])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lat": np.ma.array([0.0, 1.0], mask=[False, True])}, "'lat' has masked values"),
        ({"agent": np.array([1.5, np.nan])}, "fix 1: the agent is missing"),
        ({"agent": np.array(["a", None], object)}, "fix 1: the agent is missing"),
        ({"trajectory": [None, "x"]}, "fix 0: the trajectory is missing"),
        ({"time": [0.0, 1e15]}, r"fix 1: time lies more than 231 years from 1970"),
        ({"time": [-1e300, 0.0]}, r"fix 0: time lies more than 231 years from 1970"),
    ],
)
def test_from_fixes_rejects_unusable_values(change: dict[str, Any], complaint: str):
    fixes: dict[str, Any] = {"time": [0.0, 1.0], "lat": [0.0, 0.0], "lon": [0.0, 0.0], "agent": "a"}
    with pytest.raises(DataError, match=complaint):
        Trajectories.from_fixes(**fixes | change)


def test_from_frame_rejects_unusable_tables_and_says_why():
    table = pl.DataFrame({"time": [0], "lat": [0.0], "longitude": [0.0]})
    with pytest.raises(DataError, match="no column named 'lon'; the table has time, lat, longitude"):
        Trajectories.from_frame(table)
    with pytest.raises(DataError, match="row 1: the agent is missing"):
        Trajectories.from_frame(
            pl.DataFrame({"time": [0, 1], "lat": [0.0, 0.0], "lon": [0.0, 0.0], "agent": ["a", None]})
        )
    with pytest.raises(DataError, match="'lat' holds String; give degrees as numbers"):
        Trajectories.from_frame(pl.DataFrame({"time": [0], "lat": ["north"], "lon": [0.0]}))
    with pytest.raises(DataError, match="give date-times or seconds"):
        Trajectories.from_frame(pl.DataFrame({"time": ["noon"], "lat": [0.0], "lon": [0.0]}))
    with pytest.raises(DataError, match="not a data frame, but list"):
        Trajectories.from_frame([1, 2, 3])
    right = pl.DataFrame({"time": [0], "lat": [0.0], "lon": [0.0], "driver": ["ana"]})
    with pytest.raises(DataError, match="no column named 'drivr'"):  # and not one agent for all
        Trajectories.from_frame(right, agent="drivr")
    assert Trajectories.from_frame(right, agent="driver").agents == ["ana"]
    with pytest.raises(DataError, match="milliseconds, divide it by 1000"):
        Trajectories.from_frame(pl.DataFrame({"time": [1_700_000_000_000], "lat": [0.0], "lon": [0.0]}))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.integers(0, 5)), min_size=1, max_size=30))
def test_fixes_in_any_order_are_grouped_as_a_stable_sort_would(rows: list[tuple[str, str, int]]) -> None:
    agents, names, times = zip(*rows, strict=True)
    number = np.arange(len(rows))
    trips = Trajectories.from_fixes(
        time=times, lat=0.1 + number / 100, lon=number, agent=agents, trajectory=names, context={"row": number}
    )
    firsts = list(dict.fromkeys(zip(agents, names, strict=True)))
    expected = sorted(number.tolist(), key=lambda i: (firsts.index((agents[i], names[i])), times[i]))
    assert trips.columns["lon"].tolist() == expected
    assert trips.ids == firsts
    assert trips.context["row"].tolist() == trips.columns["lon"][trips.offsets[:-1]].tolist()


def test_grouping_does_not_change_the_callers_arrays() -> None:
    time, lat = np.array([2.0, 1.0]), np.array([45.0, 46.0])
    trips = Trajectories.from_fixes(time=time, lat=lat, lon=[7.0, 7.0])
    assert (time.tolist(), lat.tolist()) == ([2.0, 1.0], [45.0, 46.0])
    lat[:] = 0.0
    assert trips.columns["lat"].tolist() == [46.0, 45.0]


def test_many_rows_are_put_in_order_piece_by_piece() -> None:
    n = 3 * ROWS // 2
    codes = np.arange(n, dtype=np.int32) % 7
    columns = {"time": -np.arange(n, dtype=np.float64), "row": np.arange(n)}
    offsets = put_in_order(columns, codes.copy())
    expected = np.lexsort((-np.arange(n), codes))
    np.testing.assert_array_equal(columns["row"], expected)
    np.testing.assert_array_equal(offsets, np.r_[0, np.cumsum(np.bincount(codes))])
