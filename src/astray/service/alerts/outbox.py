"""Delivers messages; they stay in the store until they have arrived, even if the service is killed in between.

The outbox notes each attempt before it makes it. So after a kill it sends the message again with the same key; if an
outlet has no room for a key, the message says that it is a repetition.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import numpy as np

from astray.service.alerts.notifications import EVENTS
from astray.service.alerts.outlets import Delivery, Means, NotDelivered, OutletAddress, deliver, display_address
from astray.service.store import Connection, Store, StoreError

log = logging.getLogger("astray.serve")

LOOK = 1.0  # seconds between two looks for due messages
FIRST, LONGEST = 5.0, 3600.0  # about how many seconds until the second attempt, and between later ones
GIVE_UP = 3 * 86_400.0  # seconds after which a message is given up
ATTEMPTS = 100  # after which a message is given up, too
AT_ONCE = 4  # outlets that are served at the same time
MOST = 1000  # messages that one look reads

Write = Callable[[Callable[[Connection], Any]], Future[Any]]


class Waiting(NamedTuple):
    """A message that has not arrived yet."""

    key: str
    outlet: OutletAddress
    message: dict[str, Any]
    attempts: int
    next_try: float


class Outbox:
    """Delivers the messages of a store in a thread; ``write`` is the service's, ``seed`` is for random pauses."""

    def __init__(self, store: Store, write: Write, means: Means, seed: int | None = None) -> None:
        self._store, self._write, self._means = store, write, means
        self._chance = np.random.default_rng(seed)
        self._stopped = threading.Event()
        self._busy: set[OutletAddress] = set()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._pool = ThreadPoolExecutor(AT_ONCE, "outlet")

    def start(self) -> None:
        """Begins to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """Stops when the messages being sent have arrived or failed."""
        self._stopped.set()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        reader = self._store.reader()
        while not self._stopped.is_set():
            try:
                for outlet, waiting in _due(reader, time.time()).items():
                    if outlet not in self._busy:
                        self._busy.add(outlet)
                        self._pool.submit(self._deliver_all, outlet, waiting)
            except StoreError as error:
                log.error("the outbox cannot be read: %s", error)
            self._stopped.wait(LOOK)
        reader.close()

    def _deliver_all(self, outlet: OutletAddress, waiting: list[Waiting]) -> None:
        try:
            for one in waiting:
                if self._stopped.is_set() or not self._deliver(one):
                    return  # the others would fail as well; each has its own next attempt
        except StoreError as error:
            log.error("the outbox cannot be written: %s", error)
        except Exception:
            log.exception("an outlet failed in an unexpected way")
        finally:
            self._busy.discard(outlet)

    def _deliver(self, one: Waiting) -> bool:
        """Makes one attempt; returns True if the message has arrived."""
        attempts = one.attempts + 1
        again = time.time() + pause(attempts, float(self._chance.random()))
        begun = self._write(
            lambda c: c.run(
                "UPDATE outbox SET attempts = ?, next_try = ? WHERE id = ? AND done IS NULL", (attempts, again, one.key)
            )
        )
        if not begun.result():
            return True  # its agent was erased
        try:
            deliver(one.outlet, Delivery(one.key, one.message, one.attempts > 0), self._means)
        except NotDelivered as failure:
            self._failed(one, attempts, again, failure)
            return False
        done = "UPDATE outbox SET done = ?, error = NULL WHERE id = ?", (time.time(), one.key)
        self._write(lambda c: c.run(*done)).result()
        return True

    def _failed(self, one: Waiting, attempts: int, again: float, failure: NotDelivered) -> None:
        now = time.time()
        over = failure.final or attempts >= ATTEMPTS or now - float(one.message["time"]) > GIVE_UP
        reason = f"{one.outlet.kind} {display_address(one.outlet)}: {failure.reason}"
        log.warning("a message was %s: %s", "given up" if over else "not delivered yet", reason)
        row = (now if over else None, max(again, now + failure.wait), reason, one.key)
        self._write(lambda c: c.run("UPDATE outbox SET done = ?, next_try = ?, error = ? WHERE id = ?", row)).result()


def pause(attempts: int, chance: float) -> float:
    """Returns the seconds until the next attempt: twice as long after each, up to an hour, with a random spread.

    >>> [pause(n, 0.5) for n in (1, 2, 3, 30)], pause(1, 0.0), pause(1, 1.0)
    ([5.0, 10.0, 20.0, 3600.0], 2.5, 7.5)
    """
    return min(FIRST * 2.0 ** min(attempts - 1, 30), LONGEST) * (0.5 + chance)


def outbox_state(connection: Connection, where: str = "1 = 1", values: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Counts messages that wait, failed or were given up, with the last reasons, for the health page."""
    waiting, failing, oldest = connection.rows(
        "SELECT count(*), count(CASE WHEN attempts > 0 AND error IS NOT NULL THEN 1 END), min(next_try) FROM outbox "
        f"WHERE done IS NULL AND {where}",
        values,
    )[0]
    dead = f"FROM outbox WHERE done IS NOT NULL AND error IS NOT NULL AND {where}"
    reasons = connection.rows(f"SELECT error, done {dead} ORDER BY done DESC LIMIT 5", values)
    return {
        "waiting": waiting,
        "failing": failing,
        "given_up": connection.value(f"SELECT count(*) {dead}", values),
        "oldest": oldest,
        "errors": [{"reason": reason, "time": at} for reason, at in reasons],
    }


def _due(connection: Connection, now: float) -> dict[OutletAddress, list[Waiting]]:
    """Returns due messages by outlet; of the messages about one alert only the first undelivered one."""
    rows = connection.rows(
        "SELECT id, outlet, payload, attempts, next_try FROM outbox WHERE done IS NULL ORDER BY next_try, id LIMIT ?",
        (MOST,),
    )
    waiting = [
        Waiting(key, OutletAddress(*outlet.split(" ", 1)), msgspec.json.decode(payload), attempts, at)
        for key, outlet, payload, attempts, at in rows
    ]
    first: dict[tuple[OutletAddress, str], Waiting] = {}
    for one in waiting:
        about = one.outlet, one.message["id"]
        if about not in first or EVENTS.index(one.message["event"]) < EVENTS.index(first[about].message["event"]):
            first[about] = one
    due: dict[OutletAddress, list[Waiting]] = {}
    for one in sorted(first.values(), key=lambda one: one.next_try):
        if one.next_try <= now:
            due.setdefault(one.outlet, []).append(one)
    return due
