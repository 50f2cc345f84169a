"""What several test files share."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from astray import Trajectories

# Of a detector of GPS trips: the shared reward goes on learning from a population, a little.
QUICK: dict[str, Any] = {
    "iterations": 2,
    "sharing": {
        "least_agents": 2,
        "memories": 2,
        "demonstrations": 10,
        "short_demonstrations": 6,
        "imagined": 5,
        "reference": 40,
    },
}


def claimed(trips: Trajectories, agent: str) -> Trajectories:
    """Trips that somebody else has made in this agent's name."""
    names = [f"{a}-{t}" for a, t in zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True)]
    return Trajectories(trips.columns, trips.offsets, [agent] * len(trips), names, trips.context)


def earlier_fleet(folder: Path) -> Path:
    """A fleet's file of version 5: agents a and a/x, with trips that wait, a rejected one, and known anomalous ones."""
    path = folder / "earlier.astray"
    path.write_bytes(gzip.decompress((Path(__file__).parent / "data" / "fleet-5.astray.gz").read_bytes()))
    return path
