"""Guards the service: this ASGI middleware checks every request first.

It checks in this order: the number of requests at once; the Host header; that no other site makes the browser send a
write; the token and its rights; the client's request rate; that the body is complete, not too large and not too slow.
Every answer gets headers that tell browsers to trust only the service itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from astray.service.access.client_limits import Buckets, ClientLimits
from astray.service.access.login_sessions import Sessions, cookie_header, cookie_of
from astray.service.access.tokens import EVERYBODY, NOBODY, Identity, Tokens, digest_of, is_loopback
from astray.service.feeds import FEEDS
from astray.service.responses import Refusal

FRESH = 2.0  # seconds after which the tokens are read again
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CLOSED = ("/api/", "/metrics", "/openapi")  # need a token, like the feeds; pages and their files hold no data
UNCOUNTED = ("/healthz", "/api/events")  # the first must always be answered, the second stays open

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self' blob:; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"geolocation=(), camera=(), microphone=()"),
)
HSTS = (b"strict-transport-security", b"max-age=31536000")


@dataclass(frozen=True)
class Standing:
    """How clients reach the service."""

    host: str = "127.0.0.1"  # where it listens
    names: tuple[str, ...] = ()  # further host names of the service
    tls: bool = False  # True if browsers use https, here or at a proxy
    behind_proxy: bool = False


class Guard:
    """Passes requests on to ``app``, with the client as ``scope["state"]["identity"]``, or refuses them.

    It reads the ``tokens`` at most every two seconds. At every login, logout and wrong token it calls ``audit`` with
    the client and what happened.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Callable[[], Tokens],
        standing: Standing,
        limits: ClientLimits,
        audit: Callable[[str, str], None],
    ) -> None:
        self.app, self.audit, self.standing, self.limits = app, audit, standing, limits
        self._load, self._tokens, self._loaded = tokens, tokens(), time.monotonic()
        self._requests = Buckets(self.limits.rate, self.limits.burst, self.limits.clients)
        self._failures = Buckets(1 / 6, self.limits.failures, self.limits.clients)
        self._sessions = Sessions()
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no websockets
        send = self._with_headers(scope["path"], send)
        counted = scope["path"] not in UNCOUNTED
        self._under_way += counted
        try:
            if counted and self._under_way > self.limits.requests:
                raise _too_often("too many requests at once", "try again later", 0.0)
            response = await self._checked(scope, receive, send)
        except Refusal as refusal:
            response = refusal.response
        finally:
            self._under_way -= counted
        if response is not None:
            await response(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Checks a request and passes it on, or returns the response to it."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = _without_token(scope)
        path, method = scope["path"], scope["method"]
        self._check_host(headers.get("host", ""))
        writes = method not in SAFE or path in FEEDS
        if writes:
            _check_origin(headers, scope.get("scheme", "http"))
        client = (scope.get("client") or ("",))[0]
        if path in ("/login", "/logout") and method == "POST":
            self._spend(client)
            body = await self._body(headers, receive)
            return self._log_in(body, client) if path == "/login" else self._log_out(headers)
        identity = self._who(headers, token, client, path) or (EVERYBODY if self._is_open() else NOBODY)
        needed = _needed(path, method)
        if needed and identity is NOBODY:
            raise Refusal(401, "this needs a token", "log in, or send one", headers=_challenge(path))
        if needed and not identity.may(needed):
            raise Refusal(403, f"this token may not {needed}", f"make a token with --{needed}")
        self._spend(client if identity in (EVERYBODY, NOBODY) else f"token {identity.name}")
        scope.setdefault("state", {})["identity"] = identity
        body = await self._body(headers, receive)
        await self.app(scope, _replayed(body, receive), send)
        return None

    # ---------------------------------------------------------------- the client

    def _is_open(self) -> bool:
        """Returns True if requests need no token: there is none, and only this machine can send requests."""
        return is_loopback(self.standing.host) and not self.standing.behind_proxy and not len(self._tokens)

    def _who(self, headers: dict[str, str], token: str | None, client: str, path: str) -> Identity | None:
        if time.monotonic() - self._loaded > FRESH:
            self._tokens, self._loaded = self._load(), time.monotonic()
        offered = token or _offered(headers.get("authorization", ""))
        if offered is None:
            return self._logged_in(cookie_of(headers.get("cookie", "")))
        identity = self._tokens.owner(offered)
        if identity is None and not self._is_open():
            self._fail(client, path)
        return identity

    def _logged_in(self, cookie: str) -> Identity | None:
        digest = self._sessions.token(cookie)
        return None if digest is None else self._tokens.owner_of_digest(digest)

    def _fail(self, client: str, path: str) -> NoReturn:
        wait = self._failures.wait(client, time.monotonic())
        if wait:
            raise _too_often("too many wrong tokens", "try again later", wait)
        self.audit(client, "wrong token")
        raise Refusal(401, "there is no such token", "astray serve token add makes one", headers=_challenge(path))

    def _log_in(self, body: bytes, client: str) -> Response:
        try:
            token = msgspec.json.decode(body, type=dict[str, str]).get("token", "")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as fault:
            raise Refusal(422, "this is not a login", 'send {"token": "..."}') from fault
        if self._is_open():
            return Response(status_code=204)
        identity = self._tokens.owner(token)
        if identity is None:
            self._fail(client, "/login")
        self.audit(identity.name, "login")
        return self._with_cookie(self._sessions.open(digest_of(token)))

    def _log_out(self, headers: dict[str, str]) -> Response:
        cookie = cookie_of(headers.get("cookie", ""))
        identity = self._logged_in(cookie)
        self._sessions.close(cookie)
        if identity is not None:
            self.audit(identity.name, "logout")
        return self._with_cookie("")

    def _with_cookie(self, cookie: str) -> Response:
        return Response(status_code=204, headers={"set-cookie": cookie_header(cookie, tls=self.standing.tls)})

    # ---------------------------------------------------------------- the request

    def _check_host(self, host: str) -> None:
        """Refuses unknown host names: another site could make its own name point to this machine."""
        name, ours = _name_in(host), self.standing
        anything = not ours.names and not is_loopback(ours.host)
        if not name or not (anything or is_loopback(name) or name in ours.names):
            raise Refusal(421, "the service does not go by this name", "use its address, or name it with --host-names")

    def _spend(self, client: str) -> None:
        wait = self._requests.wait(client, time.monotonic())
        if wait:
            raise _too_often("too many requests", "send several fixes in one", wait)

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """Returns the whole body; refuses one that exceeds the limits."""
        most = self.limits.body
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                message = await receive()
                body = bytearray(_part(message))
                while message.get("more_body", False) and len(body) <= most:
                    message = await receive()
                    body += _part(message)
        except TimeoutError:
            raise Refusal(
                408, "the body took too long", "send fewer fixes at once", headers={"connection": "close"}
            ) from None
        if len(body) > most:
            raise _too_large(most)
        return bytes(body)

    def _with_headers(self, path: str, send: Send) -> Send:
        more = (*HEADERS, HSTS) if self.standing.tls else HEADERS
        if path.startswith(CLOSED) or path in FEEDS:
            more = (*more, (b"cache-control", b"no-store"))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                named = {name for name, _ in own}
                message["headers"] = [*own, *(one for one in more if one[0] not in named)]
            await send(message)

        return sent


def _needed(path: str, method: str) -> str:
    """Returns the right that a request needs; an empty text for pages and their files.

    >>> _needed("/api/fixes", "POST"), _needed("/api/agents", "GET"), _needed("/api/settings", "PUT")
    ('send', 'read', 'write')
    """
    if path in FEEDS:
        return "send"
    if not path.startswith(CLOSED):
        return ""
    return "read" if method in SAFE else "write"


def _without_token(scope: Scope) -> str | None:
    """Takes the token out of a path such as ``/osmand/TOKEN``, so that no log shows it."""
    base, slash, token = scope["path"].rpartition("/")
    if not slash or not token or base not in FEEDS:
        return None
    scope["path"] = base
    scope["raw_path"] = base.encode()
    return unquote(token)


def _check_origin(headers: dict[str, str], scheme: str) -> None:
    """Refuses requests that another site makes a browser send; only browsers send an Origin header."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    same = origin is None or origin.lower() == f"{scheme}://{headers.get('host', '')}".lower()
    if not same or site not in ("same-origin", "none"):
        raise Refusal(403, "a page of another site sent this", "use the page of the service itself")


def _offered(authorization: str) -> str | None:
    """Returns the token in a header: as it is (Bearer), or as a password (Basic).

    >>> _offered("Bearer abc"), _offered("Basic " + base64.b64encode(b"ana:abc").decode()), _offered("")
    ('abc', 'abc', None)
    """
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return password or user
    return None


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Refusal(400, "the body is not complete", "send the whole body")
    return bytes(message.get("body", b""))


def _too_often(reason: str, remedy: str, wait: float) -> Refusal:
    return Refusal(429, reason, remedy, headers={"retry-after": str(int(wait) + 1)})


def _too_large(most: int) -> Refusal:
    reason = f"the body is larger than {most:,} bytes"
    return Refusal(413, reason, "send fewer fixes at once", headers={"connection": "close"})


@lru_cache(1024)
def _name_in(host: str) -> str:
    """Returns the name or address in a Host header; an empty text if it holds misleading characters.

    >>> _name_in("localhost:8080"), _name_in("[::1]:8080"), _name_in("a@b"), _name_in("[x")
    ('localhost', '::1', '', '')
    """
    if not host or len(host) > 255 or any(c in host for c in "/\\@?# \t,"):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _challenge(path: str) -> dict[str, str]:
    """Returns the header that asks for a token: Basic for feeds only, because browsers would open a window for it."""
    return {"www-authenticate": 'Basic realm="astray"' if path in FEEDS else "Bearer"}


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a receive function that first repeats the body that was read."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
