"""Takes fixes from an MQTT broker, and acknowledges each message only when its fixes are on the disk.

The broker keeps the session while the service is down (fixed client identifier, no clean start), and then sends again
what was not acknowledged. So if either side is killed, nothing that was published with QoS 1 is lost, as long as the
broker's queue has room.
"""

from __future__ import annotations

import hashlib
import platform
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from astray.core.errors import AstrayError
from astray.service.batches import Batch, Busy, Receipt, RefusedRow
from astray.service.feeds import owntracks, plain_json, traccar
from astray.service.feeds.row_checks import WHOLE, Sent

Submit = Callable[[Batch, Callable[[Receipt], None]], None]

SESSION_SECONDS = 7 * 86_400
"""Seconds for which an MQTT 5 broker keeps messages while the service is down; an MQTT 3.1.1 broker decides itself."""
MAX_PAYLOAD = 1_048_576
AGAIN = 0.05  # seconds between two attempts to queue a message while the queue is full
PATIENCE = 20.0  # seconds of such attempts; then the feed reconnects, and the broker sends the message again
OWNTRACKS = "owntracks"
"""The first part of OwnTracks topics."""
DROPPED = "$SYS/broker/publish/messages/dropped"
"""The topic under which Mosquitto publishes how many messages it has dropped."""
VERSIONS = {"3": MQTTProtocolVersion.MQTTv311, "3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}


class Broker(NamedTuple):
    """The address of a broker, and how to connect to it.

    >>> broker = Broker.of("mqtts://ana:secret@example.org/fleet?version=3")
    >>> broker.port, broker.prefix, broker.display
    (8883, 'fleet', 'mqtts://example.org:8883/fleet')
    """

    host: str
    port: int
    tls: bool
    user: str | None
    password: str | None
    prefix: str  # of plain fixes
    version: MQTTProtocolVersion
    client_id: str
    certificates: str | None  # a file of certificate authorities; None for those of this machine

    @classmethod
    def of(cls, url: str) -> Broker:
        """Reads the URL of a broker: ``mqtt://USER:PASSWORD@HOST:PORT/PREFIX?version=5&client=NAME&ca=FILE``."""
        remedy = "write mqtt://host:1883/prefix, or mqtts:// for TLS; ?version=3 for MQTT 3.1.1"
        try:
            parts = urlsplit(url)
            port, asked = parts.port, {name: values[-1] for name, values in parse_qs(parts.query).items()}
        except ValueError as error:
            raise AstrayError("the broker's address is not understood", remedy=remedy) from error
        version = VERSIONS.get(asked.pop("version", "5"))
        client, certificates = asked.pop("client", None), asked.pop("ca", None)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or version is None or asked:
            raise AstrayError("the broker's address is not understood", remedy=remedy)
        tls, prefix = parts.scheme == "mqtts", unquote(parts.path).strip("/") or "astray/fixes"
        if any(sign in prefix for sign in "+#\x00"):
            raise AstrayError("the prefix of the topics has a + or a #", remedy="name the topic that all begin with")
        named = hashlib.blake2b(f"{platform.node()}/{prefix}".encode(), digest_size=6).hexdigest()
        return cls(
            parts.hostname,
            port or (8883 if tls else 1883),
            tls,
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
            prefix,
            version,
            client or f"astray-{named}",
            certificates,
        )

    @property
    def display(self) -> str:
        """The address without secrets."""
        return f"mqtt{'s' if self.tls else ''}://{self.host}:{self.port}/{self.prefix}"

    def client(self, client_id: str, *, lasting: bool) -> paho.Client:
        """Returns an unconnected client; a ``lasting`` session outlives its connection and acknowledges explicitly."""
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=not lasting if self.version != MQTTProtocolVersion.MQTTv5 else None,
            protocol=self.version,
            manual_ack=lasting,
        )
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        if self.tls:
            client.tls_set(self.certificates, cert_reqs=ssl.CERT_REQUIRED)
        client.reconnect_delay_set(1, 30)
        return client

    def connect(self, client: paho.Client, *, lasting: bool) -> None:
        """Tells a client to connect once its loop runs."""
        more: dict[str, Any] = {}
        if self.version == MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if lasting:
                properties.SessionExpiryInterval = SESSION_SECONDS
                properties.ReceiveMaximum = 1000
            more = {"clean_start": not lasting, "properties": properties}
        client.connect_async(self.host, self.port, keepalive=60, **more)


