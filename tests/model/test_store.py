"""A model is the same wherever it is kept: in a file, in tables of a database, or in another store."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import astray
from astray import Detector, Trajectories
from astray.core.errors import InUseError, ModelFileError
from astray.model.file import ModelFile, write_model
from astray.model.store import PARTS, SCHEMA, SHARDS, Change, Entry, Row, Store, Tables, shard_of
from astray.service.store import Store as Database
from astray.service.store import open_store
from astray.simulate import city
from serving import schema, why_no_postgres

WITHOUT_POSTGRES = pytest.mark.skipif(bool(why_no_postgres()), reason=why_no_postgres())


class Dictionaries:
    """A store that somebody else may write: dictionaries."""

    name = "dictionaries"
    version = 1

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.rows: dict[str, tuple[bytes, Entry]] = {}

    def shared(self, part: str) -> bytes:
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
        change = DictionariesChange(dict(self.parts), dict(self.rows))
        yield change
        self.parts, self.rows = change.parts, change.rows

    def wrong(self, what: str) -> ModelFileError:
        return ModelFileError(what, place=self.name, remedy="restore it")


class DictionariesChange:
    """A change of copies, which replace the dictionaries at its end."""

    def __init__(self, parts: dict[str, bytes], rows: dict[str, tuple[bytes, Entry]]) -> None:
        self.parts, self.rows = parts, rows

    def share(self, part: str, data: bytes) -> None:
        self.parts[part] = data

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        known = self.rows.pop(agent, None)
        if (None if known is None else known[1].checksum) != before:
            raise InUseError(f"somebody else has changed {agent}", place="dictionaries", remedy="read it again")
        if row is not None:
            self.rows[agent] = row.data, Entry(blake2b(row.data).digest(), *row[1:], Dictionaries.version)


# -------------------------------------------------------------------- tables


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=WITHOUT_POSTGRES)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with ExitStack() as stack:
        url = stack.enter_context(schema()) if request.param == "postgres" else None
        store = open_store(tmp_path / "store", url)
        stack.callback(store.close)
        yield store


NAMES = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ROW = Row(b"a memory", 3, 1.5, 1e9 + 1 / 3, True, "Europe/Rome")
BLANK = Row(b"", 0, math.nan, math.nan, False, "")


def filled(database: Database, **rows: Row) -> Tables:
    tables = Tables(database.writer)
    with database.writer.transaction(), tables.changing() as change:
        for part in PARTS:
            change.share(part, part.encode() * 9)
        for agent, row in rows.items():
            change.put(agent, row, None)
    return tables


def test_tables_return_what_was_written_to_them(database: Database) -> None:
    tables = filled(database, ana=ROW, bob=BLANK)
    assert [tables.shared(part) for part in PARTS] == [part.encode() * 9 for part in PARTS]
    found = tables.read("ana")
    assert found is not None
    data, entry = found
    assert entry.row(data) == ROW
    assert entry == tables.entry("ana")
    assert entry.version == 1
    blank = tables.entry("bob")
    assert blank is not None
    assert math.isnan(blank.first)
    assert math.isnan(blank.last)
    assert tables.entry("eve") is None
    assert tables.read("eve") is None
    assert sorted(agent for agent, _ in tables.entries()) == ["ana", "bob"]
    assert len(tables) == 2


def test_a_change_of_an_agent_that_another_has_changed_is_refused(database: Database) -> None:
    tables = filled(database, ana=ROW)
    entry = tables.entry("ana")
    assert entry is not None

    def change(agent: str, row: Row | None, before: bytes | None) -> None:
        with database.writer.transaction(), tables.changing() as changing:
            changing.put(agent, row, before)

    change("ana", ROW._replace(trips=4), entry.checksum)
    for agent, row, before in (("ana", ROW, entry.checksum), ("ana", ROW, None), ("eve", None, entry.checksum)):
        with pytest.raises(InUseError, match=f"another process has changed what is known of '{agent}'"):
            change(agent, row, before)
    now = tables.entry("ana")
    assert now is not None
    assert now.trips == 4
    change("ana", None, now.checksum)
    assert len(tables) == 0
    assert database.writer.value("SELECT count(*) FROM shards") == 0


def test_tables_see_their_own_change_while_it_is_under_way(database: Database) -> None:
    tables = filled(database, ana=ROW)
    with database.writer.transaction(), tables.changing() as change:
        change.put("eve", ROW, None)
        assert tables.entry("eve") is not None
        neighbour = next(name for name in map(str, range(10_000)) if shard_of(name) == shard_of("eve"))
        assert tables.entry(neighbour) is None
    assert len(tables) == 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE memories SET trips = 4",
        "UPDATE memories SET zone = ''",
        "UPDATE memories SET last = NULL",
        "UPDATE memories SET agent = 'eve'",
        "DELETE FROM memories",
        "DELETE FROM shards",
        "UPDATE shards SET agents = 7",
        "UPDATE models SET part = 'other' WHERE part = 'model'",
        "UPDATE models SET version = 2",
    ],
)
def test_tables_refuse_rows_that_were_changed_by_another_hand(database: Database, damage: str) -> None:
    tables = filled(database, ana=ROW)
    database.writer.run(damage)

    def look() -> None:
        for part in PARTS:
            tables.shared(part)
        for agent in ("ana", "eve"):
            tables.read(agent)
        list(tables.entries())

    with pytest.raises(ModelFileError, match=r"does not match its checksum; it is damaged: restore a backup"):
        look()


def test_the_service_has_the_tables_of_a_model_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    asked = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name IN ('models', 'memories', 'shards')"
    there = store.writer.rows(asked)
    store.close()
    write_model(tmp_path / "m.astray", {})
    connection = sqlite3.connect(tmp_path / "m.astray")
    assert sorted(map(str, there)) == sorted(map(str, connection.execute(asked).fetchall()))
    connection.close()
    assert len(there) == len(SCHEMA) + 2  # with the indexes of two primary keys


@settings(max_examples=25, deadline=None)
@given(rows=st.dictionaries(st.text(NAMES, max_size=8), st.binary(max_size=40), max_size=12))
def test_any_names_and_memories_come_back_from_a_file(
    rows: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "m.astray"
    write_model(path, {}, ((agent, ROW._replace(data=data)) for agent, data in sorted(rows.items())))
    file = ModelFile.open(path)
    assert {agent: found[0] for agent in rows if (found := file.read(agent)) is not None} == rows
    assert {agent for agent, _ in file.entries()} == set(rows)
    assert len(file) == len(rows)
    file.close()


def test_shards_hold_about_as_many_agents_each() -> None:
    counts = [0] * SHARDS
    for i in range(25_600):
        counts[shard_of(f"agent-{i}")] += 1
    assert 50 < min(counts) <= max(counts) < 170


# -------------------------------------------------------------------- fleets


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=4, days=14, seed=0).trips


@pytest.fixture(scope="module")
def fitted(trips: Trajectories) -> Detector:
    return Detector(iterations=1).fit(trips.without("p03"))


@pytest.fixture
def other(fitted: Detector) -> Store:
    store = Dictionaries()
    fitted.to_store(store)
    return store


def test_a_fleet_in_another_store_is_the_one_in_a_file(
    trips: Trajectories, fitted: Detector, other: Store, tmp_path: Path
) -> None:
    file, copy = tmp_path / "fleet.astray", tmp_path / "copy.astray"
    Detector.from_store(other).save(file)
    for fleet in (Detector.from_store(other), astray.load(file)):
        assert isinstance(fleet, Detector)
        fleet.enroll(trips.agent("p03")[:20])
        fleet.forget("p00")
        fleet.observe(trips.agent("p03")[20:24])
        fleet.save_changes()
    Detector.from_store(other).save(copy)
    astray.load(file).save(tmp_path / "plain.astray")  # whole, so that bytes compare
    assert copy.read_bytes() == (tmp_path / "plain.astray").read_bytes()


def test_a_fleet_in_the_database_of_the_service_is_the_one_in_a_file(
    trips: Trajectories, fitted: Detector, database: Database, tmp_path: Path
) -> None:
    tables = Tables(database.writer)
    with database.writer.transaction():
        fitted.to_store(tables)
    fleet = Detector.from_store(tables)
    fleet.enroll(trips.agent("p03")[:20])
    fleet.forget("p00")
    with database.writer.transaction():
        fleet.save_changes()
    Detector.from_store(tables).save(tmp_path / "tables.astray")
    Detector.from_store(tables).save(tmp_path / "again.astray")
    same = astray.load(tmp_path / "tables.astray")
    assert same.agents == ["p01", "p02", "p03"]
    assert same.score(trips).equals(fleet.score(trips), null_equal=True)
    assert (tmp_path / "tables.astray").read_bytes() == (tmp_path / "again.astray").read_bytes()


def test_a_memory_that_another_model_measured_is_measured_again(
    trips: Trajectories, fitted: Detector, database: Database
) -> None:
    with database.writer.transaction():
        fitted.to_store(Tables(database.writer, 1))
        with Tables(database.writer, 2).changing() as change:
            for part in PARTS:
                change.share(part, Tables(database.writer, 1).shared(part))
    first, second = (Detector.from_store(Tables(database.writer, version)) for version in (1, 2))
    assert [fleet.memories_.peek("p00").measured for fleet in (first, second)] == [True, False]
    assert second.score(trips[::9]).equals(first.score(trips[::9]), null_equal=True)


def test_only_changed_agents_are_written_and_two_writers_do_not_overwrite_each_other(
    trips: Trajectories, other: Store
) -> None:
    one, two = Detector.from_store(other), Detector.from_store(other)
    before = dict(other.entries())
    one.enroll(trips.agent("p03")[:10])
    two.enroll(trips.agent("p03")[10:20])
    one.save_changes()
    assert {agent for agent, entry in other.entries() if before.get(agent) != entry} == {"p03"}
    with pytest.raises(InUseError, match="p03"):
        two.save_changes()
    assert Detector.from_store(other).memories_["p03"].history == 10


def test_a_fleet_that_was_opened_from_nowhere_has_no_changes_to_save(trips: Trajectories) -> None:
    with pytest.raises(ModelFileError, match="save it to a file"):
        Detector(iterations=1).fit(trips).save_changes()
