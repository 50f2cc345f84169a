"""Holds settings for a quick fit, and looks into fitted models and their files, for several test files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astray import Detector, Trajectories
from astray.features.featurizer import Featurizer
from astray.model.agent_memory import AgentMemory
from astray.model.file import ModelFile, write_model
from astray.model.packing import Contents, pack, unpack
from astray.model.steps_world import Steps
from astray.model.store import MODEL, PARTS, Row

# For GPS trips: the shared reward continues to learn a little from a population.
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
    """Returns trips renamed, as if this agent had made them."""
    names = [f"{a}-{t}" for a, t in zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True)]
    return Trajectories(trips.columns, trips.offsets, [agent] * len(trips), names, trips.context)


def contents_of(path: Path) -> Contents:
    """Returns the contents of the part "model" of a model file."""
    file = ModelFile.open(path)
    found = unpack(file.shared(MODEL), path)
    file.close()
    return found


def write_contents(
    path: Path, kind: str, values: Mapping[str, Any], arrays: Mapping[str, Any], source: Path | None = None
) -> None:
    """Writes a model file with these contents in the part "model", and with the other parts of ``source``."""
    parts: dict[str, bytes] = {}
    rows: list[tuple[str, Row]] = []
    if source is not None:
        file = ModelFile.open(source)
        parts = {part: file.shared(part) for part in PARTS}
        rows = [(agent, entry.row(data)) for agent, _ in file.entries() for data, entry in [file.read(agent)]]
        file.close()
    write_model(path, {**parts, MODEL: pack(kind, values, arrays)}, rows)


def memory_of(detector: Detector) -> AgentMemory:
    """Returns the only memory of a model of one agent or pool."""
    (memory,) = detector.memories_.values()
    return memory


def featurizer_of(detector: Detector, agent: str = "") -> Featurizer:
    """Returns a model's featurizer for the trips of an agent."""
    return detector.agent_model(agent).featurizer


def kept_of(detector: Detector) -> Trajectories:
    """Returns the past trips that a model of one agent or pool keeps."""
    world = detector.world_
    kept = world.trained.kept if isinstance(world, Steps) else memory_of(detector).kept
    return Trajectories.from_fixes(time=[0.0], lat=[0.0], lon=[0.0])[:0] if kept is None else kept
