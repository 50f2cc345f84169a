"""The arguments that several commands share, and flags from the declarations in :mod:`astray.core.settings`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from astray.core import settings as s
from astray.core.atomic import changing, keep_from
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
"""Under which heading the flags of a group of settings stand; in this order."""

OTHER_NAMES = {"quiet": ("-q",), "verbose": ("-v",), "workers": ("-w",), "time_zone": ("--timezone",)}
"""What else a flag may be called."""

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
    """Where a table goes, if that can be; None for standard output."""
    if path is None or str(path) == "-":
        return None
    from astray.core.writers import check_target  # only who names a file waits for it

    check_target(path)
    return path


def output(metavar: str, help: str, **more: Any) -> Any:
    """The flag that says where a command writes."""
    return Option("--output", "-o", metavar=metavar, help=help, show_default=False, **more)


Output = Annotated[
    Path | None,
    output(
        "FILE",
        "Where the table goes: .parquet, .csv, .jsonl or .geojson. Whole or not at all: until it is finished an older "
        "file of that name stays as it is. Without it, or with -, the table goes to standard output.",
        callback=_table,
    ),
]
NewModel = Annotated[
    Path | None,
    output(
        "MODEL", "Write the changed model here and leave the old one alone. By default it takes the old one's place."
    ),
]
OnlyAgent = Annotated[
    str | None,
    Option(
        "--agent",
        metavar="NAME",
        help="Only the trips of this agent. Trips of which nothing says whose they are count as its own.",
        show_default=False,
    ),
]
Part = Annotated[
    str | None,
    Option(
        "--part",
        metavar="I/N",
        help="Only the agents of this part, such as 3/16: N jobs, one a part, do everybody. Who belongs to which part "
        "is told by the names alone. Of a fleet.",
        show_default=False,
    ),
]
To = Annotated[str, Option("--to", help="Format of standard output: csv, jsonl or geojson.", metavar="FORMAT")]

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


def with_settings(*wanted: type[Any] | str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some settings (groups or names), and call it with what was given as ``settings``.

    Every command has ``--quiet`` and ``--config``; what other flags would set, the file and the environment still can.
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
            command(settings=Settings.gather(config, os.environ, of_flags), **given)

        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own if p.name != "settings"] + derived
        cast(Any, run).__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def changes_model(command: Callable[..., None]) -> Callable[..., None]:
    """A command that reads its ``model``, changes it and writes it again: no other one may do so meanwhile.

    But jobs of several parts work side by side: they change other agents, each in one go at its end, and the file of a
    fleet lets one at a time write.
    """

    @functools.wraps(command)
    def run(model: Path, **given: Any) -> None:
        with nullcontext() if given.get("part") is not None else changing(model):
            command(model=model, **given)

    return run


def save(detector: Detector, model: Path, output: Path | None) -> None:
    """Write a model that was changed in its old place, or in a new one, when nobody else is changing what is there."""
    if output is None or (output.exists() and output.samefile(model)):
        detector.save(model)
        return
    with changing(output):
        detector.save(output)


def _flag(name: str, panel: str) -> Any:
    """The flag of a setting, as typer wants it."""
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
