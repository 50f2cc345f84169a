"""What `read` recognises, and what it says when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from astray.core import settings
from astray.core.errors import DataError
from astray.core.fixes import ALIASES
from astray.readers import Report, formats, iter_read, read, reader, recognise, recognised_formats
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress

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


def test_a_folder_of_several_formats_is_read_file_by_file(
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


def test_errors_about_unknown_formats_and_options_list_the_known_ones(tmp_path: Path) -> None:
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


def test_no_column_name_is_an_alias_of_two_roles() -> None:
    every = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(every) == len(set(every))


def test_reading_needs_no_learning_library() -> None:
    code = "import sys, astray.readers; print({'torch', 'rich', 'typer', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_tables_without_positions_beside_tracks_are_skipped_and_listed(tmp_path: Path) -> None:
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
def test_errors_about_unreadable_files_say_what_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "trips.csv").write_bytes(OTHERS[name])
    with pytest.raises(DataError, match=name) as refusal:
        read(tmp_path / "trips.csv")
    assert refusal.value.place
    assert refusal.value.remedy


def test_the_error_about_a_file_without_usable_data_is_one_line(tmp_path: Path) -> None:
    for name in ("a.gpx", "b.gpx"):
        (tmp_path / name).write_text("<gpx></gpx")
    with pytest.raises(DataError) as refusal:
        read(tmp_path, skip_bad=True, report=Report())
    assert "(none of 2 files can be read); export it again" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_settings_offer_every_registered_format_and_no_suffix_has_two() -> None:
    found = formats.readers()
    assert tuple(found) == formats.FORMATS == settings.FORMATS
    suffixes = [suffix for reader in found.values() for suffix in reader.suffixes]
    assert len(suffixes) == len(set(suffixes)) > 10


def test_a_new_format_needs_one_module_and_one_line_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
        for row, line in enumerate(file.read_text().splitlines()[1:], start=2):
            yield Position(row, "ana", "a", *map(float, line.split("/")))

    toy = ModuleType("astray.readers.toy")
    toy.READER = position_reader(positions, "line", lambda sample: sample.text.startswith("TOY"), (".toy",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "astray.readers.toy", toy)
    monkeypatch.setattr(formats, "_MODULES", {"toy": "toy", **formats._MODULES})
    monkeypatch.setattr(formats, "FORMATS", ("toy", *formats.FORMATS))
    cached = (formats.readers, formats.format_by_suffix)
    try:
        for one in cached:
            one.cache_clear()
        (tmp_path / "a.toy").write_text("TOY\n1372636858/41.1/-8.6\n1372636873/41.2/-8.6\n")
        assert recognise(tmp_path) == "toy"
        assert read(tmp_path).columns["lat"].tolist() == [41.1, 41.2]
    finally:
        for one in cached:
            one.cache_clear()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    frame = pl.DataFrame({"uid": "ana", "trip": "a", "t": [1372636858, 1372636873], "lat": [41.1, 41.2], "lon": -8.6})
    file = tmp_path / f"fixes{suffix}"
    frame.write_csv(file) if suffix == ".csv" else frame.write_parquet(file)
    opened: list[Path] = []
    real = reader.open_table

    def counting(path: Path, *options: Any) -> Any:
        opened.append(path)
        return real(path, *options)

    monkeypatch.setattr(reader, "open_table", counting)
    assert read(file, report=Report()).n_rows == 2
    assert opened == [file]
