"""Keeps the review queue: flagged trips, questions, trips in doubt, and verdicts, which can be undone for a while."""

from __future__ import annotations

import json
from collections.abc import Sequence

from astray.core.errors import AstrayError, DataError
from astray.model.observing import LEARNED, Question
from astray.runtime.live_scores import TripScore
from astray.service.scoring.event_rows import finite, trip_name, trip_of
from astray.service.store import Connection

FLAGGED, QUESTION, DOUBT, UNASKED = "trip", "question", "doubt", "unasked"
"""Kinds of items: a flagged trip; several similar trips; a trip neither flagged nor learned; a trip that was not in the
queue and on which a person gave a verdict unasked."""
VERDICTS = ("normal", "anomaly", "unsure")


class TaughtError(AstrayError):
    """Raised if a verdict cannot be changed, because it has already taught the model."""


def wait_for_review(connection: Connection, trip: TripScore, now: float, kind: str = FLAGGED) -> None:
    """Puts a flagged or doubtful trip into the queue; keeps a verdict on it."""
    connection.run(
        "INSERT INTO reviews (item, kind, agent, trips, score, opened) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (item) DO UPDATE SET kind = excluded.kind, score = excluded.score",
        (trip_name(*trip.id), kind, trip.agent, json.dumps([trip.trip]), finite(trip.score), now),
    )


def wait_no_more(connection: Connection, trip: TripScore) -> None:
    """Takes a trip out of the queue after it was scored again, unless it has a verdict."""
    connection.run("DELETE FROM reviews WHERE item = ? AND verdict IS NULL", (trip_name(*trip.id),))


def sync_questions(connection: Connection, agent: str, questions: Sequence[Question], now: float) -> list[str]:
    """Updates the queue to the open questions about an agent; returns the items that changed."""
    asked = "SELECT item, trips FROM reviews WHERE agent = ? AND kind = ? AND verdict IS NULL"
    there: dict[str, str] = dict(connection.rows(asked, (agent, QUESTION)))
    wanted = {  # a question has the name of its first trip
        f"question/{trip_name(*q.trips[0])}": json.dumps([trip.trajectory for trip in q.trips]) for q in questions
    }
    changed = [item for item in there if item not in wanted]
    for item in changed:
        connection.run("DELETE FROM reviews WHERE item = ?", (item,))
    for item, trips in wanted.items():
        if there.get(item) != trips:
            changed.append(item)
            # The question has the score of its worst trip, so that the list shows them together.
            scores = [_score(connection, agent, trip) for trip in json.loads(trips)]
            worst = min((score for score in scores if score is not None), default=None)
            connection.run(
                "INSERT INTO reviews (item, kind, agent, trips, score, opened) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (item) DO UPDATE SET trips = excluded.trips, score = excluded.score "
                "WHERE reviews.verdict IS NULL",
                (item, QUESTION, agent, trips, worst, now),
            )
    return changed


def _score(connection: Connection, agent: str, trip: str) -> float | None:
    found: float | None = connection.value("SELECT score FROM trips WHERE agent = ? AND trip = ?", (agent, trip))
    return found


def give_verdict(connection: Connection, item: str, verdict: str, by: str, now: float, delay: float) -> float:
    """Stores a person's verdict; returns when it will teach."""
    if verdict not in VERDICTS:
        raise DataError(f"there is no verdict {verdict!r:.40}", remedy=f"give one of {', '.join(VERDICTS)}")
    found = connection.row("SELECT kind, taught_at FROM reviews WHERE item = ?", (item,))
    if found is None or (found[0] == UNASKED and found[1] is None):
        _add_unasked(connection, item, verdict, now)
    elif found[1] is not None:
        raise TaughtError("an earlier verdict on this trip has taught already", remedy="it cannot be changed any more")
    connection.run(
        "UPDATE reviews SET verdict = ?, by = ?, at = ?, teaches_at = ? WHERE item = ?",
        (verdict, by, now, now + delay, item),
    )
    return now + delay


def _add_unasked(connection: Connection, item: str, verdict: str, now: float) -> None:
    """Adds an item for a verdict on a trip that was not in the queue."""
    if item.startswith("question/"):
        raise LookupError(item)
    agent, trip = trip_of(item)
    row = connection.row("SELECT state, score FROM trips WHERE agent = ? AND trip = ?", (agent, trip))
    if row is None or item != trip_name(agent, trip):  # a trip has exactly one name
        raise LookupError(item)
    state, score = row
    if state == LEARNED and verdict != "anomaly":
        raise DataError(
            "the model has learned this trip already", remedy="say anomaly if it should not have, or nothing"
        )
    connection.run(
        "INSERT INTO reviews (item, kind, agent, trips, score, opened) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (item) DO NOTHING",
        (item, UNASKED, agent, json.dumps([trip]), score, now),
    )


def undo_verdict(connection: Connection, item: str) -> None:
    """Undoes a verdict that has not taught yet."""
    found = connection.row("SELECT kind, taught_at FROM reviews WHERE item = ?", (item,))
    if found is None:
        raise LookupError(item)
    if found[1] is not None:
        raise TaughtError("the verdict has taught already", remedy="it cannot be changed any more")
    if found[0] == UNASKED:  # it was not in the queue before
        connection.run("DELETE FROM reviews WHERE item = ?", (item,))
        return
    connection.run("UPDATE reviews SET verdict = NULL, by = NULL, at = NULL, teaches_at = NULL WHERE item = ?", (item,))
