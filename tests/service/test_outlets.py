"""Messages about alerts reach real servers once, or say why not; a kill loses none, and no secret is shown."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from astray.core.zones import Zone
from astray.service import preferences
from astray.service.alerts import outbox as outboxes
from astray.service.alerts.notifications import tell, tell_closed
from astray.service.alerts.outbox import Outbox, outbox_state
from astray.service.alerts.outlets import Delivery, Means, NotDelivered, OutletAddress, deliver, signature
from astray.service.preferences import Budget, Preferences
from astray.service.scoring.event_rows import Alert, put_alert
from astray.service.store import Connection, Store, open_store
from peers import Receiver, until

NOW = time.time()
LISBON = Zone("Europe/Lisbon")
SAID = {
    "id": "1f",
    "event": "opened",
    "agent": "ana",
    "time": NOW,
    "title": "ana: unusual trip",
    "text": "ana, 12:00: never began here before",
    "link": "http://localhost/trip/1",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


def send(kind: Any, to: str, means: Means | None = None, repeated: bool = False) -> None:
    deliver(OutletAddress(kind, to), Delivery("key-1", SAID, repeated), means or Means())


# -------------------------------------------------------------------- each outlet


def test_a_webhook_has_a_key_and_a_signature(receiver: Receiver):
    send("webhook", f"{receiver.url}/hook?x=1", Means(key="sealed"))
    path, headers, body = receiver.got[0]
    assert path == "/hook?x=1"
    assert json.loads(body) == SAID
    assert headers["idempotency-key"] == "key-1"
    expected = signature("sealed", headers["x-astray-timestamp"], body)
    assert hmac.compare_digest(headers["x-astray-signature"], expected)
    assert abs(int(headers["x-astray-timestamp"]) - time.time()) < 60


@pytest.mark.parametrize(
    ("status", "final"), [(500, False), (503, False), (429, False), (408, False), (400, True), (404, True), (302, True)]
)
def test_temporary_refusals_are_tried_again_and_final_ones_are_not(receiver: Receiver, status: int, final: bool):
    other = Receiver()
    receiver.answers = [(status, {"Location": f"{other.url}/elsewhere", "Retry-After": "7"})]
    with pytest.raises(NotDelivered) as failed:
        send("webhook", receiver.url)
    assert failed.value.final is final
    assert other.got == [], "a redirect is not followed"
    assert failed.value.wait == (0.0 if status == 302 else 7.0)
    other.shutdown()
    other.server_close()


@pytest.mark.parametrize("wait", ["\u00b2", "soon", "-1", "9" * 400])
def test_a_strange_time_to_wait_does_not_make_a_temporary_refusal_final(receiver: Receiver, wait: str):
    receiver.answers = [(503, {"Retry-After": wait})]
    with pytest.raises(NotDelivered, match="answered 503") as failed:
        send("webhook", receiver.url)
    assert not failed.value.final
    assert failed.value.wait <= 86_400


def test_a_server_that_never_answers_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("astray.service.alerts.outlets.TIMEOUT", 0.2)
    receiver.delay = 1.0
    with pytest.raises(NotDelivered, match="TimeoutError") as failed:
        send("webhook", receiver.url)
    assert not failed.value.final


@pytest.mark.parametrize("to", ["ftp://example.org", "nonsense", "http://", "http://[", "http://a:b:c/"])
def test_an_impossible_address_is_a_final_failure(to: str):
    with pytest.raises(NotDelivered) as failed:
        send("webhook", to)
    assert failed.value.final


def test_ntfy_gets_title_text_and_link(receiver: Receiver):
    send("ntfy", receiver.url.replace("//", "//:tk_secret@") + "/fleet", repeated=True)
    path, headers, body = receiver.got[0]
    assert path == "/"
    note = json.loads(body)
    assert (note["topic"], note["title"], note["click"]) == ("fleet", "ana: unusual trip (repeated)", SAID["link"])
    assert headers["authorization"] == "Bearer tk_secret"


class Mailbox:
    """A mail server that keeps what it is sent."""

    def __init__(self, recipient: str = "250 ok") -> None:
        self.mails: list[bytes] = []
        self.recipient = recipient
        self.loop = asyncio.new_event_loop()
        started: Future[int] = Future()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        self.port = started.result(10)

    def _run(self, started: Future[int]) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
            started.set_result(server.sockets[0].getsockname()[1])
            await server.serve_forever()

        self.loop.run_until_complete(main())

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")

        say("220 mail.test")
        while line := (await reader.readline()).decode().strip():
            word = line.split()[0].upper()
            if word == "DATA":
                say("354 go on")
                self.mails.append(await reader.readuntil(b"\r\n.\r\n"))
                say("250 ok")
            elif word == "QUIT":
                say("221 bye")
                break
            else:
                say(self.recipient if word == "RCPT" else "250 ok")
        writer.close()


def test_an_email_says_that_it_is_repeated():
    box = Mailbox()
    means = Means(smtp=f"smtp://127.0.0.1:{box.port}?from=astray@example.org")
    send("email", "ana@example.org", means)
    send("email", "ana@example.org", means, repeated=True)
    first, second = (message_from_bytes(mail, policy=policy.default) for mail in box.mails)
    assert (first["From"], first["To"], first["Subject"]) == ("astray@example.org", "ana@example.org", SAID["title"])
    assert str(SAID["text"]) in first.get_content()
    assert str(SAID["link"]) in first.get_content()
    assert first["Message-ID"] == second["Message-ID"] == "<key-1@astray>"
    assert second["Subject"] == "ana: unusual trip (repeated)"


def test_an_email_that_is_refused_for_good_is_not_sent_again():
    box = Mailbox(recipient="550 nobody of that name")
    with pytest.raises(NotDelivered, match="550") as failed:
        send("email", "nobody@example.org", Means(smtp=f"smtp://127.0.0.1:{box.port}"))
    assert failed.value.final
    with pytest.raises(NotDelivered, match="the service knows no mail server"):
        send("email", "nobody@example.org")


def test_names_cannot_inject_headers_into_an_email():
    box = Mailbox()
    means = Means(smtp=f"smtp://127.0.0.1:{box.port}")
    said = {**SAID, "title": "ana\r\nBcc: everybody@example.org"}
    deliver(OutletAddress("email", "a@example.org"), Delivery("k", said), means)
    assert message_from_bytes(box.mails[0], policy=policy.default)["Bcc"] is None
    with pytest.raises(NotDelivered):
        send("email", "a@example.org\r\nBcc: everybody@example.org", means)


def test_the_mqtt_topic_of_an_alert_holds_its_last_state():
    with socket.socket() as tried:
        if tried.connect_ex(("127.0.0.1", 1883)):
            pytest.skip("there is no broker on 127.0.0.1:1883")
    base = f"astray-test-{uuid.uuid4().hex[:10]}"
    means = Means(mqtt="mqtt://127.0.0.1:1883")
    send("mqtt", base, means)
    closed = {**SAID, "event": "closed"}
    deliver(OutletAddress("mqtt", f"mqtt://127.0.0.1:1883/{base}"), Delivery("key-2", closed), Means())
    got: list[Any] = []
    later = paho.Client(CallbackAPIVersion.VERSION2)
    later.on_message = lambda c, _, message: got.append(message)
    later.connect("127.0.0.1", 1883)
    later.subscribe(f"{base}/#")
    later.loop_start()
    until(lambda: got)
    assert [(one.topic, one.retain, json.loads(one.payload)["event"]) for one in got] == [
        (f"{base}/1f", True, "closed")
    ]
    later.publish(f"{base}/1f", b"", 1, True).wait_for_publish(10)
    later.disconnect()
    later.loop_stop()
    with pytest.raises(NotDelivered, match="the service knows no broker"):
        send("mqtt", base)


def test_the_apprise_outlet_delivers_title_and_text(receiver: Receiver):
    pytest.importorskip("apprise")
    send("apprise", receiver.url.replace("http://", "json://") + "/hook")
    assert json.loads(receiver.got[0][2])["title"] == SAID["title"]
    with pytest.raises(NotDelivered, match="does not understand"):
        send("apprise", "nonsense")


def test_secrets_are_neither_shown_nor_lost_when_the_page_sends_them_back():
    kept = Preferences(
        outlets=(
            OutletAddress("webhook", "https://hooks.example.org/services/s3cret"),
            OutletAddress("webhook", "https://user:s3cret@hooks.example.org/other/s3cret"),
            OutletAddress("apprise", "discord://s3cret/s3cret"),
            OutletAddress("ntfy", "https://:s3cret@ntfy.example.org/fleet"),
            OutletAddress("mqtt", "mqtt://ana:s3cret@example.org/alerts"),
            OutletAddress("email", "ana@example.org"),
        )
    )
    page = preferences.hide_secrets(kept)
    assert "s3cret" not in str(page)
    assert preferences.restore_secrets(page, kept) == kept
    new = Preferences(outlets=(OutletAddress("webhook", "https://new.example.org/x"), *page.outlets[2:]))
    assert preferences.restore_secrets(new, kept).outlets == (new.outlets[0], *kept.outlets[2:])


# -------------------------------------------------------------------- the outbox


def writing(store: Store) -> Callable[[Callable[[Connection], Any]], Future[Any]]:
    """What the service's thread does: one transaction at a time."""
    lock = threading.Lock()

    def write(work: Callable[[Connection], Any]) -> Future[Any]:
        result: Future[Any] = Future()
        with lock, store.writer.transaction():
            result.set_result(work(store.writer))
        return result

    return write


