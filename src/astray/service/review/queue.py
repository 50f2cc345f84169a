"""The review queue: flagged trips and questions, verdicts that can be undone for a while, and what they teach."""

from __future__ import annotations

import json
from collections.abc import Sequence

from astray.detectors.observing import Question
from astray.errors import AstrayError, DataError
from astray.live.score import TripScore
from astray.service.scoring.events import finite, trip_name
from astray.service.store import Connection

TRIP, QUESTION = "trip", "question"
VERDICTS = ("normal", "anomaly", "unsure")


class TaughtError(AstrayError):
    """A verdict has taught already, and cannot be undone."""


def wait_for_review(connection: Connection, trip: TripScore, now: float) -> None:
    """Put a flagged trip into the queue; one that a person has spoken about stays as it is."""
    connection.run(
        "INSERT INTO reviews (item, kind, agent, trips, score, opened) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (item) DO UPDATE SET score = excluded.score",
        (trip_name(*trip.id), TRIP, trip.agent, json.dumps([trip.trip]), finite(trip.score), now),
    )


def question_name(question: Question) -> str:
    """What a question is called: after the first of its trips."""
    return f"question/{trip_name(*question.trips[0])}"


def sync_questions(connection: Connection, agent: str, questions: Sequence[Question], now: float) -> None:
    """Let the queue hold the open questions about an agent, and no others without a verdict."""
    asked = "SELECT item, trips FROM reviews WHERE agent = ? AND kind = ? AND verdict IS NULL"
    there: dict[str, str] = dict(connection.rows(asked, (agent, QUESTION)))
    wanted = {question_name(q): json.dumps([trip.trajectory for trip in q.trips]) for q in questions}
    for item in there.keys() - wanted.keys():
        connection.run("DELETE FROM reviews WHERE item = ?", (item,))
    for item, trips in wanted.items():
        if there.get(item) != trips:
            # As bad as the worst of its trips, so that it stands beside it.
            scores = [_score(connection, agent, trip) for trip in json.loads(trips)]
            worst = min((score for score in scores if score is not None), default=None)
            connection.run(
                "INSERT INTO reviews (item, kind, agent, trips, score, opened) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (item) DO UPDATE SET trips = excluded.trips, score = excluded.score "
                "WHERE reviews.verdict IS NULL",
                (item, QUESTION, agent, trips, worst, now),
            )


def _score(connection: Connection, agent: str, trip: str) -> float | None:
    found: float | None = connection.value("SELECT score FROM trips WHERE agent = ? AND trip = ?", (agent, trip))
    return found


def give_verdict(connection: Connection, item: str, verdict: str, by: str, now: float, delay: float) -> float:
    """Note a person's verdict; gives when it teaches."""
    if verdict not in VERDICTS:
        raise DataError(f"no verdict is {verdict!r:.40}", remedy=f"give one of {', '.join(VERDICTS)}")
    found = connection.row("SELECT taught_at FROM reviews WHERE item = ?", (item,))
    if found is None:
        raise LookupError(item)
    if found[0] is not None:
        raise TaughtError("an earlier verdict on it has taught already", remedy="nothing is changed any more")
    connection.run(
        "UPDATE reviews SET verdict = ?, by = ?, at = ?, teaches_at = ? WHERE item = ?",
        (verdict, by, now, now + delay, item),
    )
    return now + delay


def undo_verdict(connection: Connection, item: str) -> None:
    """Take a verdict back that has not taught yet."""
    found = connection.row("SELECT taught_at FROM reviews WHERE item = ?", (item,))
    if found is None:
        raise LookupError(item)
    if found[0] is not None:
        raise TaughtError("the verdict has taught already", remedy="nothing is changed any more")
    connection.run("UPDATE reviews SET verdict = NULL, by = NULL, at = NULL, teaches_at = NULL WHERE item = ?", (item,))
