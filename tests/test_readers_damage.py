"""Damaged files of every format are read or refused, and nothing else."""

from __future__ import annotations

import gzip
import random
import warnings
from pathlib import Path

import polars as pl
import pytest

from astray.errors import DataError
from astray.readers import Report, read

DATA = Path(__file__).parent / "data"
FILES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.name != "Settings.json")


def damaged(whole: bytes, seed: int) -> bytes:
    """Some bytes changed, taken out, put in or doubled, or the end cut off."""
    chance = random.Random(seed)
    content = bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(content))
        match chance.randrange(5):
            case 0:
                content[at] = chance.randrange(256)
            case 1:
                del content[at : at + chance.randint(1, 40)]
            case 2:
                content[at:at] = chance.choice([b'"', b"{", b"]", b"<", b"&x;", b",", b"\n", b"null", b"-", b"9" * 400])
            case 3:
                content[at:at] = content[at : at + chance.randint(1, 200)]
            case _:
                del content[max(at, 1) :]
        content = content or bytearray(b"\n")
    return bytes(content)


def outcome(file: Path, skip_bad: bool) -> str:
    refusal = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read(file, skip_bad=skip_bad, report=Report())
        except DataError as error:
            refusal = error
    if refusal is None:
        return "read"
    assert refusal.place
    assert refusal.remedy
    return "refused"


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.name)
def test_a_damaged_file_is_read_or_refused(source: Path, tmp_path: Path) -> None:
    whole = source.read_bytes()
    found = set()
    for seed in range(40):
        file = tmp_path / source.name
        file.write_bytes(damaged(whole, seed))
        found |= {outcome(file, skip_bad) for skip_bad in (False, True)}
    assert "refused" in found


@pytest.mark.parametrize("suffix", [".csv.gz", ".feather"])
def test_a_damaged_package_is_read_or_refused(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"fixes{suffix}"
    if suffix == ".csv.gz":
        file.write_bytes(gzip.compress((DATA / "traccar.csv").read_bytes()))
    else:
        pl.DataFrame({"t": [1_372_636_858] * 9, "lat": [41.0] * 9, "lon": [-8.0] * 9}).write_ipc(file)
    whole = file.read_bytes()
    for seed in range(40):
        file.write_bytes(damaged(whole, seed))
        outcome(file, True)
