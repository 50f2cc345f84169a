"""Finds, in an input that may be read again after a restart, the first line that was not read yet."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator

from astray.core.errors import DataError
from astray.runtime.json_fixes import Line

HEAD, TAIL = 16, 1000  # digests kept of the first and of the last lines


def digest(line: Line) -> int:
    """Returns a fingerprint of a line, of 64 bits."""
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class Position:
    """How many lines were read, and the fingerprints of the first and the last of them.

    >>> done = Position()
    >>> for line in ["a", "b", "c"]:
    ...     done.advance(line)
    >>> list(done.unread(["a", "b", "c", "d"]))       # the input from its beginning
    ['d']
    >>> list(done.unread(["b", "c", "d"]))            # from somewhere before the position
    ['d']
    >>> list(done.unread(["d"]))                      # from the position
    ['d']
    """

    def __init__(self, lines: int = 0, head: Iterable[int] = (), tail: Iterable[int] = ()) -> None:
        self.lines = lines
        self.head = list(head)
        self.tail = deque(tail, TAIL)

    def advance(self, line: Line) -> None:
        """Counts a line that was read."""
        self.lines += 1
        mark = digest(line)
        if len(self.head) < HEAD:
            self.head.append(mark)
        self.tail.append(mark)

    def unread(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yields the lines after the position, of an input that begins anywhere up to it.

        The input may begin at its old beginning, at one of the last thousand lines before the position, or after it.
        The fingerprints show which; of several possible overlaps the longest is taken. Raises a DataError if the input
        begins as the old one did but continues differently.
        """
        source = iter(lines)
        if not self.lines:
            yield from source
            return
        known = dict(enumerate(self.head)) | dict(enumerate(self.tail, self.lines - len(self.tail)))
        starts: list[int] | None = None  # the lines of the old input at which this one may begin
        held: list[Line] = []  # lines to skip if one of these starts is right
        read = overlap = 0
        for line in source:
            mark = digest(line)
            if starts is None:
                starts = [i for i, m in known.items() if m == mark]
            else:
                # Lines between head and tail are unknown: only an input from the beginning may have them.
                starts = [s for s in starts if known.get(s + read, mark if s == 0 else None) == mark]
            read += 1
            held.append(line)
            if any(s + read == self.lines for s in starts):
                overlap, held = read, []
            starts = [s for s in starts if s + read < self.lines]
            if not starts:
                break
            if starts == [0] and read > TAIL:
                held.clear()
        else:
            return
        if read - overlap > len(held):
            reason = f"the input begins like the one before but differs from it at line {read}"
            raise DataError(reason, remedy="give the same lines again, or another state file")
        yield from held
        yield from source
