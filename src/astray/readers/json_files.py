"""JSON documents: loads them whole, or streams the entries of a long list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astray.core.errors import DataError, Place
from astray.readers.read_report import raising_data_errors
from astray.readers.text_files import decoded

CHUNK = 4 << 20
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def load_json(file: Path) -> Any:
    """Returns the document in a file."""
    with raising_data_errors(file, "the file could not be read", "check it"):
        content = file.read_bytes()
    try:
        return json.loads(decoded(file, content, None).lstrip("\ufeff"))
    except json.JSONDecodeError as error:
        place, remedy = Place(str(file), error.lineno, "line"), "the JSON is broken there, export it again"
        raise DataError(error.msg, place=place, remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the JSON cannot be read ({error})", remedy="export it again") from error


def iter_list(file: Path, start: re.Pattern[str]) -> Iterator[Any]:
    """Yields the entries of the list that begins where ``start`` ends, without loading the whole file."""
    number = 0
    with (
        raising_data_errors(file, "the file could not be read", "check it"),
        open(file, encoding="utf-8-sig", errors="replace") as text,
    ):
        buffer = text.read(CHUNK)
        begin = start.search(buffer)
        at = len(buffer) if begin is None else begin.end()
        while begin is not None:
            between = _BETWEEN.match(buffer, at)
            at = at if between is None else between.end()
            if buffer[at : at + 1] == "]":
                return
            problem: Exception | None = None
            try:
                entry, end = _DECODER.raw_decode(buffer, at)
            except (ValueError, RecursionError) as error:
                problem, end = error, len(buffer)
            if end < len(buffer):
                number, at = number + 1, end
                yield entry
                continue
            more = text.read(max(CHUNK, len(buffer) - at))  # the entry may be incomplete
            if not more:
                reason = f"the JSON is broken or cut off ({problem or 'the list has no end'})"
                raise DataError(reason, place=Place(str(file), number + 1, "entry"), remedy="export it again")
            buffer, at = buffer[at:] + more, 0
    raise DataError("the list of entries was not found", remedy="export it again")
