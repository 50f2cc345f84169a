"""Damaged files of every format are read or refused, and nothing else."""

from __future__ import annotations

import gzip
import random
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray.core.errors import DataError, Place
from astray.readers import Report, read

DATA = Path(__file__).parents[1] / "data"
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
def test_a_damaged_file_is_read_or_raises_a_data_error(source: Path, tmp_path: Path) -> None:
    whole = source.read_bytes()
    found = set()
    for seed in range(40):
        file = tmp_path / source.name
        file.write_bytes(damaged(whole, seed))
        found |= {outcome(file, skip_bad) for skip_bad in (False, True)}
    assert "refused" in found


@pytest.mark.parametrize("suffix", [".csv.gz", ".feather"])
def test_a_damaged_compressed_file_is_read_or_raises_a_data_error(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"fixes{suffix}"
    if suffix == ".csv.gz":
        file.write_bytes(gzip.compress((DATA / "traccar.csv").read_bytes()))
    else:
        pl.DataFrame({"t": [1_372_636_858] * 9, "lat": [41.0] * 9, "lon": [-8.0] * 9}).write_ipc(file)
    whole = file.read_bytes()
    for seed in range(40):
        file.write_bytes(damaged(whole, seed))
        outcome(file, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"time": "2024-05-03\\ud800", "lat": 45, "lon": 7}\n'),
        ("a.jsonl", '{"time": 1.7e9, "lat": 45, "lon": 1' + "0" * 400 + "}\n"),
        ("a.jsonl", '{"time": 1.7e9, "lat": "45\u202e\u200b\ufeff", "lon": 7}\n'),
        ("a.csv", "time,lat,lon\n2024-05-03T08:00:00\ufeffZ,45,7\n"),
        ("a.csv", "time,lat,lon\n2024-05-03T08:00:00Z,45,7\u3000\u0a34\n"),
        ("a.gpx", '<gpx><trk><trkseg><trkpt lat="45" lon="7"><time>\u2028noon</time></trkpt></trkseg></trk></gpx>'),
    ],
)
def test_error_messages_spell_out_invisible_characters(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as refusal:
        read(tmp_path / name, report=Report())
    assert isinstance(refusal.value.place, Place)
    assert refusal.value.place.row is not None
    assert str(refusal.value).isprintable()


def test_a_signalling_nan_is_rejected_without_a_numpy_warning(tmp_path: Path) -> None:
    signal = np.array([0x7FF0_0000_0000_0001, 0x41D9_54FC_4000_0000], np.uint64).view(np.float64)
    frame = pl.DataFrame({"time": signal, "lat": [45.0, 45.0], "lon": [7.0, 7.0]})
    frame.write_parquet(tmp_path / "a.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path / "a.parquet", skip_bad=True, report=Report()).n_rows == 1
