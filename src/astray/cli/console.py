"""What a command says on standard error: progress with the time left, remarks, and what was left out of the data."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from astray.cli.running import as_flag

if TYPE_CHECKING:
    from astray.readers import Report
    from astray.trip_ids import TripId

Advance = Callable[[float], None]
"""Says which share of the work, from 0 to 1, is done."""

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal to draw on."""

SHOWN = 5
"""Names of a list that are said, at most."""


def say(words: str, *, quiet: bool = False) -> None:
    """A remark, unless quiet is asked for; if nobody listens any more (``2>&1 | head``), the work still goes on."""
    if quiet:
        return
    try:
        print(words, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show how far a piece of work is and how long it still takes: a bar on a terminal, else a line now and then."""
    if quiet:
        yield lambda share: None
    elif sys.stderr.isatty():
        with _bar(what) as advance:
            yield advance
    else:
        yield _lines(what)


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=1.0)
        yield lambda share: bars.update(task, completed=share)


def _lines(what: str) -> Advance:
    begin = said = time.monotonic()

    def advance(share: float) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= EVERY and 0 < share < 1:
            said = now
            say(f"{what}: {share:.0%}, about {_duration((now - begin) * (1 - share) / share)} left")

    return advance


def _duration(seconds: float) -> str:
    """A duration in words.

    >>> _duration(42), _duration(200), _duration(7300)
    ('42 s', '3 min', '2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process on the spot, where there is nothing to tidy up.

    The training library runs Python inside C++, where an exception in the wrong place brings the process down noisily.
    """

    before = signal.signal(signal.SIGINT, lambda number, frame: _leave(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(code: int) -> NoReturn:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K\x1b[?25h")  # the bar away, the cursor back
    say("interrupted")
    os._exit(code)


def counted(done: Advance) -> Callable[[int, int], None]:
    """Progress as readers report it: so many of so many."""
    return lambda n, total: done(n / total if total else 1.0)


def say_left_out(report: Report, *, quiet: bool = False) -> None:
    """What a reader left out, which is always said, what it supposed, and how many trips it cut."""
    if report.counts or ((report.assumptions or report.cut) and not quiet):
        say(report.told(as_flag))


def say_suspects(trips: Sequence[TripId], *, quiet: bool = False) -> None:
    """That some trips look like other agents', and what to do about it."""
    if trips:
        shown = ", ".join(map(str, trips[:SHOWN])) + (", ..." if len(trips) > SHOWN else "")
        verb, were = ("looks", "was") if len(trips) == 1 else ("look", "were")
        say(
            f"{number_of(len(trips), 'trip')} {verb} like somebody else's, and {were} taken out of the memory: {shown}"
            ". astray info MODEL lists all such; astray update MODEL --anomalous TRIP confirms one",
            quiet=quiet,
        )


def number_of(n: int, what: str) -> str:
    """So many of something.

    >>> number_of(1, "trip"), number_of(1200, "fix")
    ('1 trip', '1,200 fixes')
    """
    plural = "es" if what.endswith("x") else "s"
    return f"{n:,} {what}{'' if n == 1 else plural}"
