"""Exports of phones, watches, trackers and services; files in data/ follow the published schemas."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from astray.core.errors import DataError
from astray.readers import Report, read, recognise

DATA = Path(__file__).parents[1] / "data"


def times(*texts: str) -> list[float]:
    return [datetime.fromisoformat(f"{text}+00:00").timestamp() for text in texts]


# -------------------------------------------------------------------- Google


def test_takeout_records_are_cut_into_trips() -> None:
    file, report = DATA / "takeout" / "Location History" / "Records.json", Report()
    assert recognise(file) == "takeout"
    trips = read(file, report=report)
    assert (trips.agents, trips.lengths.tolist(), report.cut) == (["data"], [2, 1], 2)
    assert trips.columns["lat"].tolist() == [48.85833, 48.85901, 41.1456789]
    assert trips.columns["lon"].tolist() == [2.29513, 2.29633, -8.6]
    assert trips.columns["time"][:2].tolist() == times("2022-01-12T17:18:24.190", "2022-01-12T17:18:54")
    assert {s.row: s.reason for s in report.skipped} == {3: "an entry without positions and times"}


def test_each_activity_in_a_takeout_month_is_a_trip() -> None:
    folder = DATA / "takeout" / "Location History" / "Semantic Location History"
    report = Report()
    trips = read(folder, report=report)
    assert trips.trajectory_ids.tolist() == ["2022-01-12T17:18:24.190Z", "2022-01-12T19:00:00Z"]
    assert trips.lengths.tolist() == [3, 2]
    assert trips.columns["lat"][:3].tolist() == [48.85833, 48.86, 48.869]
    assert report.counts == {"a visit, not a movement": 1}


def test_a_whole_takeout_gives_one_agent_and_no_fix_twice(tmp_path: Path) -> None:
    shutil.copytree(DATA / "takeout", tmp_path / "ana" / "Takeout")
    archive = shutil.make_archive(str(tmp_path / "takeout-2022"), "zip", tmp_path / "ana")
    report = Report()
    trips = read(tmp_path / "ana", report=report)
    assert (trips.agents, trips.n_rows) == (["ana"], 3)
    assert report.counts["Records.json beside it holds the same, in more detail"] == 1
    assert read(archive, report=Report()).agents == ["takeout-2022"]


@pytest.mark.parametrize("name", ["timeline-android.json", "timeline-ios.json"])
def test_a_phone_timeline_gives_its_paths_and_the_ends_of_its_activities(name: str) -> None:
    report = Report()
    assert recognise(DATA / name) == "takeout"
    trips = read(DATA / name, report=report)
    assert trips.columns["lat"].tolist() == [48.858, 48.8583, 48.859, 48.86]
    hours = ("2024-06-01T06:09:00", "2024-06-01T06:10:00", "2024-06-01T06:12:00", "2024-06-01T06:14:00")
    assert trips.columns["time"].tolist() == times(*hours)
    assert report.counts == {"a visit, not a movement": 1}


def test_errors_in_a_truncated_or_unknown_history_name_the_entry(tmp_path: Path) -> None:
    whole = (DATA / "takeout" / "Location History" / "Records.json").read_text()
    (tmp_path / "Records.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"Records\.json, entry 2: the JSON is broken or cut off"):
        read(tmp_path / "Records.json")
    (tmp_path / "Records.json").write_text(whole.replace("488590100", '"north"'))
    with pytest.raises(
        DataError, match=r"Records\.json, entry 2: an entry of an unknown form .*export the history again"
    ):
        read(tmp_path / "Records.json")
    segment = {"startTime": "2024-06-01T08:00:00Z", "timelinePath": [{"point": "here", "time": "2024-06-01T08:00:00Z"}]}
    (tmp_path / "t.json").write_text(json.dumps({"semanticSegments": [segment]}))
    with pytest.raises(DataError, match=r"t\.json, entry 1: an invalid place \(here\)"):
        read(tmp_path / "t.json")


# -------------------------------------------------------------------- Overland, Traccar


def test_a_batch_of_overland_is_read_and_its_current_place_is_not_read_twice() -> None:
    trips = read(DATA / "overland.json", report=Report())
    assert trips.agent_ids.tolist() == ["phone", "data"]
    assert trips.columns["time"].tolist() == times(*(f"2015-10-01T15:0{i}:00" for i in range(3)))
    assert trips.columns["lon"].tolist() == [-122.030581, -122.029581, -122.028581]


@pytest.mark.parametrize(("name", "format"), [("traccar.json", "jsonlines"), ("traccar.csv", "table")])
def test_traccar_positions_use_fix_time_and_invalid_ones_are_skipped(name: str, format: str) -> None:
    report = Report()
    assert recognise(DATA / name) == format
    trips = read(DATA / name, report=report)
    assert (trips.agents, trips.columns["lat"].tolist()) == (["7"], [48.51, 48.53])
    assert trips.columns["time"].tolist() == times("2023-05-01T10:00:01", "2023-05-01T10:00:03")
    assert report.counts == {"marked as not valid, as Traccar does where the receiver had no fix": 1}
    assert not report.assumptions


def test_an_error_in_a_json_list_names_the_entry(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text('[{"t": 1372636858, "lat": 41, "lon": 8}, 7]')
    with pytest.raises(DataError, match=r"list\.json, entry 2: not a JSON object"):
        read(file)
    file.write_text('[{"t": 1372636858, "lat": 41, "lon": 8}')
    with pytest.raises(DataError, match=r"list\.json, entry 1: the JSON is broken or cut off"):
        read(file)


# -------------------------------------------------------------------- NMEA


def test_nmea_dates_gga_from_rmc_also_across_midnight() -> None:
    report = Report()
    assert recognise(DATA / "log.nmea") == "nmea"
    trips = read(DATA / "log.nmea", report=report, trips="as-given")
    moments = ("1994-03-23T23:59:58", "1994-03-23T23:59:59", "1994-03-24T00:00:00", "1994-03-24T00:00:02")
    assert trips.columns["time"].tolist() == times(*moments)
    assert trips.columns["lat"].round(5).tolist() == [48.1173, 48.1175, 48.11767, -48.118]
    assert trips.columns["lon"][[0, 3]].round(5).tolist() == [11.51667, -11.518]
    assert report.counts == {"the receiver had no fix (void)": 2}


def test_a_morning_gga_does_not_get_the_date_of_the_evening_before(tmp_path: Path) -> None:
    lines = []
    for clock, day in (("170000.00", "230394"), ("070000.00", "240394")):
        lines.append(f"$GPGGA,{clock},4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,")
        lines.append(f"$GPRMC,{clock},A,4807.038,N,01131.000,E,022.4,084.4,{day},003.1,W")
    (tmp_path / "log.nmea").write_text("\n".join(lines))
    trips = read(tmp_path / "log.nmea", report=Report(), trips="as-given")
    assert trips.columns["time"].tolist() == times("1994-03-23T17:00:00", "1994-03-24T07:00:00")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("$GPRMC,235958.00,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*00", "the checksum is wrong"),
        ("$GPRMC,235958.00,A,4807.038,N,01131.000,E,022.4,084.4,330394,003.1,W", "an invalid date"),
        ("$GPRMC,noon,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W", "an invalid time"),
        ("$GPRMC,235958.00,A,48o7,N,01131.000,E,022.4,084.4,230394,003.1,W", "an invalid position"),
        ("$GPRMC,235958.00,A", "a truncated RMC sentence"),
        ("!AIVDM,1,1,,A,15M67FC000G?ufbE`FepT@3n00Sa,0*5C", "AIS messages"),
    ],
)
def test_an_error_in_an_nmea_sentence_names_the_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "a.nmea").write_text((DATA / "log.nmea").read_text() + line + "\n")
    with pytest.raises(DataError, match=rf"a\.nmea, line 9: {said}"):
        read(tmp_path / "a.nmea")


def test_an_nmea_log_without_rmc_is_rejected_because_it_has_no_date(tmp_path: Path) -> None:
    (tmp_path / "a.nmea").write_text("$GPGGA,235958.00,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,\n")
    with pytest.raises(DataError, match=r"no sentence with a date \(RMC\); let the receiver write RMC"):
        read(tmp_path / "a.nmea")


# -------------------------------------------------------------------- KML and TCX


def test_kml_tracks_are_trips_and_stamped_points_are_cut_into_trips() -> None:
    report = Report()
    trips = read(DATA / "track.kml", report=report)
    assert trips.trajectory_ids.tolist() == ["track-1", "track-2", "2010-05-28T09:00:00Z"]
    assert trips.lengths.tolist() == [2, 2, 1]
    assert trips.columns["lat"].tolist() == [37.371915, 37.373288, 37.6, 37.61, 37.5]
    assert trips.columns["time"][0] == times("2010-05-28T02:02:09")[0]
    assert report.counts == {"a line without a time for each vertex": 1}


def test_kml_without_times_or_with_too_few_is_rejected(tmp_path: Path) -> None:
    text = (DATA / "track.kml").read_text()
    (tmp_path / "a.kml").write_text(text.replace("<when>2010-05-28T02:02:44Z</when>", ""))
    with pytest.raises(DataError, match=r"a\.kml, line 4: 2 times for 3 positions"):
        read(tmp_path / "a.kml")
    (tmp_path / "b.kml").write_text("<kml><Placemark><Point><coordinates>1,2</coordinates></Point></Placemark></kml>")
    with pytest.raises(DataError, match=r"no track or point in it has times; export the recording as a track"):
        read(tmp_path / "b.kml")


def test_a_kml_pin_beside_tracks_is_skipped_without_an_error(tmp_path: Path) -> None:
    track = "<gx:Track><when>2024-01-01T00:00:00Z</when><gx:coord>7 45 0</gx:coord></gx:Track>"
    pin = "<Point><coordinates>7,45</coordinates></Point>"
    marks = "".join(f"<Placemark>{what}</Placemark>" for what in (track, pin))
    (tmp_path / "a.kml").write_text(f'<kml xmlns:gx="http://www.google.com/kml/ext/2.2">{marks}</kml>')
    report = Report()
    assert read(tmp_path / "a.kml", report=report).n_rows == 1
    assert (report.counts, report.refused) == ({"a point without a time": 1}, 0)


def test_blanks_before_the_xml_declaration_are_accepted(tmp_path: Path) -> None:
    whole = (DATA / "ride.tcx").read_text()
    (tmp_path / "ride.tcx").write_text(" \n         " + whole)
    report = Report()
    trips = read(tmp_path / "ride.tcx", report=report)
    assert trips.columns["lat"].tolist() == [45.5, 45.51]
    before = Report()
    read(DATA / "ride.tcx", report=before)
    assert [s.row for s in report.skipped] == [(s.row or 0) + 1 for s in before.skipped]


def test_tcx_activities_are_trips_and_courses_are_not_read() -> None:
    report = Report()
    assert recognise(DATA / "ride.tcx") == "tcx"
    trips = read(DATA / "ride.tcx", report=report)
    assert (trips.trajectory_ids.tolist(), trips.columns["lat"].tolist()) == (["ride"], [45.5, 45.51])
    assert report.counts == {"a track point without a position": 1}


@pytest.mark.parametrize("name", ["track.kml", "ride.tcx"])
def test_an_xml_entity_bomb_is_rejected_unread(tmp_path: Path, name: str) -> None:
    text = (DATA / name).read_text().replace("\n", '\n<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>\n', 1)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="line 2: a document type declaration"):
        read(tmp_path / name)


# -------------------------------------------------------------------- FIT


def fit(*records: tuple[int, int, int], kind: int = 4) -> bytes:
    """A FIT file by the protocol: a file_id message (number 0) and records (number 20), little-endian."""

    def definition(local: int, number: int, *fields: tuple[int, int, int]) -> bytes:
        return struct.pack("<BBBHB", 0x40 | local, 0, 0, number, len(fields)) + b"".join(map(bytes, fields))

    data = definition(0, 0, (0, 1, 0x00)) + struct.pack("<BB", 0, kind)
    data += definition(1, 20, (253, 4, 0x86), (0, 4, 0x85), (1, 4, 0x85))
    data += b"".join(struct.pack("<BIii", 1, *record) for record in records)
    header = struct.pack("<BBHI4s", 14, 0x20, 2132, len(data), b".FIT")
    header += struct.pack("<H", crc(header))
    return header + data + struct.pack("<H", crc(header + data))


def crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xA001 if value & 1 else 0)
    return value


FIT_EPOCH = 631_065_600  # 1989-12-31T00:00:00Z
NOWHERE = 0x7FFFFFFF
HALF = 2**29  # semicircles: 45 degrees


def test_fit_records_become_a_trip(tmp_path: Path) -> None:
    pytest.importorskip("fitdecode")
    file = tmp_path / "ana" / "ride.fit"
    file.parent.mkdir()
    begin = 1_400_000_000
    file.write_bytes(fit((begin - FIT_EPOCH, HALF, -HALF), (begin + 1 - FIT_EPOCH, NOWHERE, NOWHERE)))
    report = Report()
    assert recognise(file) == "fit"
    trips = read(file, report=report)
    assert (trips.agents, trips.trajectory_ids.tolist()) == (["ana"], ["ride"])
    assert [trips.columns[name].tolist() for name in ("time", "lat", "lon")] == [[begin], [45.0], [-45.0]]
    assert report.counts == {"a record without a position": 1}


def test_a_fit_file_that_is_damaged_or_not_a_recording_is_rejected(tmp_path: Path) -> None:
    pytest.importorskip("fitdecode")
    file = tmp_path / "ride.fit"
    whole = fit((1_400_000_000 - FIT_EPOCH, HALF, HALF))
    for content in (whole[:-10], whole[:-8] + b"\xff" + whole[-7:]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"the FIT file is damaged .*copy the file from the device again"):
            read(file)
    file.write_bytes(fit((1_400_000_000 - FIT_EPOCH, HALF, HALF), kind=6))
    with pytest.raises(DataError, match="a FIT file of type course, which is not a recording"):
        read(file)


def test_skip_bad_reads_a_truncated_fit_file_up_to_the_damage(tmp_path: Path) -> None:
    pytest.importorskip("fitdecode")
    begin = 1_400_000_000 - FIT_EPOCH
    (tmp_path / "ride.fit").write_bytes(fit(*((begin + i, HALF, HALF + i) for i in range(9)))[:-20])
    with pytest.raises(DataError, match="the FIT file is damaged"):
        read(tmp_path / "ride.fit")
    report = Report()
    assert read(tmp_path / "ride.fit", skip_bad=True, report=report).n_rows == 7
    assert (list(report.counts), report.refused) == (["the rest of a broken file"], 1)


def test_joined_fit_files_are_read_without_those_that_are_not_recordings(tmp_path: Path) -> None:
    pytest.importorskip("fitdecode")
    begin = 1_400_000_000 - FIT_EPOCH
    settings, ride = fit(kind=2), fit((begin, HALF, HALF))
    for content in (ride + settings, settings + ride):
        (tmp_path / "ride.fit").write_bytes(content)
        assert read(tmp_path / "ride.fit").n_rows == 1


def test_fit_without_fitdecode_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fitdecode", None)
    (tmp_path / "ride.fit").write_bytes(fit((1, HALF, HALF)))
    with pytest.raises(DataError, match=r"ride\.fit: FIT files need fitdecode, .*pip install 'astray\[fit\]'"):
        read(tmp_path / "ride.fit")


# -------------------------------------------------------------------- Arrow and GeoParquet


FIXES = {"uid": ["ana", "ana"], "t": [1_372_636_858, 1_372_636_873], "trip": ["a", "a"]}
DEGREES = {"lat": [41.1, 41.2], "lon": [-8.6, -8.7]}


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_gives_the_same_trips_as_parquet(tmp_path: Path, compression: str) -> None:
    frame = pl.DataFrame(FIXES | DEGREES)
    frame.write_ipc(tmp_path / "a.feather", compression=compression)
    frame.write_parquet(tmp_path / "a.parquet")
    found = [read(tmp_path / name).to_frame() for name in ("a.feather", "a.parquet")]
    assert found[0].equals(found[1])
    (tmp_path / "a.feather").write_bytes((tmp_path / "a.feather").read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.feather: not a whole Arrow file"):
        read(tmp_path / "a.feather")


def geoparquet(path: Path, geometry: list[bytes], crs: object = None, encoding: str = "WKB") -> Path:
    column = {"encoding": encoding, "geometry_types": ["Point"]} | ({} if crs is None else {"crs": crs})
    geo = {"version": "1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    pl.DataFrame(FIXES | {"geometry": geometry}).write_parquet(path, metadata={"geo": json.dumps(geo)})
    return path


def wkb(lon: float, lat: float, form: str = "<BIdd", kind: int = 1) -> bytes:
    return struct.pack(form, 1 if form[0] == "<" else 0, kind, lon, lat)


def test_points_of_geoparquet_are_fixes(tmp_path: Path) -> None:
    points = [wkb(-8.6, 41.1), wkb(-8.7, 41.2, ">BIdd")]
    trips = read(geoparquet(tmp_path / "a.parquet", points))
    assert trips.to_frame().equals(_read_plain(tmp_path))
    elevated = [struct.pack("<BIddd", 1, 1001, -8.6, 41.1, 7.0), struct.pack("<BIIdd", 1, 0x20000001, 4326, -8.7, 41.2)]
    wgs84 = {"type": "GeographicCRS", "name": "WGS 84", "id": {"authority": "EPSG", "code": 4326}}
    assert read(geoparquet(tmp_path / "b.parquet", elevated, wgs84)).to_frame().equals(trips.to_frame())


def _read_plain(folder: Path) -> pl.DataFrame:
    pl.DataFrame(FIXES | DEGREES).write_parquet(folder / "plain.parquet")
    return read(folder / "plain.parquet").to_frame()


def test_geoparquet_without_points_in_degrees_is_rejected(tmp_path: Path) -> None:
    points = [wkb(-8.6, 41.1), wkb(-8.7, 41.2, kind=2)]
    with pytest.raises(DataError, match=r"a\.parquet, row 2: a geometry that is not a point; give one point a row"):
        read(geoparquet(tmp_path / "a.parquet", points))
    mercator = {"type": "ProjectedCRS", "name": "Pseudo-Mercator", "id": {"authority": "EPSG", "code": 3857}}
    with pytest.raises(DataError, match=r"coordinates in Pseudo-Mercator, not in degrees; convert them first"):
        read(geoparquet(tmp_path / "a.parquet", points, mercator))
