"""A feed for trying the service: simulated people whose last four weeks end now, sent over HTTP as any sender would.

First comes what they did until yesterday, as fast as it is taken: the service learns who they are. Then the last 24
hours are played in less than a minute. In a few of their trips something is wrong.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from astray.simulate import city
from astray.text import number_of

NAMES = ("ana", "bob", "cem", "dora", "emil", "fay", "gil", "hana")
WRONG = ("agent-swap", "new-destination")
WEEK, DAY = 7 * 86_400.0, 86_400.0
DAYS = 28
BATCH = 500  # fixes of one message
SECONDS = 40.0  # in which the last day is played
STEP = 0.25  # seconds between two messages of it
PAUSE = 60.0  # seconds: of a time in which nobody moves no more is played

Say = Callable[[str], None]


class Fixes(NamedTuple):
    """Fixes in the order of time."""

    agent: NDArray[np.str_]
    time: NDArray[np.float64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]

    def message(self, start: int, end: int) -> bytes:
        """Some of them, as the service takes them."""
        rows = zip(*(column[start:end].tolist() for column in self), strict=True)
        return msgspec.json.encode([dict(zip(self._fields, row, strict=True)) for row in rows])


class Story(NamedTuple):
    """What the people did before, and in the last 24 hours; and how many trips of those went wrong."""

    past: Fixes
    day: Fixes
    wrong: int


def story(now: float, seed: int = 7) -> Story:
    """The people's last weeks until now: on the same days of the week, by the same clocks.

    >>> told = story(1_700_000_000.0)
    >>> round((told.day.time[0] - told.past.time[0]) / DAY), bool(told.day.time[-1] <= 1_700_000_000.0), told.wrong
    (28, True, 4)
    """
    simulated = city(people=len(NAMES), days=DAYS + 7, seed=seed, interval=(15.0, 30.0))
    trips = simulated.trips
    ahead = WEEK * np.floor((now - trips.columns["time"].min() - DAYS * DAY) / WEEK)
    start = trips.columns["time"][trips.offsets[:-1]] + ahead
    before, today = start <= now - DAY, (start > now - DAY) & (start <= now)
    changed = simulated.inject(trips[today], WRONG, rate=0.15, seed=seed)
    wrong = int((changed.context["kind"] != "").sum())
    return Story(_fixes(trips[before], ahead, now), _fixes(changed, ahead, now), wrong)


def _fixes(trips: Any, ahead: float, now: float) -> Fixes:
    agent = np.array([NAMES[int(person.removeprefix("p"))] for person in trips.agent_ids.tolist()])
    whose = np.repeat(agent, np.diff(trips.offsets))
    columns = [whose, trips.columns["time"] + ahead, trips.columns["lat"], trips.columns["lon"]]
    order = np.argsort(columns[1], kind="stable")
    order = order[columns[1][order] <= now]
    return Fixes(*(column[order] for column in columns))


def play(address: str, say: Say, stopped: threading.Event, seconds: float = SECONDS) -> None:
    """Send the people's weeks, then their last day, to the service at an address; says what comes of it."""
    told = story(time.time())
    sender = _Sender(address)
    begun = time.monotonic()
    for start in range(0, len(told.past.time), BATCH):
        if stopped.is_set():
            return
        sender.post("/api/fixes", told.past.message(start, start + BATCH))
    took = time.monotonic() - begun
    many = number_of(len(told.past.time), "fix")
    say(f"four weeks of {len(NAMES)} people are learned: {many} in {took:.0f} s")
    say(f"now their last 24 hours in {seconds:.0f} s; {told.wrong} of the trips are not what they seem")
    known = {alert["id"] for alert in sender.alerts()}
    for start, end in _steps(told.day.time, seconds):
        if stopped.wait(STEP):
            return
        if end > start:
            sender.post("/api/fixes", told.day.message(start, end))
        known |= _say_new(sender, known, say)
    for _ in range(10):  # words follow an alert after a moment
        if stopped.wait(1.0):
            return
        known |= _say_new(sender, known, say)
    say(f"the day is over, and nothing more comes; look at {address}/review")


def _steps(times: NDArray[np.float64], seconds: float) -> Iterator[tuple[int, int]]:
    """From which fix to which each message goes, if the times in which nobody moves are cut short."""
    clock = np.concatenate([[0.0], np.cumsum(np.minimum(np.diff(times), PAUSE))])
    ends = np.linspace(0.0, clock[-1] + 1e-6, max(1, round(seconds / STEP)) + 1)[1:]
    positions = np.searchsorted(clock, ends)
    yield from zip([0, *positions[:-1].tolist()], positions.tolist(), strict=True)


def _say_new(sender: _Sender, known: set[str], say: Say) -> set[str]:
    """Say which alerts are new and have been decided upon; gives their names."""
    new = [alert for alert in sender.alerts() if alert["id"] not in known and alert["told"]]
    for alert in sorted(new, key=lambda alert: alert["opened"]):
        say(f"ALERT {alert['local'][11:16]} {alert['agent']}: {alert['words']}")
    return {alert["id"] for alert in new}


class _Sender:
    """A connection to the service that is opened again when it was closed."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)

    def post(self, path: str, body: bytes) -> None:
        """Send a message; as long as the service is busy, again."""
        while self._ask("POST", path, body)[0] == 429:
            time.sleep(0.2)

    def alerts(self) -> list[dict[str, Any]]:
        """The newest alerts."""
        status, body = self._ask("GET", "/api/alerts?limit=50")
        return msgspec.json.decode(body)["alerts"] if status == 200 else []

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            raise
