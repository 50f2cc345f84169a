"""Declares each setting once, as a field of a dataclass below, with its default, help and check.

A declaration gives the flag (``--eps``), the name in a TOML file (``eps``) and in the environment (``ASTRAY_EPS``), the
parameter of the detectors that take it, and its line in the documentation. A flag overrides the environment, and the
environment overrides the file.

pydantic-settings would replace the sixty lines that parse values, but not the rest: the same fields are parameters of
detectors, which also take functions; errors name the place of a value and the setting that was probably meant; ``eps``
and ``false_alarm_rate`` exclude each other; and commands must know which settings were given.

The help lists formats and aspects without importing readers or rewards, so their names are repeated here; a test
compares them.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.core.errors import AstrayError, DataError

if TYPE_CHECKING:
    from astray.features.encoders import Encoder
    from astray.irl.counterfactuals import Counterfactual
    from astray.irl.step_demonstrator import StepCounterfactual
    from astray.scoring.decisions import Threshold

PREFIX = "ASTRAY_"
ROLES = ("time", "date", "lat", "lon", "agent", "trajectory")
ASPECTS = ("place", "route", "manner", "time")
DATA = ("geolife", "porto")
"""Environment variables (``ASTRAY_PORTO``) that say where data are; they are not settings."""
EXCLUSIVE = ("eps", "false_alarm_rate")
"""Settings that exclude each other; the one given last counts."""
FORMATS = tuple(tomllib.loads((Path(__file__).parents[1] / "readers" / "formats.toml").read_text("utf-8")))
TABLES = ("csv", "parquet")
"""Further names for the format ``table``."""


class SettingsError(AstrayError, ValueError):
    """Raised for an unknown setting or an invalid value; says where it was given and what is allowed."""


# -------------------------------------------------------------------- how a setting is declared


class Kind(NamedTuple):
    """A type of setting: how its value is parsed, and the type of its flag."""

    read: Callable[[Any], Any]  # from TOML or text; raises TypeError or ValueError
    flag: Any  # the type of its flag


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
    """Reads a list of texts, or one text with commas between them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise TypeError(f"{value!r} is not a list of texts")
    return tuple(part.strip() for part in parts if part.strip())


