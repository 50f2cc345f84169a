"""FIT, the files of Garmin and other devices, decoded by fitdecode: each file is a trajectory.

By the FIT SDK, ``record`` messages hold ``timestamp`` and, in semicircles, ``position_lat`` and ``position_long``.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from astray.core.errors import DataError, Place
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress, raising_data_errors

DEGREES = 180.0 / 2**31
"""One semicircle in degrees."""

_DECODING_ERRORS = (struct.error, ValueError, TypeError, LookupError, AssertionError, OverflowError)
"""Errors that fitdecode raises for damaged files, in addition to its own."""

_KINDS = ("activity", "segment", None)


def is_fit(head: bytes) -> bool:
    """Returns True if the first bytes are those of a FIT file."""
    return len(head) >= 12 and head[8:12] == b".FIT"


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the records of a file that have a position; the others (a pause, indoors) are skipped and counted.

    One file may contain several FIT files; those that are not recordings are ignored. If bad data are skipped, a
    damaged file is read up to the damage.
    """
    fitdecode = _decoder()
    row, kinds = 0, []
    # The checksum proves the file whole; devices add fields of their own, which fitdecode would reject.
    lenient = {"check_crc": True, "error_handling": fitdecode.ErrorHandling.IGNORE}
    try:
        with (
            raising_data_errors(file, "the file could not be read", "check it"),
            fitdecode.FitReader(str(file), **lenient) as messages,
        ):
            for message in messages:
                if not isinstance(message, fitdecode.FitDataMessage):
                    continue
                if message.name == "file_id":
                    kinds.append(message.get_value("type", fallback=None))
                if message.name != "record" or (kinds and kinds[-1] not in _KINDS):
                    continue
                row += 1
                names = ("position_lat", "position_long", "timestamp")
                lat, lon, time = (message.get_value(name, fallback=None) for name in names)
                if not isinstance(lat, int) or not isinstance(lon, int):
                    intake.skip(file, row, "a record without a position", unit="record")
                    continue
                seconds = time.timestamp() if isinstance(time, datetime) else time
                yield Position(row, None, file.stem, seconds, lat * DEGREES, lon * DEGREES)
    except (fitdecode.FitError, *_DECODING_ERRORS) as error:
        if isinstance(error, DataError):
            raise
        intake.stop_at_damage(
            DataError(
                f"the FIT file is damaged ({str(error)[:80] or type(error).__name__})",
                place=Place(str(file), row, "after record"),
                remedy="copy the file from the device again",
            ),
            found_before=row > 0,
        )
    if not row and kinds and not set(kinds) & set(_KINDS):
        raise DataError(f"a FIT file of type {kinds[0]}, which is not a recording", remedy="give an activity")
    if not row:
        raise DataError("no records in it", remedy="give an activity that was recorded outdoors")


def _decoder() -> Any:
    try:
        return importlib.import_module("fitdecode")
    except ImportError as error:
        remedy = "pip install 'astray[fit]', or export the file as GPX"
        raise DataError("FIT files need fitdecode, which is not installed", remedy=remedy) from error


READER = position_reader(positions, "record", lambda sample: is_fit(sample.head), (".fit",), in_utc=True)
