"""Sends changes to open pages as server-sent events, numbered so that a page can resume."""

from __future__ import annotations

import asyncio
import threading
import time as clock
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from astray.service.scoring.event_rows import trip_of
from astray.service.scoring.tracking import Tracked
from astray.service.store import Connection
from astray.service.web import queries

KEPT = 5000  # the most events to keep for pages that reconnect
WAITING = 1000  # the most events that wait for a slow page; with more it must reload
KEEP_ALIVE = 15.0  # seconds without an event after which a page gets a comment
MOST_PAGES = 200


class _Event(NamedTuple):
    """An event, ready to send, and the agent it is about."""

    number: int
    agent: str
    line: bytes


END = _Event(0, "", b"")
RELOAD = _Event(0, "", b"event: reset\ndata: {}\n\n")


class _Page:
    """A page that listens, and the events that wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, only: Sequence[str] | None) -> None:
        self.loop, self.only = loop, None if only is None else frozenset(only)
        self.queue = asyncio.Queue[bytes](WAITING)

    def put(self, events: Sequence[_Event]) -> None:
        for event in events:
            if self.only is not None and event.agent not in self.only and event.number:
                continue
            if self.queue.full():
                while not self.queue.empty():
                    self.queue.get_nowait()
                event = RELOAD
            self.queue.put_nowait(event.line)


class Hub:
    """Sends events to the pages that listen, and keeps the last ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: set[_Page] = set()
        # Higher than before a restart, so that pages which resume must reload.
        self._number = int(clock.time() * 1000)
        self._kept: deque[_Event] = deque(maxlen=KEPT)

    @property
    def listening(self) -> bool:
        """True if any page listens."""
        return bool(self._pages)

    @property
    def full(self) -> bool:
        """True if no further page may listen."""
        return len(self._pages) >= MOST_PAGES

    def send(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Sends events; any thread may call this."""
        with self._lock:
            sent = []
            for name, data in events:
                self._number += 1
                line = b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, name.encode(), msgspec.json.encode(data))
                sent.append(_Event(self._number, str(data.get("agent", "")), line))
            self._kept.extend(sent)
            pages = list(self._pages)
        for page in pages:
            page.loop.call_soon_threadsafe(page.put, sent)

    def changed(self, connection: Connection, touched: Mapping[str, Tracked], news: Sequence[tuple[str, str]]) -> None:
        """Sends what a transaction has changed."""
        if not self.listening and not self._kept:
            return
        now = clock.time()
        events = [("agent", queries.agent_of(tracked, now)) for tracked in touched.values()]
        for kind, name in dict.fromkeys(news):
            if kind == "agent":
                events.append(("agent", {"agent": name, "removed": True}))
            elif kind == "alert":
                found = queries.alert(connection, name)
                events += [] if found is None else [("alert", found)]
            elif kind == "review":
                item = queries.review_item(connection, name)
                whose = trip_of(name.removeprefix("question/")).agent
                events.append(("review", item or {"id": name, "agent": whose, "removed": True}))
        self.send(events)

    def close(self) -> None:
        """Ends all streams, because the service ends."""
        with self._lock:
            pages = list(self._pages)
        for page in pages:
            page.loop.call_soon_threadsafe(page.put, [END])

    async def listen(self, after: int | None, only: Sequence[str] | None = None) -> AsyncIterator[bytes]:
        """Yields events for one page, about some agents or all: those after number ``after``, or those from now on."""
        page = _Page(asyncio.get_running_loop(), only)
        with self._lock:
            missed: list[_Event] = []
            if after is not None:
                whole = bool(self._kept) and self._kept[0].number <= after + 1
                missed = [event for event in self._kept if event.number > after] if whole else [RELOAD]
            page.put(missed[-WAITING:])
            self._pages.add(page)
        try:
            yield b": astray\n\n"
            while True:
                try:
                    line = await asyncio.wait_for(page.queue.get(), KEEP_ALIVE)
                except TimeoutError:
                    line = b": still here\n\n"
                if line == END.line:
                    return
                yield line
        finally:
            with self._lock:
                self._pages.discard(page)
