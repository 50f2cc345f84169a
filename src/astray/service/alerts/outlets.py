"""Delivers messages about alerts through outlets, such as a webhook or e-mail.

An outlet is a function that delivers a message or raises :class:`NotDelivered`, and has an entry in :data:`OUTLETS`.
Every outlet has a time limit and follows no redirect, so no message reaches another host. Addresses may hold secrets,
so people and logs see only what :func:`display_address` returns.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import queue
import smtplib
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from astray.core.errors import AstrayError
from astray.service.access.tokens import is_loopback
from astray.service.feeds.mqtt_feed import Broker

TIMEOUT = 10.0  # seconds for a connection, and for each answer
TRY_AGAIN = frozenset({408, 409, 425, 429})  # refusals that may be temporary
HIDDEN = "***"


class OutletAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An outlet in the settings: its kind, which is a name in :data:`OUTLETS`, and an address."""

    kind: str
    to: str


class Means(NamedTuple):
    """What outlets need beside an address; it comes from the command's settings, never from the page."""

    smtp: str | None = None  # smtp://USER:PASSWORD@HOST:587?from=ADDRESS, or smtps://
    mqtt: str | None = None  # the broker of the feed, for addresses that are only a topic
    key: str | None = None  # signs webhooks


class Delivery(NamedTuple):
    """One message for one outlet."""

    key: str  # the same at every attempt, so that a receiver can recognise a repetition
    message: Mapping[str, Any]  # see astray.service.alerts.notifications
    repeated: bool = False  # True if the message may have arrived before


class NotDelivered(Exception):
    """Raised if a message did not arrive, with the reason, whether that is final, and how many seconds to wait."""

    def __init__(self, reason: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.wait = reason, final, wait


def deliver(outlet: OutletAddress, delivery: Delivery, means: Means) -> None:
    """Delivers a message; raises :class:`NotDelivered` unless the receiver has confirmed it."""
    try:
        OUTLETS[outlet.kind].send(outlet.to, delivery, means)
    except NotDelivered:
        raise
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        text = getattr(error, "strerror", None) or " ".join(str(error).split())[:100]  # servers write long texts
        raise NotDelivered(f"{type(error).__name__}: {text}") from error
    except ValueError as error:  # no library can read the address; the error's text may hold a secret
        raise NotDelivered("the address is not understood", final=True) from error


def display_address(outlet: OutletAddress) -> str:
    """Returns an address without its password and, depending on the kind, without its path.

    >>> display_address(OutletAddress("webhook", "https://hooks.example.org/services/T0/abc?key=1"))
    'https://hooks.example.org/***'
    >>> display_address(OutletAddress("ntfy", "https://:tk_secret@ntfy.example.org/fleet"))
    'https://ntfy.example.org/fleet'
    """
    secret = OUTLETS[outlet.kind].secret if outlet.kind in OUTLETS else "all"
    if "://" not in outlet.to:
        return HIDDEN if secret else outlet.to
    scheme, _, rest = outlet.to.partition("://")
    if secret == "all":
        return f"{scheme}://{HIDDEN}"
    place, _, path = rest.split("?")[0].split("#")[0].partition("/")
    host = place.rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN if secret == 'path' and path else path}"


# -------------------------------------------------------------------- by HTTP


def webhook(to: str, delivery: Delivery, means: Means) -> None:
    """Posts the message as JSON with its key as ``Idempotency-Key``, and signs it if there is a signing key."""
    body = json.dumps(delivery.message, allow_nan=False).encode()
    headers = {"Idempotency-Key": delivery.key}
    if means.key:
        at = str(int(time.time()))
        headers |= {"X-Astray-Timestamp": at, "X-Astray-Signature": signature(means.key, at, body)}
    _post(to, body, headers)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Returns the signature of a webhook, by which the receiver can check who sent it and when.

    >>> signature("key", "0", b"{}")[:23]
    'sha256=7314351dd949aa7e'
    """
    return "sha256=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def ntfy(to: str, delivery: Delivery, means: Means) -> None:
    """Publishes to a topic of an ntfy server, such as ``https://ntfy.example.org/fleet``."""
    root, _, topic = to.rpartition("/")
    if not topic or "://" not in root:
        raise NotDelivered("the address names no topic of ntfy; give https://HOST/TOPIC", final=True)
    text, link = delivery.message["text"], delivery.message.get("link")
    note = {"topic": topic, "title": _title(delivery), "message": text, "priority": 4, "tags": ["warning"]}
    if link:
        note["click"] = link
    _post(root, json.dumps(note).encode(), {})


def _post(url: str, body: bytes, headers: dict[str, str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotDelivered("the address is neither http:// nor https://", final=True)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    if parts.password:
        user, password = unquote(parts.username or ""), unquote(parts.password)
        basic = b64encode(f"{user}:{password}".encode()).decode()
        headers = {**headers, "Authorization": f"Basic {basic}" if user else f"Bearer {password}"}
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "astray", **headers})
        answer = connection.getresponse()
        answer.read(65_536)
        if not 200 <= answer.status < 300:
            _refused(answer)
    finally:
        connection.close()


