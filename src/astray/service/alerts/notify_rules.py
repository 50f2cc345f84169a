"""Decides whether an alert is sent now, later or not at all: the page lists all, but few should ring a phone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from astray.core.text import number_of
from astray.core.zones import Zone
from astray.service.preferences import Hours, Preferences
from astray.service.scoring.event_rows import Alert

WEEK = 7 * 86_400.0
OLD = 86_400.0
"""Seconds after which an alert is not sent: phones may upload days later, when nobody can act on it."""
TOGETHER = 60.0
"""Seconds after an agent's alert in which its next one counts as part of the same batch."""


class PastAlert(NamedTuple):
    """An earlier alert: when the service decided on it, and how."""

    agent: str
    at: float
    told: str


class Decision(NamedTuple):
    """Says whether an alert is sent: ``yes`` (now), ``held`` (until ``when``) or ``no`` (only listed), and why."""

    told: Literal["yes", "held", "no"]
    reason: str
    when: float


def decide(
    alert: Alert,
    past: Iterable[PastAlert],
    preferences: Preferences,
    now: float,
    zone: Zone,
    paused_until: float | None = None,
) -> Decision:
    """Decides whether an alert is sent: not if there is a reason against it, later during the agent's quiet hours.

    ``past`` are the alerts of the last seven days, of all agents; ``zone`` is the time zone of the alert's agent, and
    ``paused_until`` the end of a pause of its alerts.

    >>> opened = 1372636858.0
    >>> alert = Alert("1", "ana", "2013-07-01T00:00:58Z", opened, opened, None, "anomaly", "never began here before")
    >>> decide(alert, [], Preferences(), 1372636900.0, Zone("Europe/Lisbon"))
    Decision(told='yes', reason='', when=1372636900.0)
    >>> quiet = Preferences(quiet_hours=Hours("22:00", "07:00"))
    >>> told, reason, when = decide(alert, [], quiet, 1372636900.0, Zone("Europe/Lisbon"))
    >>> told, reason, Zone("Europe/Lisbon").iso(when)
    ('held', 'quiet hours until 07:00 (Europe/Lisbon)', '2013-07-01T07:00:00+01:00')
    """
    week = [one for one in past if now - WEEK < one.at <= now and one.told in ("yes", "held")]
    if reason := _unwanted(alert, week, preferences, now, zone, paused_until):
        return Decision("no", reason, now)
    hours = preferences.quiet_hours
    end = None if hours is None else _end_of(hours, now, zone)
    if hours is not None and end is not None:
        return Decision("held", f"quiet hours until {hours.until} ({zone.name})", end)
    return Decision("yes", "", now)


def _unwanted(
    alert: Alert,
    week: Sequence[PastAlert],
    preferences: Preferences,
    now: float,
    zone: Zone,
    paused_until: float | None,
) -> str:
    """Returns why an alert is not sent; an empty text if it is."""
    if alert.level != "anomaly":
        return "the model is not sure, so the trip is for review"
    if paused_until is not None and now < paused_until:
        return f"alerts of {alert.agent} are paused until {zone.clock(paused_until):%Y-%m-%d %H:%M} ({zone.name})"
    if now - alert.opened > OLD:
        return "the fixes came more than a day late"
    own = [one for one in week if one.agent == alert.agent]
    if any(now - one.at <= TOGETHER for one in own):
        return f"sent together with another alert of {alert.agent}"
    budget = preferences.alerts_a_week
    for told, most, whose in ((own, budget.agent, f" of {alert.agent}"), (week, budget.all, "")):
        if len(told) >= most:
            return f"the budget is used up: {number_of(most, 'alert')}{whose} in seven days"
    return ""


def _end_of(hours: Hours, now: float, zone: Zone) -> float | None:
    """Returns the end of the quiet hours if ``now`` is in them, else None.

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
    # If the clocks change in between, the time that they show afterwards counts.
    return end.timestamp() + zone.offset(now) - zone.offset(end.timestamp())
