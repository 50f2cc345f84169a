"""Teaches the model verdicts that can no longer be undone; each changes its agent's memory in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence

from astray.core.trajectories import Trajectories
from astray.model.observing import LEARNED, REFUSED
from astray.service.review.review_queue import QUESTION
from astray.service.scoring.event_rows import put_audit, trip_name
from astray.service.scoring.scorer import Scorer, trip_by_name
from astray.service.store import Connection

MOST = 20  # verdicts per transaction

DUE = (
    "SELECT item, kind, agent, trips, verdict, by FROM reviews "
    "WHERE teaches_at <= ? AND taught_at IS NULL ORDER BY at, item LIMIT ?"
)


def teach_due(scorer: Scorer, now: float) -> list[str]:
    """Teaches the model the verdicts that are due; returns their items."""
    scorer.now = now
    done = []
    for item, kind, agent, trips, verdict, by in scorer.connection.rows(DUE, (now, MOST)):
        _teach(scorer, item, kind, agent, json.loads(trips), verdict, by)
        done.append(item)
    return done


def _teach(scorer: Scorer, item: str, kind: str, agent: str, trips: list[str], verdict: str, by: str) -> None:
    connection, now = scorer.connection, scorer.now
    if verdict != "unsure":
        mine = verdict == "normal"
        found = [whole for name in trips if (whole := trip_by_name(connection, agent, name)) is not None]
        if found and agent in scorer.served.memories:
            scorer.pin(agent)
            questions = scorer.served.teach(Trajectories.concat(found), mine)
            scorer.ask(agent, questions)
            note_taught(connection, agent, trips, mine)
            tracked = scorer.tracked(agent)
            assert tracked is not None
            tracked.past = scorer.past(agent)
            scorer.touched[agent] = tracked
    connection.run("UPDATE reviews SET taught_at = ? WHERE item = ?", (now, item))
    if kind == QUESTION:  # the verdict applies to each of its trips
        for trip in trips:
            connection.run(
                "UPDATE reviews SET verdict = ?, by = ?, at = ?, teaches_at = ?, taught_at = ? "
                "WHERE item = ? AND taught_at IS NULL",
                (verdict, by, now, now, now, trip_name(agent, trip)),
            )
            scorer.news.append(("review", trip_name(agent, trip)))
    put_audit(connection, now, by, f"verdict: {verdict}", agent, item)


def note_taught(connection: Connection, agent: str, trips: Sequence[str], mine: bool) -> None:
    """Stores the state of trips after a person's verdict."""
    connection.many(
        "UPDATE trips SET state = ? WHERE agent = ? AND trip = ?",
        [(LEARNED if mine else REFUSED, agent, trip) for trip in trips],
    )
