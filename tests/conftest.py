"""What several test files share, and which tests the fast run leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from astray import Detector, Trajectories
from astray.features.featurizer import Featurizer
from astray.model.agent_memory import AgentMemory
from astray.model.file import ModelFile, write_model
from astray.model.packing import Contents, pack, unpack
from astray.model.steps import Steps
from astray.model.store import MODEL, PARTS, Row

MARKED: dict[str, tuple[str, ...]] = {
    "browser": ("service/test_serve_page.py",),
    "broker": (
        "service/test_mqtt.py",
        "service/test_serve_scoring.py",
        "service/test_serve_store.py",
        "service/test_serve_telling.py",
    ),
    "cluster": ("jobs/test_cluster.py",),
    "kills": ("jobs/test_jobs.py", "runtime/test_watch.py", "service/test_outlets.py", "service/test_serve_kills.py"),
    "docs": ("test_docs.py::test_every_example_of_a_page_prints_what_the_page_says", "test_examples.py"),
    "slow": (
        "cli/test_cli.py",
        "core/test_arrays.py",
        "core/test_text.py::test_a_legend_shows_any_name",
        "core/test_threads.py::test_models_scores_and_words",
        "features/test_prepared.py",
        "irl/test_learn.py",
        "irl/test_trpo.py",
        "irl/test_world.py",
        "model/",
        "readers/test_readers_table.py::test_a_table_that_is_read_whole_takes_little_more_memory",
        "readers/test_readers_table.py::test_memory_does_not_grow",
        "runtime/test_live.py::test_normal_trips_rarely_alert",
        "scoring/test_own_scale.py::test_simulated_people_are_flagged",
        "scoring/test_own_scale.py::test_unseen_normal_trips_are_flagged",
        "service/test_serve_",
        "simulate/",
        "test_baselines.py",
        "test_benchmark_",
        "test_docs.py::test_kept_tables",
        "test_generators.py",
        "test_without_torch.py",
    ),
}
"""Marker to the tests that it marks, by the beginning of their name; ``make test-fast`` leaves all of them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that MARKED names, so that this table alone says what the fast run leaves out."""
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        for marker, beginnings in MARKED.items():
            if name.startswith(beginnings):
                item.add_marker(marker)


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


def write_contents(
    path: Path, kind: str, values: Mapping[str, Any], arrays: Mapping[str, Any], source: Path | None = None
) -> None:
    """Writes a model file with these contents in the part "model", and the rest as another file has it."""
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
    """Returns how a model sees the trips of an agent."""
    return detector.agent_model(agent).featurizer


def kept_of(detector: Detector) -> Trajectories:
    """Returns the past trips that a model of one agent or pool keeps."""
    world = detector.world_
    kept = world.trained.kept if isinstance(world, Steps) else memory_of(detector).kept
    return Trajectories.from_fixes(time=[0.0], lat=[0.0], lon=[0.0])[:0] if kept is None else kept
