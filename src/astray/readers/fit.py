"""FIT, the files of Garmin's and others' devices, decoded by fitdecode: one trajectory a file.

By the FIT protocol and the profile of the FIT SDK: ``record`` messages hold ``timestamp`` and, in semicircles,
``position_lat`` and ``position_long``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astray.errors import DataError, Place
from astray.readers.positions import Position
from astray.readers.refusals import Intake, Progress, refusing

DEGREES = 180.0 / 2**31
"""Of a semicircle."""

_KINDS = ("activity", "segment", None)


def is_fit(head: bytes) -> bool:
    """Whether a file begins as FIT does."""
    return len(head) >= 12 and head[8:12] == b".FIT"


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The records of a file that have a position; the others (a pause, a hall) are left out and counted."""
    fitdecode = _decoder(file)
    row = 0
    try:
        with (
            refusing(file, "the file could not be read", "check it"),
            fitdecode.FitReader(str(file), check_crc=True) as messages,
        ):
            for message in messages:
                if not isinstance(message, fitdecode.FitDataMessage):
                    continue
                if message.name == "file_id":
                    _check_kind(file, message.get_value("type", fallback=None))
                if message.name != "record":
                    continue
                row += 1
                lat, lon, time = (
                    message.get_value(name, fallback=None) for name in ("position_lat", "position_long", "timestamp")
                )
                if lat is None or lon is None:
                    intake.leave_out(file, row, "a record without a position", unit="record")
                    continue
                seconds = time.timestamp() if hasattr(time, "timestamp") else time
                yield Position(row, None, file.stem, seconds, lat * DEGREES, lon * DEGREES)
    except fitdecode.FitError as error:
        remedy = "copy the file from the device again"
        raise DataError(
            f"the FIT file is damaged ({error})", place=Place(str(file), row, "after record"), remedy=remedy
        ) from error
    if not row:
        raise DataError(
            "no records in it", place=Place(str(file)), remedy="give an activity that was recorded outdoors"
        )


def _check_kind(file: Path, kind: object) -> None:
    if kind not in _KINDS:
        reason = f"a FIT file of type {kind}, which is no recording"
        raise DataError(reason, place=Place(str(file)), remedy="give an activity")


def _decoder(file: Path) -> Any:
    try:
        return importlib.import_module("fitdecode")
    except ImportError as error:
        reason = "FIT files need fitdecode, which is not installed"
        raise DataError(
            reason, place=Place(str(file)), remedy="pip install 'astray[fit]', or export the file as GPX"
        ) from error
