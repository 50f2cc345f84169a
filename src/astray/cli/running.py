"""Runs a command: typer reads its flags, and errors become one line and an exit code."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence

import typer

from astray.core.errors import AstrayError, Call, Columns, Option
from astray.core.settings import NAMES, ROLES, SettingsError, flag_of


def run(name: str, command: Callable[..., None] | typer.Typer, arguments: Sequence[str]) -> int:
    """Runs a command, or one of a group of commands, with its arguments; returns the exit code."""
    app = app_of(name, command)
    try:
        app(args=list(arguments), prog_name=f"astray {name}")
    except SettingsError as error:
        return _refused(name, error, 2)
    except AstrayError as error:
        return _refused(name, error, 1)
    except BrokenPipeError:
        raise  # not an error: the program that reads the output has ended
    except OSError as error:
        return _refused(name, error, 1)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None  # click takes it for a failure
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if code == 130:
            raise KeyboardInterrupt from None
        return code
    return 0


def app_of(name: str, command: Callable[..., None] | typer.Typer) -> typer.Typer:
    """Returns a command as a typer app, made from its function if it is one."""
    if isinstance(command, typer.Typer):
        return command
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(name, help=unwrapped(command.__doc__ or ""))(command)
    return app


def unwrapped(text: str) -> str:
    """Joins each paragraph of a docstring into one line, for terminals of any width; keeps indented paragraphs.

    >>> unwrapped("One\\n    subject.\\n\\n    It is\\n    long.\\n\\n      $ as it\\n      $ stands")
    'One subject.\\n\\nIt is long.\\n\\n  $ as it\\n  $ stands'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.split()) for p in paragraphs)


def as_flag(remedy: Option | Columns | Call) -> str:
    """Returns the flag or command for an option or a function of the library.

    >>> as_flag(Option("skip_bad", True)), as_flag(Option("time_zone", "Asia/Tokyo")), as_flag(Option("lat", "Breite"))
    ('--skip-bad', '--time-zone Asia/Tokyo', '--columns lat=Breite')
    >>> as_flag(Option("names", ["time", "lat", "lon"])), as_flag(Option("zero_ok", True)), as_flag(Call("read"))
    ('--read names=time:lat:lon', '--read zero_ok=true', '--whole')
    """
    if isinstance(remedy, Columns):
        return f"--columns {','.join(f'{role}=NAME' for role in remedy.roles)}"
    if isinstance(remedy, Call):
        return {"read": "--whole", "enroll": "astray enroll"}[remedy.name]
    name, value = remedy
    if name in ROLES:
        return f"--columns {shlex.quote(f'{name}={value}')}"
    if name in NAMES:
        return flag_of(name) + ("" if value is True else f" {shlex.quote(str(value))}")
    text = ":".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
    return f"--read {shlex.quote(f'{name}={text}')}"


def _refused(name: str, error: AstrayError | OSError, code: int) -> int:
    from astray.cli.console import say

    words = error.told(as_flag) if isinstance(error, AstrayError) else str(error)
    say(f"astray {name}: {' '.join(words.split())}")  # in one line
    return code
