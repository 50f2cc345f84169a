"""Prints answers to standard output, and remarks and progress to standard error."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol

from astray.core.errors import AstrayError, some_names
from astray.core.text import harmless, number_of

if TYPE_CHECKING:
    from astray.core.trip_ids import TripId


class Advance(Protocol):
    """Shows progress."""

    def __call__(self, share: float, more: str = "") -> None:
        """Shows the share of the work that is done, from 0 to 1, and a few more words."""


EVERY = 10.0
"""Seconds between two lines of progress if standard error is not a terminal."""

LEAST_SECONDS, LEAST_SHARE = 3.0, 0.02
"""The share of the work that must be done before the time left is shown."""


def say(words: str, *, quiet: bool = False) -> None:
    """Prints a remark to standard error, unless ``quiet``; the work continues even if that is closed (``| head``)."""
    if quiet:
        return
    try:
        print(harmless(words, lines=True), file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def tell(words: object) -> None:
    """Prints an answer to standard output, with names made harmless to a terminal."""
    print(harmless(str(words), lines=True))


def tell_facts(facts: Mapping[str, str]) -> None:
    """Prints the facts that are not empty, one per line; wraps long ones."""
    room = min(shutil.get_terminal_size((114, 24)).columns, 114)
    width = max(len(name) for name, words in facts.items() if words) + 2
    for name, words in facts.items():
        wrapped = textwrap.wrap(harmless(words), room - width, break_long_words=False, break_on_hyphens=False)
        for i, line in enumerate(wrapped):
            tell(f"{'' if i else name:<{width}}{line}")


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Shows the progress of some work and the time left: a bar on a terminal, otherwise a line from time to time."""
    if quiet:
        yield lambda share, more="": None
    elif sys.stderr.isatty():
        with _bar(what) as advance:
            yield advance
    else:
        yield _lines(what)


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    still = TextColumn("{task.fields[left]}", markup=False)
    with Progress(*columns, still, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(harmless(what), total=1.0, left="")
        pace = Pace()

        def advance(share: float, more: str = "") -> None:
            left = pace.left(time.monotonic(), share)
            bars.update(task, completed=share, left=", ".join(filter(None, (left, more))))

        yield advance


def _lines(what: str) -> Advance:
    printed, pace = time.monotonic(), Pace()

    def advance(share: float, more: str = "") -> None:
        nonlocal printed
        now = time.monotonic()
        left = pace.left(now, share)
        if now - printed >= EVERY and left and share < 1:
            printed = now
            say(", ".join(filter(None, (f"{what}: {share:.0%}", left, more))))

    return advance


class Pace:
    """Estimates the time left from the pace so far.

    The time before the first step (reading, preparing) does not count, and there is no estimate in the first moments.

    >>> pace = Pace()
    >>> [pace.left(now, share) for now, share in ((30.0, 0.1), (31.0, 0.2), (40.0, 0.6), (50.0, 1.0))]
    ['', '', 'about 8 s left', 'finishing']
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def left(self, now: float, share: float) -> str:
        """Returns the time left when a share is done, in words; empty as long as it is too early to tell."""
        if self._first is None:
            self._first = now, share
        lasted, done = now - self._first[0], share - self._first[1]
        if share >= 1:
            return "finishing"
        if lasted < LEAST_SECONDS or done < LEAST_SHARE:
            return ""
        return f"about {_duration(lasted * (1 - share) / done)} left"


def _duration(seconds: float) -> str:
    """Returns a duration in words.

    >>> _duration(42), _duration(200), _duration(7300)
    ('42 s', '3 min', '2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Makes Ctrl-C end the process at once, while there is nothing to tidy up.

    The training library runs Python inside C++, where an exception in the wrong place crashes the process with a trace.
    """

    def leave(number: int, _: object) -> NoReturn:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K\x1b[?25h")  # removes the bar, shows the cursor
        say("interrupted")
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def learning(what: str, *, quiet: bool) -> Iterator[Callable[[int, int, Mapping[str, float]], None]]:
    """Yields a function for a detector's ``progress``, which shows it; meanwhile Ctrl-C ends the process at once."""
    with leaving_at_once(), progress(what, quiet=quiet) as advance:
        yield lambda iteration, iterations, measures: advance(iteration / max(iterations, 1))


@contextmanager
def without_panics() -> Iterator[None]:
    """Holds back what native libraries write to standard error, and drops it if a file is refused.

    At some damaged files polars panics, and writes pages before the error message, which says all that is needed.
    Remarks of astray itself are printed at once.
    """
    ours = sys.stderr
    ours.flush()
    try:
        is_ours = ours.fileno() == 2
        kept = os.dup(2)
    except (OSError, ValueError):  # it is closed, or not a file
        yield
        return
    refused = False
    with (
        tempfile.TemporaryFile() as held,
        open(kept, "w", buffering=1, encoding=ours.encoding, errors="replace") as out,
    ):
        os.dup2(held.fileno(), 2)
        sys.stderr = out if is_ours else ours
        try:
            yield
        except AstrayError:
            refused = True
            raise
        finally:
            sys.stderr = ours
            os.dup2(kept, 2)
            held.seek(0)
            if not refused:
                os.write(2, held.read())


def say_suspected(trips: Sequence[TripId], *, quiet: bool = False) -> None:
    """Prints which trips look like another agent's, and what to do about it."""
    if trips:
        verb, were = ("looks", "was") if len(trips) == 1 else ("look", "were")
        said = f"{number_of(len(trips), 'trip')} {verb} like somebody else's, and {were} taken out of the memory"
        then = "astray info MODEL lists all of them; astray update MODEL --anomalous TRIP confirms one"
        say(f"{said}: {some_names([str(trip) for trip in trips])}. {then}", quiet=quiet)