def _pairs(value: Any) -> dict[str, str]:
    """Reads a table, or texts of the form ``name=value`` with commas between them.

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


def _rates(value: Any) -> float | dict[str, float]:
    """Reads a number, or a number for each of some names.

    >>> _rates("0.01"), _rates("place=0.015, manner=0.01")
    (0.01, {'place': 0.015, 'manner': 0.01})
    """
    if isinstance(value, Mapping) or (isinstance(value, str) and "=" in value):
        pairs = value if isinstance(value, Mapping) else _pairs(value)
        return {str(name): float(_number(float, share)) for name, share in pairs.items()}
    return float(_number(float, value))


TEXT = Kind(_text, str)
WHOLE = Kind(partial(_number, int), int)
NUMBER = Kind(partial(_number, float), float)
TRUTH = Kind(_truth, bool)
TEXTS = Kind(_texts, str)
PAIRS = Kind(_pairs, list[str])
RATES = Kind(_rates, str)

Check = tuple[Callable[[Any], bool], str]

POSITIVE: Check = (lambda value: value > 0), "a number above 0"
NOT_NEGATIVE: Check = (lambda value: value >= 0), "0 or more"


def _are_rates(value: Any) -> bool:
    """Returns True for a share, or for a share for each of some aspects with a sum below 1."""
    if not isinstance(value, Mapping):
        return bool(0 < value < 1)
    return len(value) > 0 and set(value) <= set(ASPECTS) and min(value.values()) > 0 and sum(value.values()) < 1


SHARES: Check = (
    _are_rates,
    f"a share between 0 and 1, such as 0.01, or one for each of some aspects ({', '.join(ASPECTS)}), such as "
    "place=0.015,manner=0.01",
)


def _is_zone(name: str) -> bool:
    from astray.core.zones import is_known  # imported only when a zone is named

    return is_known(name)


ZONE: Check = _is_zone, "the name of a time zone, such as Europe/Lisbon"


def _one_of(*names: str, objects: bool = False) -> Check:
    """Returns a check that a value is one of these names or, with ``objects``, anything that is not text."""
    return (lambda value: value in names or (objects and not isinstance(value, str))), f"one of {', '.join(names)}"


def _some_of(*names: str) -> Check:
    return (lambda given: bool(given) and set(given) <= set(names)), f"some of {', '.join(names)}"


def setting(
    kind: Kind, default: Any, help: str, check: Check | None = None, *, metavar: str | None = None, more: str = ""
) -> Any:
    """Declares a setting as a field of a dataclass; ``more`` is only for the docstrings of the detectors."""
    told = {"kind": kind, "help": help, "check": check, "metavar": metavar, "more": more}
    return field(default=default, metadata=told)


# -------------------------------------------------------------------- the settings


@dataclass(kw_only=True, eq=False, repr=False)
class Reading:
    """Settings for reading files of trips."""

    format: str | None = setting(
        TEXT,
        None,
        f"The format, if astray does not recognise it: {', '.join((*FORMATS, *TABLES))}.",
        _one_of(*FORMATS, *TABLES),
    )
    columns: Mapping[str, str] | None = setting(
        PAIRS,
        None,
        "Which column has which role, if they do not have the usual names (lat, lng, user_id, timestamp, trip_id, "
        f"...). Roles: {', '.join(ROLES)}. Example: lat=Breite,lon=Laenge",
        ((lambda pairs: set(pairs) <= set(ROLES)), f"role=name pairs with the roles {', '.join(ROLES)}"),
        metavar="ROLE=NAME,...",
    )
    time_unit: str | None = setting(
        TEXT,
        None,
        "Unit of times that are numbers: s, ms, us, ns, or excel for a spreadsheet's dates.",
        _one_of("s", "ms", "us", "ns", "excel"),
    )
    users: tuple[str, ...] | None = setting(TEXTS, None, "Only these persons of GeoLife.", metavar="A,B,...")
    cache: str | None = setting(TEXT, None, "Keep GeoLife here as Parquet, to parse it only once.", metavar="FILE")
    read: Mapping[str, str] | None = setting(
        PAIRS,
        None,
        "A further option of the format's reader, such as delimiter=; or encoding=latin-1 or keep_missing=true.",
        metavar="NAME=VALUE",
    )
    trips: str | None = setting(
        TEXT,
        None,
        "Keep the trips that the file names, or cut all fixes into trips at gaps and stays, as watch does. By default "
        "only fixes without a trip are cut.",
        _one_of("as-given", "cut"),
        metavar="as-given|cut",
    )
    skip_bad: bool = setting(
        TRUTH, False, "Skip rows that cannot be used and list them at the end, instead of refusing the file."
    )


@dataclass(kw_only=True, eq=False, repr=False)
class LocalTime:
    """The setting for the agents' time zone."""

    time_zone: str | None = setting(
        TEXT,
        None,
        "The agents' time zone, such as Europe/Lisbon. astray prints times in it, and reads times without a zone in "
        "it. By default it prints them in the zone that the file names, or else in the zone of the place.",
        ZONE,
        metavar="ZONE",
        more="Hours of the day follow its standard time. Without it they follow the longitude.",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class Streaming:
    """Settings for reading and scoring a file that is too large to load."""

    whole: bool = setting(
        TRUTH, False, "Load a large table instead of streaming it; needed if its rows are not grouped by trip."
    )
    workers: int = setting(WHOLE, 0, "Number of worker processes; 0 means one for each core.", NOT_NEGATIVE)
    cluster: str | None = setting(
        TEXT,
        None,
        "Send the work to the workers of this Dask scheduler: tls://HOST:8786, or tcp://127.0.0.1:8786.",
        metavar="ADDRESS",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class Chance:
    """The setting for the random generator."""

    seed: int = setting(WHOLE, 0, "The same seed and data give the same result, bit for bit.", NOT_NEGATIVE)


@dataclass(kw_only=True, eq=False, repr=False)
class Remarks:
    """Settings for what a command prints while it works."""

    quiet: bool = setting(
        TRUTH, False, "Print no progress and no remarks on standard error; errors and skipped rows are still printed."
    )
    verbose: bool = setting(TRUTH, False, "Also print what each worker process has done.")


@dataclass(kw_only=True, eq=False, repr=False)
class Learning:
    """Settings for learning any model."""

    look_for: Sequence[str] | Mapping[str, float] | None = setting(
        TEXTS,
        None,
        f"Which aspects of a trip count: some of {', '.join(ASPECTS[:-1])} and {ASPECTS[-1]}. By default all do: place "
        "most for one agent, all alike for a pool.",
        _some_of(*ASPECTS),
        metavar="A,B,...",
        more="Or a mapping from aspect to weight.",
    )
    reward: str | None = setting(
        TEXT,
        None,
        "Start from the reward that astray pretrain wrote to this file, instead of the shipped one.",
        metavar="FILE",
    )
    iterations: int | None = setting(
        WHOLE,
        None,
        "Iterations of learning a reward; 0 leaves the shipped reward as it is, also with a population.",
        NOT_NEGATIVE,
        more="N of Algorithm 1.",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class OneAgent:
    """Settings for learning a model of one agent or of one pool of agents."""

    max_population: int = setting(WHOLE, 5000, "Learn from at most this many trips of others.", POSITIVE)
    keep: int = setting(
        WHOLE, 300, "How many past trips the model keeps, thinned, to show them and to continue learning.", POSITIVE
    )
    interval: float | None = setting(
        NUMBER,
        None,
        "Seconds between two steps of a trip. By default the interval of the data, between 15 and 30.",
        POSITIVE,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class FleetOnly:
    """Settings for learning a model of many agents."""

    max_agents: int = setting(
        WHOLE, 64, "A fleet's reward continues learning from at most this many agents; all are enrolled.", POSITIVE
    )


PAPER_PRESETS = ("kdd19", "kdd19-fourier")
"""The presets that learn by the paper's Algorithms 1 and 2 and decide by its thresholds; the first is the paper's."""


@dataclass(kw_only=True, eq=False, repr=False)
class ItsOwn:
    """Settings for the reward that a model of one agent uses."""

    preset: str = setting(
        TEXT,
        "default",
        "shared: the reward that serves everybody; own: this reward, after it has continued learning from these "
        "trips; kdd19: the paper's method; kdd19-fourier: the same with waves. By default own for a pool, else shared.",
        _one_of("default", "shared", "own", *PAPER_PRESETS),
        more="Trips of several agents are a pool. ``own`` takes some tens of seconds; give it for a pool whose trips "
        "name no agents. ``kdd19`` is the paper's own method: its state and action, the policy alone as background, "
        "Eq. 3, and N(tau) a plain mean. ``kdd19-fourier``, which is ours, differs in two things: the reward also sees "
        "the place that a step leads to and random Fourier features, and every iteration updates all heads. It finds "
        "more.",
    )
    encoder: str | Encoder | None = setting(
        TEXT,
        None,
        "What the reward sees of a step: familiarity; or fourier or raw, for which no reward ships.",
        _one_of("familiarity", "fourier", "raw", objects=True),
        more="Or an object with ``names`` and ``encode(steps, without)``; a model with one cannot be saved.",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class OwnReward:
    """Settings for learning a reward from the agent's trips alone."""

    objective: str | None = setting(
        TEXT,
        None,
        "step; or trajectory: Eq. 3 of the paper with its weights tempered by the horizon (not in kdd19).",
        _one_of("step", "trajectory"),
        more="The temperature T (``temperature`` in ``config``) is the horizon by default, so that the weights do not "
        "collapse on one trajectory; only T = 1, as in the preset ``kdd19``, is Eq. 3 as printed. The loss is smallest "
        "at T log p - (T - 1) log q, up to a constant, with p of the demonstrations and q of the background.",
    )
    heads: int | None = setting(WHOLE, None, "Reward heads: their spread is the uncertainty.", POSITIVE)
    networks: int | None = setting(WHOLE, None, "Independent networks, each with that number of heads.", POSITIVE)
    explorers: Sequence[str | Counterfactual | StepCounterfactual] | None = setting(
        TEXTS,
        None,
        "Names of the counterfactuals in the background: the ways of going wrong to look for.",
        metavar="A,B,...",
        more="See :data:`astray.irl.counterfactuals.COUNTERFACTUALS`; for states and actions ``perturb`` and "
        "``exchange``. Or your own functions (:data:`~astray.irl.counterfactuals.Counterfactual`, "
        ":data:`~astray.irl.step_demonstrator.StepCounterfactual`); a saved model holds only their names.",
    )
    window: float | None = setting(
        NUMBER,
        None,
        "Seconds of the worst window, which detects short anomalies.",
        POSITIVE,
        more="Steps, for states and actions; by default 120 seconds or 10 steps.",
    )
    robust: bool = setting(TRUTH, False, "Set scales by median and quantile, for heavy tails.")
    max_trips: int = setting(WHOLE, 5000, "Learn from at most this many trips; the memory counts all.", POSITIVE)


@dataclass(kw_only=True, eq=False, repr=False)
class Deciding:
    """Settings for when astray flags a trip and when it asks a person to review it."""

    eps: Threshold | None = setting(
        NUMBER,
        None,
        "Instead of a false-alarm rate: trips that score this or less are anomalies. Normal trips score about 0, give "
        "or take 1; the paper's threshold is -2.",
        more="Or a function of the trips (:class:`~astray.scoring.decisions.ByHour`, "
        ":class:`~astray.scoring.decisions.ByContext`).",
    )
    false_alarm_rate: float | Mapping[str, float] = setting(
        RATES,
        0.02,
        "Flag about this share of normal trips. Or a share for each of some aspects, such as place=0.015,manner=0.01: "
        "flag a trip if any of them is so rare in normal trips, in total at most the sum of the shares.",
        SHARES,
        metavar="SHARE|ASPECT=SHARE,...",
        more="As a parameter, a mapping from aspect to share. A reward learned from the agent's trips alone, with too "
        "few held-out trips for this rate, decides by -2 instead, as the paper does.",
    )
    gamma: Threshold = setting(
        NUMBER,
        1.5,
        "Above this uncertainty a trip with a low score goes to review and is not called an anomaly.",
        POSITIVE,
        more="Or a function of the trips.",
    )
    min_history: float = setting(NUMBER, 5, "With fewer past trips than this a low score goes to review.", NOT_NEGATIVE)


@dataclass(kw_only=True, eq=False, repr=False)
class Serving:
    """Settings for where the service listens and stores its data, and for its limits."""

    host: str = setting(TEXT, "127.0.0.1", "The address to listen on. Other machines need TLS or a proxy to reach it.")
    port: int = setting(WHOLE, 8417, "The port to listen on.", ((lambda port: 0 <= port < 65_536), "0 to 65535"))
    store: str | None = setting(
        TEXT,
        None,
        "Store everything in this PostgreSQL database instead of a file in the folder.",
        metavar="postgresql://...",
    )
    mqtt: str | None = setting(
        TEXT, None, "Also receive fixes from this broker, such as mqtt://localhost.", metavar="mqtt://..."
    )
    tokens: tuple[str, ...] | None = setting(
        TEXTS, None, "Tokens that allow everything, in addition to those of astray serve token.", metavar="A,B,..."
    )
    host_names: tuple[str, ...] | None = setting(
        TEXTS, None, "Further host names of the service, such as track.example.org.", metavar="A,B,..."
    )
    certificate: str | None = setting(TEXT, None, "The certificate for TLS.", metavar="FILE")
    key: str | None = setting(TEXT, None, "The key of the certificate.", metavar="FILE")
    address: str | None = setting(
        TEXT, None, "The page's address, for links in messages, such as https://track.example.org.", metavar="URL"
    )
    smtp: str | None = setting(
        TEXT, None, "The server that sends e-mail: smtp://USER:PASSWORD@HOST:587?from=ADDRESS.", metavar="smtp://..."
    )
    webhook_key: str | None = setting(TEXT, None, "Sign webhooks with this key.", metavar="KEY")
    behind_proxy: bool = setting(TRUTH, False, "A proxy in front of the service ends TLS and names the client.")
    refresh: float = setting(
        NUMBER, 24.0, "Hours between two refreshes of scales and reward; 0 means never.", NOT_NEGATIVE
    )
    known_agents: int = setting(WHOLE, 100_000, "The most agents that the store accepts.", POSITIVE)
    memory: int = setting(WHOLE, 400, "Megabytes for agents under way; the others stay in the store.", POSITIVE)


# -------------------------------------------------------------------- the settings that were given


@dataclass(kw_only=True)
class Settings(
    Deciding, Serving, OwnReward, ItsOwn, FleetOnly, OneAgent, Learning, Remarks, Chance, Streaming, LocalTime, Reading
):
    """All settings, with defaults where none was given.

    Examples
    --------
    >>> settings = Settings.gather(environ={"ASTRAY_EPS": "-3", "ASTRAY_SEED": "1"}, flags={"seed": 7, "gamma": None})
    >>> settings.eps, settings.seed, settings.gamma
    (-3.0, 7, 1.5)
    >>> settings.of(Deciding)
    {'eps': -3.0}
    >>> Settings.gather(environ={"ASTRAY_GAMMA": "much"})
    Traceback (most recent call last):
    ...
    astray.core.settings.SettingsError: ASTRAY_GAMMA in the environment: 'much' is not a number; correct the value
    """

    names_given: frozenset[str] = frozenset()

    @classmethod
    def gather(
        cls,
        config: Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Collects the settings of a file, then of the environment, then of flags; each layer overrides the last.

        The TOML file is ``config``, or else the one that ``ASTRAY_CONFIG`` names. Misspelt settings in the environment
        are errors; other names that begin with ``ASTRAY_`` are ignored. A flag that is None was not given.
        """
        environ = environ or {}
        named = environ.get(f"{PREFIX}CONFIG")
        file = config if config is not None else Path(named) if named else None
        of_file = {name: (value, f"{name} in {file}") for name, value in ({} if file is None else _read(file)).items()}
        of_environ = {}
        for key in sorted(k for k in environ if k.startswith(PREFIX) and k != f"{PREFIX}CONFIG"):
            name = key.removeprefix(PREFIX).lower()
            if name in DATA:
                continue
            if name in NAMES:
                of_environ[name] = environ[key], f"{key} in the environment"
            elif close := difflib.get_close_matches(name, NAMES, 1, cutoff=0.85):
                meant = f"did you mean {PREFIX}{close[0].upper()}?"
                raise SettingsError(f"{key} in the environment is not a setting", remedy=meant)
        of_flags = {name: (value, flag_of(name)) for name, value in (flags or {}).items() if value is not None}
        given: dict[str, Any] = {}
        for layer in (of_file, of_environ, of_flags):
            both = [place for name, (_, place) in layer.items() if name in EXCLUSIVE]
            if len(both) > 1:
                raise SettingsError("they exclude each other", place=" and ".join(both), remedy="give one of them")
            if both:
                given = {name: value for name, value in given.items() if name not in EXCLUSIVE}
            given |= {name: _checked(name, value, place) for name, (value, place) in layer.items()}
        return cls(**given, names_given=frozenset(given))

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns those of the named settings that were given; an unknown name is an error."""
        return {name: getattr(self, name) for name in names if declared(name).name in self.names_given}

    def of_results(self) -> dict[str, Any]:
        """Returns the given settings that can change a result; those for workers or for what is printed cannot."""
        beside = {"workers", "cluster", *(f.name for f in fields(Remarks))}
        return self.given(name for name in NAMES if name not in beside)

    def of(self, *classes: type[Any]) -> dict[str, Any]:
        """Returns the given settings of some groups, or of the constructor of a detector."""
        wanted = {f.name for kind in classes for f in fields(kind)}
        return self.given(name for name in NAMES if name in wanted)


_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Settings) if "kind" in f.metadata}
NAMES = tuple(_FIELDS)


def flag_of(name: str) -> str:
    """Returns the flag of a setting.

    >>> flag_of("skip_bad")
    '--skip-bad'
    """
    return f"--{name.replace('_', '-')}"


def declared(name: str) -> Field[Any]:
    """Returns the declaration of a setting: its ``default``, and as ``metadata`` its kind, help, check and metavar."""
    return _FIELDS[name]


def reference() -> list[tuple[str, str, str]]:
    """Returns name, default and meaning of every setting, for the documentation.

    >>> [row for row in reference() if row[0] == "robust"]
    [('robust', 'False', 'Set scales by median and quantile, for heavy tails.')]
    """
    return [(f.name, "" if f.default is None else str(f.default), f.metadata["help"]) for f in _FIELDS.values()]


def check_parameters(holder: Any) -> None:
    """Raises an error if an object, whose fields are settings, has an invalid value."""
    for f in fields(holder):
        value, check = getattr(holder, f.name), f.metadata.get("check")
        if callable(value):
            continue
        wanted = _kind_wanted(value, f)
        if wanted is None and check is not None and value is not None:
            wanted = None if _passes(check, value) else check[1]
        if wanted is not None:
            raise DataError(f"{f.name} is {value!r}", remedy=f"give {wanted}")


def _kind_wanted(value: Any, setting: Field[Any]) -> str | None:
    """Returns the name of the expected type, for an error message, if a value has another type; else None."""
    kind = setting.metadata.get("kind")
    if value is None:
        return "a number" if kind in (WHOLE, NUMBER, RATES) and setting.default is not None else None
    if kind == RATES and isinstance(value, Mapping):
        return None if all(isinstance(share, Real) for share in value.values()) else "numbers"
    if kind == WHOLE:
        return None if isinstance(value, Integral) else "a whole number"
    return "a number" if kind in (NUMBER, RATES) and isinstance(value, str | bytes) else None


def _passes(check: Check, value: Any) -> bool:
    try:
        return bool(check[0](value))
    except TypeError:  # a value that cannot be compared
        return False


def _read(file: Path) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            values = tomllib.load(stream)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(reason, place=file, remedy="give a TOML file with settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"not a TOML file ({error})", place=file, remedy="correct it") from error
    for name in values:
        if name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, 1)
            remedy = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
            raise SettingsError(f"no setting is named {name!r}", place=file, remedy=remedy)
    return values


def _checked(name: str, value: Any, place: str) -> Any:
    """Returns the value converted to the setting's type, or raises an error that names the place."""
    if name not in NAMES:
        raise SettingsError("there is no such setting", place=place, remedy=f"there are {', '.join(NAMES)}")
    try:
        typed = declared(name).metadata["kind"].read(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(str(error), place=place, remedy="correct the value") from None
    check: Check | None = declared(name).metadata["check"]
    if check is not None and not check[0](typed):
        shown = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        remedy = f"give {check[1]}"
        if declared(name).metadata["kind"] is PAIRS:
            turned = dict(pair if check[0](dict([pair])) else pair[::-1] for pair in typed.items())
            if check[0](turned):
                remedy = f"role and name are exchanged: give {','.join(map('='.join, turned.items()))}"
        raise SettingsError(f"{shown!r} cannot be used", place=place, remedy=remedy)
    return typed
