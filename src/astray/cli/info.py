"""``astray info``: what a model is, what it has seen, and how it decides."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o
from astray.cli.console import number_of

if TYPE_CHECKING:
    from astray.decide import Threshold
    from astray.detectors.detector import IRLDetector
    from astray.detectors.fleet import FleetDetector

NAMED = 5
"""Agents of a pool that are named, at most."""


def command(
    model: o.Model,
    as_json: Annotated[bool, Option("--json", help="As JSON, with everything there is.")] = False,
    config: o.Config = None,
    quiet: o.Quiet = None,
) -> None:
    """Say what a model is, what it has seen, and how it decides.

    [b]Examples[/b]

      astray info me.astray
      astray info fleet.astray --json | jq .agents
    """
    o.gathered(locals())
    from astray.modelfile import load, plain, read

    kept = read(model)
    detector = load(model)
    about = _of_file(model) | _seen(detector)
    parameters = plain(dict(kept.values["parameters"]))
    about["thresholds"] = {name: parameters[name] for name in ("eps", "gamma", "min_history")}
    about["scales"] = [_scale(scale) for scale in detector.scales_]
    about["learning"] = _learning(detector)
    about["settings"] = {name: value for name, value in parameters.items() if value is not None}
    print(json.dumps(about, indent=2, default=str) if as_json else _text(_facts(about, detector)))


# -------------------------------------------------------------------- everything there is


def _of_file(model: Path) -> dict[str, Any]:
    from astray import __version__
    from astray.modelfile import VERSION

    status = model.stat()
    written = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    return {
        "file": str(model),
        "bytes": status.st_size,
        "written": written,
        "format": VERSION,
        "astray": __version__,
    }


def _seen(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector):
        memories = [member.memory for member in model.members_.values()]
        trips = sorted(len(memory) for memory in memories)
        spread = {"least": trips[0], "median": trips[len(trips) // 2], "most": trips[-1]} if trips else {}
        return {
            "kind": "a fleet: one reward for all, a memory for each",
            "sees": "GPS trips",
            "agents": len(trips),
            "fine_tuned": len(model.tuned_),
            "trips": sum(trips),
            "trips_of_an_agent": spread,
            "period": _period([float(t) for memory in memories for t in memory.times]),
            "anomalous": len(model.anomalous_),
        }
    agents = model.agents
    gps = model.view_ is not None
    starts = model.kept_.columns["time"][model.kept_.offsets[:-1]].tolist() if gps else []
    remembered = model.view_.memory.times.tolist() if model.view_ is not None else []
    return {
        "kind": "one agent" if len(agents) == 1 else "a pool of agents",
        "sees": "GPS trips" if gps else "states and actions",
        "agents": len(agents),
        "names": sorted(agents)[:NAMED],
        "trips": model.n_trips_,
        "period": _period(remembered or starts),
        "updates": model.n_updates_,
        "anomalous": len(model.anomalous_),
        "suspects": list(model.suspects_),
        "population": 0 if model.population_ is None else len(model.population_),
    }


def _period(starts: list[float]) -> list[str]:
    """The days, in UTC, on which the first and the last trip began."""
    return [f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}" for t in (min(starts), max(starts))] if starts else []


def _scale(scale: Any) -> dict[str, Any]:
    """What scores are measured on: how many left-out trips, and the spread that a short history adds."""
    return {
        "left_out_trips": len(scale.calibration.trips),
        "window_seconds": scale.calibration.window_seconds,
        "trip_noise": round(float(scale.trip_noise), 3),
    }


def _learning(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    """The last row of the history of learning."""
    history = model.history_
    if not history.height:
        return {"iterations": 0}
    last = {name: round(value, 4) for name, value in history.tail(1).row(0, named=True).items() if value is not None}
    return {"iterations": history.height} | last


# -------------------------------------------------------------------- what a person wants to know of it


def _facts(about: Mapping[str, Any], model: IRLDetector | FleetDetector) -> dict[str, str]:
    """The model in a few words each, by heading."""
    from astray.decide import least_rate

    window = about["scales"][0]["window_seconds"]
    steps = "steps" if about["sees"] == "states and actions" else "seconds"
    fleet = "names" not in about
    fewest = min(scale["left_out_trips"] for scale in about["scales"])
    facts = {
        "model": f"{about['file']}, {'' if fleet else 'of '}{about['kind']}",
        "of": _whose(about),
        "learned from": number_of(about["trips"], "trip")
        + _when(about["period"])
        + (", told from trips of others" if about.get("population") else ""),
        "never teach": f"{number_of(about['anomalous'], 'trip')} known as anomalous" if about["anomalous"] else "",
        "look like others'": ", ".join(about.get("suspects", [])),
        "written": f"{about['written'].replace('T', ' ').removesuffix('+00:00')} UTC" + _updates(about.get("updates")),
        "anomaly": f"a score of {_level(model.eps)} or less, over the whole trip or its worst {window:g} {steps}",
        "review": f"the same, where the uncertainty is above {_level(model.gamma)}, or fewer than "
        f"{model.min_history:g} past trips stand behind it",
        "calibrated": f"on {number_of(fewest, 'past trip')}, left out of learning"
        + (", or more, by how much history an agent has" if len(about["scales"]) > 1 else "")
        + f"; --false-alarm-rate can be as low as {least_rate(fewest):g}",
        "size": _size(about["bytes"]),
        "seed": str(about["settings"].get("seed", 0)),
        "version": f"format {about['format']} of model files, read by astray {about['astray']}",
    }
    return {name: words for name, words in facts.items() if words}


def _whose(about: Mapping[str, Any]) -> str:
    names = about.get("names")
    if names is None:
        spread, tuned = about["trips_of_an_agent"], about["fine_tuned"]
        trips = ", with {least:,} to {most:,} trips each, {median:,} in the middle".format(**spread) if spread else ""
        return (
            number_of(about["agents"], "agent") + trips + (f"; {tuned:,} with a reward of their own" if tuned else "")
        )
    rest = about["agents"] - len(names)
    return ", ".join(name or "an agent without a name" for name in names) + (f" and {rest:,} more" if rest else "")


def _when(period: list[str]) -> str:
    return f", {period[0]} to {period[1]}" if period else ""


def _updates(n: int | None) -> str:
    return "" if not n else f"; updated {'once' if n == 1 else f'{n:,} times'} since it was fitted"


def _level(threshold: Threshold) -> str:
    """A threshold, or what it goes by."""
    from astray.decide import ByContext, ByHour

    if isinstance(threshold, ByHour):
        return f"{threshold.otherwise:g} (otherwise at some hours)"
    if isinstance(threshold, ByContext):
        return f"{threshold.otherwise:g} (otherwise by {threshold.column})"
    return str(threshold) if callable(threshold) else f"{threshold:g}"


def _size(n: int) -> str:
    """A file's size.

    >>> _size(1_666_916), _size(707_327)
    ('1.7 MB', '707 kB')
    """
    return f"{n / 1e6:,.1f} MB" if n >= 1_000_000 else f"{n / 1e3:.0f} kB"


def _text(facts: Mapping[str, str]) -> str:
    """A line a fact, or some where it is long.

    >>> print(_text({"of": "ana", "learned from": "76 trips"}))
    of            ana
    learned from  76 trips
    """
    width = max(map(len, facts)) + 2
    lines = []
    for name, words in facts.items():
        first, *rest = textwrap.wrap(words, 100, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"{name:<{width}}{first}", *(" " * width + line for line in rest)]
    return "\n".join(lines)
