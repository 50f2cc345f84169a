"""Refreshes the model in a separate process: recalibrates agents, and trains the shared reward further.

While the service learns trip by trip, it scores each trip with the memory of that moment. From time to time it scores
all of an agent's newest trips again, also those that a person's answer taught it; and when enough agents have enough
trips, it trains the shared reward further on them, as ``astray fit`` does. The result takes effect between trips: an
open trip keeps the model it began with. The popularity of places does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from astray.core.extras import can_learn
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.model.shared_training import GoingOnConfig, go_on
from astray.service import served_model
from astray.service.preferences import put_setting, setting
from astray.service.scoring.event_rows import put_audit
from astray.service.scoring.scorer import Scorer, stored_trip
from astray.service.store import Address, Connection, connect

REFRESHED = "refreshed"  # the setting that holds the last refresh
LEAST_TRIPS = 20  # an agent with fewer trips is not recalibrated
LEAST_AGENTS, LEAST_EACH = 12, 10  # the fewest agents, and trips of each, to train the reward further
MOST_AGENTS, MOST_EACH = 64, 200  # the most agents, and trips of each, that the reward learns from


class Recalibration(NamedTuple):
    """A task: an agent to recalibrate; as a result it holds the new memory."""

    agent: str
    model: int
    before: bytes = b""  # the checksum of the memory that was measured
    data: bytes = b""


class NewReward(NamedTuple):
    """A task: to train the reward further; as a result it holds the parts of the new model."""

    model: int
    trips: int  # to learn from
    parts: tuple[tuple[str, bytes], ...] = ()


Refresh = Recalibration | NewReward


class Last(msgspec.Struct):
    """The time of the last refresh, and the number of trips from which the reward had learned by then."""

    at: float
    trips: int = 0


def last_refresh(connection: Connection) -> Last | None:
    """Reads the last refresh; None if there was none."""
    found = setting(connection, REFRESHED)
    return None if found is None else msgspec.json.decode(found, type=Last)


def note_refresh(connection: Connection, last: Last) -> None:
    """Stores the last refresh."""
    put_setting(connection, REFRESHED, msgspec.json.encode(last).decode())


def to_refresh(connection: Connection, model: int, last: Last) -> Sequence[Refresh]:
    """Returns what to refresh: the reward, if there are twice as many trips as when it last learned, or else agents.

    Only a service that has torch trains the reward; without torch it only recalibrates agents.
    """
    able = [int(n) for (n,) in connection.rows("SELECT trips FROM memories WHERE trips >= ?", (LEAST_EACH,))]
    if can_learn() and len(able) >= LEAST_AGENTS and sum(able) >= 2 * last.trips:
        return [NewReward(model, sum(able))]  # a new reward recalibrates every agent anyway
    return to_recalibrate(connection, model, last)


def to_recalibrate(connection: Connection, model: int, last: Last) -> list[Recalibration]:
    """Lists the agents with trips later than a month before the last refresh."""
    grown = "SELECT agent FROM memories WHERE trips >= ? AND last > ? ORDER BY agent"
    return [Recalibration(agent, model) for (agent,) in connection.rows(grown, (LEAST_TRIPS, last.at - 30 * 86_400.0))]


class Refresher:
    """Does refresh tasks in the separate process, with a connection that only reads."""

    def __init__(self, address: Address, sharing: GoingOnConfig | None = None) -> None:
        self._address, self._sharing = address, sharing or GoingOnConfig()

    def __call__(self, task: Refresh) -> Refresh | None:
        """Does one task and returns its result; None if there is none."""
        connection = connect(self._address, write=False)
        try:
            with one_thread():
                served = served_model.ServedModel.open(connection, task.model)
                if isinstance(task, Recalibration):
                    return recalibrate(served, task)
                return learn_on(connection, served, task, self._sharing)
        finally:
            connection.close()


# -------------------------------------------------------------------- in the other process


def recalibrate(served: served_model.ServedModel, task: Recalibration) -> Recalibration | None:
    """Scores every kept trip of an agent again, each by the remembered trips before it."""
    found, codec = served.tables.read(task.agent), served.memories.codec
    if found is None:
        return None
    again = served.world.measure(task.agent, codec.unpack(found[0]))
    return Recalibration(task.agent, task.model, found[1].checksum, codec.pack(again))


def learn_on(
    connection: Connection, served: served_model.ServedModel, task: NewReward, sharing: GoingOnConfig
) -> NewReward | None:
    """Trains the reward further on the agents' newest normal trips; returns the parts of the new model."""
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


# -------------------------------------------------------------------- taking effect


def swap_in(scorer: Scorer, made: Refresh) -> None:
    """Puts a result into effect, unless its agent or model has changed since; then a later refresh does it again."""
    if made.model != scorer.version:
        return
    if isinstance(made, Recalibration):
        _swap_scale(scorer, made)
    else:
        _swap_reward(scorer, made)


def _swap_scale(scorer: Scorer, made: Recalibration) -> None:
    entry = scorer.served.tables.entry(made.agent)
    if entry is not None and entry.checksum == made.before:
        scorer.pin(made.agent)
        scorer.served.memories[made.agent] = scorer.served.memories.codec.unpack(made.data)


def _swap_reward(scorer: Scorer, made: NewReward) -> None:
    for (agent,) in scorer.connection.rows("SELECT agent FROM agents WHERE trip IS NOT NULL"):
        scorer.pin(str(agent))
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
