"""Decides who may do what, by tokens, and on which addresses the service may listen."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from astray.core.errors import AstrayError
from astray.core.fixes import label
from astray.service.batches import Batch, RefusedRow
from astray.service.store import Connection

RIGHTS = ("send", "read", "write")
"""To send fixes; to see agents, trips and alerts; to judge trips, change settings and erase people."""

PREFIX = "astray_"
"""How every token begins, so that a leaked one can be recognised."""


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a token allows: its rights, and its agents (None: all)."""

    rights: tuple[str, ...] = RIGHTS
    agents: tuple[str, ...] | None = None


class Identity(NamedTuple):
    """The owner of a token: its name, and what it may do."""

    name: str
    scope: Scope

    def may(self, right: str, agent: str | None = None) -> bool:
        """Returns True if the owner has a right: for this agent or, without a name, for at least one agent."""
        agents = self.scope.agents
        return right in self.scope.rights and (agent is None or agents is None or agent in agents)

    @property
    def only_agent(self) -> str | None:
        """The agent of a token for exactly one agent, whose messages need not name it; None for other tokens."""
        agents = self.scope.agents
        return agents[0] if agents is not None and len(agents) == 1 else None

    @property
    def of_all(self) -> bool:
        """True if the token is for all agents."""
        return self.scope.agents is None


EVERYBODY = Identity("this machine", Scope())
"""A client on this machine, as long as there is no token."""
NOBODY = Identity("nobody", Scope((), ()))
"""A client without a token."""


class Token(NamedTuple):
    """A token as the store keeps it: its digest, not the token itself."""

    digest: str
    name: str
    scope: Scope
    made: float


class Tokens:
    """Finds the owner of a token.

    A token is 32 random bytes, so its SHA-256 needs no salt. Look-ups are keyed with a random key of this process, so
    that their time reveals nothing about the digests; then digests are compared in constant time.

    Examples
    --------
    >>> tokens = Tokens([Token(digest_of("astray_secret"), "phone", Scope(("send",), ("ana",)), 0.0)])
    >>> tokens.owner("astray_secret").only_agent, tokens.owner("astray_guess")
    ('ana', None)
    """

    def __init__(self, known: Iterable[Token] = ()) -> None:
        self._key = secrets.token_bytes(32)
        self._known = {self._place(token.digest): token for token in known}

    def __len__(self) -> int:
        return len(self._known)

    def owner(self, token: str) -> Identity | None:
        """Returns the owner of a token; None if it is unknown."""
        return self.owner_of_digest(digest_of(token))

    def owner_of_digest(self, digest: str) -> Identity | None:
        """Returns the owner of a token with this digest; None if it is unknown."""
        found = self._known.get(self._place(digest))
        if found is None or not hmac.compare_digest(found.digest, digest):
            return None
        return Identity(found.name, found.scope)

    def _place(self, digest: str) -> bytes:
        return hashlib.blake2b(digest.encode(), key=self._key, digest_size=16).digest()


def digest_of(token: str) -> str:
    """Returns the digest that the store keeps of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


# -------------------------------------------------------------------- in the store


def add(connection: Connection, name: str, rights: Sequence[str], agents: Sequence[str] | None = None) -> str:
    """Makes a token and stores its digest; returns the token, which cannot be recovered later."""
    if unknown := set(rights) - set(RIGHTS):
        raise AstrayError(f"there is no right {min(unknown)!r}", remedy=f"give some of {', '.join(RIGHTS)}")
    if not rights:
        raise AstrayError("a token without a right allows nothing", remedy=f"give some of {', '.join(RIGHTS)}")
    if connection.row("SELECT 1 FROM tokens WHERE name = ?", (label("token", name),)):
        raise AstrayError(f"there is a token named {name!r}", remedy="give another name, or remove that one first")
    named = None if agents is None else tuple(label("agent", agent) for agent in agents)
    scope = Scope(tuple(right for right in RIGHTS if right in rights), named)
    token = PREFIX + secrets.token_urlsafe(32)
    row = digest_of(token), label("token", name), msgspec.json.encode(scope).decode(), time.time()
    connection.run("INSERT INTO tokens (hash, name, scope, made) VALUES (?, ?, ?, ?)", row)
    return token


def known(connection: Connection) -> list[Token]:
    """Reads the tokens of a store, oldest first."""
    rows = connection.rows("SELECT hash, name, scope, made FROM tokens ORDER BY made, name")
    return [Token(digest, name, msgspec.json.decode(scope, type=Scope), made) for digest, name, scope, made in rows]


def remove(connection: Connection, name: str) -> None:
    """Revokes a token."""
    if not connection.run("DELETE FROM tokens WHERE name = ?", (name,)):
        raise AstrayError(f"there is no token named {name!r}", remedy="astray serve token list names them")


def given(tokens: Iterable[str]) -> list[Token]:
    """Returns the tokens that were given at the start of the service; they allow everything."""
    return [Token(digest_of(token), f"given {n}", Scope(), 0.0) for n, token in enumerate(tokens, 1)]


def narrowed(identity: Identity, batch: Batch) -> Batch:
    """Refuses the fixes in a batch for whose agents the token is not valid.

    >>> from astray.service.batches import FeedFix
    >>> phone = Identity("phone", Scope(("send",), ("ana",)))
    >>> narrowed(phone, Batch([FeedFix("ana", 0.0, 45.0, 7.0), FeedFix("bob", 0.0, 45.0, 7.0)], []))
    Batch(fixes=[FeedFix(agent='ana', time=0.0, lat=45.0, lon=7.0, trip='', destination=None, accuracy=None)],
          refused=[RefusedRow(index=1, reason='this token may not send fixes of this agent', agent=None)])
    """
    if identity.scope.agents is None:
        return batch
    fixes = [fix for fix in batch.fixes if identity.may("send", fix.agent)]
    reason = "this token may not send fixes of this agent"
    others = [RefusedRow(i, reason) for i, fix in enumerate(batch.fixes) if not identity.may("send", fix.agent)]
    return Batch(fixes, [*batch.refused, *others])


# -------------------------------------------------------------------- where it listens


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Returns True if only this machine can reach a name or an address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, *, tls: bool, behind_proxy: bool, tokens: int) -> None:
    """Raises an AstrayError for an address where others could read the traffic, or where they would need no token."""
    if not is_loopback(host) and not (tls or behind_proxy):
        raise AstrayError(
            f"on {host} anybody on the network could read and change what is sent",
            remedy="give --certificate and --key, or --behind-proxy if a proxy in front of the service has TLS",
        )
    if (behind_proxy or not is_loopback(host)) and not tokens:
        raise AstrayError(
            "other machines can reach the service, and there is no token",
            remedy="make one first: astray serve token add FOLDER NAME --write",
        )
