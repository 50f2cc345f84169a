"""What `read` recognises, and what it says when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from astray.core.errors import DataError
from astray.core.fixes import ALIASES
from astray.readers import Report, iter_read, read, recognise, recognised_formats

PLT = "Geolife trajectory\n2\n3\n4\n5\n6\n39.9,116.3,0,0,1,2008-10-23,02:53:04\n"


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("20081023.plt", PLT, "geolife"),
        ("a.csv", "uid,t,lat,lon\n", "table"),
        ("a.dat", "uid;t;lat;lon\n", "table"),
        ("a.csv", '"TRIP_ID","TAXI_ID","TIMESTAMP","POLYLINE"\n', "porto"),
        ("a.txt", "trip_id;TAXI_ID;TIMESTAMP;polyline\n", "porto"),
        ("a.gpx", "<gpx/>", "gpx"),
        ("a.xml", "\ufeff \n<?xml version='1.0'?><gpx/>", "gpx"),
        ("a.json", "{}", "geojson"),
        ("a", " {}", "geojson"),
    ],
)
def test_files_are_recognised_by_content_before_name(tmp_path: Path, name: str, content: str, format: str) -> None:
    (tmp_path / name).write_text(content)
    assert recognise(tmp_path / name) == format


def test_parquet_is_recognised_whatever_its_name(tmp_path: Path) -> None:
    pl.DataFrame({"t": [1], "lat": [1.0], "lon": [2.0]}).write_parquet(tmp_path / "table")
    pl.DataFrame({"TRIP_ID": ["1"], "POLYLINE": ["[]"]}).write_parquet(tmp_path / "porto")
    assert (recognise(tmp_path / "table"), recognise(tmp_path / "porto")) == ("table", "porto")


def test_a_folder_is_recognised_by_what_it_holds_and_of_a_mixture_each_file_is_read_in_its_format(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("uid,t,lat,lon\na,1372636858,41,-8\n")
    (tmp_path / "README.md").write_text("hello")
    assert recognise(tmp_path) == "table"
    geometry = {"type": "Point", "coordinates": [-8, 41]}
    point = {"type": "Feature", "geometry": geometry, "properties": {"t": 1_372_636_858, "uid": "b"}}
    (tmp_path / "b.geojson").write_text(json.dumps(point))
    with pytest.raises(DataError, match=r"holds geojson and table files; choose with format="):
        recognise(tmp_path)
    assert recognised_formats(tmp_path) == ["geojson", "table"]
    assert sorted(read(tmp_path, time_zone="UTC").agents) == ["a", "b"]
    with pytest.raises(DataError, match="'users' means nothing for the format geojson or table"):
        read(tmp_path, users=["000"])
    assert read(tmp_path, format="geojson").agents == ["b"]
    assert read(tmp_path, format="csv").agents == ["a"]


def test_unknown_formats_and_options_are_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("uid,t,lat,lon\na,1372636858,41,-8\n")
    with pytest.raises(DataError, match=r"format='shapefile' is unknown; give one of geolife, fit"):
        read(tmp_path / "a.csv", format="shapefile")
    with pytest.raises(DataError, match=r"'users' means nothing for the format table; it takes time, date, lat"):
        read(tmp_path / "a.csv", users=["000"])
    with pytest.raises(DataError, match=r"'lat' means nothing for the format geolife; it takes users, cache"):
        read(tmp_path / "a.csv", format="geolife", lat="y")
    with pytest.raises(DataError, match=r"time_unit='h' is unknown"):
        read(tmp_path / "a.csv", time_unit="h")
    with pytest.raises(DataError, match=r"delimiter=';;' cannot be used"):
        read(tmp_path / "a.csv", delimiter=";;")
    with pytest.raises(DataError, match=r"encoding='klingon' is unknown"):
        read(tmp_path / "a.csv", encoding="klingon")
    with pytest.raises(DataError, match="batch_rows=0"):
        next(iter_read(tmp_path / "a.csv", batch_rows=0))


def test_no_alias_stands_for_two_parts() -> None:
    every = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(every) == len(set(every))


def test_reading_needs_no_learning_library() -> None:
    code = "import sys, astray.readers; print({'torch', 'rich', 'typer', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_tables_without_positions_beside_tracks_are_left_out_and_listed(tmp_path: Path) -> None:
    (tmp_path / "activities.csv").write_text("Activity ID,Activity Date\n1,2025-01-06\n")
    point = '<trkpt lat="45" lon="7"><time>2025-01-06T09:00:00Z</time></trkpt>'
    (tmp_path / "ride.gpx").write_text(f"<gpx><trk><trkseg>{point}</trkseg></trk></gpx>")
    report = Report()
    assert read(tmp_path, report=report).trajectory_ids.tolist() == ["ride"]
    assert [(Path(s.file).name, s.row) for s in report.skipped] == [("activities.csv", None)]
    with pytest.raises(DataError, match="no column for time and lat and lon"):
        read(tmp_path / "activities.csv")


OTHERS = {
    "GeoPackage": b"SQLite format 3\0" + bytes(52) + b"GPKG" + bytes(40),
    "database": b"SQLite format 3\0" + bytes(100),
    "shapefile": b"\0\0\x27\x0a" + bytes(100),
    "PDF": b"%PDF-1.7",
    "7z archive": b"7z\xbc\xaf\x27\x1c",
    "tar archive": bytes(257) + b"ustar\0",
    "HDF5": b"\x89HDF\r\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_kinds_are_refused_by_what_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "trips.csv").write_bytes(OTHERS[name])
    with pytest.raises(DataError, match=name) as refusal:
        read(tmp_path / "trips.csv")
    assert refusal.value.place
    assert refusal.value.remedy


def test_where_nothing_can_be_used_the_reason_is_one_line(tmp_path: Path) -> None:
    for name in ("a.gpx", "b.gpx"):
        (tmp_path / name).write_text("<gpx></gpx")
    with pytest.raises(DataError) as refusal:
        read(tmp_path, skip_bad=True, report=Report())
    assert "(none of 2 files can be read); export it again" in str(refusal.value)
    assert "\n" not in str(refusal.value)
