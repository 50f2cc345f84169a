"""Sends simulated people's last weeks to the service, over HTTP like any sender, as a demonstration.

First it sends their trips until yesterday, as fast as the service takes them, so that the service learns their habits.
Then it plays the last 24 hours in half a minute. On some of these trips somebody else carries the phone.
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

from astray.core.text import number_of
from astray.core.trajectories import Trajectories
from astray.simulate import city

NAMES = ("ana", "bob", "cem", "dora", "emil")
WEEK, DAY = 7 * 86_400.0, 86_400.0
DAYS = 14
THINNED = 3  # before the last day only every third fix is sent, which is faster
BATCH = 1000  # fixes per message
SECONDS = 30.0  # for the last day
STEP = 0.25  # seconds between two messages of the last day
REST = 900.0  # the least seconds between two trips
PAUSE = 60.0  # longer times in which nobody moves are cut to this many seconds

Say = Callable[[str], None]


class Fixes(NamedTuple):
    """Fixes in the order of time."""

    agent: NDArray[np.str_]
    time: NDArray[np.float64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]

    def message(self, start: int, end: int) -> bytes:
        """Returns some of the fixes as a message to the service."""
        rows = zip(*(column[start:end].tolist() for column in self), strict=True)
        return msgspec.json.encode([dict(zip(self._fields, row, strict=True)) for row in rows])


class Story(NamedTuple):
    """The people's fixes before and in the last 24 hours, and how many trips of the last day are anomalies."""

    past: Fixes
    day: Fixes
    wrong: int


def story(now: float, seed: int = 7) -> Story:
    """Simulates the people's last weeks until now, at the right hours and on the right days of the week.

    >>> told = story(1_700_000_000.0)
    >>> round((told.day.time[0] - told.past.time[0]) / DAY), bool(told.day.time[-1] <= 1_700_000_000.0), told.wrong
    (15, True, 4)
    """
    simulated = city(people=len(NAMES), days=DAYS + 7, seed=seed, interval=(12.0, 24.0))
    trips = simulated.trips
    ahead = WEEK * np.floor((now - trips.columns["time"].min() - DAYS * DAY) / WEEK)
    start = trips.columns["time"][trips.offsets[:-1]] + ahead
    before, today = start <= now - DAY, (start > now - DAY) & (start <= now)
    changed = simulated.inject(trips[today], ("agent-swap",), rate=0.25, seed=seed)
    wrong = int((changed.context["kind"] != "").sum())
    return Story(_fixes(trips[before], start[before], now, THINNED), _fixes(changed, start[today], now), wrong)


def _fixes(trips: Trajectories, start: NDArray[np.float64], now: float, thinned: int = 1) -> Fixes:
    """Returns the fixes of trips, moved to these start times, until now; cuts a trip before the agent's next one."""
    of_trip = np.repeat(np.arange(len(trips)), np.diff(trips.offsets))
    times = trips.columns["time"] + (start - trips.columns["time"][trips.offsets[:-1]])[of_trip]
    agent = np.array([NAMES[int(person.removeprefix("p"))] for person in trips.agent_ids.tolist()])
    follows = np.concatenate([agent[1:] == agent[:-1], [False]])  # trips stand person by person
    end = np.where(follows, np.concatenate([start[1:], [0.0]]) - REST, np.inf)
    order = np.argsort(times, kind="stable")
    nth = np.arange(len(times)) - trips.offsets[of_trip]
    order = order[((times <= np.minimum(end[of_trip], now)) & (nth % thinned == 0))[order]]
    return Fixes(agent[of_trip][order], times[order], trips.columns["lat"][order], trips.columns["lon"][order])


def play(address: str, say: Say, stopped: threading.Event, seconds: float = SECONDS) -> None:
    """Sends the people's weeks and then their last day to the service at an address, and reports the alerts."""
    try:
        _play(address, say, stopped, seconds)
    except (http.client.HTTPException, OSError):
        return  # the service has ended


def _play(address: str, say: Say, stopped: threading.Event, seconds: float) -> None:
    told = story(time.time())
    sender = _Sender(urlsplit(address).netloc, timeout=60)
    begun = time.monotonic()
    for start in range(0, len(told.past.time), BATCH):
        if stopped.is_set():
            return
        sender.post(told.past.message(start, start + BATCH))
    took = time.monotonic() - begun
    many = number_of(len(told.past.time), "fix")
    say(f"the service has learned two weeks of {len(NAMES)} people: {many} in {took:.0f} s")
    say(f"now their last 24 hours in {seconds:.0f} s; somebody else makes {told.wrong} of the trips")
    known: set[str] = set()
    since = float(told.day.time[0])
    for start, end in _steps(told.day.time, seconds):
        if stopped.wait(STEP):
            return
        if end > start:
            sender.post(told.day.message(start, end))
        known |= _say_new(sender, since, known, say)
    for _ in range(10):  # the words of an alert take a moment
        if stopped.wait(1.0):
            return
        known |= _say_new(sender, since, known, say)
    say(f"the day is over, and no more fixes come; look at {address}/review")


def _steps(times: NDArray[np.float64], seconds: float) -> Iterator[tuple[int, int]]:
    """Waits for each message's time, and yields its first and last fix; shortens times in which nobody moves."""
    clock = np.concatenate([[0.0], np.cumsum(np.minimum(np.diff(times), PAUSE))])
    ends = np.linspace(0.0, clock[-1] + 1e-6, max(1, round(seconds / STEP)) + 1)[1:]
    positions = np.searchsorted(clock, ends)
    yield from zip([0, *positions[:-1].tolist()], positions.tolist(), strict=True)


def _say_new(sender: _Sender, since: float, known: set[str], say: Say) -> set[str]:
    """Reports the day's new alerts on which the service has decided; returns their ids."""
    found = [alert for alert in sender.alerts() if alert["opened"] >= since and alert["id"] not in known]
    new = [alert for alert in found if alert["told"] != "no" or alert["reason"]]
    for alert in sorted(new, key=lambda alert: alert["opened"]):
        say(f"ALERT {alert['local'][11:16]} {alert['agent']}: {alert['words']}")
    return {alert["id"] for alert in new}


class _Sender(http.client.HTTPConnection):
    """A connection to the service."""

    def post(self, body: bytes) -> None:
        """Sends fixes, and sends them again as long as the service is busy."""
        while self._ask("POST", "/api/fixes", body)[0] == 429:
            time.sleep(0.2)

    def alerts(self) -> list[dict[str, Any]]:
        """Returns the newest alerts."""
        status, body = self._ask("GET", "/api/alerts?limit=50")
        return msgspec.json.decode(body)["alerts"] if status == 200 else []

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self.request(method, path, body, {"Content-Type": "application/json"})
        answer = self.getresponse()
        return answer.status, answer.read()
