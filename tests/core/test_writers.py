"""Writers: files are written part by part, whole or not at all, and can be read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import astray
from astray import Trajectories
from astray.core import writers
from astray.core.errors import AstrayError
from astray.core.writers import fixes_and_trips, table_writer, write_table

FORMATS = [".parquet", ".csv", ".jsonl", ".geojson"]


def some_trips() -> Trajectories:
    return Trajectories.from_fixes(
        time=1_372_636_858.25 + np.r_[0, 15, 30, 100, 115, 300],
        lat=[41.1, 41.2, 41.3, 41.1, 41.2, 41.4],
        lon=[-8.6, -8.61, -8.62, -8.6, -8.61, -8.7],
        agent=["ana", "ana", "ana", "bob", "bob", "bob"],
        trajectory=["a1", "a1", "a1", "b1", "b1", "b2"],
        context={"kind": ["", "", "", "detour", "detour", ""]},
    )


def some_scores() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "agent": ["ana", "bob", "bob"],
            "trajectory": ["a1", "b1", "b2"],
            "score": [0.5, -3.25, None],
            "segment_start": [None, datetime(2013, 7, 1, 0, 2, 38, 250000, UTC), None],
        },
        schema_overrides={"segment_start": pl.Datetime("us", "UTC")},
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".geojson"])
def test_written_trips_are_read_back_unchanged(tmp_path: Path, suffix: str):
    trips, file = some_trips(), tmp_path / f"trips{suffix}"
    write_table(fixes_and_trips(trips, file), file, trips)
    again = astray.read(file)
    assert again.trajectory_ids.tolist() == trips.trajectory_ids.tolist()
    assert again.agent_ids.tolist() == trips.agent_ids.tolist()
    assert again.lengths.tolist() == trips.lengths.tolist()
    for name in ("time", "lat", "lon"):
        np.testing.assert_allclose(again.columns[name], trips.columns[name], atol=1e-6)


@pytest.mark.parametrize("suffix", FORMATS)
def test_rows_written_in_parts_are_the_rows_written_at_once(tmp_path: Path, suffix: str):
    trips, scores = some_trips(), some_scores()
    write_table(scores, tmp_path / f"once{suffix}", trips)
    with table_writer(tmp_path / f"parts{suffix}") as write:
        for i in range(3):
            write(scores[i : i + 1], trips[i])
    if suffix == ".parquet":
        once, parts = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("once", "parts"))
        assert once.equals(parts)
        assert once.equals(scores)
    else:
        assert (tmp_path / f"once{suffix}").read_bytes() == (tmp_path / f"parts{suffix}").read_bytes()


def test_a_parquet_file_larger_than_memory_allows_waits_in_parts_that_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writers, "HELD_BYTES", 10_000)
    frames = [pl.DataFrame({"i": np.arange(1000) + 1000 * k, "name": [f"trip {k}"] * 1000}) for k in range(8)]
    with table_writer(tmp_path / "large.parquet") as write:
        for frame in frames:
            write(frame, None)
        assert any(path.is_dir() for path in tmp_path.iterdir())
    assert pl.read_parquet(tmp_path / "large.parquet").equals(pl.concat(frames))
    assert [path.name for path in tmp_path.iterdir()] == ["large.parquet"]


def test_text_files_have_utc_dates_and_empty_fields_for_missing_values(tmp_path: Path):
    write_table(some_scores(), tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text().splitlines()[1:] == [
        "ana,a1,0.5,",
        "bob,b1,-3.25,2013-07-01T00:02:38.250Z",
        "bob,b2,,",
    ]
    write_table(some_scores().with_columns(score=pl.lit(float("nan"))), tmp_path / "scores.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert rows[1] == {"agent": "bob", "trajectory": "b1", "score": None, "segment_start": "2013-07-01T00:02:38.250Z"}


def test_geojson_draws_a_line_for_a_trip_a_point_for_a_fix_and_a_point_for_a_trip_of_one_fix(tmp_path: Path):
    trips = some_trips()
    write_table(some_scores(), tmp_path / "trips.geojson", trips)
    collection = json.loads((tmp_path / "trips.geojson").read_text())
    assert collection["type"] == "FeatureCollection"
    assert [f["geometry"]["type"] for f in collection["features"]] == ["LineString", "LineString", "Point"]
    assert collection["features"][1]["geometry"]["coordinates"] == [[-8.6, 41.1], [-8.61, 41.2]]
    assert collection["features"][1]["properties"]["score"] == -3.25
    write_table(fixes_and_trips(trips, tmp_path / "fixes.csv"), tmp_path / "fixes.geojson")
    points = json.loads((tmp_path / "fixes.geojson").read_text())["features"]
    assert [f["geometry"]["coordinates"] for f in points][3] == [-8.6, 41.1]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_error_while_writing_leaves_only_the_older_file(tmp_path: Path, suffix: str):
    file = tmp_path / f"scores{suffix}"
    file.write_text("older")

    def interrupted() -> None:
        with table_writer(file) as write:
            write(some_scores(), some_trips())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_is_an_error_and_the_older_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "scores.csv"
    file.write_text("older")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(AstrayError, match=r"scores.csv: it was not written \(No space left on device\)"):
        write_table(some_scores(), file)
    assert file.read_text() == "older"


def test_a_target_that_cannot_be_written_is_rejected_before_the_work(tmp_path: Path):
    with pytest.raises(AstrayError, match=r"x.xls: tables are written as .parquet"):
        write_table(some_scores(), tmp_path / "x.xls")
    with pytest.raises(AstrayError, match="there is no folder"):
        write_table(some_scores(), tmp_path / "nowhere" / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(AstrayError, match="a folder where a file is to be written"):
        write_table(some_scores(), tmp_path / "folder.csv")
    with pytest.raises(AstrayError, match="no places in this table"):
        write_table(some_scores(), tmp_path / "x.geojson")


def test_standard_output_takes_text_only(capsys: pytest.CaptureFixture[str]):
    with table_writer(None, "jsonl") as write:
        write(some_scores()[:1], None)
    assert json.loads(capsys.readouterr().out)["trajectory"] == "a1"
    with pytest.raises(AstrayError, match="'parquet' cannot go to standard output"), table_writer(None, "parquet"):
        pass
