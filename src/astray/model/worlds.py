"""A world is a kind of trajectories that a model can be about; it is chosen when the model is fitted.

:class:`~astray.Detector` calls the methods of its world and never asks which one it is. To add a kind of trajectories,
write a subclass of :class:`World` and enter it in :data:`WORLDS`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.settings import ASPECTS
from astray.core.times import as_moments
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone, zones_of
from astray.features.memory import Forgetting
from astray.irl.shared import Reward
from astray.model.memories import Memories
from astray.model.memory_bytes import MemoryCodec, pack_anomalous
from astray.model.observing import Observed, Question
from astray.model.packing import Contents
from astray.model.parameters import Parameters
from astray.model.store import ANOMALOUS, POPULARITY, Change, Row, Store
from astray.scoring.decisions import Bounds, Rate, Threshold, aspect_rates
from astray.scoring.normality import AspectScores, Calibration, TripScores
from astray.scoring.scores import AgentModel, Chunk, Scores

if TYPE_CHECKING:
    from astray.explain import Explanation

Array = NDArray[Any]
IsLow = Callable[[Trajectories, Calibration, TripScores, AspectScores], bool]
"""Says whether one trip with these scores is low, by the thresholds of a detector."""

WORLDS = {"trips": "astray.model.gps_trips:GpsTrips", "steps": "astray.model.steps_world:Steps"}
"""Maps the names in model files to worlds; trajectories belong to the first world that takes them."""


def worlds() -> Iterator[type[World]]:
    """Yields the classes of all worlds."""
    for place in WORLDS.values():
        module, name = place.split(":")
        yield getattr(import_module(module), name)


def world_of(trips: Trajectories) -> type[World]:
    """Returns the world that these trajectories belong to."""
    for world in worlds():
        if world.takes(trips):
            return world
    raise DataError(
        f"these trajectories hold {', '.join(trips.columns)}, which no kind of model is about",
        remedy="give fixes (time, lat, lon) or states and actions",
    )


def world_named(model: Contents) -> type[World]:
    """Returns the world that a model file names."""
    for world in worlds():
        if world.kind == model.kind:
            return world
    raise model.wrong(f"a model of the unknown kind {model.kind!r}")


class World(ABC):
    """What a fitted model knows, and how it handles trajectories of its kind.

    Attributes
    ----------
    kind
        The name of the world in a model file.
    sees
        What its trajectories hold, as messages say it.
    is_timed
        True if its trajectories are fixes, with times and places on the earth.
    parameters
        The parameters of the detector that it belongs to.
    reward
        The learned reward.
    weights
        The weight of each aspect of the reward.
    anomalous
        The trips that proved anomalous, which the model never learns from.
    updates
        The number of times that the model continued to learn.
    memories
        The memory of each agent; empty where the model remembers no trips.
    """

    kind: ClassVar[str]
    sees: ClassVar[str]
    is_timed: bool = False

    parameters: Parameters
    reward: Reward
    weights: tuple[float, ...]
    anomalous: frozenset[TripId]
    updates: int
    memories: Memories

    def __post_init__(self) -> None:
        self.memories = Memories(MemoryCodec(Forgetting(), 0), lambda agent, memory: memory)  # it remembers no trips

    def with_parameters(self, parameters: Parameters) -> Self:
        """Returns a copy with the parameters of another detector."""
        found = copy.copy(self)
        found.parameters = parameters
        return found

    # ---------------------------------------------------------------- learning

    @classmethod
    @abstractmethod
    def takes(cls, trips: Trajectories) -> bool:
        """Returns True if trajectories are of this world's kind."""

    @classmethod
    @abstractmethod
    def fit(
        cls,
        parameters: Parameters,
        trips: Trajectories,
        anomalous: Trajectories,
        population: Trajectories | None,
    ) -> World:
        """Learns from ``trips``, never from ``anomalous`` ones, and returns the world that was learned."""

    @abstractmethod
    def update(
        self,
        trips: Trajectories | None,
        y: Any,
        anomalous: Iterable[TripId | str],
        population: Trajectories | None,
    ) -> None:
        """Continues to learn with further trips; takes out those that proved anomalous."""

    def enroll(self, trips: Trajectories) -> int:
        """Counts trips of new or known agents; returns how many were counted."""
        raise self._cannot("enrol agents")

    def observe(self, trips: Trajectories, is_low: IsLow) -> Observed:
        """Scores trips in the order of time, and learns from each that is normal."""
        raise self._cannot("learn trip by trip")

    def answer(self, trips: Sequence[TripId], mine: bool) -> None:
        """Learns from waiting trips if they are ``mine``, otherwise rejects them."""
        raise self._cannot("learn trip by trip")

    @abstractmethod
    def forget(self, agent: str) -> None:
        """Removes an agent and all that is known of it."""

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Takes trips out of an agent's memory; returns how many were remembered."""
        raise self._cannot("forget single trips")

    def _cannot(self, what: str) -> DataError:
        return DataError(f"a model that learned a reward of its own cannot {what}", remedy="call partial_fit(trips)")

    def of_another_kind(self, trips: Trajectories) -> DataError:
        """Returns an error for trips that are not of the kind that the model was fitted on."""
        return DataError(
            f"this detector was fitted on {self.sees}, but these trajectories hold {', '.join(trips.columns)}",
            remedy="give trajectories of the kind it was fitted on",
        )

    # ---------------------------------------------------------------- what is known

    @property
    @abstractmethod
    def agents(self) -> list[str]:
        """The agents whose trips the model has learned from."""

    @abstractmethod
    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """Returns the agents of these trips that the model does not know."""

    @property
    @abstractmethod
    def n_trips(self) -> int:
        """The number of trips that the model has learned from."""

    @property
    @abstractmethod
    def known_trips(self) -> set[TripId]:
        """The trips that the model knows: learned, waiting, or known as anomalous."""

    @abstractmethod
    def learned_of(self, agents: Iterable[str]) -> set[TripId]:
        """Returns the trips that the model has learned from, of these agents."""

    @property
    def suspects(self) -> tuple[TripId, ...]:
        """Past trips that look like somebody else's, and are not remembered."""
        return ()

    @property
    def waiting(self) -> tuple[TripId, ...]:
        """The flagged trips that wait for a person."""
        return ()

    @property
    def questions(self) -> tuple[Question, ...]:
        """The model's open questions to a person."""
        return ()

    @property
    @abstractmethod
    def n_others(self) -> int:
        """The number of agents that the popularity of places counts."""

    @property
    @abstractmethod
    def starts(self) -> list[float]:
        """The starts of the remembered trips in a model of one agent or pool; empty for trips without times."""

    @abstractmethod
    def home(self, agent: str) -> Zone | None:
        """Returns the time zone in which an agent lives; None if it is not known."""

    @property
    @abstractmethod
    def is_one(self) -> bool:
        """True if the model is of one agent or one pool: it then compares every trip with the same past."""

    # ---------------------------------------------------------------- looking

    @abstractmethod
    def check(self, trips: Trajectories) -> Trajectories:
        """Returns the trips, or raises a DataError if they are not of the kind that the model was fitted on."""

    def order(self, trips: Trajectories) -> Array | None:
        """Returns the order in which trips are scored fastest; None for the order in which they are given."""
        return None

    @abstractmethod
    def featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        """Returns the features of a chunk of trips: of ``every`` fix, or of about one fix per interval."""

    @abstractmethod
    def calibrations(self, trips: Trajectories | None) -> Sequence[Calibration]:
        """Returns the scales of the scores of these trips; ``chunk.scale`` says which one each trip has.

        A model of one agent or pool has one for all trips, so it needs no trips to return it.
        """

    @abstractmethod
    def explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        """Explains one trip, given the scores of all its fixes."""

    def agent_model(
        self, agent: str, near: tuple[float, float] | None = None, began: float | None = None
    ) -> AgentModel:
        """Returns how one agent's trips are scored fix by fix; for a stranger, around a place (lat, lon).

        ``began`` is when the trip began: a trip long after the newest past one has a scale of its own.
        """
        raise DataError(
            f"this detector was fitted on {self.sees}, which have no place on the earth",
            remedy="use one that was fitted on GPS trips",
        )

    @property
    def eps(self) -> Threshold | None:
        """The threshold; None if it follows from the false-alarm rate."""
        return self.parameters.eps

    def rates(self, rate: Rate) -> tuple[float, ...]:
        """Returns the rate of each aspect of the reward; empty if one rate holds for the score."""
        return aspect_rates(rate, self.reward.aspects, self.weights)

    @property
    def table_aspects(self) -> tuple[str, ...]:
        """The aspects that have a column of p-values in tables; none for states and actions."""
        return ASPECTS if self.is_timed else ()

    def zones(self, trips: Trajectories) -> list[Zone] | None:
        """Returns the time zone in which each trip's times are printed; None for trips without times."""
        if not self.is_timed:
            return None
        homes = {agent: home for agent in trips.agents if (home := self.home(agent)) is not None}
        return zones_of(trips, self.parameters.given_zone, homes)

    def trip_columns(self, trips: Trajectories) -> dict[str, pl.Series]:
        """Returns further columns of the table of trips: when each began, where there is time."""
        return {"start": as_moments(trips.columns["time"][trips.offsets[:-1]])} if self.is_timed else {}

    def fix_columns(self, trips: Trajectories) -> dict[str, Any]:
        """Returns the columns that identify the fix or step in each row of the table of fixes."""
        if self.is_timed:
            when = as_moments(trips.columns["time"])
            return {"time": when, "lat": trips.columns["lat"], "lon": trips.columns["lon"]}
        return {"step": np.arange(trips.n_rows) - trips.offsets[:-1][trips.trajectory_of_row]}

    def when(self, seconds: Sequence[float | None]) -> pl.Series:
        """Returns times of a trip as a column: date-times in UTC, or the numbers of steps."""
        return as_moments(seconds) if self.is_timed else pl.Series(seconds, dtype=pl.Float64)

    # ---------------------------------------------------------------- keeping

    @abstractmethod
    def pack(self) -> dict[str, Any]:
        """Returns reward and configuration, which all agents share, for the part ``MODEL`` of a store."""

    def parts(self) -> dict[str, bytes]:
        """Returns the other parts that all agents share, as a store keeps them."""
        return {POPULARITY: b"", ANOMALOUS: pack_anomalous(self.anomalous)}

    def rows(self) -> Iterable[tuple[str, Row]]:
        """Yields each agent's memory as a store keeps it, sorted by name."""
        return ()

    @classmethod
    @abstractmethod
    def unpack(cls, parameters: Parameters, model: Contents, store: Store) -> Self:
        """Returns the world that a store holds; ``model`` is its part ``MODEL``."""

    def write_changes(self, store: Store, change: Change) -> Callable[[], None]:
        """Writes the changed parts and memories; returns a function to call after the commit."""
        change.share(ANOMALOUS, pack_anomalous(self.anomalous))
        return lambda: None

    def opened_with(self, store: Store | None) -> None:  # noqa: B027  (a world without memories has nothing to note)
        """Notes that the store is up to date."""
