"""The store of the service: the same promises in SQLite and in PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from astray.cli import main
from astray.core.errors import DataError, InUseError
from astray.core.settings import ASPECTS
from astray.service import preferences
from astray.service.preferences import Preferences, PreferencesError
from astray.service.store import Store, StoreError, open_store
from astray.service.store.schema import NEWEST, OF_AN_AGENT
from serving import schema, why_no_postgres

KINDS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.skipif(bool(why_no_postgres()), reason=why_no_postgres())),
]
Opening = Callable[[], Store]


@pytest.fixture(params=KINDS)
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opening]:
    with ExitStack() as stack:
        url = stack.enter_context(schema()) if request.param == "postgres" else None
        yield lambda: open_store(tmp_path / "store", url)


@pytest.fixture
def store(opening: Opening) -> Iterator[Store]:
    opened = opening()
    yield opened
    opened.close()


def test_a_new_store_has_all_tables_and_reopens_unchanged(opening: Opening):
    store = opening()
    with store.writer.transaction():
        preferences.save(store.writer, Preferences(undo_minutes=3))
    for table in (*OF_AN_AGENT, "agents", "models", "shards", "tokens"):
        assert store.writer.value(f"SELECT count(*) FROM {table}") == 0
    store.close()
    again = opening()
    assert preferences.load(again.writer).undo_minutes == 3
    assert again.upgrade() == 0
    again.close()


def test_a_failed_transaction_leaves_no_rows(store: Store):
    def twice() -> None:
        with store.writer.transaction():
            preferences.save(store.writer, Preferences(theme="dark"))
            store.writer.run("INSERT INTO settings VALUES (?, ?)", (preferences.NAME, "a second one"))

    with pytest.raises(StoreError):
        twice()
    assert preferences.load(store.writer).theme == "auto"


def test_a_statement_that_fails_is_a_store_error_and_the_connection_stays_usable(store: Store):
    with pytest.raises(StoreError, match="refuses"), store.writer.transaction():
        store.writer.run("INSERT INTO no_such_table VALUES (?)", (1,))
    assert store.writer.value("SELECT count(*) FROM agents") == 0


def test_a_reader_sees_what_was_committed_and_cannot_write(store: Store):
    reader = store.reader()
    with store.writer.transaction():
        preferences.save(store.writer, Preferences(theme="light"))
        assert preferences.load(reader).theme == "auto"
    assert preferences.load(reader).theme == "light"
    with pytest.raises(StoreError):
        reader.run("DELETE FROM settings")
    reader.close()


def test_only_one_service_can_open_a_store(opening: Opening):
    store = opening()
    with pytest.raises(InUseError, match="another astray serve"):
        opening()
    store.close()
    opening().close()


def test_a_store_of_a_newer_astray_is_refused(opening: Opening):
    store = opening()
    store.writer.run("INSERT INTO migrations VALUES (?)", (NEWEST + 1,))
    store.close()
    with pytest.raises(StoreError, match="newer astray"):
        opening()


def test_a_store_of_astray_0_2_is_refused_with_the_way_out(opening: Opening):
    store = opening()
    store.writer.run("DELETE FROM migrations")
    store.writer.run("INSERT INTO migrations VALUES (1)")
    store.close()
    with pytest.raises(StoreError, match=r"written by astray 0\.2.*astray fit"):
        opening()


def test_a_store_without_p_values_of_aspects_gets_them_and_keeps_its_trips(opening: Opening):
    columns = [f"p_{aspect}" for aspect in ASPECTS]
    store = opening()
    store.writer.run(f"DELETE FROM migrations WHERE number = {NEWEST}")
    for column in columns:
        store.writer.run(f"ALTER TABLE trips DROP COLUMN {column}")
    before = ("ana", "1", 0.0, 1.0, 2, 0, "normal", "place", 5.0, "gap", "learned", 0, 1)
    names = "agent, trip, started, ended, fixes, faults, decision, aspect, history, why, state, late, model"
    store.writer.run(f"INSERT INTO trips ({names}) VALUES ({', '.join('?' * len(before))})", before)
    store.close()
    again = opening()
    assert again.writer.rows(f"SELECT {names}, {', '.join(columns)} FROM trips") == [(*before, *[None] * 4)]
    again.writer.run("UPDATE trips SET p_time = 0.25")
    assert again.writer.value("SELECT p_time FROM trips") == 0.25
    assert again.upgrade() == 0
    again.close()


def test_values_come_back_as_they_were_given(store: Store):
    row = ("ana", 1.0 / 3.0, 45.1, -7.2, 2**40, "ö\u20ac'\"", None, None, 1e-300)
    store.writer.run("INSERT INTO fixes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert store.writer.rows("SELECT * FROM fixes") == [row]
    blob = bytes(range(256))
    store.writer.run("INSERT INTO models VALUES (?, ?, ?, ?)", (1, "model", b"", blob))
    assert bytes(store.writer.value("SELECT data FROM models")) == blob


def test_a_store_url_that_is_not_postgresql_is_refused(tmp_path: Path):
    with pytest.raises(StoreError, match="no store is called"):
        open_store(tmp_path, "mysql://localhost/x")


# -------------------------------------------------------------------- the file


def test_only_its_owner_can_read_the_database_file(tmp_path: Path):
    store = open_store(tmp_path / "store")
    assert stat.S_IMODE(os.stat(tmp_path / "store" / "astray.db").st_mode) == 0o600
    store.close()


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "astray.db").write_bytes(b"something else" * 100)
    with pytest.raises((DataError, StoreError)):
        open_store(tmp_path)
    assert (tmp_path / "astray.db").read_bytes() == b"something else" * 100


def test_a_database_of_another_program_is_refused(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / "astray.db")
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    with pytest.raises(DataError, match="not a store"):
        open_store(tmp_path)


def test_a_backup_is_whole_and_can_be_opened_in_another_folder(tmp_path: Path):
    store = open_store(tmp_path / "store")
    with store.writer.transaction():
        preferences.save(store.writer, Preferences(theme="dark"))
    (tmp_path / "other").mkdir()
    target = tmp_path / "other" / "astray.db"
    assert main(["serve", "backup", str(tmp_path / "store"), str(target)]) == 0  # while it is open
    assert main(["serve", "backup", str(tmp_path / "store"), str(target)]) == 1  # nothing is written over
    store.close()
    copy = open_store(tmp_path / "other")
    assert preferences.load(copy.writer).theme == "dark"
    copy.close()


def test_a_backup_of_no_store_is_refused(tmp_path: Path):
    assert main(["serve", "backup", str(tmp_path), str(tmp_path / "copy.db")]) == 1
    assert not (tmp_path / "copy.db").exists()


# -------------------------------------------------------------------- preferences


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"quiet_hours": {"from": "7", "to": "08:00"}}', "quiet_hours.from"),
        ('{"alerts_a_week": {"agent": -1, "all": 3}}', "alerts_a_week.agent"),
        ('{"alerts_a_week": {"agent": "many", "all": 3}}', "alerts_a_week.agent"),
        ('{"false_alarm_rate": 0}', "false_alarm_rate"),
        ('{"false_alarm_rate": {"pace": 0.1}}', "false_alarm_rate"),
        ('{"false_alarm_rate": {"place": 0.4, "time": 0.4}}', "false_alarm_rate"),
        ('{"false_alarm_rate": {}}', "false_alarm_rate"),
        ('{"theme": "pink"}', "theme"),
        ('{"outlets": [{"kind": "pigeon", "to": "x"}]}', "outlets[0].kind"),
        ('{"retention_days": 0}', "retention_days"),
    ],
)
def test_an_invalid_preference_is_refused_with_its_field(text: str, field: str):
    with pytest.raises(PreferencesError) as refused:
        preferences.parse(text.encode())
    assert refused.value.field == field


@pytest.mark.parametrize("text", ["", "[]", "{", '{"unknown": 1}', "\xff", '{"undo_minutes": NaN}'])
def test_malformed_preferences_are_refused(text: str):
    with pytest.raises(PreferencesError):
        preferences.parse(text.encode("latin-1"))


def test_preferences_round_trip_through_json():
    text = msgspec.json.encode(Preferences()).decode()
    assert preferences.parse(text.encode()) == Preferences()
    assert '"alerts_a_week":{"agent":3,"all":20}' in text
    by_aspect = Preferences(false_alarm_rate={"place": 0.015, "manner": 0.01})
    assert preferences.parse(msgspec.json.encode(by_aspect)) == by_aspect
