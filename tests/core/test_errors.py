"""Errors carry place, reason and remedy as fields; each outlet puts them into its own words."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import astray
from astray import read
from astray.cli import main
from astray.core.errors import AstrayError, Call, DataError, NotFittedError, Option, Place, joined

SRC = Path(astray.__file__).parent


def test_an_error_has_place_reason_and_remedy_as_fields(tmp_path: Path) -> None:
    file = tmp_path / "fixes.csv"
    file.write_text("agent,time,lat,lon\na,0,45,7\na,1,95,7\na,2,45,7\n")
    with pytest.raises(DataError) as refused:
        read(file)
    error = refused.value
    assert error.place == Place(str(file), 3)
    assert error.reason == "latitude outside [-90, 90] (95)"
    assert error.remedy == joined(
        "correct the fix (degrees are expected; are lat and lon swapped?)",
        (", or pass ", Option("skip_bad", True), " to leave it out"),
    )


@pytest.mark.parametrize(
    ("content", "in_python", "as_flags"),
    [
        ("agent,time,lat,lon\na,0,45,7\na,1,95,7\na,2,45,7\n", "skip_bad=True", "--skip-bad"),
        ("agent,time,lat,north\na,0,45,7\n", "lon='NAME'", "--columns lon=NAME"),
        ("a,0,45,7\n", "names=['agent', 'time', 'lon', 'lat']", "--read names=agent:time:lon:lat"),
        ("agent,time,lat,lon\na,0,0,0\na,1,45,7\n", "zero_ok=True", "--read zero_ok=true"),
        ("agent,time,lat,lon\na,20081023025304,45,7\n", "time_unit='ms'", "--time-unit ms"),
        ("agent,time,lat,lon\na,soon,45,7\n", "time_format='%d.%m.%Y", "--read 'time_format=%d.%m.%Y"),
    ],
)
def test_a_remedy_is_an_argument_in_python_and_a_flag_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, in_python: str, as_flags: str
) -> None:
    file = tmp_path / "fixes.csv"
    file.write_text(content)
    with pytest.raises(DataError) as refused:
        read(file)
    assert in_python in str(refused.value)
    assert main(["fit", str(file), "-o", str(tmp_path / "m.astray")]) == 1
    said = capsys.readouterr().err
    assert as_flags in said
    assert in_python not in said


def test_the_report_names_a_skipped_file_once_with_the_reason(tmp_path: Path) -> None:
    from astray.readers import Report

    (tmp_path / "a.csv").write_text("agent,time,lat,lon\na,0,45,7\n")
    (tmp_path / "b.csv").write_text("agent,time,lat,north\na,0,45,7\n")
    report = Report()
    read(tmp_path, skip_bad=True, report=report)
    assert str(report.skipped[0]).count("b.csv") == 1
    assert report.skipped[0].reason.startswith("no column for lon was recognised")


@pytest.mark.parametrize("flags", [[], ["--skip-bad"]])
def test_text_from_a_file_is_escaped_in_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    file = tmp_path / "fixes.csv"
    file.write_text("agent,time,lat,lon\na,0,\x1b[31mred,7\n")
    with pytest.raises(DataError) as refused:
        read(file)
    assert "\\x1b[31mred" in str(refused.value)
    assert main(["check", str(file), *flags]) == 1
    said = "".join(capsys.readouterr())
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("kind", [AstrayError, DataError, NotFittedError])
def test_an_error_keeps_its_fields_between_processes(kind: type[AstrayError]) -> None:
    error = kind("wrong", place=Place("a.csv", 3), remedy=("use ", Call("enroll")))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.place, again.reason, again.remedy) == (kind, error.place, "wrong", error.remedy)
    assert str(again) == "a.csv, row 3: wrong; use enroll()"


def test_every_error_has_its_remedy_in_the_field() -> None:
    kinds = {"AstrayError"} | {
        node.name
        for file in SRC.rglob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Busy"))
    }
    found = []
    for file in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in kinds or not node.args:
                continue
            if "remedy" not in {keyword.arg for keyword in node.keywords}:
                found.append(f"{file.relative_to(SRC)}, line {node.lineno}")
    assert found == []
