"""Writes files whole or not at all, and lets one process at a time change a file.

:func:`alone` is a lock of the filelock library. The rest has no equivalent there: :func:`replacing` writes atomically,
which filelock does not, and removes what killed writers left; :func:`changing` locks the data file itself, so that
no second file lies beside a model, and follows it when another process replaces it. filelock needs a separate lock
file, and its releases before 4 empty the file that they lock.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from astray.core.errors import DataError, InUseError

try:
    import fcntl
except ImportError:  # Windows, where changing() does not lock
    fcntl = None  # type: ignore[assignment]

PATIENCE = 60.0  # seconds to wait until another process has changed a file
ASK_AGAIN = 0.05  # seconds between two tries


def check_target(path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raises an error before any work is done if this file cannot be written or lacks one of the ``suffixes``."""
    _resolved(path)
    if suffixes and path.suffix.lower() not in suffixes:
        raise DataError(f"such files end in {' or '.join(suffixes)}", place=path, remedy="give a name with that suffix")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device"
        raise DataError(f"{what} where a file is to be written", place=path, remedy="name the file")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}", place=path, remedy="make it first")


def keep_from(output: Path | None, files: Iterable[Path], reason: str) -> None:
    """Raises an error if the output would overwrite an input file, even through a link; ``reason`` is the message."""
    if output is None:
        return
    target, there = _resolved(output), output.exists()
    if any(file.samefile(output) if there else _resolved(file) == target for file in files if file.exists() == there):
        raise DataError(reason, place=output, remedy="name another output")


def _resolved(path: Path) -> Path:
    """Returns the path with its links followed; raises an error if they lead in a circle."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # a RuntimeError before Python 3.13
        raise DataError("its links lead in a circle", place=path, remedy="name another file") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that replaces ``path`` when the block ends, or is removed if the block raises.

    Whatever happens in between (an exception, a full disk, a killed process), ``path`` is the whole old file or the
    whole new one.
    A link stays a link: the file it points to is replaced. The new file has the mode of the old one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "greeting")
    ...     with replacing(target) as file:
    ...         _ = file.write(b"hello")
    ...     target.read_bytes(), len(list(Path(folder).iterdir()))
    (b'hello', 1)
    """
    path = _resolved(path)
    if path.exists():
        check_target(path)  # a device must not be replaced by a file
    _remove_leftovers(path)
    temporary, file = _temporary(path)
    try:
        with file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, path.stat().st_mode & 0o7777)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":
                os.replace(temporary, path)  # still locked, so that no process takes it for a leftover
        if os.name == "nt":
            os.replace(temporary, path)  # an open file cannot be moved there
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    with contextlib.suppress(OSError):  # not every file system can sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Opens a new file beside ``path`` and locks it until it is closed: a killed process leaves an unlocked one."""
    while True:
        temporary = path.with_name(f".{path.name}.{_host()}-{secrets.token_hex(6)}.tmp")
        file = open(temporary, "xb")  # noqa: SIM115  (the caller closes it)
        try:
            if _locked(file.fileno()) and _is_same_file(file.fileno(), temporary):
                return temporary, file
        except OSError:  # a file system without locks, where no process removes leftovers
            return temporary, file
        file.close()  # another process took it for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Removes the temporary files that killed processes of this machine left while they wrote ``path``.

    Leaves the files of other machines alone: not every shared file system shows their locks.
    """
    ours = re.compile(rf"\.{re.escape(path.name)}\.{_host()}-[0-9a-f]{{12}}\.tmp")
    with contextlib.suppress(OSError):  # a folder that cannot be listed, or a file that another one has just removed
        for left in path.parent.glob(".*.tmp"):
            if ours.fullmatch(left.name):
                with left.open("rb") as file:
                    if _locked(file.fileno()):
                        for parts in path.parent.glob(f"{glob.escape(left.name)}.*"):  # the parts of its table
                            shutil.rmtree(parts)
                        left.unlink()


def _host() -> str:
    """Returns a hash of this machine's name."""
    return hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()


def _locked(file: int) -> bool:
    """Locks an open file until it is closed, and returns True if that worked at once; on Windows always True."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(file: int, path: Path) -> bool:
    """Returns True if ``path`` still names this open file."""
    return path.exists() and os.path.samestat(os.fstat(file), path.stat())


@contextlib.contextmanager
def changing(path: Path, patience: float | None = None) -> Iterator[None]:
    """Makes this the only process that changes a file; if another one is changing it, waits up to ``patience`` seconds.

    Raises
    ------
    InUseError
        If another process does not release the file in time; nothing was changed.
    """
    if fcntl is None or not path.is_file():
        yield
        return
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise InUseError("another process has just removed it", place=path, remedy="try again") from error
        try:
            if not _locked(file):
                if time.monotonic() > until:
                    raise InUseError("another process is changing it", place=path, remedy="try again when it is done")
                time.sleep(ASK_AGAIN)
                continue
            if _is_same_file(file, path):  # if not, the process that held the lock has replaced the file
                yield
                return
        finally:
            os.close(file)


def lock_of(path: Path) -> Path:
    """Returns the path of the lock file that :func:`alone` holds for a file."""
    return path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Makes this the only process that works with a file, even if the file is replaced meanwhile.

    A second process gets an error at once. The lock is an empty file beside it whose name ends in ``.lock``; it is
    removed at the end. A file of that name that is not empty belongs to the user: it is an error, and is left alone.
    """
    check_target(path)
    lock = lock_of(path)
    check_target(lock)
    if lock.exists() and lock.stat().st_size:
        reason = f"its lock file would be {lock.name}, which exists and is not empty"
        raise DataError(reason, place=path, remedy="name another file, or move that one")
    from filelock import FileLock, Timeout  # which takes time to import, and few commands need

    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout as error:
        raise InUseError("another process is changing it", place=lock, remedy="try again when it is done") from error
    try:
        yield
    finally:
        if os.name != "nt":  # where an open file cannot be removed, and filelock removes it when it lets go
            lock.unlink(missing_ok=True)
        held.release()
