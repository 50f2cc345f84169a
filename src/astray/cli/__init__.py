"""Runs the command line ``astray COMMAND ...``. Each command is a module, which is imported when it is called.

Other distributions add commands by entry points of the group ``astray.commands``. Nothing heavy is imported here, so
that ``astray --help`` answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from astray.core.errors import Terminated

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["COMMANDS", "commands", "load_command", "main"]

COMMANDS = {
    "simulate": "Simulate a city and write the trips of its people, with known anomalies if you like.",
    "check": "Show how astray reads a file of trips: columns, times, agents, trips, refused rows.",
    "fit": "Learn what is normal from a file of past trips, and write a model.",
    "enroll": "Add new agents, or further trips, to a fleet model by counting trips.",
    "score": "Write a table that says how normal each trip, or each fix, of a file is.",
    "explain": "Explain in words and pictures why a trip scored as it did.",
    "serve": "Run the service: it receives fixes, raises alerts, and has a page to review trips.",
    "watch": "Score live fixes from standard input, and write alerts as JSON lines.",
    "update": "Learn from further trips, but never from those that proved anomalous.",
    "observe": "Score trips in the order of time, and learn from each one that is normal.",
    "answer": "List the questions that observe has raised, or answer one.",
    "forget": "Remove an agent, or some of its trips, from a model.",
    "info": "Show what a model is, what it has learned from, and how it decides.",
    "pretrain": "Learn, from simulated people, the reward that every model begins with.",
    "demo": "Simulate a city, find the trips that went astray, and draw them.",
}
GROUP = "astray.commands"
"""The group of entry points with which other distributions add commands: functions or typer apps."""

DISTRIBUTIONS = {"benchmark": "astray-benchmark"}
"""Commands of other distributions, and the distribution to install if one is missing."""

_HELP = """\
Usage: astray COMMAND [ARGUMENTS] [OPTIONS]

Is this behaviour still normal for this agent? astray learns from past trips
what an agent seems to want. It says of each new trip how normal it is, how
certain that is, and why.

Commands:
{commands}

Your own data (tables, GPX, KML, FIT, GeoJSON, Google's timeline, ...):
  astray check past.csv                   see how astray reads it
  astray fit past.csv -o me.astray        learn what is normal
  astray score me.astray new.csv          see which trips went astray
  astray explain me.astray new.csv TRIP -o trip.png

No data yet?
  astray demo

Options:
  --help     this text; astray COMMAND --help explains a command by examples
  --version  the version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0 done, 1 data or model refused, 2 wrong usage, 130 interrupted."""
    # More threads would be slower: the matrices are small, and every core already has a process.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    try:
        signal.signal(signal.SIGTERM, _terminated)
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of standard output has stopped (| head); Python would complain when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # of standard output, such as a full disk; commands report their own errors
        print(f"astray: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _mend_streams() -> None:
    """Replaces closed standard streams by the null device, and escapes characters that the terminal cannot show.

    It must run first: the next file that is opened gets the number of a closed stream, and must not be a user's file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (it stays open)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(given: list[str]) -> int:
    name = given[0] if given else "--help"
    if name in ("--help", "-h", "help"):
        print(_HELP.format(commands="\n".join(_in_list(*command) for command in commands().items())), end="")
        return 0
    if name == "--version":
        from astray import __version__

        print(f"astray {__version__}")
        return 0
    if name not in COMMANDS and name not in (added := _added_commands()):
        if name in DISTRIBUTIONS:
            install = f"pip install {DISTRIBUTIONS[name]}"
            print(f"astray: the command {name} is not installed; {install} adds it", file=sys.stderr)
            return 2
        every = [*COMMANDS, *added]
        close = difflib.get_close_matches(name, [*every, *DISTRIBUTIONS], 1)
        remedy = f"did you mean {close[0]}?" if close else f"there are {', '.join(every)}"
        print(f"astray: no command is named {name!r}; {remedy} (astray --help says more)", file=sys.stderr)
        return 2
    from astray.cli.running import run

    if name in COMMANDS:
        further = getattr(importlib.import_module(f"astray.cli.{name}"), "FURTHER", {})  # astray serve backup
        if given[1:2] and given[1] in further:
            return run(f"{name} {given[1]}", further[given[1]], given[2:])
    return run(name, load_command(name), given[1:])


def commands() -> dict[str, str]:
    """Maps all commands, astray's first, to one line about each.

    For a command of another distribution that is the distribution's summary, so that nothing needs to be imported.
    """
    added = {name: (entry.dist.metadata["Summary"] if entry.dist else "") for name, entry in _added_commands().items()}
    return COMMANDS | added


def load_command(name: str) -> Any:
    """Imports a command of astray or of another distribution; returns its function or typer app."""
    if name in COMMANDS:
        return importlib.import_module(f"astray.cli.{name}").command
    return _added_commands()[name].load()


def _added_commands() -> dict[str, EntryPoint]:
    """Finds the commands that other distributions add; they cannot replace a command of astray."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in COMMANDS}


def _in_list(name: str, says: str) -> str:
    """Returns a command's entry in the list of commands, in lines of at most 79 letters."""
    return textwrap.fill(says, 79, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Raises an exception, so that temporary files are removed."""
    raise Terminated(128 + number)
