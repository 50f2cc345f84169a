"""Reports how the service is doing: promised and observed false alarms, drift, feeds, refused rows, queues; metrics."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from astray import __version__
from astray.core.text import number_of
from astray.scoring.decisions import total_rate
from astray.service import preferences
from astray.service.alerts.outbox import outbox_state
from astray.service.store import Connection
from astray.service.web.queries import among, zone_of

if TYPE_CHECKING:
    from astray.service.service import Service

Json = dict[str, Any]

FEEDS = 200  # the most feeds to list, the longest silent last
BUSY = 0.5  # share of the queue above which the page warns
ENOUGH = 20  # with fewer normal trips there is no observed rate


def health(connection: Connection, service: Service, now: float, only: Sequence[str] | None = None) -> Json:
    """Returns the whole report for the page, about the agents that the client may know of."""
    where, values = among("agent", only)
    warnings = [f"the store refuses: {service.failed}"] if service.failed else []
    if service.waiting > BUSY * service.room:
        warnings.append("fixes come faster than they can be scored")
    outbox = outbox_state(connection, where, values)
    if outbox["failing"]:
        warnings.append("some alerts could not be delivered yet")
    if outbox["given_up"]:
        warnings.append(f"{number_of(outbox['given_up'], 'message')} could not be delivered and were given up")
    broker = service.broker() if service.broker is not None else None
    warnings += broker["warnings"] if broker else []
    drift = connection.rows(
        f"SELECT agent, drift FROM agents WHERE drift IS NOT NULL AND {where} ORDER BY agent", values
    )
    counted = sorted(service.scorer.refused.items()) if only is None else []
    refused = [{"reason": reason, "count": int(count), "last": last} for reason, (count, last) in counted]
    return {
        "status": "warning" if warnings else "ok",
        "version": __version__,
        "uptime": round(now - service.started, 1),
        "false_alarms": _false_alarms(connection, where, values),
        "drift": [{"agent": agent, "words": words} for agent, words in drift],
        "feeds": _feeds(connection, where, values, now),
        "refused": refused,
        "broker": broker,
        "queue": {"waiting": service.waiting, "limit": service.room},
        "outbox": outbox,
        "store": {"kind": service.store.kind, "bytes": service.store.bytes()},
        "warnings": warnings,
    }


def _false_alarms(connection: Connection, where: str, values: Sequence[Any]) -> Json:
    """Compares the promised false-alarm rate with the observed one: the share of normal trips that were flagged."""
    rate = preferences.load(connection).false_alarm_rate
    promised = total_rate(rate)
    count = f"SELECT count(*) FROM trips WHERE {where} AND history >= 5 AND decision"
    never, flagged = (connection.value(f"{count} {what}", values) for what in ("= 'normal'", "<> 'normal'"))
    said: dict[str, int] = dict(
        connection.rows(
            "SELECT verdict, count(*) FROM reviews WHERE kind = 'trip' AND verdict IS NOT NULL "
            f"AND {where} GROUP BY verdict",
            values,
        )
    )
    wrong = said.get("normal", 0)
    normal = never + wrong
    reviewed = sum(said.values())
    observed = wrong / normal if normal >= ENOUGH and reviewed and 2 * reviewed >= flagged else None
    words = f"{number_of(flagged, 'trip')} flagged, {reviewed} with a verdict"
    if observed is not None:
        most = "at most " if isinstance(rate, dict) else ""
        words += f"; {wrong} of {normal} normal trips were flagged: {observed:.1%}, promised {most}{promised:.1%}"
    counts = {"normal": normal, "flagged": flagged, "reviewed": reviewed}
    return {"promised": promised, "observed": observed, **counts, "words": words}


def _feeds(connection: Connection, where: str, values: Sequence[Any], now: float) -> list[Json]:
    """Lists agents, the longest silent last, each with its fixes of the last day."""
    today = "SELECT count(*) FROM fixes f WHERE f.agent = agents.agent AND f.time > ?"
    asked = f"SELECT agent, time, delay, zone, ({today}) FROM agents WHERE {where} ORDER BY arrived DESC LIMIT ?"
    return [
        {"agent": agent, "time": time, "local": zone_of(zone).iso(time), "delay": round(delay, 1), "fixes": fixes}
        for agent, time, delay, zone, fixes in connection.rows(asked, (now - 86_400.0, *values, FEEDS))
    ]


def metrics(connection: Connection, service: Service) -> str:
    """Returns the figures for Prometheus; they hold no names and no places."""
    counts = {
        name: connection.value(f"SELECT count(*) FROM {what}")
        for name, what in (
            ("agents", "agents"),
            ("trips", "trips"),
            ("alerts_open", "alerts WHERE closed IS NULL"),
            ("reviews_waiting", "reviews WHERE verdict IS NULL"),
            ("outbox_waiting", "outbox WHERE done IS NULL"),
        )
    }
    gauges = {
        **counts,
        "queue_waiting": service.waiting,
        "queue_limit": service.room,
        "store_bytes": service.store.bytes(),
        "store_refuses": int(bool(service.failed)),
        "uptime_seconds": round(clock.time() - service.started, 1),
    }
    totals = {
        "fixes": service.fixes,
        "groups": service.groups,
        "refused": int(sum(count for count, _ in service.scorer.refused.values())),
        "duplicates": service.duplicates,
    }
    lines = []
    for name, value in gauges.items():
        lines += [f"# TYPE astray_{name} gauge", f"astray_{name} {value}"]
    for name, value in totals.items():
        lines += [f"# TYPE astray_{name}_total counter", f"astray_{name}_total {value}"]
    return "\n".join(lines) + "\n"
