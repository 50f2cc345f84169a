"""A view: how the fixes of an agent become the features that its reward sees. Needs no training library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.errors import DataError
from astray.mdp.context import Context, ContextSpec
from astray.mdp.encoders import Encoder, FamiliarityEncoder, FourierEncoder, RawEncoder
from astray.mdp.familiarity import DEFAULT_HABITS, DEFAULT_LAGS, Habit
from astray.mdp.faults import FaultRules
from astray.mdp.haunts import Haunts
from astray.mdp.memory import Forgetting, Memory
from astray.mdp.paths import paths_of, resample, trace
from astray.mdp.projection import Projection
from astray.mdp.steps import Steps, steps_of
from astray.trajectories import Trajectories

Array = NDArray[Any]

ENCODERS = ("familiarity", "fourier", "raw")


@dataclass(frozen=True)
class ViewConfig:
    """How trips are looked at."""

    encoder: str = "familiarity"  # 'familiarity', 'fourier', or the paper's 'raw'
    interval: float = 30.0  # seconds between the steps that are learned from; velocities look back as far
    habits: tuple[Habit, ...] = DEFAULT_HABITS  # of the familiarity encoder
    lags: tuple[float, ...] = DEFAULT_LAGS  # seconds by which habits of the way taken look back
    trace_interval: float = 10.0  # seconds between the points that are remembered of a trip
    trace_spacing: float = 100.0  # metres, at most, between those points
    haunts: tuple[float, ...] = (150.0, 500.0)  # metres: of these cells it is seen how many other agents go there
    faults: FaultRules = FaultRules()
    forgetting: Forgetting = Forgetting()
    context: ContextSpec = ContextSpec()
    utc_offset: float | None = None  # seconds that local time is ahead of UTC; None: by the longitude

    def __post_init__(self) -> None:
        for name in ("interval", "trace_interval", "trace_spacing"):
            if not getattr(self, name) > 0:
                raise DataError(f"{name} is {getattr(self, name)}; give a positive number")
        if not all(0 < size < np.inf for size in self.haunts):
            raise DataError(f"haunts are cells of {self.haunts} metres; give positive numbers, or () for none")
        if any(h.trail is not None and not 0 <= h.trail < len(self.lags) for h in self.habits):
            raise DataError(f"a habit looks back by a lag that is not among the {len(self.lags)} lags; add it there")


class Sight(NamedTuple):
    """Fixes as a view sees them; one row a good fix."""

    features: NDArray[np.float32]
    steps: Steps
    row: NDArray[np.int64]  # which fix of the input this is
    weight: NDArray[np.float64]  # seconds that the row stands for in its trip's mean
    fault: NDArray[np.int8]  # one a fix of the input: 0, or what is wrong with it


@dataclass(frozen=True, eq=False)
class View:
    """A centre, an encoder with its memory, a context, and where other agents go.

    >>> trips = Trajectories.from_fixes(time=np.arange(100) * 10, lat=45 + np.arange(100) * 1e-4, lon=np.full(100, 7.0))
    >>> view = View.of(trips, ViewConfig(), np.random.default_rng(0)).remember(trips)
    >>> sight = view.look(trips)
    >>> sight.features.shape[0], len(view.names) == sight.features.shape[1]
    (100, True)
    """

    config: ViewConfig
    projection: Projection
    encoder: Encoder
    context: Context = field(default_factory=Context)
    haunts: Haunts = field(default_factory=Haunts)

    @classmethod
    def of(cls, fixes: Trajectories, config: ViewConfig, rng: np.random.Generator) -> View:
        """A view centred on some fixes, with an empty memory."""
        if not fixes.is_gps:
            raise DataError(
                "these trajectories have no columns time, lat and lon; use a StepWorld for states and actions"
            )
        if not len(fixes):
            raise DataError("no trajectories were given; at least one is needed")
        projection = Projection.centred_on(fixes.columns["lat"], fixes.columns["lon"])
        offset = projection.solar_offset if config.utc_offset is None else config.utc_offset
        encoders: dict[str, Encoder] = {
            "raw": RawEncoder(),
            "fourier": FourierEncoder.draw(rng),
            "familiarity": FamiliarityEncoder(Memory(forgetting=config.forgetting), config.habits, config.lags, offset),
        }
        if config.encoder not in encoders:
            raise DataError(f"no encoder named {config.encoder!r}; there are {', '.join(ENCODERS)}")
        context = Context.of(config.context, fixes, projection, offset)
        return cls(config, projection, encoders[config.encoder], context)

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        return [*self.encoder.names, *self.context.names, *self.haunts.names]

    @property
    def memory(self) -> Memory:
        """The trips that the view remembers; empty where the encoder has no use for them."""
        return self.encoder.memory if isinstance(self.encoder, FamiliarityEncoder) else Memory()

    # ---------------------------------------------------------------- remembering

    def remember(self, fixes: Trajectories) -> View:
        """A view that remembers these trips as well."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        steps = steps_of(self._traces(fixes), self.config.interval, self.encoder.lags)
        return replace(self, encoder=self.encoder.remember(steps, trip_names(fixes)))

    def among(self, others: Trajectories) -> View:
        """A view that knows where these agents go; one of few agents, or with another encoder, does not."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        return replace(self, haunts=self.haunts_of(others, self.haunts).of_enough())

    def haunts_of(self, trips: Trajectories, known: Haunts) -> Haunts:
        """What is known, and where the agents of these trips go."""
        haunts = known if known.cells else Haunts(self.config.haunts)
        if not haunts.cells:
            return haunts
        traces = self._traces(trips)
        agents, of_trip = np.unique(trips.agent_ids.astype(str), return_inverse=True)
        of_row = of_trip[traces.context["trip"]][traces.trajectory_of_row]
        return haunts.visited(agents.tolist(), of_row, *self.projection.to_degrees(traces.columns["xy"]))

    def forget(self, trip_ids: Sequence[str]) -> View:
        """A view that does not remember these trips."""
        return self.with_memory(self.memory.remove(trip_ids))

    def with_memory(self, memory: Memory) -> View:
        """The same view with another memory: another agent's eyes."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        return replace(self, encoder=self.encoder.with_memory(memory))

    def _traces(self, fixes: Trajectories) -> Trajectories:
        """The paths of trips, point by point as they are remembered."""
        return trace(resample(self.paths(fixes), self.config.trace_interval), self.config.trace_spacing)

    # ---------------------------------------------------------------- looking

    def paths(self, fixes: Trajectories) -> Trajectories:
        """The paths of the fixes, in this view's metres, with their context."""
        return self._paths(fixes)[0]

    def _paths(self, fixes: Trajectories) -> tuple[Trajectories, NDArray[np.int8]]:
        paths, fault = paths_of(fixes, self.projection, self.config.faults)
        paths.context["given"] = self.context.given(fixes)[paths.context["trip"]]
        return paths, fault

    def steps(self, paths: Trajectories) -> Steps:
        """The steps of paths, with the look-back that the encoder needs."""
        return steps_of(paths, self.config.interval, self.encoder.lags)

    def encode(self, steps: Steps, without: Array | None = None, own: Array | None = None) -> NDArray[np.float32]:
        """The features of steps.

        ``without`` numbers the remembered trip that must not count, ``own`` the agent of the haunts that made the step
        and is nobody else to itself; -1 for none.
        """
        return np.ascontiguousarray(self._encode(steps, without, own))

    def _encode(self, steps: Steps, without: Array | None, own: Array | None) -> NDArray[np.float32]:
        parts = [self.encoder.encode(steps, without)]
        if self.context.names:
            parts.append(self.context.encode(steps))
        if self.haunts.cells:
            parts.append(self.haunts.encode(*self.projection.to_degrees(steps.location), own))
        return np.hstack(parts) if len(parts) > 1 else parts[0]

    def look(self, fixes: Trajectories) -> Sight:
        """The features of every good fix, as a scorer needs them.

        A trip that is remembered itself does not count towards its own familiarity. A row weighs as many seconds as
        passed since the row before, up to the interval: so the mean over a trip does not depend on how often the
        receiver spoke.
        """
        paths, fault = self._paths(fixes)
        steps = self.steps(paths)
        since = np.diff(steps.time, prepend=steps.time[:1])
        weight = np.where(steps.first, 0.0, np.minimum(since, self.config.interval))
        own = self.memory.number_of(trip_names(fixes))
        # New trips, the usual case, have nothing of their own to leave out.
        without = own[steps.trip] if (own >= 0).any() else None
        return Sight(
            self._encode(steps, without, self.haunts.of_trips(fixes.agent_ids, steps.trip)),
            steps,
            paths.columns["row"],
            weight,
            fault,
        )


def trip_names(fixes: Trajectories) -> list[str]:
    """The names under which trips are remembered: of an agent, then of a trajectory."""
    return [f"{a}/{t}" for a, t in zip(fixes.agent_ids.tolist(), fixes.trajectory_ids.tolist(), strict=True)]
