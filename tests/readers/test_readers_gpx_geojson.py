"""GPX and GeoJSON: tracks and lines with times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray.core.errors import DataError
from astray.readers import Report, read

T0 = 1_372_636_858  # 2013-07-01T00:00:58Z
GPX = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<gpx xmlns="http://www.topografix.com/GPX/1/1" version="1.1">\n{}</gpx>\n'
)


def point(second: int, lat: object = 41.1, lon: object = -8.6, stamp: str | None = None) -> str:
    stamp = f"2013-07-01T00:00:{58 - second:02d}Z" if stamp is None else stamp
    when = f"<time>{stamp}</time>" if stamp else ""
    return f'<trkpt lat="{lat}" lon="{lon}"><ele>12.5</ele>{when}</trkpt>\n'


def write_gpx(path: Path, *tracks: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(GPX.format("".join(f"<trk><name>x</name>\n{track}</trk>\n" for track in tracks)))
    return path


def segment(*points: str) -> str:
    return f"<trkseg>\n{''.join(points)}</trkseg>\n"


def test_a_track_is_a_trajectory_with_its_segments_joined_and_sorted(tmp_path: Path) -> None:
    file = write_gpx(
        tmp_path / "ana" / "walk.gpx",
        segment(point(3, 41.3), point(2, 41.4)) + segment() + segment(point(5, 41.1), point(4, 41.2)),
    )
    trips = read(file)
    assert (trips.agent_ids.tolist(), trips.trajectory_ids.tolist()) == (["ana"], ["walk"])
    assert (trips.columns["time"] - T0).tolist() == [-5, -4, -3, -2]
    assert trips.columns["lat"].tolist() == [41.1, 41.2, 41.3, 41.4]
    assert read(file, agent="bob").agents == ["bob"]


def test_folders_of_gpx_files_are_agents_and_tracks_are_trajectories(tmp_path: Path) -> None:
    write_gpx(tmp_path / "ana" / "1.gpx", segment(point(1)))
    write_gpx(tmp_path / "bob" / "1.gpx", segment(point(1)), segment(point(2)))
    calls: list[tuple[int, int]] = []
    trips = read(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert trips.agent_ids.tolist() == ["ana", "bob", "bob"]
    assert trips.trajectory_ids.tolist() == ["1", "1-1", "1-2"]
    assert calls == [(1, 2), (2, 2)]


def test_gpx_without_times_is_rejected(tmp_path: Path) -> None:
    file = write_gpx(tmp_path / "drawn.gpx", segment(point(1, stamp=""), point(2, stamp="")))
    with pytest.raises(DataError, match=r"drawn\.gpx: the track points have no <time>; export"):
        read(file)


def test_gpx_without_track_points_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no track points"):
        read(write_gpx(tmp_path / "a.gpx", segment(), ""))
    (tmp_path / "b.gpx").write_text(GPX.format('<wpt lat="1" lon="2"><time>2013-07-01T00:00:00Z</time></wpt>'))
    with pytest.raises(DataError, match="no track points"):
        read(tmp_path / "b.gpx")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (point(2, stamp=""), "time is missing"),
        (point(2, stamp="noon"), "time is missing or not understood \\(noon\\)"),
        (point(2, lat=91), "latitude outside"),
        (point(2, lon="NaN"), "longitude is missing"),
        (point(2, 0, 0), "\\(0, 0\\)"),
        ("<trkpt><time>2013-07-01T00:00:00Z</time></trkpt>\n", "latitude is missing"),
    ],
)
def test_an_error_in_a_track_point_names_its_line_or_it_is_skipped(tmp_path: Path, bad: str, reason: str) -> None:
    file = write_gpx(tmp_path / "a.gpx", segment(point(4), point(3), bad, point(1)))
    with pytest.raises(DataError, match=rf"a\.gpx, line 7: {reason}"):
        read(file)
    report = Report()
    assert read(file, skip_bad=True, report=report).n_rows == 3
    assert (report.skipped[0].row, report.skipped[0].unit) == (7, "line")


ENTITIES = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(12))
BOMB = f'<?xml version="1.0"?>\n<!DOCTYPE gpx [<!ENTITY a0 "ha">{ENTITIES}]>\n<gpx><trk>&a12;</trk></gpx>'
OUTSIDE = '<?xml version="1.0"?>\n<!DOCTYPE gpx SYSTEM "file:///etc/passwd">\n<gpx></gpx>'


@pytest.mark.parametrize("text", [BOMB, OUTSIDE])
def test_gpx_with_a_document_type_declaration_is_rejected_unread(tmp_path: Path, text: str) -> None:
    (tmp_path / "bomb.gpx").write_text(text)
    with pytest.raises(DataError, match=r"bomb\.gpx, line 2: a document type declaration"):
        read(tmp_path / "bomb.gpx")


def test_broken_or_foreign_xml_is_rejected_and_its_neighbours_are_read(tmp_path: Path) -> None:
    write_gpx(tmp_path / "good.gpx", segment(point(1)))
    (tmp_path / "cut.gpx").write_text(GPX.format(segment(point(1)))[:-20])
    (tmp_path / "kml.gpx").write_text("<osm><node/></osm>")
    with pytest.raises(DataError, match=r"cut\.gpx, line \d+: .*XML is broken"):
        read(tmp_path / "cut.gpx")
    with pytest.raises(DataError, match="<osm> where <gpx> was expected"):
        read(tmp_path / "kml.gpx")
    report = Report()
    assert read(tmp_path, skip_bad=True, report=report).trajectory_ids.tolist() == ["good"]
    assert [Path(s.file).name for s in report.skipped if s.row is None] == ["cut.gpx", "kml.gpx"]


def test_skip_bad_reads_a_truncated_gpx_file_up_to_the_damage(tmp_path: Path) -> None:
    whole = GPX.format(f"<trk>{segment(point(1) + point(2) + point(3))}</trk>")
    file = tmp_path / "ride.gpx"
    file.write_text(whole[: whole.rindex("<trkpt")])
    with pytest.raises(DataError, match="the XML is broken"):
        read(file)
    report = Report()
    assert read(file, skip_bad=True, report=report).n_rows == 2
    assert (list(report.counts), report.refused) == (["the rest of a broken file"], 1)


@settings(deadline=None)
@given(st.text(alphabet='<>/gpxtrkseg "=latlon140.:&;![]-', max_size=60))
def test_any_tags_in_gpx_are_read_or_raise_a_data_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "wild.gpx"
    file.write_text(GPX.format(f"<trk>{segment(point(1))}</trk>{text}"))
    try:
        assert read(file).n_rows == 1
    except DataError as error:
        message = str(error)
        assert message.startswith(str(file))


# -------------------------------------------------------------------- GeoJSON


def feature(kind: str, coordinates: object, **properties: object) -> dict[str, object]:
    return {
        "type": "Feature",
        "geometry": {"type": kind, "coordinates": coordinates},
        "properties": properties,
    }


def write_geojson(path: Path, *features: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def stamps(n: int, start: int = 0) -> list[str]:
    return [f"2013-07-01T00:01:{start + i:02d}Z" for i in range(n)]


LINE = [[-8.6, 41.1, 80.0], [-8.61, 41.11, 81.0]]


@pytest.mark.parametrize("name", ["coordTimes", "times", "timestamps"])
def test_a_line_with_heights_and_times_is_a_trajectory(tmp_path: Path, name: str) -> None:
    file = write_geojson(tmp_path / "ana" / "walk.geojson", feature("LineString", LINE, **{name: stamps(2)}))
    trips = read(file)
    assert (trips.agent_ids.tolist(), trips.trajectory_ids.tolist()) == (["ana"], ["walk"])
    assert trips.columns["lat"].tolist() == [41.1, 41.11]
    assert trips.columns["lon"].tolist() == [-8.6, -8.61]
    assert trips.columns["time"].tolist() == [T0 + 2, T0 + 3]


@pytest.mark.parametrize("times", [[stamps(2), stamps(2, 2)], stamps(4)])
def test_a_multi_line_is_one_trajectory_however_its_times_are_nested(tmp_path: Path, times: object) -> None:
    lines = [LINE, [[-8.62, 41.12], [-8.63, 41.13]]]
    file = write_geojson(tmp_path / "a.json", feature("MultiLineString", lines, coordTimes=times, uid=7, trip_id="t"))
    trips = read(file)
    assert (trips.agent_ids.tolist(), trips.trajectory_ids.tolist()) == (["7"], ["t"])
    assert trips.columns["lon"].tolist() == [-8.6, -8.61, -8.62, -8.63]


def test_line_times_may_be_in_coordinate_properties_or_be_numbers(tmp_path: Path) -> None:
    nested = feature("LineString", LINE, coordinateProperties={"times": [T0 * 1000, (T0 + 1) * 1000]})
    assert read(write_geojson(tmp_path / "a.geojson", nested)).columns["time"].tolist() == [T0, T0 + 1]


def test_points_are_grouped_by_their_properties(tmp_path: Path) -> None:
    points = [
        feature("Point", [-8.6, 41.1 + i / 10, 5], time=stamp, uid="ab"[i % 2], trip="t")
        for i, stamp in enumerate(stamps(4))
    ]
    trips = read(write_geojson(tmp_path / "points.geojson", *points))
    assert (trips.agent_ids.tolist(), trips.lengths.tolist()) == (["a", "b"], [2, 2])
    loose = [feature("Point", [-8.6, 41.1], tst=T0), feature("Point", [-8.6, 41.1], tst=T0 + 5)]
    trips = read(write_geojson(tmp_path / "ana" / "loose.geojson", *loose))
    assert (trips.agent_ids.tolist(), trips.lengths.tolist()) == (["ana"], [2])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (feature("LineString", LINE), "a line without times"),
        (feature("MultiLineString", [[]], times=[[]]), "a line without positions"),
        (feature("LineString", LINE, times=stamps(3)), "3 times for 2 vertices"),
        (feature("LineString", [[1]], times=stamps(1)), "a position that is not"),
        (feature("LineString", [["1", "2"]], times=stamps(1)), "a position that is not"),
        (feature("LineString", 5, times=stamps(1)), "not a list of lines"),
        (feature("MultiLineString", [LINE], times=[stamps(1)]), "not nested as the coordinates"),
        (feature("Polygon", [LINE], times=stamps(2)), "a geometry of type 'Polygon'"),
        (feature("LineString", [[-8.6, 91]], times=stamps(1)), "latitude outside"),
        (feature("LineString", [[0, 0]], times=stamps(1)), r"\(0, 0\)"),
        (feature("LineString", [[-8.6, float("nan")]], times=stamps(1)), "latitude is missing"),
        (feature("LineString", LINE, times=["noon", None]), "time is missing or not understood"),
        ({"type": "Feature", "geometry": None, "properties": {}}, "without a geometry"),
        (None, "without a geometry"),
    ],
)
def test_an_error_in_a_feature_names_its_number_or_it_is_skipped(tmp_path: Path, bad: object, reason: str) -> None:
    good = feature("LineString", [*LINE, *LINE], times=stamps(4))
    file = write_geojson(tmp_path / "a.geojson", good, bad, good)
    with pytest.raises(DataError, match=rf"a\.geojson, feature 2: .*{reason}"):
        read(file)
    report = Report()
    assert read(file, skip_bad=True, report=report).trajectory_ids.tolist() == ["a-1", "a-3"]
    assert {(s.row, s.unit) for s in report.skipped} == {(2, "feature")}


def test_swapped_geojson_coordinates_are_reported(tmp_path: Path) -> None:
    beijing = feature("LineString", [[39.9, 116.3], [39.91, 116.31]], times=stamps(2))
    with pytest.raises(DataError, match="swapped"):
        read(write_geojson(tmp_path / "a.geojson", beijing))


def point_text(coordinates: str, properties: str) -> str:
    geometry = '{"type": "Point", "coordinates": ' + coordinates + "}"
    return '{"type": "Feature", "geometry": ' + geometry + ', "properties": ' + properties + "}"


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "FeatureCollection", "features": [',
        '{"type": "Topology"}',
        '{"type": "FeatureCollection"}',
        '{"type": "FeatureCollection", "features": []}',
        "{" + '"a":[' * 20_000,
        point_text("[1, 1e999]", '{"t": 1}'),
        point_text("[1, 2]", '{"t": 1' + "0" * 400 + "}"),
        point_text("[1, 2]", '{"t": {}}'),
        point_text("[1, 2]", "[1]"),
        '{"type": "Feature", "geometry": {"type": [], "coordinates": [1, 2]}}',
    ],
)
def test_broken_or_foreign_json_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.geojson").write_text(text)
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=r"x\.geojson"):
            read(tmp_path / "x.geojson", skip_bad=skip_bad, report=Report())


odd_numbers = st.sampled_from([float("nan"), float("inf"), 1e300, -1e-300, 41.25, 10**400])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-80, 80) | odd_numbers | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    kind=st.sampled_from(["Point", "LineString", "MultiLineString", "Polygon"]),
    coordinates=json_values,
    times=json_values,
)
def test_any_json_in_a_feature_is_read_or_raises_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, coordinates: object, times: object
) -> None:
    good = feature("LineString", LINE, times=stamps(2))
    file = write_geojson(
        tmp_path_factory.getbasetemp() / "wild.geojson",
        good,
        feature(kind, coordinates, times=times, t=times),
    )
    report = Report()
    trips = read(file, skip_bad=True, report=report)
    assert trips.n_rows > 2 or report.n_skipped > 0
