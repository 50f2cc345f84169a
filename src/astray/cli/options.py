"""The options that several commands share, each with its help; what they mean stands in :mod:`astray.settings`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from astray.settings import NAMES, Settings

READING = "Reading"
DECIDING = "Deciding"
RUNNING = "Running"

Trips = Annotated[
    Path,
    Argument(
        metavar="FILE",
        help="Trips: a CSV or Parquet table, JSON lines (also OwnTracks), GPX, GeoJSON, Porto's train.csv, a folder of "
        "such files, or GeoLife's Data folder. The format is recognised.",
        show_default=False,
    ),
]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model that astray fit wrote.", show_default=False)]
Output = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where the table goes: .parquet, .csv, .jsonl or .geojson. Whole or not at all: until it is finished an "
        "older file of that name stays as it is. Without it, or with -, the table goes to standard output.",
        show_default=False,
    ),
]
NewModel = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        metavar="MODEL",
        help="Write the changed model here and leave the old one alone. By default it takes the old one's place.",
        show_default=False,
    ),
]
OnlyAgent = Annotated[
    str | None,
    Option(
        "--agent", metavar="NAME", help="Only the trips of this agent.", show_default=False, rich_help_panel=READING
    ),
]
To = Annotated[str, Option("--to", help="Format of standard output: csv, jsonl or geojson.", metavar="FORMAT")]

Format = Annotated[
    str | None,
    Option(
        "--format",
        help="geolife, porto, table, gpx, geojson or jsonlines, where it is not recognised.",
        rich_help_panel=READING,
    ),
]
Columns = Annotated[
    list[str] | None,
    Option(
        "--columns",
        metavar="ROLE=NAME,...",
        help="Which column plays which part, where the usual names (lat, lng, user_id, timestamp, trip_id, ...) are "
        "not used. Roles: time, lat, lon, agent, trajectory. Example: lat=Breite,lon=Laenge",
        rich_help_panel=READING,
        show_default=False,
    ),
]
TimeUnit = Annotated[
    str | None,
    Option("--time-unit", help="Unit of times that are numbers: s, ms, us or ns.", rich_help_panel=READING),
]
TimeZone = Annotated[
    str | None,
    Option("--time-zone", help="Zone of times that name none, such as Europe/Lisbon.", rich_help_panel=READING),
]
Users = Annotated[
    str | None,
    Option("--users", metavar="A,B,...", help="Only these persons of GeoLife.", rich_help_panel=READING),
]
Cache = Annotated[
    str | None,
    Option(
        "--cache", metavar="FILE", help="Keep GeoLife here as Parquet, to parse it only once.", rich_help_panel=READING
    ),
]
ReadOptions = Annotated[
    list[str] | None,
    Option(
        "--read",
        metavar="NAME=VALUE",
        help="A further option of the format's reader, such as delimiter=; or encoding=latin-1 or keep_missing=true.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
Cutting = Annotated[
    str | None,
    Option(
        "--trips",
        metavar="as-given|cut",
        help="Take trips as the file names them, or cut fixes into trips at gaps and stays, as watch does. By default "
        "only fixes that name no trip are cut.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
SkipBad = Annotated[
    bool | None,
    Option(
        "--skip-bad",
        help="Leave out rows that cannot be used, and list them at the end, instead of refusing the file.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
Whole = Annotated[
    bool | None,
    Option(
        "--whole",
        help="Load a large table instead of streaming it: for rows that are not grouped by trip.",
        rich_help_panel=READING,
        show_default=False,
    ),
]

Eps = Annotated[
    float | None,
    Option(
        "--eps",
        help="Instead of a rate of false alarms: trips that score at most this are anomalies. Normal trips score about "
        "0, give or take 1; the paper's threshold is -2.",
        rich_help_panel=DECIDING,
    ),
]
Gamma = Annotated[
    float | None,
    Option(
        "--gamma",
        help="Above this uncertainty a low score is for a person to review, not called an anomaly. "
        "Default: the model's, 1.5.",
        rich_help_panel=DECIDING,
    ),
]
FalseAlarmRate = Annotated[
    float | None,
    Option(
        "--false-alarm-rate",
        metavar="SHARE",
        help="Flag about this share of normal trips. Default: the model's, 0.02.",
        rich_help_panel=DECIDING,
    ),
]
MinHistory = Annotated[
    float | None,
    Option(
        "--min-history",
        help="With fewer past trips than this a low score is for review. Default: the model's, 5.",
        rich_help_panel=DECIDING,
    ),
]

Workers = Annotated[
    int | None, Option("--workers", help="Processes to work with. Default: one for each core.", rich_help_panel=RUNNING)
]
Seed = Annotated[
    int | None,
    Option(
        "--seed", help="The same seed and data give the same result, bit for bit. Default: 0.", rich_help_panel=RUNNING
    ),
]
Config = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE.toml",
        help="Settings: the flags' names without dashes, as in eps = -2.5. The environment (ASTRAY_EPS) overrides the "
        "file, and flags override both.",
        rich_help_panel=RUNNING,
        show_default=False,
    ),
]
Quiet = Annotated[
    bool | None,
    Option(
        "--quiet",
        "-q",
        help="No progress and no remarks on standard error; errors and left-out rows are still said.",
        rich_help_panel=RUNNING,
        show_default=False,
    ),
]


def gathered(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command with these arguments: of its ``--config``, of the environment, and its flags."""
    return Settings.gather(flags.get("config"), os.environ, {name: flags[name] for name in NAMES if name in flags})
