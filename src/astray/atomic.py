"""Files that are whole or not there, and that one process at a time changes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from astray.errors import InUseError, Place

try:
    import fcntl
except ImportError:  # Windows: there files are not locked
    fcntl = None  # type: ignore[assignment]

PATIENCE = 60.0  # seconds that one waits for another process to be done with a file
ASK_AGAIN = 0.05  # seconds between two tries


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of ``path`` when the block ends well, and vanishes when it does not.

    Whatever happens in between (an exception, a full disk, a killed process), ``path`` is the old file or the new one.
    A link stays a link: what it points to is replaced. A file that is replaced hands its mode on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "greeting")
    ...     with replacing(target) as file:
    ...         _ = file.write(b"hello")
    ...     target.read_bytes(), len(list(Path(folder).iterdir()))
    (b'hello', 1)
    """
    path = path.resolve()
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, path.stat().st_mode & 0o7777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
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


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed while they wrote ``path`` have left behind."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.(\d+)-[0-9a-f]{{12}}\.tmp")
    with contextlib.suppress(OSError):  # a folder that cannot be listed, or a file that another one has just removed
        for file in path.parent.glob(".*.tmp"):
            match = ours.fullmatch(file.name)
            if match and not _is_alive(int(match[1])):
                file.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is somebody else's
        return True
    return True


@contextlib.contextmanager
def changing(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Be the only process that changes a file: others that ask for it wait for so long, and are then refused.

    Raises
    ------
    InUseError
        If another process does not let go of the file in time; nothing was changed.
    """
    if fcntl is None or not path.is_file():
        yield
        return
    until = time.monotonic() + patience
    while True:
        file = os.open(path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InUseError(
                        "another process is changing it", place=Place(str(path)), remedy="try again when it is done"
                    ) from None
                time.sleep(ASK_AGAIN)
                continue
            # Who had it before may have put another file in its place.
            if path.exists() and os.fstat(file).st_ino == path.stat().st_ino:
                yield
                return
        finally:
            os.close(file)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only process that works with a file for a while, though the file itself may be replaced meanwhile.

    A second one is refused at once. While it lasts there is a file of the same name that ends in ``.lock``.
    """
    lock = path.with_name(f"{path.name}.lock")
    lock.touch()
    with changing(lock, patience=0.0):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
