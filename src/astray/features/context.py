"""Context: further inputs of a reward, such as time of day, weekday, landmarks, and columns of the trips."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.features.familiarity import DAY, WEEK
from astray.features.steps import Steps

Array = NDArray[Any]


@dataclass(frozen=True)
class ContextSpec:
    """The context that the reward sees in addition to the features of the encoder; by default none."""

    time_of_day: bool = False  # as a cycle
    weekday: bool = False  # as a cycle
    landmarks: tuple[tuple[float, float], ...] = ()  # (lat, lon) of places; the context is the distance to each
    numeric: tuple[str, ...] = ()  # context columns of the trajectories with one number for each trip
    categorical: tuple[str, ...] = ()  # context columns of the trajectories with one label for each trip


@dataclass(frozen=True)
class Context:
    """A context learned from demonstrations: the labels, the landmarks in metres, and the local time.

    >>> trips = Trajectories.from_fixes(time=[0, 1], lat=[0, 0], lon=[0, 0], trajectory=["a", "b"],
    ...                                 context={"call": ["stand", "phone"]})
    >>> context = Context.of(ContextSpec(categorical=("call",)), trips, Projection(0, 0))
    >>> context.names
    ['call = phone', 'call = stand']
    >>> context.given(trips).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    spec: ContextSpec = ContextSpec()
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    landmarks: tuple[tuple[float, float], ...] = ()
    utc_offset: float = 0.0

    @classmethod
    def of(cls, spec: ContextSpec, trips: Trajectories, projection: Projection, utc_offset: float = 0.0) -> Context:
        """Learns the labels of the categorical columns, and projects the landmarks."""
        for name in spec.numeric:
            context_column(trips, name)
        labels = {name: tuple(np.unique(context_column(trips, name).astype(str)).tolist()) for name in spec.categorical}
        places = projection.to_metres(*np.array(spec.landmarks).T) if spec.landmarks else np.zeros((0, 2))
        return cls(spec, labels, tuple((float(x), float(y)) for x, y in places), utc_offset)

    @cached_property
    def names(self) -> list[str]:
        """Returns one name for each feature, in the order of :meth:`encode`."""
        cycles = [
            f"{wave} of {what}"
            for what, wanted in (("day", self.spec.time_of_day), ("week", self.spec.weekday))
            if wanted
            for wave in ("sin", "cos")
        ]
        near = [f"landmark {i}" for i in range(len(self.landmarks))]
        return [
            *cycles,
            *near,
            *self.spec.numeric,
            *(f"{c} = {v}" for c, vs in self.labels.items() for v in vs),
        ]

    def given(self, trips: Trajectories) -> NDArray[np.float32]:
        """Returns the context columns of trips as numbers, one row a trip; an unknown label is all zeros."""
        columns: list[Array] = [np.zeros((len(trips), 0))]
        for name in self.spec.numeric:
            values = context_column(trips, name)
            if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
                raise DataError(f"context column {name!r} is not a finite number for every trip", remedy="fill it in")
            columns.append(values)
        for name, known in self.labels.items():
            labels = context_column(trips, name).astype(str)
            columns += [labels == label for label in known]
        return np.column_stack(columns).astype(np.float32)

    def encode(self, steps: Steps) -> NDArray[np.float32]:
        """Returns the context of every step."""
        local = steps.time + self.utc_offset
        periods = [p for p, wanted in ((DAY, self.spec.time_of_day), (WEEK, self.spec.weekday)) if wanted]
        phases = [2 * np.pi * (local % period) / period for period in periods]
        waves = [wave(phase) for phase in phases for wave in (np.sin, np.cos)]
        near = [np.log1p(np.hypot(*(steps.location - place).T) / 100.0) for place in self.landmarks]
        return np.column_stack([*waves, *near, steps.given]).astype(np.float32)


def context_column(trips: Trajectories, name: str) -> Array:
    """Returns a context column, one value per trip; raises a DataError if there is no column of that name."""
    if name not in trips.context:
        known = ", ".join(trips.context) or "none"
        raise DataError(
            f"no context column {name!r} in these trajectories (there are: {known})",
            remedy="give it with the trips, or name another",
        )
    return trips.context[name]
