"""The API of the page and of programs: what can be asked and done, one function an operation."""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import AsyncIterator
from typing import Literal, NamedTuple

import msgspec
from starlette.responses import Response, StreamingResponse

from astray.service import preferences
from astray.service.alerts.outlets import concealed, revealed
from astray.service.review.erasure import erase
from astray.service.review.explainer import Task, unpacked
from astray.service.review.review_queue import give_verdict, undo_verdict
from astray.service.review.teach import put_audit
from astray.service.scoring.event_rows import trip_name, trip_of
from astray.service.scoring.scorer import Scorer
from astray.service.web import health as healths
from astray.service.web import queries
from astray.service.web.operations import NOT_THERE, Ask, Json, Parameter, Refusal, answer, operation
from astray.service.web.table_export import FORMATS, TABLES, export

EXPLAIN_SECONDS = 20.0

LIMIT = Parameter("integer", "How many, at most.", 100, 1, 10_000)
AGENT = Parameter("string", "Only this agent.")


class _Item(NamedTuple):
    """An item of the review queue: whose it is, and its name as the queue has it."""

    agent: str
    name: str


def _item(path: str) -> _Item:
    """The item that an address means, also where its name was encoded once less.

    >>> _item("question/ana/10:30").name
    'question/ana/10%3A30'
    """
    kind = "question/" if path.startswith("question/") else ""
    trip = trip_of(path.removeprefix(kind))
    return _Item(trip.agent, kind + trip_name(*trip))


# -------------------------------------------------------------------- agents and trips


@operation(
    "GET",
    "/api/agents",
    "Agents by name, each with its state and its last fix.",
    query={
        "q": Parameter("string", "Only names that have this in them.", ""),
        "limit": Parameter("integer", "How many, at most.", 1000, 1, 10_000),
        "offset": Parameter("integer", "How many to pass over.", 0, 0, 1e9),
    },
)
async def agents(ask: Ask) -> Json:
    """Agents by name."""
    return await ask.read(
        queries.agents, clock.time(), ask.given["q"], ask.given["limit"], ask.given["offset"], only=ask.only
    )


@operation("GET", "/api/agents/{agent:path}/ways", "The habitual ways of an agent, as GeoJSON lines.")
async def ways(ask: Ask) -> Json:
    """Habitual ways."""
    return await ask.read(queries.ways, ask.about(ask.path("agent")))


@operation(
    "GET",
    "/api/agents/{agent:path}/trips",
    "The trips of an agent, the newest first.",
    query={"limit": LIMIT, "before": Parameter("number", "Only trips that began before this time.")},
)
async def trips(ask: Ask) -> Json:
    """Trips of an agent."""
    return await ask.read(queries.trips, ask.about(ask.path("agent")), ask.given["limit"], ask.given["before"])


class Pause(msgspec.Struct):
    """Until when nobody is told of an agent's alerts; null: they are told again."""

    until: float | None


@operation(
    "POST",
    "/api/agents/{agent:path}/pause",
    "Tell nobody of this agent's alerts until a time; null ends the pause.",
    right="write",
    body={"type": "object", "required": ["until"], "properties": {"until": {"type": ["number", "null"]}}},
)
async def pause(ask: Ask) -> Json:
    """Pause an agent's alerts."""
    agent, until = ask.about(ask.path("agent"), "write"), (await ask.json(Pause)).until
    if until is not None and not abs(until) < 1e11:
        raise Refusal(422, "until is no time", "give seconds since 1970")

    def work(scorer: Scorer) -> None:
        if not scorer.connection.run("UPDATE agents SET paused_until = ? WHERE agent = ?", (until, agent)):
            raise LookupError(agent)
        put_audit(scorer.connection, scorer.now, ask.identity.name, "pause", agent, f"until {until}")

    await ask.do(work)
    return {"agent": agent, "paused_until": until}


@operation("DELETE", "/api/agents/{agent:path}", "Erase an agent and all that is known of it.", right="write")
async def forget(ask: Ask) -> Json:
    """Erase a person."""
    agent, by = ask.about(ask.path("agent"), "write"), ask.identity.name
    rows = await ask.do(lambda scorer: erase(scorer, agent, by))
    await asyncio.wrap_future(ask.service.scrub())
    return {"agent": agent, "erased": rows}


@operation("GET", "/api/trips/{trip:path}", "A trip: its track with scores, its segments, why, and the verdict on it.")
async def trip(ask: Ask) -> Json:
    """A trip."""
    name = ask.path("trip")
    ask.about(trip_of(name).agent)
    found = await ask.read(queries.trip, name)
    if found is None:
        found = await ask.read(queries.open_trip, name, clock.time())
    elif found["eps"] is None:  # it was not flagged, so nobody has explained it yet
        made = ask.service.explainer.submit(Task(*trip_of(name)))
        try:
            told = await asyncio.wait_for(asyncio.wrap_future(made), EXPLAIN_SECONDS)
        except TimeoutError:
            told = None
        if told is not None:
            found = await ask.read(queries.trip, name, unpacked(told.data)) or found
    if found is None:
        raise Refusal(404, NOT_THERE)
    return found


