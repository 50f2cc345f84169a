"""The real GeoLife and Porto, read where ASTRAY_GEOLIFE (the folder Data) and ASTRAY_PORTO point to them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from astray.core.errors import DataError
from astray.readers import Report, iter_porto, read


@pytest.fixture
def geolife() -> Path:
    if "ASTRAY_GEOLIFE" not in os.environ:
        pytest.skip("ASTRAY_GEOLIFE does not point to GeoLife's folder Data")
    return Path(os.environ["ASTRAY_GEOLIFE"])


@pytest.fixture
def porto() -> Path:
    if "ASTRAY_PORTO" not in os.environ:
        pytest.skip("ASTRAY_PORTO does not point to a folder with the Porto files")
    return Path(os.environ["ASTRAY_PORTO"])


def test_all_of_geolife_is_read_with_one_bad_fix_one_reset_clock_and_copies(geolife: Path) -> None:
    report = Report()
    trips = read(geolife, skip_bad=True, report=report)
    assert len(trips.agents) == 182
    assert len(trips) > 18_600
    assert trips.n_rows > 24_600_000
    assert report.counts == {"latitude outside [-90, 90]": 1}
    assert report.skipped[0].file.endswith(os.path.join("020", "Trajectory", "20110911000506.plt"))
    clock, copies = report.assumptions
    assert "20000101231219" in str(clock)
    assert "'003/20090330005208' as '000/20090330005208'" in str(copies)


def test_one_person_of_geolife_is_as_the_files_say(geolife: Path) -> None:
    trips = read(geolife, users=["000"])
    first = trips[0]
    assert first.trajectory_ids.tolist() == ["20081023025304"]
    assert (first.columns["lat"][0], first.columns["lon"][0]) == (39.984702, 116.318417)
    assert first.columns["time"][0] == 1_224_730_384
    with pytest.raises(DataError, match=r"020.*20110911000506\.plt, row \d+: latitude outside"):
        read(geolife, users=["020"])


def test_the_first_rows_of_train_csv_are_read(porto: Path) -> None:
    report = Report()
    trips = read(porto / "porto_train_first_999_rows.csv", report=report)
    assert len(trips) == 998
    assert report.counts == {"a trip without fixes": 1}
    assert set(trips.context["CALL_TYPE"].tolist()) == {"A", "B", "C"}
    first = trips[0]
    assert first.trajectory_ids.tolist() == ["1372636858620000589"]
    assert (first.columns["lon"][0], first.columns["lat"][0]) == (-8.618643, 41.141412)
    assert np.diff(first.columns["time"]).tolist() == [15.0] * (first.n_rows - 1)


def test_all_porto_trips_are_streamed(porto: Path) -> None:
    report = Report()
    sizes = [(len(batch), batch.n_rows) for batch in iter_porto(porto / "porto_trips.parquet", 20_000, report=report)]
    assert np.sum(sizes, axis=0).tolist() == [334_832, 16_702_264]
    assert max(n for n, _ in sizes) == 20_000
    assert report.n_skipped == 0
