"""Defines the simulations that the tests in this folder share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from astray import Trajectories
from astray.simulate import ANOMALY_KINDS, Simulation, Variety, city, world


@pytest.fixture(scope="session")
def sim() -> Simulation:
    """A city of eight people."""
    return city(people=8, days=42, seed=3)


@pytest.fixture(scope="session")
def anomalies(sim: Simulation) -> dict[str, Trajectories]:
    """The anomalous trips of each kind in the city."""
    injected = {kind: sim.inject(sim.trips, (kind,), rate=0.06, seed=5) for kind in ANOMALY_KINDS}
    return {kind: trips[trips.context["kind"] == kind] for kind, trips in injected.items()}


@pytest.fixture(scope="session")
def worlds() -> list[Simulation]:
    """Four worlds with full variety, with the seeds 0 to 3."""
    return [world(seed, people=14, days=42) for seed in range(4)]


@pytest.fixture(scope="session")
def worlds_of_lives() -> list[Simulation]:
    """Two cities whose people lead all kinds of life."""
    variety = replace(Variety.none(), lives=True)
    return [world(seed, people=40, days=21, variety=variety) for seed in (2, 5)]


@pytest.fixture(scope="session")
def worlds_of_changes() -> list[Simulation]:
    """Two cities whose people move, change jobs and go on holiday."""
    variety = replace(Variety.none(), drift=True)
    return [world(seed, people=25, days=60, variety=variety) for seed in (0, 1)]


@pytest.fixture(scope="session")
def world_of_loggers() -> Simulation:
    """A city whose people use their loggers in different ways."""
    return world(1, people=8, days=30, variety=replace(Variety.none(), loggers=True))
