"""The command line: ``astray COMMAND ...``. Each command is a module, imported when it is called.

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

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["COMMANDS", "commands", "load_command", "main"]

COMMANDS = {
    "simulate": "Make a city and write the trips of its people, with known anomalies if wanted.",
    "check": "Say how a file of trips would be read: columns, times, agents, trips, what is refused.",
    "fit": "Learn what is normal from a file of past trips, and write a model.",
    "enroll": "Add new agents, or further trips, to a fleet model by counting trips.",
    "score": "Say how normal each trip, or each fix, of a file is.",
    "explain": "Say in words and pictures why a trip scored as it did.",
    "serve": "Run the service: feeds in, alerts, a queue of trips to review, a page.",
    "watch": "Score live fixes from standard input, and raise alerts.",
    "update": "Go on learning from further trips, but never from those that proved anomalous.",
    "observe": "Score trips in the order of time, and learn from those that are normal.",
    "answer": "List what the model asks about flagged trips, or answer it.",
    "forget": "Remove an agent, or some of its trips, from a model.",
    "info": "Say what a model is, what it has seen, and how it decides.",
    "pretrain": "Learn from simulated people the reward that every model begins with.",
    "demo": "Simulate a city, find the trips that went astray, draw them.",
}
GROUP = "astray.commands"
"""The group of entry points by which other distributions add commands: a name, and a function or a typer app."""

DISTRIBUTIONS = {"benchmark": "astray-benchmark"}
"""Commands that another distribution adds, and its name: what to install where it is missing."""

_HELP = """\
Usage: astray COMMAND [ARGUMENTS] [OPTIONS]

Is this behaviour still normal for this agent? astray learns from past trips
what an agent seems to want, and says of new trips how normal they are, how
sure that is, and why.

Commands:
{commands}

Your own data (tables, GPX, KML, FIT, GeoJSON, Google's timeline, ...):
  astray check past.csv                   see how it would be read
  astray fit past.csv -o me.astray        learn
  astray score me.astray new.csv          see which trips went astray
  astray explain me.astray new.csv TRIP -o trip.png

No data yet?
  astray demo

Options:
  --help     this text; astray COMMAND --help says more, with examples
  --version  the version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code: 0 well, 1 data or model refused, 2 wrong usage, 130 interrupted."""
    # The matrices are small: more threads are slower, and every core has a process of its own already.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    try:
        signal.signal(signal.SIGTERM, _terminated)
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever reads our standard output has seen enough (| head); Python would complain when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # of standard output, a full disk for example: what commands do is told by themselves
        print(f"astray: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _mend_streams() -> None:
    """Let streams that whoever started us has closed lead nowhere, and show what a terminal has no letters for.

    In this order: what is opened first takes the number of what is closed, and no file of ours can.
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
    """Returns every command with one line about it: those of astray, then those that other distributions add.

    The line about an added command is the summary of its distribution, so that nothing needs to be imported.
    """
    added = {name: (entry.dist.metadata["Summary"] if entry.dist else "") for name, entry in _added_commands().items()}
    return COMMANDS | added


def load_command(name: str) -> Any:
    """Imports a command, of astray or of another distribution, and returns its function or typer app."""
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
    """Leave as after an error, so that temporary files are removed."""
    raise SystemExit(128 + number)
