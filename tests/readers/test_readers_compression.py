"""Packed files, lists and patterns of files."""

from __future__ import annotations

import gzip
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from astray.core.errors import DataError
from astray.readers import Report, compression, iter_read, read, read_table, recognise

ROWS = "uid,trip,t,lat,lon\nana,a,1372636858,41.1,-8.6\nana,a,1372636873,41.2,-8.7\n"
GPX = '<gpx><trk><trkseg><trkpt lat="41" lon="{}"><time>2013-07-01T00:00:58Z</time></trkpt></trkseg></trk></gpx>'


def zipped(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), text)
    return path


@pytest.fixture
def packed_table(tmp_path: Path) -> Path:
    file = tmp_path / "walks.csv.gz"
    file.write_bytes(gzip.compress(ROWS.encode()))
    return file


def test_a_gzip_file_is_read_as_the_file_inside(packed_table: Path) -> None:
    assert recognise(packed_table) == "table"
    trips = read(packed_table)
    assert (trips.agents, trips.columns["lat"].tolist()) == (["ana"], [41.1, 41.2])
    assert next(iter_read(packed_table)).columns["lat"].tolist() == [41.1, 41.2]


def test_an_archive_is_read_as_a_folder_of_its_name(tmp_path: Path) -> None:
    several = zipped(tmp_path / "past.zip", ana__1_gpx=GPX.format(1), bob__1_gpx=GPX.format(2), __MACOSX___1_gpx="x")
    assert recognise(several) == "gpx"
    assert read(several).agents == ["ana", "bob"]
    assert read(zipped(tmp_path / "eve.zip", a_gpx=GPX.format(1), b_gpx=GPX.format(2))).agents == ["eve"]


def test_errors_in_a_compressed_file_show_its_real_name_not_the_temporary_one(tmp_path: Path) -> None:
    bad = ROWS + "ana,a,1372636888,91,-8.7\n"
    file = tmp_path / "walks.csv.gz"
    file.write_bytes(gzip.compress(bad.encode()))
    with pytest.raises(DataError) as refused:
        read(file)
    assert str(refused.value).startswith(f"{file}, row 4: latitude outside")
    report = Report()
    read(zipped(tmp_path / "walks.zip", days__a_csv=bad), skip_bad=True, report=report)
    assert [skipped.file for skipped in report.skipped] == [f"{tmp_path}/walks.zip/days/a.csv"]
    assert tempfile.gettempdir() + "/astray-" not in str(report)


def test_reading_leaves_nothing_in_the_temporary_folder(
    packed_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    read(packed_table)
    with pytest.raises(DataError):
        read(zipped(tmp_path / "x.zip", a_csv="a,b\n1,2\n"))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_zip_bomb_is_rejected_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "FREE_BYTES", 1 << 16)
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress((ROWS + "\n" * (32 << 20)).encode()))
    with pytest.raises(DataError, match=r"bomb\.csv\.gz: it unpacks to more than \d+ MB, \d+ times its size; if you"):
        read(bomb)
    with pytest.raises(DataError, match=r"unpacks to more than"):
        read(zipped(tmp_path / "bomb.zip", a_csv=ROWS, b_csv="\n" * (32 << 20)))


@pytest.mark.parametrize("name", ["../out.csv", "/etc/out.csv", "a\\..\\out.csv", "a/../../out.csv"])
def test_an_archive_with_a_path_that_points_outside_is_rejected(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), ROWS)
    with pytest.raises(DataError, match=r"a\.zip: a file name in it points outside the archive"):
        read(tmp_path / "a.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a.csv", "./a.csv"])
def test_an_archive_with_two_files_of_one_name_is_rejected(tmp_path: Path, second: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", ROWS)
        archive.writestr(zipfile.ZipInfo(second), ROWS.replace("ana", "bob"))
    with pytest.raises(DataError, match=r"a\.zip: two files in it have the same name; pack it again"):
        read(tmp_path / "a.zip")


def test_damaged_and_nested_compressed_files_are_rejected(packed_table: Path, tmp_path: Path) -> None:
    whole = packed_table.read_bytes()
    for content in (whole[:-12], whole[:20] + b"\xff" + whole[21:], b"PK\x03\x04" + bytes(40)):
        packed_table.write_bytes(content)
        with pytest.raises(DataError, match=r"walks\.csv\.gz: it cannot be unpacked"):
            read(packed_table)
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.writestr("walks.csv.gz", whole)
    with pytest.raises(DataError, match=r"outer\.zip/walks\.csv\.gz: a compressed file inside a compressed file"):
        read(tmp_path / "outer.zip")
    with pytest.raises(DataError, match="the file is compressed; unpack it first, or give it to"):
        read_table(tmp_path / "outer.zip")


def test_a_missing_zstandard_is_installed_by_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "walks.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(40))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(DataError, match=r"pip install 'astray\[zstd\]', or unpack"):
        read(tmp_path / "walks.csv.zst")


@pytest.mark.parametrize("kind", ["bz2", "lzma", "zstandard"])
def test_bzip2_xz_and_zstandard_are_read_and_rejected_when_truncated(tmp_path: Path, kind: str) -> None:
    module = pytest.importorskip(kind)
    compress = module.ZstdCompressor().compress if kind == "zstandard" else module.compress
    header, rest = ROWS.partition("\n")[0] + "\n", ROWS.partition("\n")[2]
    content = compress(header.encode()) + compress(rest.encode())  # two streams in one file, as parallel packers write
    file = tmp_path / f"walks.csv.{ {'bz2': 'bz2', 'lzma': 'xz'}.get(kind, 'zst') }"
    file.write_bytes(content)
    assert read(file).columns["lat"].tolist() == [41.1, 41.2]
    for end in (len(content) - 1, len(content) - 12, 12):
        file.write_bytes(content[:end])
        with pytest.raises(DataError, match=r"cannot be unpacked"):
            read(file)


def test_an_office_workbook_is_rejected_with_advice_to_save_it_as_csv(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "trips.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    with pytest.raises(DataError, match=r"trips\.xlsx: a workbook .*; save the sheet as CSV"):
        read(tmp_path / "trips.xlsx")


def test_skip_bad_skips_a_broken_archive_and_reads_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(ROWS.encode())[:-9])
    with pytest.raises(DataError, match=r"b\.csv\.gz: it cannot be unpacked"):
        read(tmp_path)
    report = Report()
    assert read(tmp_path, skip_bad=True, report=report).n_rows == 2
    assert [Path(s.file).name for s in report.skipped] == ["b.csv.gz"]


def test_lists_and_patterns_name_several_files(tmp_path: Path) -> None:
    for who in ("ana", "bob", "eve"):
        (tmp_path / f"{who}.csv").write_text(ROWS.replace("ana", who))
    assert read([tmp_path / "ana.csv", tmp_path / "bob.csv"]).agents == ["ana", "bob"]
    assert read(str(tmp_path / "*.csv")).agents == ["ana", "bob", "eve"]
    assert read([str(tmp_path / "[ab]*.csv"), tmp_path / "ana.csv"]).agents == ["ana", "bob"]
    with pytest.raises(DataError, match=r"\*\.kml: no file matches this pattern"):
        read(str(tmp_path / "*.kml"))
    with pytest.raises(DataError, match="an empty list of files"):
        read([])
    (tmp_path / "x.gpx").write_text(GPX.format(1))
    assert read([tmp_path / "ana.csv", tmp_path / "x.gpx"]).agents == [tmp_path.name, "ana"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text(ROWS)
    assert read(tmp_path / "a[1].csv").agents == ["ana"]
