"""The service: a queue of batches and requests, and the one thread that scores, teaches and writes."""

from __future__ import annotations

import logging
import queue
import threading
import time as clock
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

from astray.core.errors import AstrayError
from astray.core.processes import Aside
from astray.core.threads import one_thread
from astray.core.zones import by_place
from astray.service import served_model
from astray.service.batches import Batch, Busy, Receipt
from astray.service.review.erasure import remove_old
from astray.service.review.explainer import Explainer, Made, Task, explanations_to_make, write_explanation
from astray.service.review.refresh import (
    Last,
    NewReward,
    Refresh,
    Refresher,
    last_refresh,
    note_refresh,
    swap_in,
    to_recalibrate,
    to_refresh,
)
from astray.service.review.teach import teach_due
from astray.service.scoring.late import rescore_late
from astray.service.scoring.scorer import Limits, Scorer
from astray.service.store import Connection, Store, StoreError
from astray.service.web.server_events import Hub

log = logging.getLogger("astray.serve")

T = TypeVar("T")
GROUP_SECONDS = 0.005  # that a group waits for further batches
GROUP_FIXES = 1000  # of a group, about, at most
TICK = 0.5  # seconds between two looks at what is due
SILENCE = 10.0  # seconds between two looks for trips that are over because nothing comes any more

Done = Callable[[Receipt], None]


class _Fixes(NamedTuple):
    batch: Batch
    done: Done


class _Request(NamedTuple):
    work: Callable[[Scorer], Any]
    result: Future[Any]
    alone: bool = False  # whether it must not be inside a transaction


_Item = _Fixes | _Request


