"""A fleet that is kept elsewhere than in a file: another store can stand in the file's place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import pytest

import astray
from astray import FleetDetector, Trajectories
from astray.core.errors import InUseError, ModelFileError
from astray.model.fleet_store import Change, Entry, FleetStore, Row
from astray.simulate import city


class Tables:
    """A store of dictionaries, as a service may have tables in a database of its own."""

    name = "tables"

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.rows: dict[str, tuple[bytes, Entry]] = {}

    def shared(self, part: int) -> bytes:
        return self.parts[part]

    def entry(self, agent: str) -> Entry | None:
        return self.rows[agent][1] if agent in self.rows else None

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        return self.rows.get(agent)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        return ((agent, entry) for agent, (_, entry) in self.rows.items())

    def __len__(self) -> int:
        return len(self.rows)

    @contextmanager
    def changing(self) -> Iterator[Change]:
        change = TablesChange(dict(self.parts), dict(self.rows))
        yield change
        self.parts, self.rows = change.parts, change.rows

    def wrong(self, what: str) -> ModelFileError:
        return ModelFileError(what, place=self.name, remedy="restore it")


class TablesChange:
    """A change of copies, which take the place of what was there at its end."""

    def __init__(self, parts: dict[int, bytes], rows: dict[str, tuple[bytes, Entry]]) -> None:
        self.parts, self.rows = parts, rows

    def share(self, part: int, data: bytes) -> None:
        self.parts[part] = data

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        known = self.rows.pop(agent, None)
        if (None if known is None else known[1].checksum) != before:
            raise InUseError(f"somebody else has changed {agent}", place="tables", remedy="read it again")
        if row is not None:
            self.rows[agent] = row.data, Entry(0, blake2b(row.data).digest(), *row[1:])


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=4, days=14, seed=0).trips


@pytest.fixture
def tables(trips: Trajectories) -> FleetStore:
    store = Tables()
    FleetDetector(iterations=1).fit(trips.without("p03")).to_store(store)
    return store


def test_a_fleet_in_another_store_is_the_one_in_a_file(trips: Trajectories, tables: FleetStore, tmp_path: Path):
    file, copy = tmp_path / "fleet.astray", tmp_path / "copy.astray"
    FleetDetector(iterations=1).fit(trips.without("p03")).save(file)
    for fleet in (FleetDetector.from_store(tables), astray.load(file)):
        assert isinstance(fleet, FleetDetector)
        fleet.enroll(trips.agent("p03")[:20])
        fleet.forget("p00")
        fleet.observe(trips.agent("p03")[20:24])
        fleet.save_changes()
    FleetDetector.from_store(tables).save(copy)
    astray.load(file).save(tmp_path / "plain.astray")  # whole, so that bytes compare
    assert copy.read_bytes() == (tmp_path / "plain.astray").read_bytes()


def test_only_what_was_changed_is_written_and_two_writers_do_not_overwrite_each_other(
    trips: Trajectories, tables: FleetStore
):
    one, two = FleetDetector.from_store(tables), FleetDetector.from_store(tables)
    before = dict(tables.entries())
    one.enroll(trips.agent("p03")[:10])
    two.enroll(trips.agent("p03")[10:20])
    one.save_changes()
    assert {agent for agent, entry in tables.entries() if before.get(agent) != entry} == {"p03"}
    with pytest.raises(InUseError, match="p03"):
        two.save_changes()
    assert FleetDetector.from_store(tables).members_["p03"].history == 10


def test_a_fleet_that_was_opened_from_nowhere_has_no_changes_to_save(trips: Trajectories):
    with pytest.raises(ModelFileError, match="save it to a file"):
        FleetDetector(iterations=1).fit(trips).save_changes()
