"""XML files of tracks, parsed in one pass without building a tree.

A document type declaration is an error: GPX, KML and TCX have none, and an entity bomb (a small file that expands to
gigabytes) needs one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from astray.core.errors import DataError, Place
from astray.readers.read_report import Intake, raising_data_errors


@dataclass(slots=True)
class Point:
    """A point of a track, as the file writes it."""

    line: int
    time: str | None = None
    lat: str | None = None
    lon: str | None = None


class TrackDocument:
    """Collects the tracks of a file while expat parses it; a format overrides :meth:`start` and :meth:`end`.

    Element names are in lower case and without namespace; ``path`` holds the elements around the current one.
    """

    root = ""
    """The name of the outermost element."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tracks: list[list[Point]] = []
        self.path: list[str] = []
        self._lines_before = 0
        self._outermost: str | None = None
        self._text: list[str] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = lambda text: self._text.append(text)
        self._parser.StartDoctypeDeclHandler = self._doctype

    @property
    def line(self) -> int:
        """Returns the current line."""
        return self._lines_before + self._parser.CurrentLineNumber

    @property
    def found(self) -> bool:
        """Returns True if there is a point so far."""
        return any(self.tracks)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handles the start of an element."""

    def end(self, name: str, text: str) -> None:
        """Handles the end of an element; ``text`` is its text after the last inner element."""

    def parse(self, intake: Intake) -> None:
        """Parses the whole file; if bad data are skipped, up to the place where the XML is broken."""
        try:
            with (
                raising_data_errors(self.file, "the file could not be read", "check it"),
                open(self.file, "rb") as stream,
            ):
                self._lines_before = _skip_blanks(stream)
                self._parser.ParseFile(stream)
        except expat.ExpatError as error:
            place = Place(str(self.file), self._lines_before + error.lineno, "line")
            broken = DataError(f"the XML is broken ({error})", place=place, remedy="export it again")
            intake.stop_at_damage(broken, self.found)
        except DataError:
            raise
        except (ValueError, LookupError) as error:
            raise DataError(str(error), remedy="write the file in UTF-8") from error
        if self._outermost != self.root.lower():
            reason = f"<{self._outermost}> where <{self.root}> was expected"
            raise DataError(
                reason, place=Place(str(self.file), 1, "line"), remedy=f"give a file that begins with <{self.root}>"
            )

    def _doctype(self, *_: object) -> None:
        place = Place(str(self.file), self.line, "line")
        raise DataError("a document type declaration (entities could be a bomb)", place=place, remedy="delete it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2].lower()
        self._outermost = self._outermost or name
        self._text = []
        self.start(name, attributes)
        self.path.append(name)

    def _end(self, _: str) -> None:
        name = self.path.pop()
        self.end(name, "".join(self._text))
        self._text = []


def _skip_blanks(stream: BinaryIO) -> int:
    """Skips blanks before the XML declaration, where Strava wrongly writes them; returns the number of lines."""
    head = stream.read(1 << 12)
    blank = head[: len(head) - len(head.lstrip())]
    stream.seek(len(blank))
    return blank.count(b"\n")
