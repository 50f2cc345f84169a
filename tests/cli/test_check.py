"""``astray check``: shows how a file is read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from astray.cli import main
from astray.cli.console import say, without_panics
from astray.core.errors import DataError
from astray.plots.trips_map import text_map

DATA = Path(__file__).parents[1] / "data"
ODD = "Fahrer;Tag;Breite;Laenge;Typ\n" + "".join(f"ana;06.01.2025 09:4{i}:40;45,1{i};107,1{i};x\n" for i in range(5))


def test_messages_of_a_library_about_a_refused_file_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    def panic() -> None:
        with without_panics():
            os.write(2, b"thread panicked at some line\n")
            raise DataError("not a whole file", remedy="write it again")

    with pytest.raises(DataError):
        panic()
    assert capfd.readouterr().err == ""
    with without_panics():
        os.write(2, b"a warning\n")
        say("a remark")
    assert capfd.readouterr().err == "a remark\na warning\n"


def test_check_warns_of_swapped_coordinates_if_the_numbers_alone_do_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lon, told in ((7.0, True), (107.0, False)):
        (tmp_path / "a.csv").write_text(
            "time,lat,lon\n" + "".join(f"{1736150927 + i},45.{i},{lon}\n" for i in range(9))
        )
        assert main(["check", str(tmp_path / "a.csv")]) == 0
        assert ("swapped?" in capsys.readouterr().out) == told


def test_check_shows_how_a_good_file_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["check", str(DATA / "movebank.csv")]) == 0
    out = capsys.readouterr().out
    told = {line[:8].strip(): line[8:].strip() for line in out.partition("\n\n")[0].splitlines()}
    assert told["format"] == "table"
    assert told["columns"] == "time=timestamp, lat=location-lat, lon=location-long, agent=individual-local-identifier"
    assert told["not used"].startswith("event-id, sensor-type")
    assert told["times"] == "date-times without a zone, read as UTC"
    assert told["agents"] == "2: Redrunner, Borni"
    assert told["trips"] == "2, cut at gaps and stays"
    assert told["fixes"] == "3, about one every 300 s"
    assert (told["from"], told["to"]) == ("2014-06-20 14:00:16", "2014-06-20 14:05:16")
    assert told["zone"] == "Europe/Berlin"
    assert "1 left out: marked as not visible" in out


def test_check_lists_bad_rows_with_their_reasons_and_exits_with_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("uid,t,lat,lon\nana,1372636858,41,-8\nana,1372636859,91,-8\nana,noon,41,-8\n")
    assert main(["check", str(file)]) == 1
    said = capsys.readouterr()
    assert "1 left out: latitude outside [-90, 90]" in said.out
    assert f"{file}, row 4: time is missing or not understood (noon)" in said.out
    assert "2 rows would be refused; correct them, or add --skip-bad" in said.err


def test_check_suggests_one_flag_for_all_missing_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.csv").write_text(ODD)
    assert main(["check", str(tmp_path / "odd.csv")]) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert "try --columns time=Tag,lat=Breite,lon=Laenge" in err
    columns = "time=Tag,lat=Breite,lon=Laenge,agent=Fahrer"
    assert main(["check", str(tmp_path / "odd.csv"), "--columns", columns]) == 0
    assert "1: ana" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "flag"),
    [
        # Numbers that look like seconds since 1970 are not suggested for times, where they have a part already.
        ("mmsi,when_seen,lat,lon\n219000001,2015-12-31 23:59:59,57.8,17.9\n", "time=when_seen"),
        ("Wagen;Datum;Uhrzeit;lat;lon\nA;31.12.2015;23:59:59;57,8;17,9\n", "time=Uhrzeit,date=Datum"),
    ],
)
def test_a_file_can_be_read_with_the_flag_that_check_suggests(
    table: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.csv").write_text(table)
    assert main(["check", str(tmp_path / "odd.csv")]) == 1
    assert f"try --columns {flag} " in " ".join(capsys.readouterr().err.split())
    assert main(["check", str(tmp_path / "odd.csv"), "--columns", flag, "--timezone", "UTC"]) == 0
    assert "2015-12-31 23:59:59" in capsys.readouterr().out


def test_check_draws_the_trips_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "map.png"
    assert main(["check", str(DATA / "track.kml"), "-o", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "named after the folder, for the data name none" in capsys.readouterr().out
    assert main(["check", str(DATA / "track.kml"), "-o", str(tmp_path / "map.pdf")]) == 1
    assert "such files end in .png or .svg" in capsys.readouterr().err


def test_the_map_of_letters_keeps_its_proportions_and_is_darker_where_there_are_more_fixes() -> None:
    square = text_map(np.r_[np.zeros(50), 1.0], np.r_[np.zeros(50), 1.0], width=60, height=20)
    assert len(square) == 20
    assert square[-1][0] == "#"
    assert square[0].strip() == "."
    assert text_map(np.array([45.0]), np.array([7.0])) == ["."]
    across = text_map(np.zeros(2), np.array([179.9, -179.9]), width=10, height=4)
    assert across == [".        ."]