def _refused(answer: http.client.HTTPResponse) -> NoReturn:
    status = answer.status
    if 300 <= status < 400:
        raise NotDelivered(f"answered {status}: redirects are not followed", final=True)
    waited = answer.getheader("Retry-After", "")
    wait = float(waited) if waited.isdecimal() else 0.0
    raise NotDelivered(
        f"answered {status}", final=400 <= status < 500 and status not in TRY_AGAIN, wait=min(wait, 86_400)
    )


# -------------------------------------------------------------------- others


def email(to: str, delivery: Delivery, means: Means) -> None:
    """Sends an e-mail; a repeated one says that it is a repetition, as e-mail cannot be sent exactly once."""
    if means.smtp is None:
        raise NotDelivered("the service knows no mail server; set smtp", final=True)
    parts = urlsplit(means.smtp)
    asked = parse_qs(parts.query)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise NotDelivered("the mail server's address is not understood", final=True)
    mail = EmailMessage()
    mail["Subject"] = _title(delivery)
    mail["From"] = asked.get("from", [unquote(parts.username or "")])[0] or "astray@localhost"
    mail["To"] = to
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{delivery.key}@astray>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_text(delivery, "\n\n"))
    secure = ssl.create_default_context()
    with (
        smtplib.SMTP_SSL(parts.hostname, parts.port or 465, timeout=TIMEOUT, context=secure)
        if parts.scheme == "smtps"
        else smtplib.SMTP(parts.hostname, parts.port or 587, timeout=TIMEOUT)
    ) as server:
        server.ehlo()
        safe = parts.scheme == "smtps" or is_loopback(parts.hostname)
        if server.has_extn("starttls"):
            server.starttls(context=secure)
            safe = True
        if not safe:
            raise NotDelivered("the mail server offers no encryption", final=True)
        if parts.username and parts.password:
            server.login(unquote(parts.username), unquote(parts.password))
        try:
            server.send_message(mail)
        except smtplib.SMTPResponseException as error:
            raise NotDelivered(f"answered {error.smtp_code}", final=error.smtp_code >= 500) from error
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise NotDelivered(f"the recipient is refused ({codes[0]})", final=min(codes) >= 500) from error


def mqtt(to: str, delivery: Delivery, means: Means) -> None:
    """Publishes a retained message under ``TOPIC/ALERT``: later subscribers get the state of each alert."""
    url = to if "://" in to else means.mqtt
    if url is None:
        raise NotDelivered("the service knows no broker; give mqtt://HOST/TOPIC", final=True)
    try:
        broker = Broker.of(url)
    except AstrayError as error:
        raise NotDelivered(error.reason, final=True) from error
    topic = f"{broker.prefix if '://' in to else to.strip('/')}/{delivery.message['id']}"
    if any(sign in topic for sign in "+#\x00"):
        raise NotDelivered("the topic has a + or a #", final=True)
    answered: queue.SimpleQueue[Any] = queue.SimpleQueue()  # what the broker answers

    def connected(client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            answered.put(reason)
        else:
            client.publish(topic, json.dumps(delivery.message, allow_nan=False), qos=1, retain=True)

    client = broker.client(f"astray-{delivery.key[:16]}", lasting=False)
    client.on_connect = connected
    client.on_publish = lambda client, _, number, reason, properties: answered.put(reason)
    broker.connect(client, lasting=False)
    client.loop_start()
    try:
        reason = answered.get(timeout=TIMEOUT)
    except queue.Empty:
        raise NotDelivered("the broker does not answer") from None
    finally:
        client.disconnect()
        client.loop_stop()
    if reason.is_failure:
        raise NotDelivered(f"the broker refuses: {reason}")


def apprise(to: str, delivery: Delivery, means: Means) -> None:
    """Sends the message by apprise, which knows many services."""
    try:
        from apprise import Apprise
    except ImportError as error:
        raise NotDelivered('apprise is not installed: pip install "astray[notify]"', final=True) from error
    service = Apprise()
    if not service.add(to):
        raise NotDelivered("apprise does not understand the address", final=True)
    if not service.notify(title=_title(delivery), body=_text(delivery, "\n")):
        raise NotDelivered("apprise could not deliver it")


class Outlet(NamedTuple):
    """An outlet's function, and what the service and its page must know of it."""

    send: Callable[[str, Delivery, Means], None]
    label: str  # what the page calls it
    example: str  # an address
    secret: str = ""  # the part of an address that is secret beside passwords: "path", "all" or empty
    for_programs: bool = False  # programs also get a message when an alert is over; people get one message


OUTLETS: Mapping[str, Outlet] = {
    "webhook": Outlet(webhook, "Webhook", "https://example.org/hook", secret="path", for_programs=True),
    "ntfy": Outlet(ntfy, "ntfy", "https://ntfy.example.org/topic"),
    "mqtt": Outlet(mqtt, "MQTT topic", "astray/alerts", for_programs=True),
    "email": Outlet(email, "E-mail", "ana@example.org"),
    "apprise": Outlet(apprise, "Apprise", "gotify://host/token", secret="all"),
}


def _title(delivery: Delivery) -> str:
    title = " ".join(str(delivery.message["title"]).split())
    return f"{title} (repeated)" if delivery.repeated else title


def _text(delivery: Delivery, between: str) -> str:
    return between.join(part for part in (delivery.message["text"], delivery.message.get("link")) if part)
