"""Settings: one documented set, from a TOML file, then the environment, then flags, each overriding the one before.

A setting has one name everywhere: ``eps`` in the file, ``ASTRAY_EPS`` in the environment, ``--eps`` as a flag.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from astray.errors import AstrayError

PREFIX = "ASTRAY_"
ROLES = ("time", "lat", "lon", "agent", "trajectory")
ASPECTS = ("place", "route", "manner", "time")
EXCLUSIVE = ("eps", "false_alarm_rate")
"""Either decides by itself; what is given last counts."""
FORMATS = ("geolife", "porto", "table", "csv", "parquet", "gpx", "geojson", "jsonlines")

Check = tuple[Callable[[Any], bool], str]


class SettingsError(AstrayError, ValueError):
    """A setting is unknown or has a value that it cannot have; the text says where it was given and what it takes."""


def _one_of(*names: str) -> Check:
    return (lambda value: value in names), f"one of {', '.join(names)}"


_POSITIVE: Check = (lambda value: value > 0), "a number above 0"
_NOT_NEGATIVE: Check = (lambda value: value >= 0), "0 or more"
_SHARE: Check = (lambda value: 0 < value < 1), "a share between 0 and 1, such as 0.01"


def _setting(says: str, default: Any = None, check: Check | None = None) -> Any:
    return field(default=default, metadata={"says": says, "check": check})


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; what is None is the detector's or the reader's own default.

    Examples
    --------
    >>> settings = Settings.gather(environ={"ASTRAY_EPS": "-3", "ASTRAY_SEED": "1"}, flags={"seed": 7, "gamma": None})
    >>> settings.eps, settings.seed, settings.gamma
    (-3.0, 7, None)
    >>> Settings.gather(environ={"ASTRAY_GAMMA": "much"})
    Traceback (most recent call last):
    ...
    astray.settings.SettingsError: ASTRAY_GAMMA in the environment: 'much' is not a number
    """

    # reading
    format: str | None = _setting("format of the data; recognised by default", check=_one_of(*FORMATS))
    columns: Mapping[str, str] | None = _setting(
        "which column plays which part, as role=name",
        check=((lambda pairs: set(pairs) <= set(ROLES)), f"role=name pairs with the roles {', '.join(ROLES)}"),
    )
    time_unit: str | None = _setting(
        "unit of times that are numbers: s, ms, us or ns", check=_one_of("s", "ms", "us", "ns")
    )
    time_zone: str | None = _setting("time zone of times that name none, such as Europe/Lisbon")
    users: tuple[str, ...] | None = _setting("only these persons of GeoLife")
    cache: str | None = _setting("Parquet file in which GeoLife is kept, to be parsed only once")
    read: Mapping[str, str] | None = _setting("further options of the format's reader, as name=value")
    trips: str | None = _setting(
        "as-given, or cut at gaps and stays; by default only fixes that name no trip are cut",
        check=_one_of("as-given", "cut"),
    )
    skip_bad: bool = _setting("leave out rows that cannot be used, and say which, instead of refusing the file", False)
    whole: bool = _setting("read tables whole, however large: for rows that are not grouped by trip", False)

    # running
    seed: int = _setting("the same seed and data give the same result, bit for bit", 0, _NOT_NEGATIVE)
    workers: int = _setting("processes to work with; 0 is one for each core", 0, _NOT_NEGATIVE)
    quiet: bool = _setting("say nothing on the way", False)

    # learning
    preset: str | None = _setting("default, or kdd19: the paper to the letter", check=_one_of("default", "kdd19"))
    encoder: str | None = _setting("what the reward sees of a step", check=_one_of("familiarity", "fourier", "raw"))
    objective: str | None = _setting("step, or trajectory: the paper's Eq. 9", check=_one_of("step", "trajectory"))
    interval: float | None = _setting("seconds between the steps that are looked at", check=_POSITIVE)
    look_for: tuple[str, ...] | None = _setting(
        "aspects of a trip that are asked about; by default all, place most",
        check=((lambda names: names and set(names) <= set(ASPECTS)), f"some of {', '.join(ASPECTS)}"),
    )
    reward: str | None = _setting("file of the reward to begin with, by astray pretrain; by default the shipped one")
    iterations: int | None = _setting("iterations of learning", check=_POSITIVE)
    heads: int | None = _setting("reward heads: their spread is the uncertainty", check=_POSITIVE)
    networks: int | None = _setting("independent networks of so many heads each", check=_POSITIVE)
    explorers: tuple[str, ...] | None = _setting("counterfactuals in the background, by name")
    window: float | None = _setting("seconds of the worst window", check=_POSITIVE)
    robust: bool | None = _setting("scales by median and quantile, for heavy tails")
    keep: int | None = _setting("past trips that the model keeps, thinned", check=_POSITIVE)
    max_trips: int | None = _setting("trips that a reward of the agent's own is learned from, at most", check=_POSITIVE)
    max_population: int | None = _setting("trips of others to learn from, at most", check=_POSITIVE)
    max_agents: int | None = _setting("agents that a fleet's reward goes on learning from, at most", check=_POSITIVE)

    # deciding
    false_alarm_rate: float | None = _setting("about this share of normal trips is flagged", None, _SHARE)
    eps: float | None = _setting("instead of false_alarm_rate: trips that score at most this are anomalies")
    gamma: float | None = _setting("above this uncertainty a low score is for review", check=_POSITIVE)
    min_history: float | None = _setting(
        "with fewer past trips than this a low score is for review", None, _NOT_NEGATIVE
    )

    @classmethod
    def gather(
        cls,
        config: Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> Settings:
        """The settings of a file, overridden by the environment, overridden by flags; a flag that is None is not given.

        Parameters
        ----------
        config
            A TOML file with settings at its top level; by default the one that ``ASTRAY_CONFIG`` names, if any.
        environ
            The environment; names that are nearly a setting's are refused, other ``ASTRAY_...`` are somebody else's.
        flags
            Setting to value.
        """
        environ = {} if environ is None else environ
        named = environ.get(f"{PREFIX}CONFIG")
        file = config if config is not None else Path(named) if named else None
        of_file = {name: (value, f"{name} in {file}") for name, value in ({} if file is None else _read(file)).items()}
        of_environ = {}
        for key in sorted(k for k in environ if k.startswith(PREFIX) and k != f"{PREFIX}CONFIG"):
            name = key.removeprefix(PREFIX).lower()
            if name in NAMES:
                of_environ[name] = environ[key], f"{key} in the environment"
            elif close := difflib.get_close_matches(name, NAMES, 1, cutoff=0.85):
                raise SettingsError(f"{key} in the environment is no setting; did you mean {PREFIX}{close[0].upper()}?")
        of_flags = {n: (v, f"--{n.replace('_', '-')}") for n, v in (flags or {}).items() if v is not None}
        given: dict[str, Any] = {}
        for layer in (of_file, of_environ, of_flags):
            both = [place for name, (_, place) in layer.items() if name in EXCLUSIVE]
            if len(both) > 1:
                raise SettingsError(f"{' and '.join(both)}: each decides by itself; give one of them")
            if both:
                given = {name: value for name, value in given.items() if name not in EXCLUSIVE}
            given |= {name: _checked(name, value, place) for name, (value, place) in layer.items()}
        return cls(**given)

    def given(self, names: Sequence[str]) -> dict[str, Any]:
        """Those of some settings that have a value."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Settings)}
NAMES = tuple(_FIELDS)


def reference() -> list[tuple[str, str, str]]:
    """Name, default and meaning of every setting, for documentation.

    >>> [row for row in reference() if row[0] == "seed"]
    [('seed', '0', 'the same seed and data give the same result, bit for bit')]
    """
    return [(f.name, "" if f.default is None else str(f.default), f.metadata["says"]) for f in fields(Settings)]


def _read(file: Path) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            values = tomllib.load(stream)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror or error}; give a TOML file with settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not a TOML file ({error})") from error
    for name in values:
        if name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, 1)
            remedy = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
            raise SettingsError(f"{file}: no setting is named {name!r}; {remedy}")
    return values


def _checked(name: str, value: Any, place: str) -> Any:
    """The value in the setting's type, or a refusal that names the place."""
    if name not in NAMES:
        raise SettingsError(f"{place}: there is no such setting")
    try:
        typed = _TYPES[str(_FIELDS[name].type).removesuffix(" | None")](value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{place}: {error}") from None
    check: Check | None = _FIELDS[name].metadata["check"]
    if check is not None and not check[0](typed):
        raise SettingsError(f"{place}: {value!r} cannot be used; give {check[1]}")
    return typed


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _number(wanted: type[int] | type[float], value: Any) -> int | float:
    what = "a whole number" if wanted is int else "a number"
    fits = isinstance(value, (str, int) if wanted is int else (str, int, float)) and not isinstance(value, bool)
    try:
        number = wanted(value) if fits else None
    except ValueError:
        number = None
    if number is None or number != number:
        raise ValueError(f"{value!r} is not {what}")
    return number


def _truth(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(f"{value!r} is neither true nor false")


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts, or one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise TypeError(f"{value!r} is not a list of texts")
    return tuple(part.strip() for part in parts if part.strip())


def _pairs(value: Any) -> dict[str, str]:
    """A table, or texts of the form ``name=value``, with commas between them.

    >>> _pairs("lat=Breite, lon=Laenge")
    {'lat': 'Breite', 'lon': 'Laenge'}
    """
    if isinstance(value, Mapping):
        return {str(name): str(part) for name, part in value.items()}
    pairs = {}
    for part in _texts(",".join(value) if isinstance(value, (list, tuple)) else value):
        name, equals, rest = part.partition("=")
        if not (name.strip() and equals and rest.strip()):
            raise ValueError(f"{part!r} is not of the form name=value")
        pairs[name.strip()] = rest.strip()
    return pairs


# By the annotation of a setting, as it stands above.
_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": partial(_number, int),
    "float": partial(_number, float),
    "bool": _truth,
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _pairs,
}
