"""Of which alerts somebody is told, and when: budgets, pauses, quiet hours, what comes in one batch or late."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astray.core.zones import Zone
from astray.service.alerts.notify_rules import WEEK, PastAlert, decide
from astray.service.preferences import Budget, Hours, Preferences
from astray.service.scoring.event_rows import Alert

LISBON = Zone("Europe/Lisbon")
NOW = 1_372_676_400.0  # noon in Lisbon
WANTED = Preferences(alerts_a_week=Budget(agent=2, all=3))


def alert(agent: str = "ana", level: str = "anomaly", ago: float = 60.0, late: bool = False) -> Alert:
    return Alert(f"{agent}/1", agent, "1", NOW - ago, NOW - ago, None, level, "never began here before", late=late)


def told(agent: str, *ago: float, how: str = "yes") -> list[PastAlert]:
    return [PastAlert(agent, NOW - seconds, how) for seconds in ago]


@pytest.mark.parametrize(
    ("past", "answer", "words"),
    [
        ([], "yes", ""),
        (told("ana", 3600), "yes", ""),
        (told("ana", 3600, 7200), "no", "2 alerts of ana in seven days"),
        (told("ana", 3600, 7200, how="no"), "yes", ""),
        (told("ana", 3600, 7200, how="held"), "no", "2 alerts of ana"),
        (told("ana", 3600, WEEK + 1), "yes", ""),
        (told("bob", 3600, 7200) + told("cem", 60), "no", "3 alerts in seven days"),
        (told("ana", 30), "no", "sent together with another alert of ana"),
        (told("bob", 30), "yes", ""),
    ],
)
def test_an_alert_is_sent_within_the_budget_and_once_per_batch(past: list[PastAlert], answer: str, words: str):
    found = decide(alert(), past, WANTED, NOW, LISBON)
    assert found.told == answer
    assert words in found.reason


def test_of_five_alerts_in_one_batch_one_is_sent():
    past: list[PastAlert] = []
    for i in range(5):
        past.append(PastAlert("ana", NOW + i / 100, decide(alert(), past, WANTED, NOW + i / 100, LISBON).told))
    assert [one.told for one in past] == ["yes", "no", "no", "no", "no"]


def test_uncertain_paused_and_old_alerts_are_listed_but_not_sent():
    for found, words in (
        (decide(alert(level="review"), [], WANTED, NOW, LISBON), "for review"),
        (decide(alert(), [], WANTED, NOW, LISBON, paused_until=NOW + 1), "paused until 2013-07-01 12:00"),
        (decide(alert(ago=90_000, late=True), [], WANTED, NOW, LISBON), "more than a day late"),
    ):
        assert found.told == "no"
        assert words in found.reason
    assert decide(alert(), [], WANTED, NOW, LISBON, paused_until=NOW).told == "yes"
    assert decide(alert(ago=7200, late=True), [], WANTED, NOW, LISBON).told == "yes"


def test_with_a_budget_of_zero_no_alert_is_sent():
    assert decide(alert(), [], Preferences(alerts_a_week=Budget(agent=0, all=3)), NOW, LISBON).told == "no"


@given(
    st.floats(1.6e9, 1.9e9),
    st.tuples(st.integers(0, 23), st.integers(0, 59)),
    st.tuples(st.integers(0, 23), st.integers(0, 59)),
    st.sampled_from(["Europe/Lisbon", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_quiet_hours_hold_an_alert_until_the_clock_of_the_agent_shows_their_end(now, since, until, name):
    """Checked against the standard library's clocks, also on the days on which they are changed."""
    wanted = Preferences(quiet_hours=Hours("{:02}:{:02}".format(*since), "{:02}:{:02}".format(*until)))
    one = Alert("1", "ana", "1", now, now, None, "anomaly", "")
    found = decide(one, [], wanted, now, Zone(name))
    clock = datetime.fromtimestamp(now, ZoneInfo(name))
    minute = (clock.hour, clock.minute)
    quiet = since <= minute < until if since <= until else minute >= since or minute < until
    assert found.told == ("held" if quiet else "yes")
    if quiet:
        assert now < found.when <= now + 26 * 3600
        end = datetime.fromtimestamp(found.when, ZoneInfo(name))
        # An hour that is skipped in spring has no end that a clock could show.
        assert (end.hour, end.minute) == until or _skipped(end, until, name)


def _skipped(end: datetime, until: tuple[int, int], name: str) -> bool:
    wall = end.replace(hour=until[0], minute=until[1])
    back = datetime.fromtimestamp(wall.timestamp(), ZoneInfo(name))
    return (back.hour, back.minute) != until
