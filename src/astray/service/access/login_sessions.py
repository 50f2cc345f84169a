"""Sessions of people who logged in on the page: a random cookie stands for the token with which they did."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict

COOKIE = "astray_session"
SECONDS = 30 * 86_400.0
MOST = 10_000


class Sessions:
    """The sessions that are open, in memory: whoever restarts the service logs everybody out.

    >>> sessions = Sessions()
    >>> cookie = sessions.open("digest of a token")
    >>> sessions.token(cookie), sessions.token("a guess")
    ('digest of a token', None)
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """Begin a session of a token's digest; gives what the cookie holds."""
        cookie = secrets.token_urlsafe(32)
        self._known[_digest(cookie)] = token, time.time() + SECONDS
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return cookie

    def token(self, cookie: str) -> str | None:
        """The digest of the token that a session was begun with; None if there is no such session."""
        token, end = self._known.get(_digest(cookie), ("", 0.0))
        return token if time.time() < end else None

    def close(self, cookie: str) -> None:
        """End a session."""
        self._known.pop(_digest(cookie), None)


def baked(cookie: str, *, tls: bool) -> str:
    """The header that sets the cookie, or takes it away if it is empty: no script and no other site gets at it."""
    seconds = SECONDS if cookie else 0.0
    return f"{COOKIE}={cookie}; Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{'; Secure' if tls else ''}"


def cookie_of(header: str) -> str:
    """What our cookie holds, of all that a browser sends.

    >>> cookie_of("theme=dark; astray_session=abc"), cookie_of("")
    ('abc', '')
    """
    parts = (part.strip().partition("=") for part in header.split(";"))
    return next((value for name, _, value in parts if name == COOKIE), "")


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
