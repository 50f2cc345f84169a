"""Whether somebody is told of an alert now, later, or not at all: all are listed, few should ring a telephone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from astray.core.text import number_of
from astray.core.zones import Zone
from astray.service.preferences import Hours, Preferences

WEEK = 7 * 86_400.0
OLD = 86_400.0
"""Seconds: of a trip that was under way longer ago nobody is told. Phones upload days later; nobody can act on that."""
TOGETHER = 60.0
"""Seconds: what comes so soon after an alert of the same agent was told came with it, in one batch."""


class Alert(NamedTuple):
    """An alert that has just opened."""

    id: str
    agent: str
    trip: str
    opened: float  # the time of the fix at which it opened
    level: str  # "anomaly", or "review" where the model is not sure
    words: str
    late: bool = False  # the fixes came after the trip was over


class Told(NamedTuple):
    """An earlier alert: when it was decided upon, and how."""

    agent: str
    at: float
    told: str


class Telling(NamedTuple):
    """What is decided: ``yes`` (now), ``held`` (at ``when``) or ``no`` (only listed), and why."""

    told: Literal["yes", "held", "no"]
    reason: str
    when: float


def decide(
    alert: Alert,
    past: Iterable[Told],
    preferences: Preferences,
    now: float,
    zone: Zone,
    paused_until: float | None = None,
) -> Telling:
    """Whether an alert is told. The reasons not to come first, then the quiet hours on the clock of the agent.

    Parameters
    ----------
    alert
        The alert.
    past
        The alerts of the last seven days, of all agents; older ones do not matter.
    preferences
        What is wanted: the budget and the quiet hours.
    now
        The time by the clock of this machine.
    zone
        Where the agent is.
    paused_until
        Until when nobody wants to be told of this agent, if that was said.

    Examples
    --------
    >>> alert = Alert("1", "ana", "2013-07-01T00:00:58Z", 1372636858.0, "anomaly", "never began here before")
    >>> decide(alert, [], Preferences(), 1372636900.0, Zone("Europe/Lisbon"))
    Telling(told='yes', reason='', when=1372636900.0)
    >>> quiet = Preferences(quiet_hours=Hours("22:00", "07:00"))
    >>> told, reason, when = decide(alert, [], quiet, 1372636900.0, Zone("Europe/Lisbon"))
    >>> told, reason, Zone("Europe/Lisbon").iso(when)
    ('held', 'quiet hours until 07:00 (Europe/Lisbon)', '2013-07-01T07:00:00+01:00')
    """
    week = [one for one in past if now - WEEK < one.at <= now and one.told in ("yes", "held")]
    if reason := _unwanted(alert, week, preferences, now, zone, paused_until):
        return Telling("no", reason, now)
    hours = preferences.quiet_hours
    end = None if hours is None else _end_of(hours, now, zone)
    if hours is not None and end is not None:
        return Telling("held", f"quiet hours until {hours.until} ({zone.name})", end)
    return Telling("yes", "", now)


def _unwanted(
    alert: Alert, week: Sequence[Told], preferences: Preferences, now: float, zone: Zone, paused_until: float | None
) -> str:
    """Why nobody is told of an alert; nothing if somebody is."""
    if alert.level != "anomaly":
        return "the model is not sure: it is for review"
    if paused_until is not None and now < paused_until:
        return f"alerts of {alert.agent} are paused until {zone.clock(paused_until):%Y-%m-%d %H:%M} ({zone.name})"
    if now - alert.opened > OLD:
        return "the fixes came more than a day late"
    own = [one for one in week if one.agent == alert.agent]
    if any(now - one.at <= TOGETHER for one in own):
        return f"told together with another alert of {alert.agent}"
    budget = preferences.alerts_a_week
    for told, most, whose in ((own, budget.agent, f" of {alert.agent}"), (week, budget.all, "")):
        if len(told) >= most:
            return f"the budget is used up: {number_of(most, 'alert')}{whose} in seven days"
    return ""


def _end_of(hours: Hours, now: float, zone: Zone) -> float | None:
    """When the quiet hours end that a time lies in; None if it lies in none.

    >>> zone, noon = Zone("Europe/Lisbon"), 1372676400.0
    >>> _end_of(Hours("22:00", "07:00"), noon, zone), _end_of(Hours("11:00", "13:00"), noon, zone) - noon
    (None, 3600.0)
    """
    here = zone.clock(now)
    clock = f"{here:%H:%M}"
    since, until = hours.since, hours.until
    within = since <= clock < until if since <= until else clock >= since or clock < until
    if not within:
        return None
    hour, minute = map(int, until.split(":"))
    end = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if end <= here:
        end += timedelta(days=1)
    # The clocks may be changed in between: what they show then is what counts.
    return end.timestamp() + zone.offset(now) - zone.offset(end.timestamp())