class MqttFeed:
    """Passes fixes from a broker to the service, by its method ``submit``."""

    def __init__(self, url: str, submit: Submit) -> None:
        self.broker = Broker.of(url)
        self._submit = submit
        self._connection = 0  # counts connections: a message is acknowledged on the one that brought it
        self._connected = False
        self._stopped = threading.Event()
        self._warnings: dict[str, str] = {}
        self._dropped: int | None = None
        self._asked = (f"{OWNTRACKS}/+/+", f"{self.broker.prefix}/#", DROPPED)
        client = self.broker.client(self.broker.client_id, lasting=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.message_callback_add(DROPPED, self._on_dropped)
        self._client = client

    def start(self) -> None:
        """Connects, and stays connected, in its own thread."""
        self.broker.connect(self._client, lasting=True)
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnects; the broker keeps what arrives from now on."""
        self._stopped.set()
        self._client.disconnect()
        self._client.loop_stop()

    def status(self) -> dict[str, Any]:
        """Returns the state of the connection for the health page."""
        warnings = list(self._warnings.values())
        return {"url": self.broker.display, "connected": self._connected, "warnings": warnings}

    # ---------------------------------------------------------------- callbacks of the client

    def _on_connect(self, client: paho.Client, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._warnings["connection"] = f"the broker refuses: {reason}"
            return
        self._connection += 1
        self._connected = True
        self._warnings.pop("connection", None)
        client.subscribe([(topic, 1) for topic in self._asked])

    def _on_disconnect(self, client: paho.Client, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._connected = False
        if not self._stopped.is_set():
            self._warnings["connection"] = f"no connection to the broker ({reason}); trying again"

    def _on_subscribe(self, client: paho.Client, _: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        refused = [topic for topic, reason in zip(self._asked, reasons, strict=False) if reason.is_failure]
        refused = [topic for topic in refused if topic != DROPPED]  # not every broker publishes that
        self._warnings.pop("topics", None)
        if refused:
            self._warnings["topics"] = f"the broker does not let the service read {', '.join(refused)}"

    def _on_dropped(self, client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        count = int(message.payload) if message.payload.isdigit() else 0
        before, self._dropped = self._dropped, count
        if before is not None and count > before:
            self._warnings["dropped"] = (
                f"the broker has dropped {count - before:,} messages; raise its max_queued_messages"
            )
        client.ack(message.mid, message.qos)

    def _on_message(self, client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        connection, mid, qos = self._connection, message.mid, message.qos

        def acknowledge(receipt: Receipt | None = None) -> None:
            if connection != self._connection:
                return  # on a later connection this number may belong to another message
            if receipt is not None and receipt.failed:
                self._reconnect(client)
            else:
                client.ack(mid, qos)

        if message.retain:  # an old state that the broker repeats to each new subscriber, not a new fix
            acknowledge()
            return
        if qos == 0:
            self._warnings["qos"] = "some senders publish with QoS 0, which may lose fixes; use QoS 1"
        batch = self._decoded(message)
        if not batch.fixes and not batch.refused:
            acknowledge()
            return
        until = time.monotonic() + PATIENCE
        while not self._stopped.is_set():
            try:
                self._submit(batch, acknowledge)
            except Busy:
                if time.monotonic() > until:
                    self._reconnect(client)
                    return
                self._stopped.wait(AGAIN)
            else:
                return

    def _decoded(self, message: paho.MQTTMessage) -> Batch:
        if len(message.payload) > MAX_PAYLOAD:
            return Batch([], [RefusedRow(WHOLE, f"the message is longer than {MAX_PAYLOAD:,} bytes")])
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return Batch([], [RefusedRow(WHOLE, "the topic is not UTF-8")])
        return decode_topic(topic, bytes(message.payload), self.broker.prefix, time.time())

    def _reconnect(self, client: paho.Client) -> None:
        """Reconnects, so that the broker sends again what was not acknowledged."""
        self._connection += 1
        if (connection := client.socket()) is not None:
            cast(socket.socket, connection).shutdown(socket.SHUT_RDWR)


def decode_topic(topic: str, payload: bytes, prefix: str, now: float) -> Batch:
    """Decodes a message of a broker: the topic gives the agent, the payload its format.

    The topic is ``owntracks/USER/DEVICE``, ``PREFIX`` or ``PREFIX/AGENT``.

    Under the prefix there may be plain fixes, locations of OwnTracks, or positions that Traccar forwards
    (``forward.type=mqtt``). An agent's name may have slashes.

    >>> decode_topic("fleet/van/3", b'{"time": 0, "lat": 45, "lon": 7}', "fleet", now=0.0).fixes[0].agent
    'van/3'
    """
    if not payload.strip():
        return Batch([], [])  # the broker deletes the retained message of this topic
    if topic.startswith(f"{OWNTRACKS}/"):
        return owntracks.decode(Sent(payload, {"u": owntracks.of_topic(topic)}, {}, now))
    agent = topic.removeprefix(prefix).strip("/") or None
    try:
        said = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        said = None  # several lines, or not JSON
    if isinstance(said, dict) and "_type" in said:
        return owntracks.locations(said, agent or "", now)
    if isinstance(said, dict) and ("position" in said or "location" in said):
        return traccar.positions(said, now, agent)
    return plain_json.decode(Sent(payload, {}, {}, now, agent))
