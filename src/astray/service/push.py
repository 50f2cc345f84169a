"""Server-sent events: what changes goes to the pages that are open, numbered so that they can resume."""

from __future__ import annotations

import asyncio
import threading
import time as clock
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from astray.service import reading
from astray.service.store import Connection
from astray.service.tracking import Tracked

KEPT = 5000  # events that a page may have missed and still gets
WAITING = 1000  # events that wait for a slow page; then it has to begin anew
KEEP_ALIVE = 15.0  # seconds without an event after which a comment is sent
MOST_PAGES = 200
ANEW = b"event: reset\ndata: {}\n\n"


class _Page:
    """A page that listens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.queue = loop, asyncio.Queue[bytes](WAITING)

    def put(self, events: Sequence[bytes]) -> None:
        for event in events:
            if self.queue.full():
                while not self.queue.empty():
                    self.queue.get_nowait()
                event = ANEW
            self.queue.put_nowait(event)


class Hub:
    """All pages that listen, and the last events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: set[_Page] = set()
        # Numbers go on rising after a restart, so that a page that resumes from before is told to begin anew.
        self._number = int(clock.time() * 1000)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)

    @property
    def listening(self) -> bool:
        """Whether anybody would see an event."""
        return bool(self._pages)

    def say(self, events: Sequence[tuple[str, Any]]) -> None:
        """Send events, from any thread."""
        with self._lock:
            lines = []
            for name, data in events:
                self._number += 1
                text = msgspec.json.encode(data)
                lines.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, name.encode(), text))
                self._kept.append((self._number, lines[-1]))
            pages = list(self._pages)
        for page in pages:
            page.loop.call_soon_threadsafe(page.put, lines)

    def changed(
        self, connection: Connection, touched: Mapping[str, Tracked], news: Sequence[tuple[str, str]]
    ) -> None:
        """Say what a transaction has changed."""
        if not self.listening and not self._kept:
            return
        now = clock.time()
        events: list[tuple[str, Any]] = []
        for tracked in touched.values():
            events.append(("agent", reading.agent_of(tracked, now)))
        for kind, name in dict.fromkeys(news):
            if kind == "agent":
                events.append(("agent", {"agent": name, "removed": True}))
            elif kind == "alert":
                found = reading.alert(connection, name)
                events += [] if found is None else [("alert", found)]
            elif kind == "review":
                item = reading.review_item(connection, name)
                events.append(("review", item or {"id": name, "removed": True}))
        self.say(events)

    async def listen(self, after: int | None) -> AsyncIterator[bytes]:
        """Events for one page, from the one after a number on, or from now on."""
        page = _Page(asyncio.get_running_loop())
        with self._lock:
            missed: list[bytes] = []
            if after is not None:
                whole = bool(self._kept) and self._kept[0][0] <= after + 1
                missed = [line for number, line in self._kept if number > after] if whole else [ANEW]
            page.put(missed[-WAITING:])
            self._pages.add(page)
        try:
            yield b": astray\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(page.queue.get(), KEEP_ALIVE)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            with self._lock:
                self._pages.discard(page)
