"""Declares the operations of the API; routing, validation and description derive from one function for each.

Starlette routes; msgspec checks queries and bodies against Structs and writes their JSON schemas, from which
:mod:`astray.service.web.openapi` builds the document. Both are needed for the feeds anyway, so the API adds no
dependency. FastAPI and spectree would add pydantic (a second validator beside msgspec) and their own form of 422, which
would have to be turned back into reason and remedy; apispec and Starlette's SchemaGenerator only assemble schemas that
somebody writes by hand.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints
from urllib.parse import unquote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from astray.core.errors import AstrayError, spelled
from astray.core.text import UNWRITABLE
from astray.service.access.tokens import EVERYBODY, Identity
from astray.service.preferences import PreferencesError
from astray.service.responses import JSON, Refusal
from astray.service.review.review_queue import TaughtError
from astray.service.scoring.scorer import Scorer
from astray.service.service import Service
from astray.service.store import ReadPool, StoreError

log = logging.getLogger("astray.serve")

T = TypeVar("T")
Json = dict[str, Any]
Handler = Callable[..., Awaitable[Any]]

NOT_FOUND = "there is nothing of that name"
UNDERSTOOD = "send what /openapi.json describes"


class Backend(NamedTuple):
    """What the handlers work with."""

    service: Service
    readers: ReadPool
    folder: Path  # with the files that the settings name


class Ask:
    """One request of the API, and ways to answer it."""

    def __init__(self, request: Request, backend: Backend) -> None:
        self.request, self.service, self.folder = request, backend.service, backend.folder
        self._readers = backend.readers
        self.identity: Identity = request.scope.get("state", {}).get("identity", EVERYBODY)

    @property
    def only(self) -> tuple[str, ...] | None:
        """The agents that the client may see; None for all."""
        return self.identity.scope.agents

    def path(self, name: str) -> str:
        """Returns a part of the path."""
        found = str(self.request.path_params[name])
        if UNWRITABLE.search(unquote(found)):
            raise Refusal(404, NOT_FOUND)
        return found

    def about(self, agent: str, right: str = "read") -> str:
        """Returns the agent if the client may see it; otherwise answers as if the agent did not exist."""
        if not self.identity.may(right, agent):
            raise Refusal(404, NOT_FOUND)
        return agent

    def about_everybody(self) -> None:
        """Refuses a token that is for some agents only."""
        if not self.identity.of_all:
            raise Refusal(403, "this token is for some agents only", "use a token for all agents")

    async def read(self, look: Callable[..., T], *values: Any, **named: Any) -> T:
        """Calls a function with a connection that only reads, in another thread."""
        return await run_in_threadpool(self._readers.use, look, *values, **named)

    async def do(self, work: Callable[[Scorer], T]) -> T:
        """Runs ``work``, which changes something, in the scoring thread, in one transaction."""
        future: Future[T] = self.service.do(work)
        return await asyncio.wrap_future(future)


@dataclass(frozen=True)
class Operation:
    """One operation of the API."""

    method: str
    path: str
    handler: Handler
    right: str  # which the client's token must have; empty: none
    query: type[msgspec.Struct] | None
    body: type[msgspec.Struct] | None
    answers: str  # the media type of the answer

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring, which says what the operation does."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]


OPERATIONS: list[Operation] = []


def operation(method: str, path: str, *, answers: str = JSON, right: str | None = None) -> Callable[[Handler], Handler]:
    """Declares a function as an operation.

    The function takes an :class:`Ask` and, if it has parameters of these names, ``query`` and ``body``: their
    annotations are the Structs that a request's query and body are checked against. A request needs the right to read
    (GET) or to write (all other methods), unless ``right`` names another one or none.
    """

    def declare(handler: Handler) -> Handler:
        types = get_type_hints(handler, include_extras=True)
        needed = ("read" if method == "GET" else "write") if right is None else right
        OPERATIONS.append(Operation(method, path, handler, needed, types.get("query"), types.get("body"), answers))
        return handler

    return declare


def routes(backend: Backend) -> list[Route]:
    """Returns the routes of all operations."""
    return [Route(op.path, _endpoint(op, backend), methods=[op.method]) for op in OPERATIONS]


def _endpoint(op: Operation, backend: Backend) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            ask = Ask(request, backend)
            if op.right and not ask.identity.may(op.right):
                raise Refusal(403, f"this token may not {op.right}", "use another token")
            parts: Json = {}
            if op.query is not None:
                parts["query"] = checked_query(request.query_params, op.query)
            if op.body is not None:
                parts["body"] = _checked_body(await request.body(), op.body)
            found = await op.handler(ask, **parts)
            return found if isinstance(found, Response) else json_response(found)
        except (Refusal, AstrayError, LookupError, ClientDisconnect) as error:
            return refused(error)

    return respond


def checked_query(given: Mapping[str, str], kind: type[T]) -> T:
    """Returns the fields of a query as a Struct.

    >>> class Page(msgspec.Struct):
    ...     limit: int = 100
    >>> checked_query({"limit": "7"}, Page)
    Page(limit=7)
    """
    for name, text in given.items():
        if UNWRITABLE.search(text):
            raise Refusal(422, f"{name} holds characters that cannot be shown", "leave them out", field=name)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        reason, _, field = str(error).partition(" - at `$.")
        raise Refusal(422, f"{field.rstrip('`')}: {reason}", UNDERSTOOD, field=field.rstrip("`")) from None


def _checked_body(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason, _, field = str(error).partition(" - at `$")
        field = field.rstrip("`").lstrip(".")
        raise Refusal(422, f"the body is not understood ({reason})", UNDERSTOOD, field=field) from None


def json_response(value: Any) -> Response:
    """Returns a response that holds a value as JSON."""
    return Response(msgspec.json.encode(value), headers={"cache-control": "no-store"}, media_type=JSON)


def refused(error: Exception) -> Response:
    """Returns the response to a request that cannot be served."""
    if isinstance(error, Refusal):
        return error.response
    if isinstance(error, StoreError):
        log.error("%s", error)
        return refused(_refusal(503, error, headers={"retry-after": "5"}))
    if isinstance(error, PreferencesError):
        return refused(_refusal(422, error, field=error.field))
    if isinstance(error, AstrayError):
        return refused(_refusal(409 if isinstance(error, TaughtError) else 422, error))
    if isinstance(error, ClientDisconnect):
        return refused(Refusal(400, "the request ended too early", "send the whole request"))
    return refused(Refusal(404, NOT_FOUND))


def _refusal(status: int, error: AstrayError, **more: Any) -> Refusal:
    return Refusal(status, error.reason, spelled(error.remedy), **more)
