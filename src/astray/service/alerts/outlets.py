"""Outlets: how a message about an alert reaches somebody. Each is a function that delivers it, or says why it cannot.

All have a time limit. None follows a redirect: what is meant for one host goes to no other. Addresses may hold
secrets, so only :func:`shown` ones are for eyes and logs.
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

from astray.service.access.tokens import is_loopback
from astray.service.preferences import OutletAddress, Preferences

TIMEOUT = 10.0  # seconds for a connection, and for each answer
AGAIN = frozenset({408, 409, 425, 429})  # refusals that may pass
HIDDEN = "***"


class Means(NamedTuple):
    """What the outlets need beside an address; from settings, never from the page."""

    smtp: str | None = None  # smtp://USER:PASSWORD@HOST:587?from=ADDRESS, or smtps://
    mqtt: str | None = None  # the broker of the feed, where a topic alone is given
    key: str | None = None  # by which webhooks are signed


class Delivery(NamedTuple):
    """One message for one outlet."""

    key: str  # the same at every attempt: whoever gets it twice can tell
    message: Mapping[str, Any]  # see astray.service.alerts.notifications
    repeated: bool = False  # whether it may have arrived before


class NotDelivered(Exception):
    """A message that did not arrive: why, and whether another attempt may help."""

    def __init__(self, reason: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.wait = reason, final, wait


def deliver(outlet: OutletAddress, delivery: Delivery, means: Means) -> None:
    """Deliver a message.

    Raises
    ------
    NotDelivered
        If it did not arrive, as far as we know.
    """
    try:
        OUTLETS[outlet.kind](outlet.to, delivery, means)
    except NotDelivered:
        raise
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        raise NotDelivered(f"{type(error).__name__}: {getattr(error, 'strerror', None) or _word(error)}") from error
    except ValueError as error:  # an address that no library can read; its text may hold the secret
        raise NotDelivered("the address is not understood", final=True) from error


def shown(outlet: OutletAddress) -> str:
    """An address without what may be secret in it: passwords, and whatever follows the host of a webhook.

    >>> shown(OutletAddress("webhook", "https://hooks.example.org/services/T0/abc?key=1"))
    'https://hooks.example.org/***'
    >>> shown(OutletAddress("ntfy", "https://:tk_secret@ntfy.example.org/fleet"))
    'https://ntfy.example.org/fleet'
    """
    if "://" not in outlet.to:
        return HIDDEN if outlet.kind in ("apprise", "webhook") else outlet.to
    scheme, _, rest = outlet.to.partition("://")
    if outlet.kind == "apprise":
        return f"{scheme}://{HIDDEN}"
    place, _, path = rest.split("?")[0].split("#")[0].partition("/")
    host = place.rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN if outlet.kind == 'webhook' and path else path}"


def concealed(preferences: Preferences) -> Preferences:
    """Preferences as they may be shown."""
    return _with_outlets(preferences, [OutletAddress(one.kind, shown(one)) for one in preferences.outlets])


def revealed(new: Preferences, old: Preferences) -> Preferences:
    """Preferences that came back from the page: what stands there as it was shown is what it was before.

    >>> old = Preferences(outlets=(OutletAddress("webhook", "https://example.org/secret"),))
    >>> revealed(concealed(old), old) == old
    True
    """
    kept = list(old.outlets)
    outlets = []
    for one in new.outlets:
        same = next((was for was in kept if was.kind == one.kind and shown(was) == one.to), one)
        if same in kept:
            kept.remove(same)
        outlets.append(same)
    return _with_outlets(new, outlets)


def _with_outlets(preferences: Preferences, outlets: list[OutletAddress]) -> Preferences:
    names = (name for name in preferences.__struct_fields__ if name != "outlets")
    return Preferences(outlets=tuple(outlets), **{name: getattr(preferences, name) for name in names})


# -------------------------------------------------------------------- by HTTP


def webhook(to: str, delivery: Delivery, means: Means) -> None:
    """POST the message as JSON, with its key as ``Idempotency-Key``; signed if there is a key for that."""
    body = json.dumps(delivery.message, allow_nan=False).encode()
    headers = {"Idempotency-Key": delivery.key}
    if means.key:
        at = str(int(time.time()))
        headers |= {"X-Astray-Timestamp": at, "X-Astray-Signature": signature(means.key, at, body)}
    _post(to, body, headers)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """What a receiver compares, in constant time, to know that a webhook is ours and when it was sent.

    >>> signature("key", "0", b"{}")[:23]
    'sha256=7314351dd949aa7e'
    """
    return "sha256=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def ntfy(to: str, delivery: Delivery, means: Means) -> None:
    """Publish to a topic of an ntfy server, such as ``https://ntfy.example.org/fleet``."""
    root, _, topic = to.rpartition("/")
    if not topic or "://" not in root:
        raise NotDelivered("no topic of ntfy; give https://HOST/TOPIC", final=True)
    said = delivery.message
    note = {"topic": topic, "title": _title(delivery), "message": said["text"], "priority": 4, "tags": ["warning"]}
    if said.get("link"):
        note["click"] = said["link"]
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
    wait = float(waited) if waited.isdigit() else 0.0
    raise NotDelivered(f"answered {status}", final=400 <= status < 500 and status not in AGAIN, wait=min(wait, 86_400))


