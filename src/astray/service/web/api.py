"""Defines the operations of the API, one function each, for the page and for programs."""

from __future__ import annotations

import asyncio
import time as clock
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse

from astray.service import preferences
from astray.service.preferences import Preferences
from astray.service.responses import JSON, Refusal
from astray.service.review.erasure import erase
from astray.service.review.explainer import Task, unpacked
from astray.service.review.review_queue import give_verdict, undo_verdict
from astray.service.scoring.event_rows import put_audit, trip_name, trip_of
from astray.service.scoring.scorer import Scorer
from astray.service.web import health as health_queries
from astray.service.web import queries
from astray.service.web.openapi import description
from astray.service.web.operations import NOT_FOUND, Ask, Json, json_response, operation
from astray.service.web.table_export import FORMATS, TABLES, export

EXPLAIN_SECONDS = 20.0
MAX_PAUSE = 1e11  # seconds since 1970

Limit = Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of results.")]
Time = Annotated[float, Meta(ge=-1e15, le=1e15, description="Seconds since 1970, UTC.")]


class LimitQuery(msgspec.Struct):
    """The number of results."""

    limit: Limit = 100


class Item(NamedTuple):
    """An item of the review queue: its agent, and its name in the queue."""

    agent: str
    name: str


def item_of(path: str) -> Item:
    """Returns the item that an address names, even if the client forgot to percent-encode the name.

    >>> item_of("question/ana/10:30").name
    'question/ana/10%3A30'
    """
    kind = "question/" if path.startswith("question/") else ""
    trip = trip_of(path.removeprefix(kind))
    return Item(trip.agent, kind + trip_name(*trip))


# -------------------------------------------------------------------- agents and trips


class AgentsQuery(msgspec.Struct):
    """Selects agents."""

    q: Annotated[str, Meta(description="Only names that contain this text.")] = ""
    limit: Limit = 1000
    offset: Annotated[int, Meta(ge=0, le=1_000_000_000, description="How many agents to skip.")] = 0


@operation("GET", "/api/agents")
async def agents(ask: Ask, query: AgentsQuery) -> Json:
    """Lists agents by name, each with its state and its last fix."""
    return await ask.read(queries.agents, clock.time(), query.q, query.limit, query.offset, only=ask.only)


@operation("GET", "/api/agents/{agent:path}/ways")
async def ways(ask: Ask) -> Json:
    """Returns the habitual ways of an agent as GeoJSON lines."""
    return await ask.read(queries.ways, ask.about(ask.path("agent")))


class TripsQuery(LimitQuery):
    """Selects trips of an agent."""

    before: Time | None = None


@operation("GET", "/api/agents/{agent:path}/trips")
async def trips(ask: Ask, query: TripsQuery) -> Json:
    """Lists the trips of an agent that began before a time, newest first."""
    return await ask.read(queries.trips, ask.about(ask.path("agent")), query.limit, query.before)


class Pause(msgspec.Struct):
    """The time until which the service sends no alerts about an agent; null ends the pause."""

    until: Annotated[float, Meta(ge=-MAX_PAUSE, le=MAX_PAUSE, description="Seconds since 1970, UTC.")] | None


@operation("POST", "/api/agents/{agent:path}/pause")
async def pause(ask: Ask, body: Pause) -> Json:
    """Pauses alerts about an agent until a time; null ends the pause."""
    agent = ask.about(ask.path("agent"), "write")

    def work(scorer: Scorer) -> None:
        if not scorer.connection.run("UPDATE agents SET paused_until = ? WHERE agent = ?", (body.until, agent)):
            raise LookupError(agent)
        put_audit(scorer.connection, scorer.now, ask.identity.name, "pause", agent, f"until {body.until}")

    await ask.do(work)
    return {"agent": agent, "paused_until": body.until}


@operation("DELETE", "/api/agents/{agent:path}")
async def forget(ask: Ask) -> Json:
    """Erases an agent and everything that the service knows of it."""
    agent, by = ask.about(ask.path("agent"), "write"), ask.identity.name
    rows = await ask.do(lambda scorer: erase(scorer, agent, by))
    await asyncio.wrap_future(ask.service.scrub())
    return {"agent": agent, "erased": rows}


@operation("GET", "/api/trips/{trip:path}")
async def trip(ask: Ask) -> Json:
    """Returns a trip: its track with scores, its segments, its reasons, and the verdict on it."""
    name = ask.path("trip")
    ask.about(trip_of(name).agent)
    found = await ask.read(queries.trip, name)
    if found is None:
        found = await ask.read(queries.open_trip, name, clock.time())
    elif found["eps"] is None:  # the trip was not flagged, so nobody has explained it yet
        made = ask.service.explainer.submit(Task(*trip_of(name)))
        try:
            explanation = await asyncio.wait_for(asyncio.wrap_future(made), EXPLAIN_SECONDS)
        except TimeoutError:
            explanation = None
        if explanation is not None:
            found = await ask.read(queries.trip, name, unpacked(explanation.data)) or found
    if found is None:
        raise Refusal(404, NOT_FOUND)
    return found


# -------------------------------------------------------------------- review


@operation("GET", "/api/review")
async def review(ask: Ask, query: LimitQuery) -> Json:
    """Lists the items that wait for a verdict, worst first."""
    return await ask.read(queries.review, query.limit, only=ask.only)


class Verdict(msgspec.Struct):
    """A person's verdict on a trip, or on several trips that are alike."""

    verdict: Literal["normal", "anomaly", "unsure"]


