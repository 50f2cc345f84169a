"""Erases a person from all tables, and removes fixes and trips that are older than the retention time."""

from __future__ import annotations

import hashlib

from astray.service.scoring.event_rows import put_audit
from astray.service.scoring.scorer import Scorer
from astray.service.store.schema import OF_AN_AGENT

DAY = 86_400.0
AT_ONCE = 200  # one transaction removes the old rows of this many agents


def erase(scorer: Scorer, agent: str, by: str) -> int:
    """Removes an agent and everything known of it, except for one line in the audit; returns the number of rows.

    That line holds only a digest of the name, so that whoever knows the name can check that it was erased.
    """
    if not scorer.connection.rows("SELECT 1 FROM agents WHERE agent = ?", (agent,)):
        raise LookupError(agent)
    scorer.served.forget(agent)
    rows = sum(scorer.connection.run(f"DELETE FROM {table} WHERE agent = ?", (agent,)) for table in OF_AN_AGENT)
    rows += scorer.connection.run("DELETE FROM agents WHERE agent = ?", (agent,))
    scorer.drop(agent)
    digest = hashlib.sha256(agent.encode()).hexdigest()[:16]
    put_audit(scorer.connection, scorer.now, by, "erased", None, f"agent sha256:{digest}, {rows} rows")
    scorer.news.append(("agent", agent))
    return rows


def remove_old(scorer: Scorer, now: float) -> int:
    """Removes fixes and trips older than the retention time, and all that refers to them; returns the number of rows.

    It does not remove open trips, nor what the model learned, which stays in the memories as counts.
    """
    days = scorer.preferences.retention_days
    if days is None:
        return 0
    before, run = now - DAY * days, scorer.connection.run
    asked = "SELECT DISTINCT agent FROM trips WHERE ended < ? ORDER BY agent LIMIT ?"
    gone = 0
    for (agent,) in scorer.connection.rows(asked, (before, AT_ONCE)):
        old = "(SELECT trip FROM trips WHERE agent = ? AND ended < ?)"
        for table in ("scores", "alerts", "events"):
            gone += run(f"DELETE FROM {table} WHERE agent = ? AND trip IN {old}", (agent, agent, before))
        gone += run("DELETE FROM reviews WHERE agent = ? AND opened < ?", (agent, before))
        last = scorer.connection.value("SELECT max(ended) FROM trips WHERE agent = ? AND ended < ?", (agent, before))
        gone += run("DELETE FROM fixes WHERE agent = ? AND time <= ?", (agent, last))
        gone += run("DELETE FROM trips WHERE agent = ? AND ended < ?", (agent, before))
    gone += run("DELETE FROM outbox WHERE done IS NOT NULL AND done < ?", (before,))
    return gone
