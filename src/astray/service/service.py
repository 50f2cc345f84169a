"""Runs the service: a queue of batches and requests, and the one thread that scores, teaches and writes."""

from __future__ import annotations

import logging
import queue
import threading
import time as clock
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

from astray.core.errors import AstrayError
from astray.core.processes import Aside
from astray.core.threads import one_thread
from astray.core.zones import by_place
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
GROUP_SECONDS = 0.005  # for which a group waits for further batches
GROUP_FIXES = 1000  # after which a group takes no further batch
TICK = 0.5  # seconds between two looks for verdicts, late fixes and explanations that are due
SILENCE = 10.0  # seconds between two looks for trips that ended because no more fixes came
MOST_EXPLAINING = 20  # explanations that are queued at the same time

Done = Callable[[Receipt], None]


class _Fixes(NamedTuple):
    batch: Batch
    done: Done


class _Request(NamedTuple):
    work: Callable[[Scorer], Any]
    result: Future[Any]
    alone: bool = False  # must not run inside a transaction


_Item = _Fixes | _Request


class Service:
    """Takes batches from feeds and requests from pages; one thread handles all of them in the order of arrival."""

    room = 2000  # batches and requests that may be queued

    def __init__(
        self, store: Store, *, limits: Limits | None = None, address: str = "", refresh_hours: float = 24.0
    ) -> None:
        self.store, self.limits = store, limits or Limits()
        self.address = address  # of the page, for links in messages
        self.refresh_hours = refresh_hours  # hours between two refreshes of the model; 0: never
        self.hub = Hub()
        self.started = clock.time()
        self.fixes = self.groups = self.duplicates = 0
        self.broker: Callable[[], dict[str, Any]] | None = None  # returns the state of the MQTT feed, if there is one
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._stopping = threading.Event()
        self._explaining: set[Task] = set()
        self._refreshing = False
        self.explainer = Aside(Explainer(store.address))
        self.refresher = Aside(Refresher(store.address))
        self.failed = ""  # why nothing can be stored at present
        self.on_end: Callable[[], object] = lambda: None  # called if the scoring thread ends unexpectedly
        self.scorer: Scorer

    def start(self) -> None:
        """Opens the model and starts the scoring thread."""
        by_place(0.0, 0.0)  # loads the map of time zones, which takes long
        with self.store.writer.transaction():
            self.scorer = Scorer(self.store.writer, self.limits, self.address)
        self._thread.start()

    def stop(self) -> None:
        """Handles what is queued, and stops."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join()
        self.explainer.close()
        self.refresher.close()

    # ---------------------------------------------------------------- for other threads

    def submit(self, batch: Batch, done: Done) -> None:
        """Queues a batch, or raises Busy; the scoring thread calls ``done`` when the batch is on the disk."""
        if self.waiting >= self.room:
            raise Busy("more fixes are queued than can be scored", remedy="send them again later")
        self._queue.put(_Fixes(batch, done))

    def do(self, work: Callable[[Scorer], T], *, alone: bool = False) -> Future[T]:
        """Runs ``work`` in the scoring thread, in a transaction unless it must run ``alone``."""
        result: Future[T] = Future()
        self._queue.put(_Request(work, result, alone))
        return result

    def write(self, work: Callable[[Connection], T]) -> Future[T]:
        """Runs ``work``, which needs only the writing connection, in the scoring thread."""
        return self.do(lambda scorer: work(scorer.connection))

    def scrub(self) -> Future[None]:
        """Makes the store overwrite what was deleted."""
        return self.do(lambda _: self.store.scrub(), alone=True)

    @property
    def waiting(self) -> int:
        """The number of batches and requests that are queued."""
        return self._queue.qsize()

    # ---------------------------------------------------------------- the scoring thread

    def _run(self) -> None:
        try:
            with one_thread():
                self._loop()
        except BaseException:
            log.exception("the service cannot continue")
            self.failed = "the scoring thread has ended"
            self.on_end()
            raise

    def _loop(self) -> None:
        due, silence = 0.0, clock.monotonic() + SILENCE
        item: _Item | None
        while True:
            now = clock.monotonic()
            if now >= due:
                self._do_due(now >= silence)
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
        """Returns the batches that came at about the same time, and the next item if it is not a batch."""
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
        return group, first  # no other item came

    def _score(self, group: list[_Fixes]) -> None:
        """Scores and stores batches in one transaction, and calls back their senders."""
        try:
            with self.store.writer.transaction():
                receipts = self.scorer.take([item.batch for item in group], clock.time())
                self.scorer.write_agents()
        except Exception as error:
            self._failed(error)
            if len(group) > 1:  # a batch that cannot be stored must not block the others
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
        """Reads everything from the store again, because the state in memory includes what was rolled back."""
        self.failed = str(error) if isinstance(error, AstrayError) else "an error inside astray serve"
        if isinstance(error, AstrayError):
            log.error("nothing was stored: %s", error)
        else:
            log.exception("nothing was stored")
        try:
            self.store.revive()
            self.scorer.reopen()
        except StoreError as still:
            log.error("the store does not answer: %s", still)

    def _push(self) -> None:
        """Sends the open pages what has changed."""
        touched, news = self.scorer.touched, self.scorer.news
        if touched or news:
            self.hub.changed(self.scorer.connection, touched, news)
            self.scorer.touched, self.scorer.news = {}, []

    # ---------------------------------------------------------------- what is due

    def _do_due(self, silence: bool) -> None:
        """Does what is due; if ``silence``, also ends silent agents' trips and removes old rows."""
        now = self.scorer.now = clock.time()
        steps: list[Callable[[Scorer, float], object]] = [teach_due, rescore_late]
        if silence:
            steps += [Scorer.end_silent, remove_old, self._refresh]
        for step in steps:
            try:
                with self.store.writer.transaction():
                    step(self.scorer, now)
                    self.scorer.write_agents()
                self._push()
            except Exception as error:
                self._failed(error)
                return
        self._explain()

    def _refresh(self, scorer: Scorer, now: float) -> None:
        """Starts a refresh of the model if one is due."""
        if self._refreshing or not self.refresh_hours:
            return
        last = last_refresh(scorer.connection)
        if last is None:
            note_refresh(scorer.connection, Last(now))
        elif now - last.at >= 3600.0 * self.refresh_hours:
            note_refresh(scorer.connection, Last(now, last.trips))
            self._refreshing = True
            tasks = [*to_refresh(scorer.connection, scorer.version, last)]
            threading.Thread(target=self._refresh_all, args=(tasks,), name="refresh", daemon=True).start()

    def _refresh_all(self, tasks: list[Refresh]) -> None:
        """Runs each task in the other process, and puts its result into effect before the next one begins."""
        while tasks and not self._stopping.is_set():
            try:
                task = tasks.pop()
                made = self.refresher.submit(task).result()
                tasks += self.do(partial(_swap, task=task, made=made)).result()
            except Exception as error:
                if not self._stopping.is_set():
                    log.error("something could not be refreshed: %s", error)
        self.refresher.close()  # it has the training library in memory
        self._refreshing = False

    def _explain(self) -> None:
        """Queues flagged trips and alerts that have no explanation yet."""
        for task in explanations_to_make(self.scorer.connection):
            if task not in self._explaining and len(self._explaining) <= MOST_EXPLAINING:
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
            self.do(write)


def _swap(scorer: Scorer, task: Refresh, made: Refresh | None) -> Sequence[Refresh]:
    """Puts the result of a task into effect; returns the tasks that take its place if it had none."""
    if made is not None:
        swap_in(scorer, made)
    elif isinstance(task, NewReward):  # the store holds too little to learn from
        return to_recalibrate(scorer.connection, scorer.version, last_refresh(scorer.connection) or Last(scorer.now))
    return []
