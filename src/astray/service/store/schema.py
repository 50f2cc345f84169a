"""Defines the service's tables, as numbered migrations; to open a store runs those that it lacks.

They are written for SQLite; :mod:`astray.service.store.postgres` translates them. Never change a migration that was
released: add another one.
"""

from __future__ import annotations

from astray.core.settings import ASPECTS
from astray.model.store import SCHEMA
from astray.scoring.scores import p_name

FIRST = 2
"""The number of the first migration here; number 1 made the tables of astray 0.2."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # The settings of the page as one JSON value, and notes of the service itself.
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        # The tables of a model file: the model and the memory of each agent. An old model stays as long as an open
        # trip is scored by it.
        *SCHEMA,
        # Each agent, as of its last fix. late_from, late_until: the first and the last late fix that the stored trips
        # do not contain yet.
        "CREATE TABLE agents (agent TEXT PRIMARY KEY, since REAL NOT NULL, n INTEGER NOT NULL, time REAL NOT NULL, "
        "lat REAL NOT NULL, lon REAL NOT NULL, arrived REAL NOT NULL, delay REAL NOT NULL, trip TEXT, normality REAL, "
        "alert TEXT, trips INTEGER NOT NULL, zone TEXT NOT NULL, paused_until REAL, late_from REAL, late_until REAL, "
        "drift TEXT) STRICT",
        "CREATE INDEX agents_late ON agents (agent) WHERE late_from IS NOT NULL",
        # The log: every fix, once. n counts the fixes of an agent in the order in which they came.
        "CREATE TABLE fixes (agent TEXT NOT NULL, time REAL NOT NULL, lat REAL NOT NULL, lon REAL NOT NULL, "
        "n INTEGER NOT NULL, trip TEXT, to_lat REAL, to_lon REAL, accuracy REAL, "
        "PRIMARY KEY (agent, time, lat, lon)) STRICT, WITHOUT ROWID",
        # The stream of an agent after its fix n, to restore it from.
        "CREATE TABLE snapshots (agent TEXT PRIMARY KEY, n INTEGER NOT NULL, model INTEGER NOT NULL, data BLOB NOT "
        "NULL) STRICT",
        # The memory of an agent when its open trip began, if it has changed since.
        "CREATE TABLE pins (agent TEXT PRIMARY KEY, model INTEGER NOT NULL, data BLOB NOT NULL) STRICT",
        "CREATE TABLE trips (agent TEXT NOT NULL, trip TEXT NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, "
        "fixes INTEGER NOT NULL, faults INTEGER NOT NULL, score REAL, normality REAL, p_value REAL, uncertainty REAL, "
        "decision TEXT NOT NULL, aspect TEXT NOT NULL, history REAL NOT NULL, why TEXT NOT NULL, state TEXT NOT NULL, "
        "words TEXT, late INTEGER NOT NULL, model INTEGER NOT NULL, PRIMARY KEY (agent, trip)) STRICT, WITHOUT ROWID",
        "CREATE INDEX trips_by_time ON trips (agent, started)",
        # The explanation of a flagged trip as JSON; until it is made, the memory of its agent at that time.
        "CREATE TABLE scores (agent TEXT NOT NULL, trip TEXT NOT NULL, data BLOB, member BLOB, "
        "PRIMARY KEY (agent, trip)) STRICT",
        "CREATE INDEX scores_to_explain ON scores (agent, trip) WHERE data IS NULL",
        "CREATE TABLE events (number INTEGER PRIMARY KEY, agent TEXT NOT NULL, trip TEXT NOT NULL, kind TEXT NOT NULL, "
        "ordinal INTEGER NOT NULL, time REAL NOT NULL, data TEXT NOT NULL, "
        "UNIQUE (agent, trip, kind, ordinal)) STRICT",
        "CREATE TABLE alerts (id TEXT PRIMARY KEY, agent TEXT NOT NULL, trip TEXT NOT NULL, began REAL NOT NULL, "
        "opened REAL NOT NULL, closed REAL, level TEXT NOT NULL, words TEXT NOT NULL, told TEXT NOT NULL, "
        "reason TEXT NOT NULL, late INTEGER NOT NULL, at REAL NOT NULL) STRICT",
        "CREATE INDEX alerts_by_time ON alerts (opened)",
        "CREATE INDEX alerts_to_tell ON alerts (at) WHERE told = ''",
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, agent TEXT NOT NULL, outlet TEXT NOT NULL, payload TEXT NOT NULL, "
        "attempts INTEGER NOT NULL, next_try REAL NOT NULL, done REAL, error TEXT) STRICT",
        "CREATE INDEX outbox_to_do ON outbox (next_try) WHERE done IS NULL",
        "CREATE TABLE reviews (item TEXT PRIMARY KEY, kind TEXT NOT NULL, agent TEXT NOT NULL, trips TEXT NOT NULL, "
        "score REAL, opened REAL NOT NULL, verdict TEXT, by TEXT, at REAL, teaches_at REAL, taught_at REAL) STRICT",
        "CREATE INDEX reviews_of_agents ON reviews (agent)",
        "CREATE INDEX reviews_to_teach ON reviews (teaches_at) WHERE taught_at IS NULL",
        "CREATE TABLE tokens (hash TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, "
        "made REAL NOT NULL) STRICT",
        "CREATE TABLE audit (number INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, "
        "agent TEXT, details TEXT NOT NULL) STRICT",
    ),
    # The p-value of each aspect of a trip; NULL for trips that were stored before, and for aspects not looked for.
    tuple(f"ALTER TABLE trips ADD COLUMN {p_name(aspect)} REAL" for aspect in ASPECTS),
)

NEWEST = FIRST + len(MIGRATIONS) - 1
"""The number of the last migration."""

OF_AN_AGENT = (
    "fixes",
    "snapshots",
    "pins",
    "trips",
    "scores",
    "events",
    "alerts",
    "outbox",
    "reviews",
    "memories",
    "audit",
)
"""The tables that hold rows of agents, beside ``agents`` itself."""
