"""Erasing: a person, everywhere; and fixes and trips that are older than they are to be kept."""

from __future__ import annotations

import hashlib

from astray.service import memories
from astray.service.review.teach import put_audit
from astray.service.scoring.scorer import Scorer
from astray.service.store.schema import OF_AN_AGENT

DAY = 86_400.0
AT_ONCE = 200  # agents whose old rows are removed in one transaction


def erase(scorer: Scorer, agent: str, by: str) -> int:
    """Remove an agent and all that is known of it; gives how many rows that were. One line of the audit stays.

    That line names the agent by a digest alone: who knows the name can check that it was erased.
    """
    if not scorer.connection.rows("SELECT 1 FROM agents WHERE agent = ?", (agent,)):
        raise LookupError(agent)
    memories.forget(scorer.fleet, agent)
    rows = sum(scorer.connection.run(f"DELETE FROM {table} WHERE agent = ?", (agent,)) for table in OF_AN_AGENT)
    rows += scorer.connection.run("DELETE FROM agents WHERE agent = ?", (agent,))
    scorer.drop(agent)
    digest = hashlib.sha256(agent.encode()).hexdigest()[:16]
    put_audit(scorer.connection, scorer.now, by, "erased", None, f"agent sha256:{digest}, {rows} rows")
    scorer.news.append(("agent", agent))
    return rows


def remove_old(scorer: Scorer, now: float) -> int:
    """Remove fixes, trips and what was said of them, if they are older than they are to be kept; gives how many.

    What was learned from them stays in the memories, as counts; the trip under way stays.
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
