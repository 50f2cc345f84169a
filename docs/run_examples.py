"""Runs the examples of the README and of these pages; with --write, writes into the pages what they print and draw.

An example is a ``python`` block, or an ``sh`` block that starts with ``astray``. The examples of a page run in order,
in one folder and one Python session. Examples in HTML comments run too: they make the files that a reader has.
A ``text`` block after an example shows what it prints; a last line ``...`` there stands for more lines. A ``python``
block that begins with the comment ``# NAME.py`` is also written to that file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from astray.cli import main as astray

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
WIDTH = 110
PROGRESS = re.compile(r"^.*: \d+%, about .* left\n", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One block of a page, and the output that the page shows for it."""

    place: str
    kind: str
    code: str
    printed: str | None
    span: tuple[int, int]  # of what it prints, in the page


class _Screen(io.TextIOWrapper):
    """Collects what a person would see: on a terminal commands draw tables, to a pipe they write data."""

    def __init__(self, seen: io.BytesIO, *, is_terminal: bool) -> None:
        super().__init__(seen, "utf-8", write_through=True)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def examples(page: Path) -> list[Example]:
    """Returns the examples of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in BLOCK.finditer(text):
        if match[1] == "python" or match[2].startswith("astray "):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Example(f"{page.name}, line {line}", match[1], match[2], match[3], match.span(3)))
    return found


def run(page: Path) -> list[tuple[Example, str]]:
    """Runs the examples of a page in the present folder, and returns each with what it printed."""
    session: dict[str, Any] = {"__name__": "__main__"}
    return [(example, _printed(example, session)) for example in examples(page)]


def _printed(example: Example, session: dict[str, Any]) -> str:
    seen = io.BytesIO()
    out, said = _Screen(seen, is_terminal=example.kind == "sh"), _Screen(seen, is_terminal=False)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said if example.kind == "sh" else sys.stderr):
        if example.kind == "python":
            if file := FILE.match(example.code):
                Path(file[1]).write_text(example.code, "utf-8")
            exec(compile(example.code, example.place, "exec"), session)
        else:
            for command in example.code.replace("\\\n", " ").splitlines():
                code = _exit_code(command, seen)
                if code:
                    raise AssertionError(f"{example.place}: exit code {code}: {command}\n{seen.getvalue().decode()}")
    lines = [line.rstrip() + "\n" for line in seen.getvalue().decode().splitlines()]
    return PROGRESS.sub("", "".join(lines))


def _exit_code(command: str, seen: io.BytesIO) -> int:
    """Runs one command, in this process if it is astray alone, else in a shell, and returns its exit code."""
    words = shlex.split(command, comments=True)
    if not words:
        return 0
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "TERM": "dumb", "PATH": _path()}):
        if words[0] == "astray" and not set(words) & {"|", ">", "&&"}:
            words, given = (words[:-2], words[-1]) if words[-2] == "<" else (words, os.devnull)
            with open(given) as lines, mock.patch.object(sys, "stdin", lines):
                return astray(words[1:])
        shell = subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, check=False)
        seen.write(shell.stdout + shell.stderr)
        return shell.returncode


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def rewritten(page: Path, ran: list[tuple[Example, str]]) -> str:
    """Returns the page with what its examples really print."""
    text = page.read_text("utf-8")
    for example, printed in reversed(ran):
        if example.printed is not None:
            text = text[: example.span[0]] + shown(example.printed, printed) + text[example.span[1] :]
    return text


def shown(before: str, printed: str) -> str:
    """Returns as much of the output as the page shows: all, or the lines before a last ``...``."""
    lines, old = printed.splitlines(keepends=True), before.splitlines()
    return "".join([*lines[: len(old) - 1], "...\n"] if old and old[-1] == "..." else lines)


def main() -> None:
    """Runs the examples of the named pages, or of all pages, each in its own temporary folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--write", action="store_true", help="only pages that show output; and write it into them")
    chosen = parser.parse_args()
    for page in [Path(page).resolve() for page in chosen.pages]:
        if chosen.write and all(example.printed is None for example in examples(page)):
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            ran = run(page)
            for picture in (ROOT / "docs" / "images").iterdir() if chosen.write else ():
                if Path(picture.name).is_file():
                    shutil.copyfile(picture.name, picture)
        if chosen.write:
            page.write_text(rewritten(page, ran), "utf-8")
        print(f"{page.name}: {len(ran)} examples ran")


if __name__ == "__main__":
    main()
