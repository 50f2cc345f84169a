"""Running a command: its flags by typer, its errors as one line, its exit code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import typer

from astray.errors import AstrayError
from astray.settings import SettingsError

# What the library tells programmers to do, as it is done with flags.
_IN_FLAGS = (
    (r"pass skip_bad=True", "pass --skip-bad"),
    (r'name it, for example read\(path, (\w+)="\.\.\."\)', r"name it: --columns \1=NAME"),
    (r"name them: read\(path, lat=\.\.\., lon=\.\.\.\)", "name them: --columns lat=NAME,lon=NAME"),
    (r"give the names: read\(path, names=\[.*?\]\)", "give the names: --read names=agent:time:lon:lat"),
    (r"read it whole with read\(\)", "pass --whole"),
    (r'choose with format="(\w+)"', r"choose with --format \1"),
    (r"pass zero_ok=True", "pass --read zero_ok=true"),
    (r"\bpass time_(unit|zone)=", r"pass --time-\1"),
    (r"\btake time_format=", "take --read time_format="),
    (r"\btime_(unit|zone)=", r"time-\1 "),
    (r"call enroll\(trips\) first", "run astray enroll first"),
)


def run(name: str, command: Callable[..., None], arguments: Sequence[str]) -> int:
    """Run one command with its arguments; gives the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(help=unwrapped(command.__doc__ or ""), no_args_is_help=name != "demo")(command)
    try:
        app(args=list(arguments), prog_name=f"astray {name}")
    except SettingsError as error:
        return _refused(name, error, 2)
    except AstrayError as error:
        return _refused(name, error, 1)
    except BrokenPipeError:
        raise  # no error of the command: whoever reads what it says has seen enough
    except OSError as error:
        return _refused(name, error, 1)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None  # which click had taken for a failure
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if code == 130:
            raise KeyboardInterrupt from None
        return code
    return 0


def unwrapped(text: str) -> str:
    """A docstring with each paragraph in one line, as terminals of any width want it; indented lines stay.

    >>> unwrapped("One\\n    subject.\\n\\n    It is\\n    long.\\n\\n      $ as it\\n      $ stands")
    'One subject.\\n\\nIt is long.\\n\\n  $ as it\\n  $ stands'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.split()) for p in paragraphs)


def in_flags(text: str) -> str:
    """A message of the library, with its remedies as flags.

    >>> in_flags('row 1: no column for lat was recognised; name it, for example read(path, lat="...")')
    'row 1: no column for lat was recognised; name it: --columns lat=NAME'
    >>> in_flags("correct the fix, or pass skip_bad=True to leave it out")
    'correct the fix, or pass --skip-bad to leave it out'
    """
    for said, flag in _IN_FLAGS:
        text = re.sub(said, flag, text)
    return text


def _refused(name: str, error: Any, code: int) -> int:
    from astray.cli.console import say

    words = " ".join(in_flags(str(error)).split())  # one line, whatever it was
    say(f"astray {name}: {words}")
    return code
