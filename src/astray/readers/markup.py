"""XML files, walked through once without building a tree.

A document type declaration is refused: GPX, KML and TCX have none, and it is the way in for entity bombs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from astray.core.errors import DataError, Place
from astray.readers.line_blocks import opening
from astray.readers.refusals import Intake, refusing


@dataclass(slots=True)
class Point:
    """A point of a track, as it stands in a file."""

    line: int
    time: str | None = None
    lat: str | None = None
    lon: str | None = None


class Document:
    """What a format collects while expat walks through a file: it says what a start and an end of an element mean.

    Names are without their namespace and in lower case; ``path`` is the elements around the one that begins or ends.
    """

    root = ""
    """The name that the outermost element must have."""

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
        """Where the walk stands in the file."""
        return self._lines_before + self._parser.CurrentLineNumber

    @property
    def found(self) -> bool:
        """Whether there was something to read, so far."""
        return any(self.tracks)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str, text: str) -> None:
        """An element ends; ``text`` is what stood in it behind the last element inside."""

    def walk(self, intake: Intake) -> None:
        """Walk through the whole file; if it is broken and bad data are to be left out, up to where it is broken."""
        opening(self.file, 8)
        try:
            with refusing(self.file, "the file could not be read", "check it"), open(self.file, "rb") as stream:
                self._lines_before = _pass_blank(stream)
                self._parser.ParseFile(stream)
        except expat.ExpatError as error:
            place = Place(str(self.file), self._lines_before + error.lineno, "line")
            broken = DataError(f"the XML is broken ({error})", place=place, remedy="export it again")
            intake.break_off(broken, self.found)
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


def _pass_blank(stream: BinaryIO) -> int:
    """Pass spaces before the XML declaration, where none may be, though Strava writes them; how many lines they are."""
    head = stream.read(1 << 12)
    blank = head[: len(head) - len(head.lstrip())]
    stream.seek(len(blank))
    return blank.count(b"\n")