def alerting(connection: Connection, agent: str = "ana", ordinal: int = 0, opened: float = NOW) -> str:
    """Put an alert into the store, and decide on it."""
    name = f"{agent}-{ordinal}"
    put_alert(connection, Alert(name, agent, "1", opened, opened, None, "anomaly", "far away", at=NOW))
    return name


def wanting(connection: Connection, *outlets: OutletAddress, budget: int = 1000) -> None:
    preferences.save(connection, Preferences(alerts_a_week=Budget(budget, budget), outlets=outlets))


@contextmanager
def delivering(store: Store, seed: int = 0) -> Iterator[Outbox]:
    outbox = Outbox(store, writing(store), Means(key="sealed"), seed)
    outbox.start()
    try:
        yield outbox
    finally:
        outbox.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path)
    yield found
    found.close()


def test_an_alert_is_sent_to_every_outlet(store: Store, receiver: Receiver):
    wanting(store.writer, OutletAddress("webhook", f"{receiver.url}/a"), OutletAddress("ntfy", f"{receiver.url}/b"))
    alert = alerting(store.writer)
    assert tell(store.writer, alert, LISBON, NOW, "https://gps.example.org") == "yes"
    assert tell(store.writer, alert, LISBON, NOW) == "yes", "deciding again writes nothing new"
    tell_closed(store.writer, alert, LISBON, NOW)
    with delivering(store):
        until(lambda: len(receiver.got) == 3)
        until(lambda: outbox_state(store.writer)["waiting"] == 0)
    events = [json.loads(body)["event"] for path, _, body in receiver.got if path == "/a"]
    assert events == ["opened", "closed"], "programs are told of the end, and in this order"
    notes = [json.loads(body) for path, _, body in receiver.got if path == "/"]
    assert [note["click"] for note in notes] == ["https://gps.example.org/trip/ana%2F1"]
    assert store.writer.rows("SELECT told, reason FROM alerts") == [("yes", "")]


def test_an_alert_beyond_the_budget_is_listed_but_not_sent(store: Store, receiver: Receiver):
    wanting(store.writer, OutletAddress("webhook", receiver.url), budget=1)
    assert tell(store.writer, alerting(store.writer), LISBON, NOW) == "yes"
    later = alerting(store.writer, ordinal=1)
    assert tell(store.writer, later, LISBON, NOW + 3600) == "no"
    tell_closed(store.writer, later, LISBON, NOW + 3600)
    assert store.writer.value("SELECT count(*) FROM outbox") == 1
    reason = store.writer.value("SELECT reason FROM alerts WHERE id = ?", (later,))
    assert reason == "the budget is used up: 1 alert of ana in seven days"


def test_a_held_alert_is_sent_when_the_quiet_hours_end(store: Store, receiver: Receiver):
    quiet = preferences.Hours("00:00", "23:59")
    outlets = (OutletAddress("webhook", receiver.url),)
    preferences.save(store.writer, Preferences(quiet_hours=quiet, outlets=outlets))
    assert tell(store.writer, alerting(store.writer), LISBON, NOW) == "held"
    assert store.writer.value("SELECT next_try FROM outbox") > NOW
    with delivering(store):
        time.sleep(0.3)
        assert receiver.got == []
        writing(store)(lambda c: c.run("UPDATE outbox SET next_try = 0"))
        until(lambda: receiver.got)


def test_a_server_that_comes_back_gets_everything_with_the_same_keys(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outboxes, "FIRST", 0.05)
    monkeypatch.setattr(outboxes, "LOOK", 0.05)
    wanting(store.writer, OutletAddress("webhook", receiver.url))
    for i in range(5):
        tell(store.writer, alerting(store.writer, f"agent {i}"), LISBON, NOW)
    receiver.answers = [(503, {})] * 12
    with delivering(store):
        until(lambda: outbox_state(store.writer)["waiting"] == 0)
    assert len(receiver.got) == 12 + 5
    expected = {row[0] for row in store.writer.rows("SELECT id FROM outbox")}
    assert set(receiver.keys[12:]) == expected
    assert outbox_state(store.writer) == {"waiting": 0, "failing": 0, "given_up": 0, "oldest": None, "errors": []}


def test_a_final_failure_is_given_up_and_reported_without_secrets(
    store: Store, receiver: Receiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    receiver.answers = [(404, {})]
    wanting(store.writer, OutletAddress("webhook", f"{receiver.url}/s3cret?key=s3cret"))
    tell(store.writer, alerting(store.writer), LISBON, NOW)
    with delivering(store):
        until(lambda: outbox_state(store.writer)["given_up"])
    found = outbox_state(store.writer)
    assert found["waiting"] == 0
    assert found["errors"][0]["reason"] == f"webhook {receiver.url}/***: answered 404"
    assert "given up" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_slow_outlet_does_not_delay_others(store: Store, receiver: Receiver):
    slow = Receiver()
    slow.delay = 2.0
    wanting(store.writer, OutletAddress("webhook", slow.url), OutletAddress("webhook", receiver.url))
    for i in range(3):
        tell(store.writer, alerting(store.writer, f"agent {i}"), LISBON, NOW)
    with delivering(store):
        until(lambda: len(receiver.got) == 3)
        assert len(slow.got) <= 1
    slow.shutdown()
    slow.server_close()


def test_attempts_are_spread_by_a_seed(store: Store, receiver: Receiver):
    tries = []
    for seed in (1, 1, 2):
        store.writer.run("DELETE FROM outbox")
        store.writer.run("DELETE FROM alerts")
        wanting(store.writer, OutletAddress("webhook", receiver.url))
        tell(store.writer, alerting(store.writer), LISBON, NOW)
        receiver.answers, before = [(500, {})], time.time()
        with delivering(store, seed):
            until(lambda: outbox_state(store.writer)["failing"])
        tries.append(round(store.writer.value("SELECT next_try FROM outbox") - before, 0))
    assert tries[0] == pytest.approx(tries[1], abs=1)
    assert all(2 <= wait <= 8 for wait in tries)


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import test_outlets as t
t.outboxes.FIRST = t.outboxes.LOOK = 0.05
store = t.open_store(Path(sys.argv[1]))
with t.delivering(store):
    time.sleep(60)
"""


def test_kills_lose_no_message_and_do_not_change_its_key(tmp_path: Path, receiver: Receiver):
    store = open_store(tmp_path)
    wanting(store.writer, OutletAddress("webhook", receiver.url))
    for i in range(8):
        tell(store.writer, alerting(store.writer, f"agent {i}"), LISBON, NOW)
    expected = {row[0] for row in store.writer.rows("SELECT id FROM outbox")}
    store.close()
    receiver.delay = 0.05
    rounds = 0
    while set(receiver.keys) != expected:
        rounds += 1
        assert rounds < 30
        arguments = [sys.executable, "-c", KILLED, str(tmp_path), *map(str, Path(__file__).parents[:2])]
        process = subprocess.Popen(arguments)
        before = len(receiver.got)
        until(lambda before=before: len(receiver.got) >= before + 2 or set(receiver.keys) == expected)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert rounds > 2, "it was killed while it sent"
    store = open_store(tmp_path)
    with delivering(store):
        until(lambda: outbox_state(store.writer)["waiting"] == 0)
    assert set(receiver.keys) == expected
    store.close()
