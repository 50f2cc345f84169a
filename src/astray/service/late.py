"""Late fixes: the stored trips that they belong to are cut and scored again, and an alert is raised at most once."""

from __future__ import annotations

import math

from astray.live.score import TripScore
from astray.service import memories
from astray.service.fixes import FeedFix
from astray.service.scoring import Scorer
from astray.service.tracking import Tracked
from astray.trip_ids import TripId

LOG = "SELECT time, lat, lon, trip, to_lat, to_lon FROM fixes WHERE agent = ? AND time >= ? ORDER BY time, n"


def rescore_late(scorer: Scorer, now: float) -> list[str]:
    """Look again at the agents whose fixes came late; gives who they are."""
    asked = "SELECT agent FROM agents WHERE late_from IS NOT NULL ORDER BY agent LIMIT 20"
    agents = [str(agent) for (agent,) in scorer.connection.rows(asked)]
    scorer.now = now
    for agent in agents:
        rescore(scorer, agent)
    return agents


def rescore(scorer: Scorer, agent: str) -> None:
    """Cut and score an agent's trips again, from the one that late fixes touch until nothing changes any more."""
    connection, before = scorer.connection, scorer.tracked(agent)
    assert before is not None
    if before.late is None:
        return
    first, last = before.late
    since = _begin(scorer, before, first)
    stored = dict(
        connection.rows("SELECT trip, started FROM trips WHERE agent = ? AND started >= ? ORDER BY started", (agent, since))
    )
    # What is looked at again must not be known already: the past that it is measured on has no part in it.
    memories.unlearn(scorer.fleet, [TripId(agent, trip) for trip in stored])
    found: list[TripScore] = []

    def ended(tracked: Tracked, trip: TripScore, eps: float) -> None:
        found.append(trip)
        tracked.alert, tracked.alerts = None, 0
        flagged = scorer.store_trip(tracked, trip, eps, late=True)
        if flagged and trip.history >= scorer.fleet.min_history and not _has_alert(scorer, trip):
            scorer.open_alert(trip, 1, trip.end, trip.decision, late=True)

    after = Tracked(scorer.fleet, agent, ended)
    met = math.inf  # where the trips are those that are stored
    for time, lat, lon, trip, *to in connection.rows(LOG, (agent, since)):
        after.take(FeedFix(agent, time, lat, lon, trip or "", None if to[0] is None else (to[0], to[1])))
        if time > last and after.open_since > last and stored.get(after.open_trip or "") == after.open_since:
            met = after.open_since
            break
    kept = {trip.trip for trip in found}
    _remove(scorer, agent, [trip for trip, started in stored.items() if started < met and trip not in kept])
    _learn_again(scorer, agent, [trip for trip, started in stored.items() if started >= met])
    if met == math.inf:
        _take_over(scorer, before, after)
    before.late, before.past = None, scorer.past(agent)
    scorer.touched[agent] = before
