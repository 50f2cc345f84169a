"""Fills the pages of the command line and of the settings from the code, when mkdocs builds the site."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from astray.cli import COMMANDS
from astray.cli.running import app_of
from astray.core import settings

PANEL = "rich_help_panel"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces the two marks, ``<!-- commands -->`` and ``<!-- settings -->``, by what they stand for.

    The long tables of a benchmark run are kept out of the search, whose results they would fill with numbers.
    """
    if re.match(r"results/\w+/", page.file.src_uri):
        page.meta["search"] = {"exclude": True}
    for mark, made in (("<!-- commands -->", commands), ("<!-- settings -->", settings_table)):
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown


def settings_table() -> str:
    """Returns a table of all settings: name, default, meaning."""
    rows = [f"| `{name}` | {default} | {help} |" for name, default, help in settings.reference()]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def commands() -> str:
    """Returns a list of all commands, and a section for each of them."""
    listed = [f"- [`astray {name}`](#astray-{name}): {says}" for name, says in COMMANDS.items()]
    return "\n".join([*listed, "", *(line for name in COMMANDS for line in _command(name))])


def _command(name: str) -> Iterator[str]:
    module = importlib.import_module(f"astray.cli.{name}")
    yield from _sections(f"astray {name}", typer.main.get_command(app_of(name, module.command)), "##")
    for further, command in getattr(module, "FURTHER", {}).items():
        made = command if isinstance(command, typer.Typer) else app_of(f"{name} {further}", command)
        yield from _sections(f"astray {name} {further}", typer.main.get_command(made), "###")


def _sections(name: str, command: Any, level: str) -> Iterator[str]:
    """Yields the section of a command; of a group, those of its commands."""
    within = getattr(command, "commands", None)
    if within:
        for part, one in within.items():
            yield from _sections(f"{name} {part}", one, level)
        return
    with typer.Context(command, info_name=name) as context:
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        yield f"{level} `{name}` {{ #{name.replace(' ', '-')} }}\n\n```sh\n{usage}\n```\n"
        yield _help(command.help or "") + "\n"
        panels: dict[str, list[str]] = {}
        for parameter in command.get_params(context):
            if parameter.name != "help":
                panels.setdefault(getattr(parameter, PANEL, None) or "", []).append(_parameter(parameter, context))
    for panel, lines in panels.items():
        yield "\n".join([*([f"*{panel}*", ""] if panel else []), *lines, ""])


def _parameter(parameter: Any, context: Any) -> str:
    """Returns a list item: the flags or the argument, its help, and its default as a sentence."""
    flags, help = parameter.get_help_record(context)
    help = re.sub(r"\s*\\?\[(?:required|default: ([^]]*))\]\s*$", _default, help)
    return f"- `{flags}`: {help}"


def _default(found: re.Match[str]) -> str:
    """Returns the default of a help record as a sentence, without the range that the help says in words."""
    return f" Default: {found[1].partition(';')[0]}." if found[1] else ""


def _help(text: str) -> str:
    """Returns help as Markdown: examples as a block, bold as bold."""
    text = text.replace("[b]Examples[/b]\n\n", "").replace("[b]Example[/b]\n\n", "")
    text = re.sub(r"\[/?dim\]", "", text).replace("[b]", "**").replace("[/b]", "**").replace("\\[", "[")
    return "\n\n".join(f"```sh\n{inspect.cleandoc(p)}\n```" if p.startswith("  ") else p for p in text.split("\n\n"))
