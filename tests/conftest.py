"""What several test files share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astray import Trajectories
from astray.model.file import ModelFile, write_model
from astray.model.packing import Contents, pack, unpack
from astray.model.store import MODEL

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


def contents_of(path: Path) -> Contents:
    """Returns the contents of the part "model" of a model file."""
    file = ModelFile.open(path)
    found = unpack(file.shared(MODEL), path)
    file.close()
    return found


def write_contents(path: Path, kind: str, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Writes a model file whose part "model" has these contents, and right checksums."""
    write_model(path, {MODEL: pack(kind, values, arrays)})
