"""Files are written whole or not at all, and one process at a time changes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from astray.core.atomic import alone, changing, check_target, keep_from, replacing
from astray.core.errors import DataError, InUseError


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


def writer(path: Path) -> tuple[subprocess.Popen[str], Path]:
    """Starts a process that writes a file and never finishes; returns it and its temporary file."""
    before = set(path.parent.iterdir())
    code = """
        import sys, time
        from pathlib import Path
        from astray.core.atomic import replacing
        with replacing(Path(sys.argv[1])) as file:
            parts = Path(f"{file.name}.parts")
            parts.mkdir()
            (parts / "0").touch()
            print("writing", flush=True)
            time.sleep(600)
    """
    child = subprocess.Popen([sys.executable, "-c", dedent(code), path], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "writing\n"
    (written,) = {file for file in set(path.parent.iterdir()) - before if file.is_file()}
    return child, written


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    begun = []

    def begin() -> tuple[subprocess.Popen[str], Path]:
        begun.append(writer(tmp_path / "model"))
        return begun[-1]

    yield begin
    for child, _ in begun:
        child.kill()
        child.communicate()


def test_the_temporary_file_of_a_killed_writer_is_removed_and_that_of_a_running_one_is_kept(
    tmp_path: Path, writers: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    (killed, left), (_, living) = writers(), writers()
    killed.kill()
    killed.wait()
    host = left.name.split(".")[2].split("-")[0]
    others = [tmp_path / name for name in (".model.backup.tmp", left.name.replace(host, "0" * len(host)))]
    for file in others:  # a file of somebody's, and one that another machine is writing
        file.touch()
    with replacing(tmp_path / "model") as out:
        out.write(b"new")
    assert not left.exists()
    assert not left.with_name(f"{left.name}.parts").exists()
    assert living.exists()
    assert all(file.exists() for file in others)


def test_simultaneous_writers_do_not_remove_each_others_temporary_files(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(i: int) -> None:
        try:
            for _ in range(40):
                with replacing(tmp_path / "model") as file:
                    file.write(bytes([i]) * 100)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(set((tmp_path / "model").read_bytes())) == 1
    assert len(list(tmp_path.iterdir())) == 1


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


def test_waiting_too_long_for_a_file_is_an_error(tmp_path: Path) -> None:
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


def test_a_second_process_with_the_same_state_file_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "watch.state"
    with alone(state):
        with pytest.raises(InUseError), alone(state):
            pass
        assert (tmp_path / "watch.state.lock").exists()
    with alone(state):
        pass
    assert not list(tmp_path.iterdir())


def test_a_users_file_with_the_name_of_the_lock_is_refused_and_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "poetry.lock"
    theirs.write_text("[[package]]")
    with pytest.raises(DataError, match=r"its lock file would be poetry\.lock"), alone(tmp_path / "poetry"):
        pass
    assert theirs.read_text() == "[[package]]"
    left = tmp_path / "state.lock"
    left.touch()  # by a process that was killed
    with alone(tmp_path / "state"):
        pass
    assert not left.exists()


def test_a_file_that_vanishes_while_a_process_locks_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.touch()

    def removed(*_: object) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "open", removed)
    with pytest.raises(InUseError, match="another process has just removed it"), changing(path):
        pass


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(DataError, match="its links lead in a circle; name another file"), replacing(first):
        pass
    with pytest.raises(DataError, match="its links lead in a circle"):
        check_target(first)


def test_an_input_file_is_not_overwritten_under_any_of_its_names(tmp_path: Path) -> None:
    file, link, hard, other = (tmp_path / name for name in ("file", "link", "hard", "other"))
    file.touch()
    other.touch()
    link.symlink_to(file)
    os.link(file, hard)
    for name in (file, link, hard, tmp_path / "no" / ".." / "file"):
        if name.exists():
            with pytest.raises(DataError, match="it is read; name another output"):
                keep_from(name, [other, file], "it is read")
    keep_from(other, [file], "it is read")
    keep_from(None, [file], "it is read")
    new = tmp_path / "new"
    keep_from(new, [file], "it is read")
    with pytest.raises(DataError, match="it is written"):
        keep_from(new, [tmp_path / "x" / ".." / "new"], "it is written")


def test_a_folder_or_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="a device where a file is to be written"), replacing(pipe):
        pass
    assert pipe.is_fifo()
