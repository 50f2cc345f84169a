"""Files that are whole or not there, and that one process at a time changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from astray.atomic import alone, changing, replacing
from astray.errors import InUseError


def test_a_link_stays_a_link_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "model", tmp_path / "model"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_the_mode_of_a_private_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with replacing(path) as file:
        assert oct(next(tmp_path.glob(".model*.tmp")).stat().st_mode & 0o777) == "0o600"  # while it is written, too
        file.write(b"new")
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_what_a_killed_writer_left_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, living = (tmp_path / f".model.{pid}-0123456789ab.tmp" for pid in (gone.pid, os.getpid()))
    other = tmp_path / ".model.backup.tmp"
    for file in (left, living, other):
        file.touch()
    with replacing(tmp_path / "model") as out:
        out.write(b"new")
    assert not left.exists()
    assert living.exists()
    assert other.exists()


def test_a_second_writer_waits_and_then_reads_what_the_first_has_written(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")

    def add_one() -> None:
        with changing(path):
            n = int(path.read_text())
            with replacing(path) as file:
                file.write(str(n + 1).encode())

    threads = [threading.Thread(target=add_one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "12"


def test_who_has_waited_in_vain_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.touch()
    with (
        changing(path),
        pytest.raises(InUseError, match="another process is changing it; try again"),
        changing(path, 0.1),
    ):
        pass
    with changing(path, 0.1):  # it is free again
        pass


def test_two_do_not_work_with_one_state(tmp_path: Path) -> None:
    state = tmp_path / "watch.state"
    with alone(state):
        with pytest.raises(InUseError), alone(state):
            pass
        assert (tmp_path / "watch.state.lock").exists()
    with alone(state):
        pass
    assert not list(tmp_path.iterdir())
