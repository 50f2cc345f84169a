"""Refreshing: an agent's scale measured anew, and the reward that goes on learning, both made in the other process.

What is learned trip by trip is measured trip by trip, by the memory of that moment. Now and then an agent is measured
anew on all its newest trips; and when enough agents have enough trips, the shared reward goes on learning from them, as
``astray fit`` would have it. Either is swapped in between trips: a trip under way keeps the model it began with. How
popular places are stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from astray.core.extras import can_learn
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.model.fleet_training import GoingOnConfig, go_on
from astray.service import served_model
from astray.service.preferences import put_setting
from astray.service.review.teaching import pin, put_audit
from astray.service.scoring.scorer import Scorer, stored_trip
from astray.service.store import Address, Connection, open_reader

REFRESHED = "refreshed"  # the setting that says when that was done last, and how many trips the reward had
LEAST_TRIPS = 20  # of an agent, before it is measured anew
LEAST_AGENTS, LEAST_EACH = 12, 10  # agents with so many trips each, before the reward goes on learning
MOST_AGENTS, MOST_EACH = 64, 200  # that it learns from, at most


class Recalibration(NamedTuple):
    """An agent to be measured anew, and, when that is done, what is known of it then."""

    agent: str
    model: int
    before: bytes = b""  # the checksum of what was measured
    data: bytes = b""


class NewReward(NamedTuple):
    """A reward to go on learning, and, when that is done, the parts of the model."""

    model: int
    trips: int  # that are there to learn from
    parts: tuple[tuple[str, bytes], ...] = ()


Refresh = Recalibration | NewReward


class Last(msgspec.Struct):
    """When everything was refreshed last, and with how many trips the reward was."""

    at: float
    trips: int = 0


def last_refresh(connection: Connection) -> Last | None:
    """When everything was refreshed last; None if never."""
    found = connection.value("SELECT value FROM settings WHERE name = ?", (REFRESHED,))
    return None if found is None else msgspec.json.decode(found, type=Last)


def note_refresh(connection: Connection, last: Last) -> None:
    """Note that everything is refreshed."""
    put_setting(connection, REFRESHED, msgspec.json.encode(last).decode())


def to_refresh(connection: Connection, model: int, last: Last) -> Sequence[Refresh]:
    """Returns what to refresh: the reward, if there are twice as many trips as when it last learned, or else agents.

    Only a service that has torch goes on learning the reward; without it agents alone are measured anew.
    """
    able = [int(n) for (n,) in connection.rows("SELECT trips FROM memories WHERE trips >= ?", (LEAST_EACH,))]
    if can_learn() and len(able) >= LEAST_AGENTS and sum(able) >= 2 * last.trips:
        return [NewReward(model, sum(able))]  # after which every agent is measured anew in any case
    return to_recalibrate(connection, model, last)


def to_recalibrate(connection: Connection, model: int, last: Last) -> list[Recalibration]:
    """The agents that were on the way since everything was refreshed last, or a month before."""
    grown = "SELECT agent FROM memories WHERE trips >= ? AND last > ? ORDER BY agent"
    return [Recalibration(agent, model) for (agent,) in connection.rows(grown, (LEAST_TRIPS, last.at - 30 * 86_400.0))]


class Refresher:
    """Refreshes; lives in a process of its own, with a connection that only reads."""

    def __init__(self, address: Address, sharing: GoingOnConfig | None = None) -> None:
        self._address, self._sharing = address, sharing or GoingOnConfig()

    def __call__(self, task: Refresh) -> Refresh | None:
        """Do what there is to do; None if nothing came of it."""
        connection = open_reader(self._address)
        try:
            with one_thread():
                served = served_model.ServedModel.open(connection, task.model)
                if isinstance(task, Recalibration):
                    return recalibrated(served, task)
                return refreshed(connection, served, task, self._sharing)
        finally:
            connection.close()


# -------------------------------------------------------------------- in the other process


def recalibrated(served: served_model.ServedModel, task: Recalibration) -> Recalibration | None:
    """Measures an agent anew: every trip that it keeps, held out of its memory."""
    found, codec = served.tables.read(task.agent), served.memories.codec
    if found is None:
        return None
    again = served.world.measure(task.agent, codec.unpack(found[0]))
    return Recalibration(task.agent, task.model, found[1].checksum, codec.pack(again))


def refreshed(
    connection: Connection, served: served_model.ServedModel, task: NewReward, sharing: GoingOnConfig
) -> NewReward | None:
    """The parts of a model whose reward went on learning from the agents' newest normal trips."""
    asked = "SELECT agent FROM memories WHERE trips >= ? ORDER BY trips DESC, agent LIMIT ?"
    newest = (
        "SELECT trip, started, ended FROM trips WHERE agent = ? AND state = 'learned' ORDER BY started DESC LIMIT ?"
    )
    found = []
    for (agent,) in connection.rows(asked, (LEAST_EACH, MOST_AGENTS)):
        for trip, start, end in connection.rows(newest, (agent, MOST_EACH)):
            whole = stored_trip(connection, agent, trip, start, end)
            found += [whole] if whole.n_rows > 1 else []
    if not found:
        return None
    trips = Trajectories.concat(found)
    rng = np.random.default_rng(0)
    learned = go_on(served.world.reward, trips, served.world.config, sharing, rng)
    if learned is None:
        return None
    served.world.reward = learned
    return task._replace(parts=tuple(served.detector.shared_parts.items()))


# -------------------------------------------------------------------- swapped in


def swap_in(scorer: Scorer, made: Refresh) -> None:
    """Put what was made in place, unless things have changed meanwhile: then it is done again another time."""
    if made.model != scorer.version:
        return
    if isinstance(made, Recalibration):
        _swap_scale(scorer, made)
    else:
        _swap_reward(scorer, made)


def _swap_scale(scorer: Scorer, made: Recalibration) -> None:
    entry = scorer.served.tables.entry(made.agent)
    if entry is not None and entry.checksum == made.before:
        pin(scorer, made.agent)
        scorer.served.memories[made.agent] = scorer.served.memories.codec.unpack(made.data)


def _swap_reward(scorer: Scorer, made: NewReward) -> None:
    for (agent,) in scorer.connection.rows("SELECT agent FROM agents WHERE trip IS NOT NULL"):
        pin(scorer, str(agent))
    version = scorer.version + 1
    tables = served_model.CachedTables(scorer.connection, version)
    with tables.changing() as change:
        for part, data in made.parts:
            change.share(part, data)
    put_setting(scorer.connection, served_model.VERSION, str(version))
    scorer.connection.run(
        "DELETE FROM models WHERE version < ? AND version NOT IN (SELECT model FROM pins) AND version NOT IN "
        "(SELECT t.model FROM trips t JOIN scores s ON s.agent = t.agent AND s.trip = t.trip WHERE s.data IS NULL)",
        (version,),
    )
    scorer.use_model(version)
    note_refresh(scorer.connection, Last(scorer.now, made.trips))
    put_audit(scorer.connection, scorer.now, "astray", "reward refreshed", None, f"{made.trips} trips, model {version}")
