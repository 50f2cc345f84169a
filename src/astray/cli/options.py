"""Defines the arguments that several commands share, and makes flags from :mod:`astray.core.settings`.

Typer makes a flag from each parameter of a function, and has no groups of parameters, so every command would have to
list all its settings. Instead, :func:`with_settings` adds these parameters to a command.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from astray.core import settings as s
from astray.core.atomic import changing, keep_from
from astray.core.errors import ModelFileError
from astray.core.settings import Settings, declared, flag_of

if TYPE_CHECKING:
    from astray.detector import Detector

RUNNING = "Running"
PANELS = {
    **dict.fromkeys((s.Learning, s.OneAgent, s.FleetOnly), "Learning"),
    **dict.fromkeys((s.ItsOwn, s.OwnReward), "Learning a reward of the agent's own"),
    s.Deciding: "Deciding",
    s.Serving: "Serving",
    **dict.fromkeys((s.Reading, s.LocalTime), "Reading"),
    **dict.fromkeys((s.Streaming, s.Chance, s.Remarks), RUNNING),
}
"""Maps groups of settings to the headings of their flags in the help, in this order."""

FITTING = tuple(group for group in PANELS if group is not s.Serving)
"""The groups of settings that ``astray fit`` takes."""

OTHER_NAMES = {"quiet": ("-q",), "verbose": ("-v",), "workers": ("-w",), "time_zone": ("--timezone",)}
"""Other names of some flags."""

_READ = (
    "a table (CSV, Parquet, Feather), GPX, KML, TCX, FIT, NMEA, GeoJSON, JSON lines, Google's location history, "
    "Porto's train.csv, GeoLife's Data folder; a folder or zip archive of such files, a gzip file, or a quoted "
    "pattern such as 'tracks/*.gpx'. The format is recognised."
)
Trips = Annotated[
    list[Path], Argument(metavar="FILE", help=f"Trips, in one file or several: {_READ}", show_default=False)
]
TripsOfOne = Annotated[Path, Argument(metavar="FILE", help=f"Trips: {_READ}", show_default=False)]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model that astray fit wrote.", show_default=False)]


def _table(path: Path | None) -> Path | None:
    """Returns where to write a table, after checking that it can be written; None for standard output."""
    if path is None or str(path) == "-":
        return None
    from astray.core.writers import check_target  # imported only when a file is named

    check_target(path)
    return path


def output(metavar: str, help: str, **more: Any) -> Any:
    """Returns the flag ``--output`` of a command."""
    return Option("--output", "-o", metavar=metavar, help=help, show_default=False, **more)


def anomalous(help: str) -> Any:
    """Returns the flag ``--anomalous`` of a command."""
    return Option("--anomalous", metavar="TRIP", help=f"{help} May be repeated.", show_default=False)


Output = Annotated[
    Path | None,
    output(
        "FILE",
        "Write the table to this file: .parquet, .csv, .jsonl or .geojson. An older file of that name stays as it is "
        "until the new one is complete. Without it, or with -, the table goes to standard output.",
        callback=_table,
    ),
]
NewModel = Annotated[
    Path | None,
    output("MODEL", "Write the changed model here and keep the old one. By default the changed model replaces it."),
]
OnlyAgent = Annotated[
    str | None,
    Option(
        "--agent",
        metavar="NAME",
        help="Use only the trips of this agent. If the file names no agents at all, all trips count as this agent's.",
        show_default=False,
    ),
]
Part = Annotated[
    str | None,
    Option(
        "--part",
        metavar="I/N",
        help="For a fleet: use only the agents of this part, such as 3/16. N jobs, one for each part, cover all "
        "agents; an agent's name alone decides its part.",
        show_default=False,
    ),
]
To = Annotated[str, Option("--to", help="Format of standard output: csv, jsonl or geojson.", metavar="FORMAT")]

Config = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE.toml",
        help="Read settings from this file, by the flags' names without dashes: eps = -2.5. The environment "
        "(ASTRAY_EPS) overrides the file, and flags override both.",
        rich_help_panel=RUNNING,
        show_default=False,
    ),
]


def with_settings(*wanted: type[Any] | str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags of some settings (groups or names) to a command, and passes their values as ``settings``.

    Every command has ``--quiet`` and ``--config``. The file and the environment can set all settings, even those
    without a flag.
    """
    asked = {name for w in wanted for name in ([w] if isinstance(w, str) else [f.name for f in fields(w)])} | {"quiet"}
    flags = {f.name: _flag(f.name, panel) for group, panel in PANELS.items() for f in fields(group) if f.name in asked}
    if unknown := asked - set(flags):
        raise ValueError(f"no setting is named {min(unknown)}")
    derived = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=flag) for name, flag in flags.items()]
    derived.insert(-1, Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Config))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def run(config: Path | None, **given: Any) -> None:
            of_flags = {name: given.pop(name) for name in flags}
            if config is not None:
                keep_from(given.get("output"), [config], "the settings are read from this file")
            try:
                command(settings=Settings.gather(config, os.environ, of_flags), **given)
            except ModelFileError as error:
                if _are_exchanged(given.get("model"), given.get("file")):
                    error.remedy = "are MODEL and FILE exchanged?"
                raise

        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own if p.name != "settings"] + derived
        cast(Any, run).__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _are_exchanged(model: Path | None, file: Path | Sequence[Path] | None) -> bool:
    """Returns True if a command got a file of trips as its model, and a model as its file of trips."""
    from astray.model.file import is_database

    files = [file] if isinstance(file, Path) else list(file or ())
    if model is None or not all(path.is_file() for path in (model, *files)):
        return False
    return not is_database(model) and any(map(is_database, files))


def changes_model(command: Callable[..., None]) -> Callable[..., None]:
    """Locks the ``model`` while a command changes it, so that no other command can change it meanwhile.

    Commands with ``--part`` take no lock and can run side by side: each changes different agents, in transactions.
    """

    @functools.wraps(command)
    def run(model: Path, **given: Any) -> None:
        with nullcontext() if given.get("part") is not None else changing(model):
            command(model=model, **given)

    return run


def save(detector: Detector, model: Path, output: Path | None) -> None:
    """Writes a changed model to its old place, or to ``output`` once no other process is changing that file."""
    if output is None or (output.exists() and output.samefile(model)):
        detector.save(model)
        return
    with changing(output):
        detector.save(output)


def _flag(name: str, panel: str) -> Any:
    """Returns the flag of a setting, as an annotation for typer."""
    setting = declared(name)
    usual = "" if setting.default is None or setting.default is False else f" Default: {setting.default}."
    if panel == PANELS[s.Deciding]:
        usual = usual.replace("Default: ", "Default: the model's, ")
    option = Option(
        flag_of(name),
        *OTHER_NAMES.get(name, ()),
        metavar=setting.metadata["metavar"],
        help=setting.metadata["help"] + usual,
        rich_help_panel=panel,
        show_default=False,
    )
    return cast(Any, Annotated)[setting.metadata["kind"].flag | None, option]