class Service:
    """What feeds and pages talk to. Every change goes through its one thread, in the order in which it came."""

    def __init__(
        self,
        store: Store,
        *,
        limits: Limits | None = None,
        room: int = 2000,
        address: str = "",
        refresh_hours: float = 24.0,
    ) -> None:
        self.refresh_hours = refresh_hours
        self.store, self.limits, self.room, self.address = store, limits or Limits(), room, address
        self.hub = Hub()
        self.started = clock.time()
        self.fixes = self.groups = self.duplicates = 0
        self.broker: Callable[[], dict[str, Any]] | None = None  # what is said of the broker, if there is one
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._explaining: set[Task] = set()
        self.explainer = Aside(Explainer(store.address))
        self.refresher = Aside(Refresher(store.address))
        self._refreshing: list[Refresh] | None = None
        self.failed = ""  # why the store refuses at present
        self.on_end: Callable[[], object] = lambda: None  # called if the scoring thread ends unasked
        self.scorer: Scorer

    def start(self) -> None:
        """Open the model and begin to work."""
        by_place(0.0, 0.0)  # the first question for a time zone takes long
        with self.store.writer.transaction():
            self.scorer = Scorer(self.store.writer, self.limits, self.address)
        self._thread.start()

    def stop(self) -> None:
        """Work off what is queued, and stop."""
        self._queue.put(None)
        self._thread.join()
        self.explainer.close()
        self.refresher.close()

    # ---------------------------------------------------------------- for other threads

    def submit(self, batch: Batch, done: Done) -> None:
        """Take in a batch; ``done`` is called by the scoring thread once it is on the disk.

        Raises
        ------
        Busy
            If too much is queued already.
        """
        if self.waiting >= self.room:
            raise Busy("more fixes are queued than can be scored", remedy="send them again later")
        self._queue.put(_Fixes(batch, done))

    def do(self, work: Callable[[Scorer], T]) -> Future[T]:
        """Have something done by the scoring thread, in a transaction of its own."""
        result: Future[T] = Future()
        self._queue.put(_Request(work, result))
        return result

    def write(self, work: Callable[[Connection], T]) -> Future[T]:
        """The same for what needs the connection that writes alone."""
        return self.do(lambda scorer: work(scorer.connection))

    def scrub(self) -> Future[None]:
        """Leave no trace of what was deleted."""
        result: Future[None] = Future()
        self._queue.put(_Request(lambda _: self.store.scrub(), result, alone=True))
        return result

    @property
    def waiting(self) -> int:
        """How many batches and requests are queued."""
        return self._queue.qsize()

    # ---------------------------------------------------------------- the scoring thread

    def _run(self) -> None:
        try:
            with one_thread():
                self._loop()
        except BaseException:
            log.exception("the service cannot go on")
            self.failed = "the scoring thread has ended"
            self.on_end()
            raise

    def _loop(self) -> None:
        due, silence = 0.0, clock.monotonic() + SILENCE
        item: _Item | None
        while True:
            now = clock.monotonic()
            if now >= due:
                self._look_around(now >= silence)
                due, silence = clock.monotonic() + TICK, silence if now < silence else now + SILENCE
            try:
                item = self._queue.get(timeout=max(due - clock.monotonic(), 0.001))
            except queue.Empty:
                continue
            if isinstance(item, _Fixes):
                group, item = self._group(item)
                self._score(group)
            if isinstance(item, _Request):
                self._perform(item)
            elif item is None:
                return

    def _group(self, first: _Fixes) -> tuple[list[_Fixes], _Item | None]:
        """Batches that came about together, and what came after them if that is something else."""
        group, fixes = [first], len(first.batch.fixes)
        until = clock.monotonic() + GROUP_SECONDS
        while fixes < GROUP_FIXES:
            try:
                item = self._queue.get(timeout=max(until - clock.monotonic(), 0.0))
            except queue.Empty:
                break
            if not isinstance(item, _Fixes):
                return group, item
            group.append(item)
            fixes += len(item.batch.fixes)
        return group, first  # nothing else came

    def _score(self, group: list[_Fixes]) -> None:
        """Score and store batches in one transaction, and tell whoever sent them."""
        try:
            with self.store.writer.transaction():
                receipts = self.scorer.take([item.batch for item in group], clock.time())
                self.scorer.write_agents()
        except Exception as error:
            self._failed(error)
            if len(group) > 1:  # so that one that cannot be stored does not keep the others out
                for one in group:
                    self._score([one])
                return
            receipts = [Receipt(0, group[0].batch.refused, 0, self.failed)]
        else:
            self.failed = ""
        self.fixes += sum(receipt.accepted for receipt in receipts)
        self.duplicates += sum(receipt.duplicates for receipt in receipts)
        self.groups += 1
        for item, receipt in zip(group, receipts, strict=True):
            item.done(receipt)
        self._push()

    def _perform(self, request: _Request) -> None:
        if not request.result.set_running_or_notify_cancel():
            return
        try:
            with nullcontext() if request.alone else self.store.writer.transaction():
                self.scorer.now = clock.time()
                result = request.work(self.scorer)
                self.scorer.write_agents()
        except Exception as error:
            if not isinstance(error, AstrayError | LookupError) or isinstance(error, StoreError):
                self._failed(error)
            else:
                self.scorer.reopen()
            request.result.set_exception(error)
            return
        request.result.set_result(result)
        self._push()

    def _failed(self, error: Exception) -> None:
        """A transaction was rolled back: what is in memory is ahead of the store, so it is read again."""
        self.failed = str(error) if isinstance(error, AstrayError) else "an error inside astray serve"
        if isinstance(error, AstrayError):
            log.error("nothing was stored: %s", error)
        else:
            log.exception("nothing was stored")
        try:
            self.store.revive()
            self.scorer.reopen()
        except StoreError as still:
            log.error("the store is not there: %s", still)

    def _push(self) -> None:
        """Tell the pages what has changed."""
        touched, news = self.scorer.touched, self.scorer.news
        if touched or news:
            self.hub.changed(self.scorer.connection, touched, news)
            self.scorer.touched, self.scorer.news = {}, []

    # ---------------------------------------------------------------- what is due

    def _look_around(self, silence: bool) -> None:
        now = clock.time()
        steps: list[Callable[[], Any]] = [
            lambda: teach_due(self.scorer, now),
            lambda: rescore_late(self.scorer, now),
        ]
        if silence:
            steps += [lambda: self.scorer.end_silent(now), lambda: remove_old(self.scorer, now)]
            steps.append(lambda: self._refresh(now))
        for step in steps:
            try:
                with self.store.writer.transaction():
                    step()
                    self.scorer.write_agents()
                self._push()
            except Exception as error:
                self._failed(error)
                return
        self._explain()

    def _refresh(self, now: float) -> None:
        """Have scales and reward made anew, one after the other, when it is time for that."""
        connection = self.scorer.connection
        if self._refreshing is not None or not self.refresh_hours:
            return
        last = last_refresh(connection)
        if last is None:
            note_refresh(connection, Last(now))
        elif now - last.at >= 3600.0 * self.refresh_hours:
            self._refreshing = [*to_refresh(connection, self.scorer.version, last)]
            note_refresh(connection, Last(now, last.trips))
            self._refresh_next()

    def _refresh_next(self) -> None:
        if self._refreshing:
            task = self._refreshing.pop()
            self.refresher.submit(task).add_done_callback(partial(self._refreshed, task))
        elif self._refreshing is not None:
            self._refreshing = None
            self.refresher.close()  # it has the training library in memory

    def _refreshed(self, task: Refresh, made: Future[Refresh | None]) -> None:
        def swap(scorer: Scorer) -> None:
            result = made.result()
            if result is not None:
                swap_in(scorer, result)
            elif isinstance(task, NewReward) and self._refreshing is not None:  # too little is stored to learn from
                last = last_refresh(scorer.connection) or Last(scorer.now)
                self._refreshing += to_recalibrate(scorer.connection, scorer.version, last)

        def go_on(swapped: Future[None]) -> None:
            error = swapped.exception()
            if error is not None:
                log.error("something could not be refreshed: %s", error)
            threading.Thread(target=self._refresh_next, daemon=True).start()  # which may end the process

        if not made.cancelled():
            request = _Request(swap, Future())
            request.result.add_done_callback(go_on)
            self._queue.put(request)

    def _explain(self) -> None:
        """Have the flagged trips and alerts explained that are not yet."""
        for task in explanations_to_make(self.scorer.connection):
            if task in self._explaining or len(self._explaining) > 20:
                continue
            self._explaining.add(task)
            self.explainer.submit(task).add_done_callback(partial(self._explained, task))

    def _explained(self, task: Task, made: Future[Made | None]) -> None:
        def write(scorer: Scorer) -> None:
            self._explaining.discard(task)
            error = made.exception()
            if error is not None:
                log.error("a trip could not be explained: %s", error)
            write_explanation(scorer, task, None if error is not None else made.result())

        if not made.cancelled():
            self._queue.put(_Request(write, Future()))


def prepare(store: Store, model: Any) -> None:
    """Put the model into a store that is new."""
    with store.writer.transaction():
        served_model.begin(store.writer, model)