# -------------------------------------------------------------------- review


@operation("GET", "/api/review", "What waits for a verdict, worst first.", query={"limit": LIMIT})
async def review(ask: Ask) -> Json:
    """The review queue."""
    return await ask.read(queries.review, ask.given["limit"], only=ask.only)


class Verdict(msgspec.Struct):
    """What a person says of a trip, or of some that are alike."""

    verdict: Literal["normal", "anomaly", "unsure"]


@operation(
    "POST",
    "/api/review/{item:path}/verdict",
    "Say whether it was normal for this agent. It teaches after a delay in which it can be undone.",
    right="write",
    body={
        "type": "object",
        "required": ["verdict"],
        "properties": {"verdict": {"type": "string", "enum": ["normal", "anomaly", "unsure"]}},
    },
)
async def verdict(ask: Ask) -> Json:
    """A verdict."""
    agent, item = _item(ask.path("item"))
    said = (await ask.json(Verdict)).verdict
    ask.about(agent, "write")

    def work(scorer: Scorer) -> float:
        delay = 60.0 * scorer.preferences.undo_minutes
        at = give_verdict(scorer.connection, item, said, ask.identity.name, scorer.now, delay)
        scorer.news.append(("review", item))
        return at

    return {"id": item, "verdict": said, "teaches_at": await ask.do(work)}


@operation("DELETE", "/api/review/{item:path}/verdict", "Undo a verdict that has not taught yet.", right="write")
async def undo(ask: Ask) -> Json:
    """Undo a verdict."""
    agent, item = _item(ask.path("item"))
    ask.about(agent, "write")

    def work(scorer: Scorer) -> None:
        undo_verdict(scorer.connection, item)
        scorer.news.append(("review", item))

    await ask.do(work)
    return {"id": item, "verdict": None}


# -------------------------------------------------------------------- alerts, health, settings


@operation(
    "GET",
    "/api/alerts",
    "Alerts, the newest first.",
    query={"open": Parameter("integer", "1: only those that are open.", 0, 0, 1), "limit": LIMIT},
)
async def alerts(ask: Ask) -> Json:
    """Alerts."""
    only_open = bool(ask.given["open"])
    return await ask.read(queries.alerts, only_open=only_open, limit=ask.given["limit"], only=ask.only)


@operation("GET", "/api/health", "How the service does: false alarms, drift, feeds, what was refused, queues.")
async def health(ask: Ask) -> Json:
    """Health."""
    return await ask.read(healths.health, ask.service, clock.time(), only=ask.only)


@operation("GET", "/api/settings", "What is set on the page.")
async def settings(ask: Ask) -> Response:
    """The settings."""
    found = concealed(await ask.read(preferences.load))
    return Response(preferences.written(found), media_type="application/json", headers={"cache-control": "no-store"})


@operation("PUT", "/api/settings", "Set all of it anew.", right="write", body={"type": "object"})
async def set_settings(ask: Ask) -> Response:
    """Change the settings."""
    if ask.only is not None:
        raise Refusal(403, "this token is for some agents only", "use one for all")
    given = preferences.parsed(await ask.request.body())

    def work(scorer: Scorer) -> preferences.Preferences:
        wanted = revealed(given, scorer.preferences)
        preferences.save(scorer.connection, wanted)
        scorer.set_preferences(wanted)
        put_audit(scorer.connection, scorer.now, ask.identity.name, "settings", None, "")
        return wanted

    wanted = await ask.do(work)
    return Response(
        preferences.written(concealed(wanted)), media_type="application/json", headers={"cache-control": "no-store"}
    )


# -------------------------------------------------------------------- export and events


@operation(
    "GET",
    "/api/export/{file}",
    "A table as a file: trips, fixes, alerts or reviews; csv, geojson or parquet. trips.csv, for example.",
    query={
        "agent": AGENT,
        "since": Parameter("number", "Only from this time on."),
        "until": Parameter("number", "Only up to this time."),
    },
    answers="text/csv",
)
async def export_table(ask: Ask) -> Response:
    """Export a table."""
    table, _, ending = ask.path("file").partition(".")
    if table not in TABLES or ending not in FORMATS:
        raise Refusal(404, NOT_THERE, f"there are {', '.join(TABLES)}, each as {', '.join(FORMATS)}")
    agent = ask.given["agent"]
    only = ask.only if agent is None else (ask.about(agent),)
    parts = export(ask.service.store, table, ending, only, ask.given["since"], ask.given["until"])
    headers = {"content-disposition": f'attachment; filename="{table}.{ending}"', "cache-control": "no-store"}
    return StreamingResponse(parts, media_type=FORMATS[ending], headers=headers)


@operation("GET", "/api/events", "Server-sent events: agent, alert, review.", answers="text/event-stream")
async def events(ask: Ask) -> Response:
    """What changes, as it happens."""
    last = ask.request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) < 19 else None
    if ask.service.hub.full:
        return answer(
            {"error": {"reason": "too many pages listen", "remedy": "close some"}}, 429, {"retry-after": "30"}
        )

    async def lines() -> AsyncIterator[bytes]:
        async for line in ask.service.hub.listen(after, ask.only):
            yield line

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)
