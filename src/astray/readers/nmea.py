"""NMEA 0183, written by receivers: positions with a date (RMC), and positions with only a time of day (GGA).

The fields, as in the standard: ``$--RMC,hhmmss.ss,A,ddmm.mm,N,dddmm.mm,E,knots,course,ddmmyy,...*hh`` and
``$--GGA,hhmmss.ss,ddmm.mm,N,dddmm.mm,E,quality,...*hh``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import xor
from pathlib import Path
from typing import NamedTuple

from astray.core.errors import DataError, Place
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress
from astray.readers.text_files import numbered_lines

_SENTENCE = re.compile(r"\$(?P<body>[A-Z]{2}(?P<kind>[A-Z]{3}),[^*$\r\n]*)(?:\*(?P<sum>[0-9A-Fa-f]{2}))?")
_CLOCK = re.compile(r"([0-9]{2})([0-9]{2})([0-9]{2}(?:\.[0-9]+)?)")
_ANGLE = re.compile(r"([0-9]{1,3})([0-9]{2}(?:\.[0-9]+)?)")
HALF_A_DAY = timedelta(hours=12)


def is_nmea(text: str) -> bool:
    """Returns True if the first lines of a file contain a whole NMEA 0183 sentence."""
    lines = text.splitlines()[:20]
    return any(_SENTENCE.search(line) or line.startswith("!AI") for line in lines)


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the fixes of a log, which are cut into trips; fixes that the receiver marks as void are skipped.

    Only RMC has the date. A GGA counts if the log has no RMC of the same time; its date comes from the RMC before or
    after it, whichever is nearer in time of day.
    """
    seen = list(_sentences(file, intake, progress))
    dated = [one.moment for one in seen if one.moment is not None]
    if not dated:
        raise DataError("no sentence with a date (RMC)", remedy="let the receiver write RMC as well as GGA")
    known, passed = set(dated), 0
    for one in seen:
        passed += one.moment is not None
        moment = one.moment or _dated(one.clock, dated[max(passed - 1, 0) : passed + 1])
        if one.moment is None and moment in known:
            continue
        known.add(moment)
        yield Position(one.line, None, "", moment.timestamp(), one.lat, one.lon)


class _Fix(NamedTuple):
    line: int
    clock: timedelta  # since midnight
    moment: datetime | None  # None if the sentence has no date
    lat: float
    lon: float


def _dated(clock: timedelta, around: Sequence[datetime]) -> datetime:
    """Returns the date and time for a time of day, given the dated moments before and after it."""
    return min(((_nearest(moment, clock), moment) for moment in around), key=lambda pair: abs(pair[0] - pair[1]))[0]


def _nearest(moment: datetime, clock: timedelta) -> datetime:
    """Returns the date and time nearest to ``moment`` with this time of day."""
    found = moment.replace(hour=0, minute=0, second=0, microsecond=0) + clock
    if found - moment > HALF_A_DAY:
        return found - timedelta(days=1)
    return found + timedelta(days=1) if moment - found > HALF_A_DAY else found


def _sentences(file: Path, intake: Intake, progress: Progress | None) -> Iterator[_Fix]:
    for line, text in numbered_lines(file, intake, progress):
        if text.startswith("!AI"):
            reason, remedy = "AIS messages (AIVDM)", "decode them to a table with mmsi, time, lat and lon first"
            raise DataError(reason, place=Place(str(file), line, "line"), remedy=remedy)
        found = _SENTENCE.search(text)
        if found is None or found["kind"] not in ("RMC", "GGA"):
            continue
        try:
            _check_sum(found)
            fields = found["body"].split(",")
            fix = _rmc(line, fields) if found["kind"] == "RMC" else _gga(line, fields)
        except DataError as error:
            intake.refuse(file, line, error.reason, error.remedy, unit="line")
            continue
        if fix is None:
            intake.skip(file, line, "the receiver had no fix (void)", unit="line")
        else:
            yield fix


def _check_sum(sentence: re.Match[str]) -> None:
    if sentence["sum"] is not None and reduce(xor, sentence["body"].encode()) != int(sentence["sum"], 16):
        raise DataError("the checksum is wrong", remedy="delete the line, which is damaged")


def _rmc(line: int, fields: Sequence[str]) -> _Fix | None:
    if len(fields) < 10:
        raise DataError("a truncated RMC sentence", remedy="delete the line")
    if fields[2] != "A":
        return None
    clock = _time_of_day(fields[1])
    try:
        # Two digits of a year: GPS began in 1980.
        day, month, year = (int(fields[9][i : i + 2]) for i in (0, 2, 4))
        date = datetime(year + (1900 if year >= 80 else 2000), month, day, tzinfo=UTC)
    except ValueError as error:
        raise DataError(f"an invalid date ({fields[9][:20]})", remedy="correct the line") from error
    return _Fix(line, clock, date + clock, _angle(fields[3], fields[4]), _angle(fields[5], fields[6]))


def _gga(line: int, fields: Sequence[str]) -> _Fix | None:
    if len(fields) < 7:
        raise DataError("a truncated GGA sentence", remedy="delete the line")
    if fields[6] in ("0", ""):
        return None
    return _Fix(line, _time_of_day(fields[1]), None, _angle(fields[2], fields[3]), _angle(fields[4], fields[5]))


def _time_of_day(text: str) -> timedelta:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise DataError(f"an invalid time ({text[:20]})", remedy="correct the line")
    return timedelta(hours=int(found[1]), minutes=int(found[2]), seconds=float(found[3]))


def _angle(text: str, side: str) -> float:
    """Returns degrees from an angle such as ddmm.mm and its side: N, S, E or W.

    >>> round(_angle("4807.038", "N"), 4), round(_angle("00833.914", "W"), 4)
    (48.1173, -8.5652)
    """
    found = _ANGLE.fullmatch(text)
    if found is None or side not in ("N", "S", "E", "W"):
        raise DataError(f"an invalid position ({text[:20]} {side[:2]})", remedy="correct the line")
    degrees = int(found[1]) + float(found[2]) / 60.0
    return -degrees if side in "SW" else degrees


READER = position_reader(positions, "line", lambda sample: is_nmea(sample.text), (".nmea", ".nma"), in_utc=True)
