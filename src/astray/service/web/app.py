"""Puts feeds, API and page on one address, behind the guard."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from astray.service.access import tokens as access
from astray.service.access.client_limits import ClientLimits
from astray.service.access.guard import Guard, Standing
from astray.service.feeds.http_feed import Feeds
from astray.service.responses import Refusal
from astray.service.scoring.event_rows import put_audit
from astray.service.service import Service
from astray.service.store import ReadPool
from astray.service.web import api as _declares_the_operations  # noqa: F401
from astray.service.web.operations import Backend, routes
from astray.service.web.static_files import page_routes

log = logging.getLogger("astray.serve")

NO_ROUTE = {404: "there is nothing at this address", 405: "this address does not take this method"}


def application(
    service: Service,
    folder: Path,
    *,
    standing: Standing,
    limits: ClientLimits,
    given: tuple[str, ...],
) -> Guard:
    """Returns the application for an ASGI server: a started service, behind the guard.

    ``folder`` holds the files that the settings name; ``given`` are the tokens of the command line.
    """
    readers = ReadPool(service.store)
    handlers = {HTTPException: _not_routed, Exception: _broken}
    app = Starlette(
        routes=[*routes(Backend(service, readers, folder)), *page_routes()],
        exception_handlers=handlers,  # type: ignore[arg-type]
    )
    app.router.redirect_slashes = False

    def tokens() -> access.Tokens:
        return access.Tokens([*readers.use(access.known), *access.given(given)])

    def audit(who: str, what: str) -> None:
        service.do(lambda scorer: put_audit(scorer.connection, scorer.now, who, what, None, ""))

    return Guard(Feeds(service, app), tokens, standing, limits, audit)


async def _not_routed(request: Request, error: HTTPException) -> Response:
    reason = NO_ROUTE.get(error.status_code, str(error.detail))
    return Refusal(error.status_code, reason, headers=error.headers).response


async def _broken(request: Request, error: Exception) -> Response:
    log.exception("a request could not be served: %s %s", request.method, request.scope.get("route"))
    return Refusal(500, "an error inside astray serve", "look at its log").response
