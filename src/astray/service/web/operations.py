"""Operations of the API: each is declared once, and its route, its checks and its description derive from that."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from astray.core.errors import AstrayError, spelled
from astray.core.text import UNWRITABLE, harmless
from astray.service.access.tokens import EVERYBODY, Identity
from astray.service.preferences import PreferencesError
from astray.service.review.review_queue import TaughtError
from astray.service.scoring.scorer import Scorer
from astray.service.service import Service
from astray.service.store import StoreError
from astray.service.web.read_pool import Readers

log = logging.getLogger("astray.serve")

T = TypeVar("T")
Json = dict[str, Any]


class Refusal(Exception):
    """What a request is answered that cannot be served."""

    def __init__(self, status: int, reason: str, remedy: str = "", **more: Any) -> None:
        super().__init__(reason)
        self.status, self.body = status, {"error": {"reason": harmless(reason), "remedy": remedy, **more}}


NOT_THERE = "there is nothing of that name"


class Parameter(NamedTuple):
    """A parameter of a query."""

    kind: str  # string, integer or number
    says: str
    default: Any = None
    low: float | None = None
    high: float | None = None

    def read(self, name: str, text: str | None) -> Any:
        """The value that a query gives, checked."""
        if text is None:
            return self.default
        if self.kind == "string":
            if UNWRITABLE.search(text):
                raise Refusal(422, f"{name} holds characters that cannot be shown", "leave them out")
            return text
        try:
            value: float = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise Refusal(422, f"{name} is not {_article(self.kind)}", f"give {_article(self.kind)}") from None
        if not math.isfinite(value) or value < (self.low or -1e15) or value > (self.high or 1e15):
            raise Refusal(422, f"{name} is out of range", f"give {self.low or 0:g} to {self.high or 1e15:g}")
        return value


def _article(kind: str) -> str:
    return "a whole number" if kind == "integer" else f"a {kind}"


class Ask:
    """One request of the API: its parts, checked, and ways to answer it."""

    def __init__(self, request: Request, service: Service, readers: Readers, given: Mapping[str, Any]) -> None:
        self.request, self.service, self.given = request, service, given
        self._readers = readers
        self.identity: Identity = request.scope.get("state", {}).get("identity", EVERYBODY)

    @property
    def only(self) -> tuple[str, ...] | None:
        """The agents that the asker may know of; None for all."""
        return self.identity.scope.agents

    def path(self, name: str) -> str:
        """A part of the path."""
        found = str(self.request.path_params[name])
        if UNWRITABLE.search(unquote(found)):
            raise Refusal(404, NOT_THERE)
        return found

    def about(self, agent: str, right: str = "read") -> str:
        """An agent that the asker may know of; for others it does not exist."""
        if not self.identity.may(right, agent):
            raise Refusal(404, NOT_THERE)
        return agent

    async def read(self, look: Callable[..., T], *values: Any, **named: Any) -> T:
        """What a function finds with a connection that only reads."""
        return await run_in_threadpool(self._readers.use, look, *values, **named)

    async def do(self, work: Callable[[Scorer], T]) -> T:
        """Have something changed by the scoring thread."""
        future: Future[T] = self.service.do(work)
        return await asyncio.wrap_future(future)

    async def json(self, kind: type[T]) -> T:
        """The body of the request."""
        try:
            return msgspec.json.decode(await self.request.body(), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal(422, f"the body is not understood ({error})", "send JSON as the description says") from None


Handler = Callable[[Ask], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    """One operation: what it is called, what it takes, and who may ask for it."""

    method: str
    path: str
    says: str
    handler: Handler
    right: str = "read"
    query: Mapping[str, Parameter] = field(default_factory=dict)
    body: Json | None = None  # a JSON schema
    answers: str = "application/json"


OPERATIONS: list[Operation] = []


def operation(method: str, path: str, says: str, **more: Any) -> Callable[[Handler], Handler]:
    """Declare an operation."""

    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(Operation(method, path, says, handler, **more))
        return handler

    return declare


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    fixed = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(value), status, fixed, media_type="application/json")


def routes(service: Service, readers: Readers) -> list[Route]:
    """The routes of all operations."""
    return [Route(op.path, _endpoint(op, service, readers), methods=[op.method]) for op in OPERATIONS]


def _endpoint(op: Operation, service: Service, readers: Readers) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            given = {name: parameter.read(name, request.query_params.get(name)) for name, parameter in op.query.items()}
            ask = Ask(request, service, readers, given)
            if not ask.identity.may(op.right):
                raise Refusal(403, f"this token may not {op.right}", "use another one")
            found = await op.handler(ask)
            return found if isinstance(found, Response) else answer(found)
        except (Refusal, AstrayError, LookupError, ClientDisconnect) as error:
            return refused(error)

    return respond


def refused(error: Exception) -> Response:
    """The answer to a request that cannot be served."""
    if isinstance(error, Refusal):
        return answer(error.body, error.status)
    if isinstance(error, PreferencesError):
        return answer(_told(error, field=error.field), 422)
    if isinstance(error, TaughtError):
        return answer(_told(error), 409)
    if isinstance(error, StoreError):
        log.error("%s", error)
        return answer(_told(error), 503, {"retry-after": "5"})
    if isinstance(error, AstrayError):
        return answer(_told(error), 422)
    if isinstance(error, ClientDisconnect):
        return answer(_error("the request ended too early", ""), 400)
    return answer(_error(NOT_THERE, ""), 404)


def _told(error: AstrayError, **more: Any) -> Json:
    return _error(error.reason, spelled(error.remedy), **more)


def _error(reason: str, remedy: str, **more: Any) -> Json:
    return {"error": {"reason": harmless(reason), "remedy": remedy, **more}}