# -------------------------------------------------------------------- others


def email(to: str, delivery: Delivery, means: Means) -> None:
    """Send an e-mail. It cannot be sent exactly once: where it may have arrived before, it says so."""
    if means.smtp is None:
        raise NotDelivered("no mail server is named; set smtp", final=True)
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
    mail.set_content("\n\n".join(part for part in (delivery.message["text"], delivery.message.get("link")) if part))
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
    """Publish under ``TOPIC/ALERT``, retained: who subscribes later is told how each alert stands."""
    from astray.core.errors import AstrayError
    from astray.service.feeds.mqtt_feed import Broker

    url = to if "://" in to else means.mqtt
    if url is None:
        raise NotDelivered("no broker is named; give mqtt://HOST/TOPIC", final=True)
    try:
        broker = Broker.of(url)
    except AstrayError as error:
        raise NotDelivered(error.reason, final=True) from error
    topic = f"{broker.prefix if '://' in to else to.strip('/')}/{delivery.message['id']}"
    if any(sign in topic for sign in "+#\x00"):
        raise NotDelivered("the topic has a + or a #", final=True)
    answered: queue.SimpleQueue[Any] = queue.SimpleQueue()  # what the broker says of the connection, or the message

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


def by_apprise(to: str, delivery: Delivery, means: Means) -> None:
    """Hand the message to apprise, which knows very many services."""
    try:
        import apprise
    except ImportError as error:
        raise NotDelivered('apprise is not installed: pip install "astray[notify]"', final=True) from error
    service = apprise.Apprise()
    if not service.add(to):
        raise NotDelivered("apprise does not understand the address", final=True)
    text = "\n".join(part for part in (delivery.message["text"], delivery.message.get("link")) if part)
    if not service.notify(title=_title(delivery), body=text):
        raise NotDelivered("apprise could not deliver it")


OUTLETS: Mapping[str, Callable[[str, Delivery, Means], None]] = {
    "webhook": webhook,
    "mqtt": mqtt,
    "ntfy": ntfy,
    "email": email,
    "apprise": by_apprise,
}
PROGRAMS = frozenset({"webhook", "mqtt"})
"""Outlets read by programs, which are told that an alert is over; people are told once."""


def _title(delivery: Delivery) -> str:
    title = " ".join(str(delivery.message["title"]).split())
    return f"{title} (repeated)" if delivery.repeated else title


def _word(error: Exception) -> str:
    """An error's text, if it is short; servers like to write letters."""
    return " ".join(str(error).split())[:100]
