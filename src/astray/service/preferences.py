"""Defines the settings of the page, checks them, and keeps them as one JSON value in the store."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from astray.core.errors import AstrayError
from astray.core.settings import ASPECTS
from astray.scoring.decisions import total_rate
from astray.service.alerts.outlets import OUTLETS, OutletAddress, display_address
from astray.service.store import Connection

NAME = "preferences"
CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class PreferencesError(AstrayError, ValueError):
    """Raised if a setting cannot have the given value; ``field`` names the setting."""

    def __init__(self, reason: str, field: str, remedy: str) -> None:
        super().__init__(reason, remedy=remedy)
        self.field = field


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most alerts that the service sends in a week."""

    agent: int = 3
    all: int = 20


class Hours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from", "until": "to"}):
    """A time span by the agent's local clock; it includes midnight if it begins later than it ends."""

    since: str
    until: str


class Preferences(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that a person changes on the page."""

    alerts_a_week: Budget = Budget()
    quiet_hours: Hours | None = None
    outlets: tuple[OutletAddress, ...] = ()
    false_alarm_rate: float | dict[str, float] = 0.02  # of all trips, or of each of some aspects
    undo_minutes: float = 10.0
    retention_days: float | None = None
    tiles: str | None = None
    theme: Literal["auto", "light", "dark"] = "auto"


def _are_rates(rate: float | dict[str, float]) -> bool:
    """Returns True for a rate up to 0.5, or for rates of some aspects with such a sum."""
    if not isinstance(rate, dict):
        return 0 < rate <= 0.5
    return len(rate) > 0 and set(rate) <= set(ASPECTS) and min(rate.values()) > 0 and total_rate(rate) <= 0.5


_CHECKS: tuple[tuple[str, Any, str], ...] = (
    ("alerts_a_week.agent", lambda p: 0 <= p.alerts_a_week.agent <= 10_000, "give 0 or more"),
    ("alerts_a_week.all", lambda p: 0 <= p.alerts_a_week.all <= 1_000_000, "give 0 or more"),
    ("quiet_hours.from", lambda p: not p.quiet_hours or CLOCK.fullmatch(p.quiet_hours.since), "write it as 22:00"),
    ("quiet_hours.to", lambda p: not p.quiet_hours or CLOCK.fullmatch(p.quiet_hours.until), "write it as 07:00"),
    (
        "outlets",
        lambda p: len(p.outlets) <= 20 and all(0 < len(o.to) <= 500 for o in p.outlets),
        "give at most 20 outlets, with an address each",
    ),
    (
        "false_alarm_rate",
        lambda p: _are_rates(p.false_alarm_rate),
        "give a share between 0 and 0.5, such as 0.02, or shares of place, route, manner and time with such a sum",
    ),
    ("undo_minutes", lambda p: 0 <= p.undo_minutes <= 10_080, "give 0 to 10080 minutes"),
    ("retention_days", lambda p: p.retention_days is None or 1 <= p.retention_days <= 36_500, "give 1 or more days"),
    ("tiles", lambda p: p.tiles is None or (0 < len(p.tiles) <= 500 and "\x00" not in p.tiles), "give a file's name"),
)


def parse(body: bytes) -> Preferences:
    """Reads preferences from JSON, and checks them.

    >>> parse(b'{"undo_minutes": 1}').undo_minutes
    1.0
    >>> parse(b'{"quiet_hours": {"from": "25:00", "to": "07:00"}}')
    Traceback (most recent call last):
    ...
    astray.service.preferences.PreferencesError: quiet_hours.from cannot be this; write it as 22:00
    """
    try:
        found = msgspec.json.decode(body, type=Preferences)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise PreferencesError(f"the settings are not understood ({words})", field, remedy="correct it") from error
    check(found)
    return found


def check(preferences: Preferences) -> None:
    """Raises a :class:`PreferencesError` if a value is out of range."""
    for field, holds, remedy in _CHECKS:
        if not holds(preferences):
            raise PreferencesError(f"{field} cannot be this", field, remedy=remedy)
    for i, outlet in enumerate(preferences.outlets):
        if outlet.kind not in OUTLETS:
            field = f"outlets[{i}].kind"
            raise PreferencesError(f"{field} cannot be this", field, remedy=f"give one of {', '.join(OUTLETS)}")


# -------------------------------------------------------------------- secrets in addresses


def hide_secrets(preferences: Preferences) -> Preferences:
    """Returns preferences as the page may show them."""
    shown = (OutletAddress(one.kind, display_address(one)) for one in preferences.outlets)
    return msgspec.structs.replace(preferences, outlets=tuple(shown))


def restore_secrets(new: Preferences, old: Preferences) -> Preferences:
    """Returns preferences that came back from the page with the secrets that :func:`hide_secrets` had hidden.

    >>> old = Preferences(outlets=(OutletAddress("webhook", "https://example.org/secret"),))
    >>> restore_secrets(hide_secrets(old), old) == old
    True
    """
    kept = list(old.outlets)
    outlets = []
    for one in new.outlets:
        same = next((was for was in kept if was.kind == one.kind and display_address(was) == one.to), one)
        if same in kept:
            kept.remove(same)
        outlets.append(same)
    return msgspec.structs.replace(new, outlets=tuple(outlets))


# -------------------------------------------------------------------- in the store


def load(connection: Connection) -> Preferences:
    """Reads the preferences from a store; the defaults if it holds none."""
    found = setting(connection, NAME)
    return Preferences() if found is None else parse(found.encode())


def save(connection: Connection, preferences: Preferences) -> None:
    """Replaces the preferences in a store."""
    put_setting(connection, NAME, msgspec.json.encode(preferences).decode())


def setting(connection: Connection, name: str) -> str | None:
    """Reads a value from the table of settings; None if it is not there."""
    found: str | None = connection.value("SELECT value FROM settings WHERE name = ?", (name,))
    return found


def put_setting(connection: Connection, name: str, value: str) -> None:
    """Writes a value into the table of settings."""
    connection.run(
        "INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )
