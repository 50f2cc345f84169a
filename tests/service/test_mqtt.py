"""Fixes by way of a real broker: none is acknowledged before it is on the disk, none is lost when somebody dies."""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from astray.core.errors import AstrayError
from astray.service.batches import Batch, Busy, Receipt
from astray.service.feeds.mqtt_feed import Broker, MqttFeed, decode_topic
from peers import Mosquitto, is_open, publish, until

NOW = 1_700_000_000


class Log:
    """The door of the service: keeps what comes, and says that it is on the disk when it is told to."""

    def __init__(self, commits: bool = True) -> None:
        self.batches: list[Batch] = []
        self.commits, self.busy, self.full_disk = commits, 0, 0
        self.waiting: list[Callable[[Receipt], None]] = []

    def submit(self, batch: Batch, done: Callable[[Receipt], None]) -> None:
        if self.busy:
            self.busy -= 1
            raise Busy("the queue is full")
        if self.full_disk:
            self.full_disk -= 1
            done(Receipt(0, [], failed="the disk is full"))
            return
        self.batches.append(batch)
        if self.commits:
            threading.Thread(target=done, args=(Receipt(len(batch.fixes), batch.refused),)).start()
        else:
            self.waiting.append(done)

    @property
    def times(self) -> list[float]:
        return sorted(fix.time for batch in self.batches for fix in batch.fixes)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    if shutil.which("mosquitto") is None:
        pytest.skip("there is no mosquitto to start")
    with Mosquitto(tmp_path) as mosquitto:
        yield mosquitto


@contextmanager
def feeding(port: int, log: Log, prefix: str, version: str = "5", client: str | None = None) -> Iterator[MqttFeed]:
    feed = MqttFeed(f"mqtt://127.0.0.1:{port}/{prefix}?version={version}&client={client or prefix}", log.submit)
    feed.start()
    try:
        until(lambda: feed.status()["connected"])
        time.sleep(0.2)  # the subscription follows the connection
        yield feed
    finally:
        feed.stop()


def fix(i: int) -> dict[str, float]:
    return {"time": NOW + i, "lat": 45.0, "lon": 7.0 + i / 1e4}


@pytest.mark.parametrize("version", ["3", "5"])
def test_the_broker_delivers_fixes_in_every_format(version: str):
    """Over the broker on its usual port, under topics of our own."""
    if not is_open(1883):
        pytest.skip("there is no broker on 127.0.0.1:1883")
    prefix = f"astray-test-{uuid.uuid4().hex[:10]}"
    log = Log()
    location = {"_type": "location", "lat": 48.85, "lon": 2.295, "tst": NOW, "tid": "JJ", "acc": 5}
    position = {"fixTime": "2023-11-14T22:13:20.000+00:00", "latitude": 48.5, "longitude": 9.2, "valid": True}
    with feeding(1883, log, prefix, version) as feed:
        publish(1883, (f"{prefix}/retained", fix(9)), retain=True)
        publish(
            1883,
            (f"{prefix}/ana", fix(0)),
            (f"{prefix}/van/3", [fix(1), {"time": NOW, "lat": 95, "lon": 7}]),
            (prefix, {"agent": "bob", **fix(2)}),
            (f"{prefix}/jane/phone", location),
            (prefix, {"position": position, "device": {"uniqueId": "353861053849681"}}),
            (f"owntracks/{prefix}/phone", location),
            (f"owntracks/{prefix}/phone/event", {**location, "_type": "transition"}),
            (f"{prefix}/ana", b""),
            (f"{prefix}/ana", b"not json"),
        )
        until(lambda: len(log.batches) >= 8)
        warned = feed.status()["warnings"]
    mine = [f for b in log.batches for f in b.fixes]
    agents = {"retained", "ana", "van/3", "bob", "jane/phone", "353861053849681", f"{prefix}/phone"}
    assert {f.agent for f in mine} == agents
    reasons = sorted(row.reason for batch in log.batches for row in batch.refused)
    assert reasons[0] == "latitude outside [-90, 90] (95)"
    assert reasons[1].startswith("not JSON")
    assert warned == []
    publish(1883, (f"{prefix}/retained", b""), retain=True)


def test_a_retained_message_is_not_a_new_fix(broker: Mosquitto):
    publish(broker.port, ("fleet/ana", fix(0)), ("owntracks/ana/phone", fix(0)), retain=True)
    log = Log()
    with feeding(broker.port, log, "fleet"):
        publish(broker.port, ("fleet/ana", fix(1)))
        until(lambda: log.batches)
    assert log.times == [NOW + 1]


@pytest.mark.parametrize("version", ["3", "5"])
def test_a_message_that_was_not_stored_comes_again_after_a_kill(broker: Mosquitto, version: str):
    log = Log(commits=False)
    with feeding(broker.port, log, "fleet", version):
        publish(broker.port, *((f"fleet/{i}", fix(i)) for i in range(10)))
        until(lambda: len(log.batches) == 10)
        for done in log.waiting[:4]:
            done(Receipt(1, []))
        time.sleep(0.3)
    publish(broker.port, ("fleet/10", fix(10)))  # while no feed is connected
    later = Log()
    with feeding(broker.port, later, "fleet", version):
        until(lambda: len(later.batches) >= 7)
        time.sleep(0.3)
    assert later.times == [NOW + i for i in range(4, 11)]
    last = Log()
    with feeding(broker.port, last, "fleet", version):
        time.sleep(0.5)
    assert last.batches == []


def test_a_broker_that_dies_and_comes_back_loses_nothing(broker: Mosquitto):
    log = Log()
    with feeding(broker.port, log, "fleet") as feed:
        publish(broker.port, *((f"fleet/{i}", fix(i)) for i in range(5)))
        until(lambda: len(log.batches) == 5)
        broker.end()
        until(lambda: not feed.status()["connected"])
        assert "no connection to the broker" in feed.status()["warnings"][0]
        with broker:
            until(lambda: feed.status()["connected"])
            publish(broker.port, *((f"fleet/{i}", fix(i)) for i in range(5, 10)))
            until(lambda: set(log.times) == {NOW + i for i in range(10)})
            assert feed.status()["warnings"] == []


def test_a_late_receipt_does_not_acknowledge_on_another_connection(broker: Mosquitto):
    """The broker has forgotten everything meanwhile, and numbers its messages from 1 again."""
    log = Log(commits=False)
    with feeding(broker.port, log, "fleet") as feed:
        publish(broker.port, ("fleet/0", fix(0)))
        until(lambda: len(log.batches) == 1)
        broker.end()
        for saved in broker.settings.parent.glob("*.db"):
            saved.unlink()
        with broker:
            until(lambda: feed.status()["connected"] and not feed.status()["warnings"])
            time.sleep(0.2)
            publish(broker.port, ("fleet/1", fix(1)))
            until(lambda: len(log.batches) == 2)
            log.waiting[0](Receipt(1, []))  # of the first, whose number the second has now
            feed.stop()
            later = Log()
            with feeding(broker.port, later, "fleet"):
                until(lambda: later.times == [NOW + 1])


def test_a_full_queue_holds_the_broker_back_and_loses_nothing(broker: Mosquitto):
    log = Log()
    log.busy = 30
    with feeding(broker.port, log, "fleet"):
        publish(broker.port, *((f"fleet/{i}", fix(i)) for i in range(20)))
        until(lambda: len(log.batches) == 20)
    assert log.times == [NOW + i for i in range(20)]


def test_a_queue_that_stays_full_makes_the_feed_reconnect(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("astray.service.feeds.mqtt_feed.PATIENCE", 0.3)
    log = Log()
    log.busy = 15
    with feeding(broker.port, log, "fleet"):
        publish(broker.port, ("fleet/0", fix(0)))
        until(lambda: log.times == [NOW])


def test_the_broker_sends_again_what_could_not_be_stored(broker: Mosquitto):
    log = Log()
    log.full_disk = 1
    with feeding(broker.port, log, "fleet"):
        publish(broker.port, ("fleet/0", fix(0)), ("fleet/1", fix(1)))
        until(lambda: set(log.times) == {NOW, NOW + 1})


def test_messages_with_qos_0_cause_a_warning(broker: Mosquitto):
    log = Log()
    with feeding(broker.port, log, "fleet") as feed:
        publish(broker.port, ("fleet/0", fix(0)), qos=0)
        until(lambda: log.batches)
        assert feed.status()["warnings"] == ["some senders publish with QoS 0, which may lose fixes; use QoS 1"]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "mqtt://",
        "mqtt://host:port",
        "mqtt://host?version=4",
        "mqtt://host?x=1",
        "mqtt://host/a/%23",
    ],
)
def test_an_address_that_is_not_understood_is_refused_with_a_remedy(url: str):
    with pytest.raises(AstrayError) as refused:
        Broker.of(url)
    assert refused.value.remedy


def test_the_status_shows_no_secret():
    broker = Broker.of("mqtts://ana:s%40cret@example.org/fleet")
    assert (broker.user, broker.password) == ("ana", "s@cret")
    assert "cret" not in broker.display


def test_the_topic_gives_the_agent_of_a_fix():
    assert decode_topic("owntracks/ana/phone", b'{"_type": "lwt", "tst": 1}', "fleet", NOW) == Batch([], [])
    assert decode_topic("fleet", json.dumps(fix(0)).encode(), "fleet", NOW).refused[0].reason == (
        "the fix names no agent"
    )
