"""The application: feeds, API, page and figures on one address, behind the guard."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from astray.service import preferences
from astray.service.access import tokens as access
from astray.service.access.client_limits import Limits
from astray.service.access.guard import Guard, Standing
from astray.service.feeds.http_feed import Feeds
from astray.service.review.teach import put_audit
from astray.service.service import Service
from astray.service.web import api as _operations  # noqa: F401  (declares them)
from astray.service.web.health import metrics
from astray.service.web.openapi import description
from astray.service.web.operations import Refusal, answer, refused, routes
from astray.service.web.read_pool import Readers
from astray.service.web.static_files import page_routes

log = logging.getLogger("astray.serve")


def application(
    service: Service,
    folder: Path,
    *,
    standing: Standing | None = None,
    limits: Limits | None = None,
    given: tuple[str, ...] = (),
) -> Guard:
    """All that is served, for an ASGI server.

    Parameters
    ----------
    service
        The service, started.
    folder
        Where files that the settings name are looked for.
    standing, limits
        Where the service stands, and what it takes from clients.
    given
        Tokens that were given when it was started, beside those in the store.
    """
    readers = Readers(service.store)
    found = [
        Route("/healthz", _healthz(service)),
        Route("/metrics", _metrics(service, readers)),
        Route("/openapi.json", _openapi()),
        Route("/api/tiles", _tiles(readers, folder)),
        *routes(service, readers),
        *page_routes(),
    ]
    handlers = {HTTPException: _refused_by_routing, Exception: _broken}
    app = Starlette(routes=found, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False
    return Guard(Feeds(service, app), _tokens(readers, given), standing, limits, _audit(service))


def _tokens(readers: Readers, given: tuple[str, ...]) -> Callable[[], access.Tokens]:
    return lambda: access.Tokens([*readers.use(access.known), *access.given(given)])


def _audit(service: Service) -> Callable[[str, str], None]:
    def note(who: str, what: str) -> None:
        service.do(lambda scorer: put_audit(scorer.connection, scorer.now, who, what, None, ""))

    return note


def _healthz(service: Service) -> Callable[[Request], Response]:
    async def healthz(request: Request) -> Response:
        status = 503 if service.failed else 200
        return PlainTextResponse("the store refuses\n" if service.failed else "ok\n", status)

    return healthz  # type: ignore[return-value]


def _metrics(service: Service, readers: Readers) -> Callable[[Request], Response]:
    async def figures(request: Request) -> Response:
        identity: access.Identity = request.scope.get("state", {}).get("identity", access.EVERYBODY)
        if not identity.of_all:
            return refused(Refusal(403, "this token is for some agents only", "use one for all"))
        text = await run_in_threadpool(readers.use, metrics, service)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return figures  # type: ignore[return-value]


def _openapi() -> Callable[[Request], Response]:
    text = msgspec.json.encode(description())

    async def openapi(request: Request) -> Response:
        return Response(text, media_type="application/json")

    return openapi  # type: ignore[return-value]


def _tiles(readers: Readers, folder: Path) -> Callable[[Request], Response]:
    async def tiles(request: Request) -> Response:
        named = (await run_in_threadpool(readers.use, preferences.load)).tiles
        file = None if named is None else (folder / named).resolve()
        if file is None or file.suffix != ".pmtiles" or not file.is_file():
            return refused(Refusal(404, "there is no map file", "name a .pmtiles file in the settings"))
        return FileResponse(file, media_type="application/vnd.pmtiles")

    return tiles  # type: ignore[return-value]


async def _refused_by_routing(request: Request, error: HTTPException) -> Response:
    words = {404: "there is nothing at this address", 405: "not with this method"}
    told = Refusal(error.status_code, words.get(error.status_code, str(error.detail)))
    return answer(told.body, error.status_code, error.headers)


async def _broken(request: Request, error: Exception) -> Response:
    log.exception("a request could not be served: %s %s", request.method, request.scope.get("route"))
    return answer(Refusal(500, "an error inside astray serve", "look at its log").body, 500)
