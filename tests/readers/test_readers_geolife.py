"""GeoLife folders: every oddity of the real files, written small."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray.core.errors import DataError
from astray.readers import ReadWarning, Report, read
from astray.readers import geolife as geolife_module

HEADER = "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n0,2,255,My Track,0,0,2,8421376\r\n0\r\n"
GOOD = (
    "39.984702,116.318417,0,492,39744.1201851852,2008-10-23,02:53:04\r\n"
    "39.984683,116.31845,0,492,39744.1202546296,2008-10-23,02:53:10\r\n"
)
START = 1_224_730_384  # 2008-10-23 02:53:04 UTC


def write_plt(root: Path, user: str, stem: str, body: str = GOOD, header: str = HEADER) -> Path:
    path = root / user / "Trajectory" / f"{stem}.plt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((header + body).encode())
    return path


def test_agents_are_folders_and_trajectories_are_files(tmp_path: Path) -> None:
    write_plt(tmp_path, "001", "20081024000000")
    write_plt(tmp_path, "000", "20081023025304")
    write_plt(tmp_path, "000", "20081022000000")
    trips = read(tmp_path)
    assert trips.agent_ids.tolist() == ["000", "000", "001"]
    assert trips.trajectory_ids.tolist() == ["20081022000000", "20081023025304", "20081024000000"]
    assert trips[1].columns["lat"].tolist() == [39.984702, 39.984683]
    assert trips[1].columns["lon"].tolist() == [116.318417, 116.31845]
    assert trips[1].columns["time"].tolist() == [START, START + 6]


def test_the_folder_above_data_a_persons_folder_and_a_single_file_are_recognised(tmp_path: Path) -> None:
    file = write_plt(tmp_path / "Data", "007", "20081023025304")
    for path in (tmp_path, tmp_path / "Data", tmp_path / "Data" / "007", file.parent, file):
        trips = read(path)
        assert trips.agent_ids.tolist() == ["007"]
        assert trips.trajectory_ids.tolist() == ["20081023025304"]


def test_users_are_chosen_by_name_or_number_and_unknown_ones_rejected(tmp_path: Path) -> None:
    for user in ("000", "001", "128"):
        write_plt(tmp_path, user, "1")
    assert read(tmp_path, users=["128", "000"]).agents == ["128", "000"]
    assert read(tmp_path, users=[1]).agents == read(tmp_path, users="001").agents == ["001"]
    with pytest.raises(DataError, match=r"no person '999'.*000"):
        read(tmp_path, users=["999"])


@pytest.mark.parametrize("altitude", ["-777", "128.937004593176", "0", ""])
def test_altitude_may_be_anything(tmp_path: Path, altitude: str) -> None:
    write_plt(tmp_path, "000", "1", f"39.9,116.3,0,{altitude},39744.1,2008-10-23,02:53:04\r\n")
    assert read(tmp_path).n_rows == 1


def test_repeated_times_are_kept_and_backward_times_sorted(tmp_path: Path) -> None:
    lines = [f"39.{i},116.3,0,0,1.0,2008-10-23,02:53:{s:02d}\r\n" for i, s in enumerate([4, 4, 9, 7])]
    write_plt(tmp_path, "000", "1", "".join(lines))
    write_plt(tmp_path, "000", "2")
    trips = read(tmp_path)
    assert (trips[0].columns["time"] - START).tolist() == [0, 0, 3, 5]
    assert trips[0].columns["lat"].tolist() == [39.0, 39.1, 39.3, 39.2]
    assert trips[1].columns["lat"].tolist() == [39.984702, 39.984683]


@pytest.mark.parametrize(
    "rest",
    [
        "39.98",
        "39.984,116.318,0,492,39744.12",
        "39.984,116.318,0,492,39744.12,2008-10-23,02:53:0",
        "39.984,116.318,0,492,39744.12,2008-10-2",
        "39.984,116.318,0,492,39744.12,2008-13-23,02:53:04",
        "39.984,116.318,0,492,39744.12,2008-10-23,02:53:04,9",
    ],
)
def test_a_truncated_last_line_is_an_error_or_skipped(tmp_path: Path, rest: str) -> None:
    file = write_plt(tmp_path, "000", "1", GOOD + rest)
    write_plt(tmp_path, "001", "1")
    with pytest.raises(DataError, match=r"1\.plt, row 9: .*skip_bad=True") as refused:
        read(tmp_path)
    assert str(file) in str(refused.value)
    report = Report()
    trips = read(tmp_path, skip_bad=True, report=report)
    assert trips.lengths.tolist() == [2, 2]
    assert report.n_skipped == 1
    assert (report.skipped[0].file, report.skipped[0].row) == (str(file), 9)


def test_a_missing_line_end_and_blank_lines_at_the_end_are_accepted(tmp_path: Path) -> None:
    write_plt(tmp_path, "000", "1", GOOD.rstrip())
    write_plt(tmp_path, "000", "2", GOOD + "\r\n\r\n")
    write_plt(tmp_path, "000", "3", GOOD.replace("\r\n", "\n"), HEADER.replace("\r\n", "\n"))
    assert read(tmp_path).lengths.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("400.166666666667,116.2", "latitude outside"),
        ("39.9,1163.2", "longitude outside"),
        ("nan,116.2", "latitude is missing or not a finite"),
        ("39.9,inf", "longitude is missing or not a finite"),
        ("0,0", r"\(0, 0\)"),
    ],
)
def test_impossible_places_are_an_error_or_skipped(tmp_path: Path, place: str, reason: str) -> None:
    write_plt(tmp_path, "000", "1", GOOD + f"{place},0,0,1.0,2008-10-23,02:53:20\r\n" + GOOD)
    with pytest.raises(DataError, match=f"row 9: {reason}"):
        read(tmp_path)
    with pytest.warns(ReadWarning, match=f"row 9: {reason}"):
        assert read(tmp_path, skip_bad=True).n_rows == 4


def test_a_reset_clock_is_reported_and_the_trajectory_kept(tmp_path: Path) -> None:
    write_plt(tmp_path, "000", "20000101231219", "39.9,116.3,0,0,36526.9,2000-01-01,23:12:19\r\n")
    write_plt(tmp_path, "000", "20081023025304")
    report = Report()
    assert len(read(tmp_path, report=report)) == 2
    assert report.n_skipped == 0
    assert len(report.assumptions) == 1
    assert "20000101231219.plt" in str(report.assumptions[0])
    assert "clock" in str(report.assumptions[0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (HEADER.encode(), "header without fixes"),
        (b"Geolife trajectory", "header without fixes"),
        (GOOD.encode() * 5, "row 1: no GeoLife header"),
        (HEADER.encode() + b"\xff\xfe,\x80\r\n" * 3, "not text"),
    ],
)
def test_a_bad_file_among_good_ones_is_an_error_or_skipped_whole(tmp_path: Path, content: bytes, reason: str) -> None:
    bad = write_plt(tmp_path, "000", "1")
    bad.write_bytes(content)
    write_plt(tmp_path, "001", "2")
    with pytest.raises(DataError, match=reason) as refused:
        read(tmp_path)
    assert str(bad) in str(refused.value)
    report = Report()
    assert read(tmp_path, skip_bad=True, report=report).agents == ["001"]
    assert report.n_skipped == 1
    assert (report.skipped[0].file, report.skipped[0].row) == (str(bad), None)


def test_a_folder_without_usable_files_is_an_error_even_with_skip_bad(tmp_path: Path) -> None:
    write_plt(tmp_path, "000", "1", "x\r\n")
    with pytest.raises(DataError, match="no usable fix"):
        read(tmp_path, skip_bad=True)


def test_the_error_names_a_file_that_vanishes_during_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = write_plt(tmp_path, "000", "1")
    write_plt(tmp_path, "000", "2")
    listed = geolife_module._list_files

    def listed_then_removed(*args: object) -> list[geolife_module._Plt]:
        files = listed(*args)  # type: ignore[arg-type]
        gone.unlink()
        return files

    monkeypatch.setattr(geolife_module, "_list_files", listed_then_removed)
    report = Report()
    assert read(tmp_path, skip_bad=True, report=report).trajectory_ids.tolist() == ["2"]
    assert report.skipped[0].file == str(gone)
    assert "No such file" in report.skipped[0].reason


def test_many_groups_parsed_on_threads_give_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(40):
        lines = "".join(f"39.{i:02d}{j},116.3,0,0,1,2008-10-23,02:53:{j:02d}\r\n" for j in range(1 + i % 7))
        write_plt(tmp_path, f"{i % 3:03d}", f"{i:04d}", lines)
    whole = read(tmp_path)
    monkeypatch.setattr(geolife_module, "GROUP_BYTES", 300)
    calls: list[tuple[int, int]] = []
    pieces = read(tmp_path, progress=lambda done, total: calls.append((done, total)))
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(whole.columns[name], pieces.columns[name])
    assert whole.trajectory_ids.tolist() == pieces.trajectory_ids.tolist()
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] == sum(p.stat().st_size for p in tmp_path.rglob("*.plt"))


def test_a_progress_callback_that_raises_stops_the_reading_and_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        write_plt(tmp_path, "000", f"{i:04d}")
    monkeypatch.setattr(geolife_module, "GROUP_BYTES", 1)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(tmp_path, progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("geolife")]


class TestCache:
    def test_the_cache_gives_the_same_without_looking_into_the_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_plt(tmp_path / "Data", "000", "1")
        write_plt(tmp_path / "Data", "001", "2", GOOD * 3)
        cache = tmp_path / "new folder" / "cache.parquet"
        first = read(tmp_path / "Data", cache=cache)
        monkeypatch.setattr(geolife_module, "_parse", None)
        again = read(tmp_path / "Data", cache=cache)
        for name in ("time", "lat", "lon"):
            np.testing.assert_array_equal(first.columns[name], again.columns[name])
        assert first.offsets.tolist() == again.offsets.tolist()
        assert first.agent_ids.tolist() == again.agent_ids.tolist()
        assert first.trajectory_ids.tolist() == again.trajectory_ids.tolist()

    @pytest.mark.parametrize("change", ["edited", "added", "removed", "touched", "users", "strictness"])
    def test_the_cache_is_rebuilt_when_anything_changed(
        self, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data, cache = tmp_path / "Data", tmp_path / "cache.parquet"
        file = write_plt(data, "000", "1")
        write_plt(data, "001", "2")
        read(data, cache=cache)
        options: dict[str, object] = {}
        match change:
            case "edited":
                file.write_text(HEADER + GOOD * 2)
            case "added":
                write_plt(data, "002", "3")
            case "removed":
                file.unlink()
            case "touched":
                os.utime(file, ns=(1, 1))
            case "users":
                options["users"] = ["000"]
            case "strictness":
                options["skip_bad"] = True
        parsed: list[int] = []
        real = geolife_module._parse
        monkeypatch.setattr(geolife_module, "_parse", lambda files: parsed.append(len(files)) or real(files))
        trips = read(data, cache=cache, **options)  # type: ignore[arg-type]
        assert parsed
        assert trips.n_rows == read(data, **options).n_rows  # type: ignore[arg-type]
        parsed.clear()
        read(data, cache=cache, **options)  # type: ignore[arg-type]
        assert not parsed

    def test_an_incomplete_cache_of_another_version_is_written_again(self, tmp_path: Path) -> None:
        data, cache = tmp_path / "Data", tmp_path / "cache.parquet"
        write_plt(data, "000", "1")
        read(data, cache=cache)
        metadata = {k: v for k, v in pl.read_parquet_metadata(cache).items() if k.startswith("astray.")}
        said = json.loads(metadata["astray.report"])
        del said["refused"]
        pl.read_parquet(cache).write_parquet(cache, metadata={**metadata, "astray.report": json.dumps(said)})
        report = Report()
        assert len(read(data, cache=cache, report=report)) == 1
        assert "is written again" in report.notes[0]

    def test_the_cache_repeats_the_report_of_skipped_rows(self, tmp_path: Path) -> None:
        data, cache = tmp_path / "Data", tmp_path / "cache.parquet"
        write_plt(data, "000", "1", GOOD + "91,0,0,0,1,2008-10-23,02:53:04\r\n")
        first, again = Report(), Report()
        earlier = Report(notes=["of another reading"])
        read(data, cache=cache, skip_bad=True, report=earlier)
        read(data, skip_bad=True, report=first)
        read(data, cache=cache, skip_bad=True, report=again)
        assert first == again
        assert again.n_skipped == 1
        with pytest.raises(DataError, match="row 9"):
            read(data, cache=cache)

    @pytest.mark.parametrize("damage", ["empty", "garbage", "truncated", "foreign"])
    def test_a_damaged_cache_is_written_again(self, tmp_path: Path, damage: str) -> None:
        data, cache = tmp_path / "Data", tmp_path / "cache.parquet"
        write_plt(data, "000", "1")
        read(data, cache=cache)
        whole = cache.read_bytes()
        match damage:
            case "empty":
                cache.write_bytes(b"")
            case "garbage":
                cache.write_bytes(b"PAR1" + os.urandom(200) + b"PAR1")
            case "truncated":
                cache.write_bytes(whole[: len(whole) // 2])
            case "foreign":
                pl.DataFrame({"a": [1]}).write_parquet(cache)
        assert read(data, cache=cache, report=Report()).n_rows == 2
        assert pl.read_parquet(cache).height == 2

    def test_a_cache_that_cannot_be_written_is_reported_and_the_old_one_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data, cache = tmp_path / "Data", tmp_path / "caches" / "cache.parquet"
        write_plt(data, "000", "1")
        read(data, cache=cache)
        before = cache.read_bytes()
        write_plt(data, "000", "2")

        def disk_full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", disk_full)
        report = Report()
        assert len(read(data, cache=cache, report=report)) == 2
        assert "No space left" in str(report.assumptions[0])
        assert cache.read_bytes() == before
        assert [p.name for p in cache.parent.iterdir()] == ["cache.parquet"]

    def test_a_folder_as_cache_is_refused_before_the_work(self, tmp_path: Path) -> None:
        write_plt(tmp_path / "Data", "000", "1")
        with pytest.raises(DataError, match="name a file"):
            read(tmp_path / "Data", cache=tmp_path)
