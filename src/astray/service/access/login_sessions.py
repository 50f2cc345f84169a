"""Keeps the sessions of people who logged in on the page; a random cookie stands for their token."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict

COOKIE = "astray_session"
SECONDS = 30 * 86_400.0
MOST = 10_000


class Sessions:
    """Holds the open sessions in memory, so a restart of the service logs everybody out.

    >>> sessions = Sessions()
    >>> cookie = sessions.open("digest of a token")
    >>> sessions.token(cookie), sessions.token("a guess")
    ('digest of a token', None)
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """Begins a session for a token's digest; returns the value of the cookie."""
        cookie = secrets.token_urlsafe(32)
        self._known[_digest(cookie)] = token, time.time() + SECONDS
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return cookie

    def token(self, cookie: str) -> str | None:
        """Returns the digest of the token that began a session; None if there is no such session."""
        token, end = self._known.get(_digest(cookie), ("", 0.0))
        return token if time.time() < end else None

    def close(self, cookie: str) -> None:
        """Ends a session."""
        self._known.pop(_digest(cookie), None)


def cookie_header(cookie: str, *, tls: bool) -> str:
    """Returns the header that sets the cookie, or removes it if empty; scripts and other sites cannot read it."""
    seconds = SECONDS if cookie else 0.0
    return f"{COOKIE}={cookie}; Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{'; Secure' if tls else ''}"


def cookie_of(header: str) -> str:
    """Returns the value of the session cookie in a Cookie header.

    >>> cookie_of("theme=dark; astray_session=abc"), cookie_of("")
    ('abc', '')
    """
    parts = (part.strip().partition("=") for part in header.split(";"))
    return next((value for name, _, value in parts if name == COOKIE), "")


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