@operation("POST", "/api/review/{item:path}/verdict")
async def verdict(ask: Ask, body: Verdict) -> Json:
    """Stores a person's verdict; it teaches the model after a delay in which it can be undone."""
    agent, item = item_of(ask.path("item"))
    ask.about(agent, "write")

    def work(scorer: Scorer) -> float:
        delay = 60.0 * scorer.preferences.undo_minutes
        at = give_verdict(scorer.connection, item, body.verdict, ask.identity.name, scorer.now, delay)
        scorer.news.append(("review", item))
        return at

    return {"id": item, "verdict": body.verdict, "teaches_at": await ask.do(work)}


@operation("DELETE", "/api/review/{item:path}/verdict")
async def undo(ask: Ask) -> Json:
    """Undoes a verdict that has not taught the model yet."""
    agent, item = item_of(ask.path("item"))
    ask.about(agent, "write")

    def work(scorer: Scorer) -> None:
        undo_verdict(scorer.connection, item)
        scorer.news.append(("review", item))

    await ask.do(work)
    return {"id": item, "verdict": None}


# -------------------------------------------------------------------- alerts, health, settings


class AlertsQuery(LimitQuery):
    """Selects alerts."""

    open: Annotated[int, Meta(ge=0, le=1, description="1: only alerts that are open.")] = 0


@operation("GET", "/api/alerts")
async def alerts(ask: Ask, query: AlertsQuery) -> Json:
    """Lists alerts, newest first."""
    return await ask.read(queries.alerts, only_open=bool(query.open), limit=query.limit, only=ask.only)


@operation("GET", "/api/health")
async def health(ask: Ask) -> Json:
    """Reports how the service is doing: false alarms, drift, feeds, refused rows, queues."""
    return await ask.read(health_queries.health, ask.service, clock.time(), only=ask.only)


@operation("GET", "/healthz", answers="text/plain", right="")
async def healthz(ask: Ask) -> Response:
    """Reports whether the service can store fixes."""
    failed = bool(ask.service.failed)
    return PlainTextResponse("the store refuses\n" if failed else "ok\n", 503 if failed else 200)


@operation("GET", "/metrics", answers="text/plain")
async def metrics(ask: Ask) -> Response:
    """Returns figures for Prometheus."""
    ask.about_everybody()
    text = await ask.read(health_queries.metrics, ask.service)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@operation("GET", "/openapi.json")
async def openapi(ask: Ask) -> Response:
    """Returns this description."""
    return Response(description(), media_type=JSON)


@operation("GET", "/api/settings")
async def settings(ask: Ask) -> Response:
    """Returns the settings of the page; secrets in addresses are hidden."""
    return json_response(preferences.hide_secrets(await ask.read(preferences.load)))


@operation("PUT", "/api/settings")
async def set_settings(ask: Ask, body: Preferences) -> Response:
    """Replaces all settings of the page."""
    ask.about_everybody()
    preferences.check(body)

    def work(scorer: Scorer) -> Preferences:
        wanted = preferences.restore_secrets(body, scorer.preferences)
        scorer.check_preferences(wanted)
        preferences.save(scorer.connection, wanted)
        scorer.set_preferences(wanted)
        put_audit(scorer.connection, scorer.now, ask.identity.name, "settings", None, "")
        return wanted

    return json_response(preferences.hide_secrets(await ask.do(work)))


@operation("GET", "/api/tiles", answers="application/vnd.pmtiles")
async def tiles(ask: Ask) -> Response:
    """Returns the map file that the settings name, in the parts that the client asks for."""
    named = (await ask.read(preferences.load)).tiles
    file = None if named is None else (ask.folder / named).resolve()
    if file is None or file.suffix != ".pmtiles" or not file.is_file():
        raise Refusal(404, "there is no map file", "name a .pmtiles file in the settings")
    return FileResponse(file, media_type="application/vnd.pmtiles")


# -------------------------------------------------------------------- export and events


class ExportQuery(msgspec.Struct):
    """Selects rows of a table."""

    agent: Annotated[str, Meta(description="Only rows of this agent.")] | None = None
    since: Time | None = None
    until: Time | None = None


@operation("GET", "/api/export/{file}", answers="text/csv")
async def export_table(ask: Ask, query: ExportQuery) -> Response:
    """Returns a table as a file such as trips.csv: trips, fixes, alerts or reviews; csv, geojson or parquet."""
    table, _, ending = ask.path("file").partition(".")
    if table not in TABLES or ending not in FORMATS:
        raise Refusal(404, NOT_FOUND, f"there are {', '.join(TABLES)}, each as {', '.join(FORMATS)}")
    only = ask.only if query.agent is None else (ask.about(query.agent),)
    parts = export(ask.service.store, table, ending, only, query.since, query.until)
    headers = {"content-disposition": f'attachment; filename="{table}.{ending}"', "cache-control": "no-store"}
    return StreamingResponse(parts, media_type=FORMATS[ending], headers=headers)


@operation("GET", "/api/events", answers="text/event-stream")
async def events(ask: Ask) -> Response:
    """Sends changes of agents, alerts and reviews as server-sent events."""
    last = ask.request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) < 19 else None
    if ask.service.hub.full:
        raise Refusal(429, "too many pages listen", "close some", headers={"retry-after": "30"})

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    lines = ask.service.hub.listen(after, ask.only)
    return StreamingResponse(lines, media_type="text/event-stream", headers=headers)
