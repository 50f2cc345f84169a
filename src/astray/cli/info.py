"""``astray info``: what a model is, what it has seen, and how it decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o

if TYPE_CHECKING:
    from astray.detectors.detector import IRLDetector
    from astray.detectors.fleet import FleetDetector


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
    about: dict[str, Any] = {"file": str(model), "bytes": model.stat().st_size} | _about(detector)
    parameters = plain(dict(kept.values["parameters"]))
    about["thresholds"] = {name: parameters[name] for name in ("eps", "gamma", "min_history")}
    about["scales"] = [_scale(scale) for scale in detector.scales_]
    about["learning"] = _learning(detector)
    about["settings"] = {name: value for name, value in parameters.items() if value is not None}
    print(json.dumps(about, indent=2, default=str) if as_json else _text(about))


def _about(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector):
        trips = sorted(len(member.memory) for member in model.members_.values())
        return {
            "kind": "a fleet: one reward for all, a memory for each",
            "agents": len(trips),
            "trips": sum(trips),
            "trips_of_an_agent": {"least": trips[0], "median": trips[len(trips) // 2], "most": trips[-1]}
            if trips
            else {},
            "anomalous": len(model.anomalous_),
        }
    remembered = {name.rpartition("/")[0] for name in (() if model.view_ is None else model.view_.memory.trip_ids)}
    return {
        "kind": "one agent, or a pool of agents",
        "sees": "states and actions" if model.view_ is None else "GPS trips",
        "agents": len(remembered),
        "names": sorted(remembered)[:5],
        "trips": model.n_trips_,
        "updates": model.n_updates_,
        "anomalous": len(model.anomalous_),
        "population": 0 if model.population_ is None else len(model.population_),
    }


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


def _text(about: dict[str, Any]) -> str:
    """One line a fact, what belongs together under one heading.

    >>> print(_text({"kind": "fleet", "thresholds": {"eps": -2.0}, "names": ["a", "b"]}))
    kind         fleet
    thresholds   eps -2.0
    names        a, b
    """
    lines = []
    width = max(map(len, about)) + 2
    for name, value in about.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(_text_of(item) for item in value)
        elif isinstance(value, int):
            value = f"{value:,}"
        lines.append(f"{name.replace('_', ' '):<{width}} {value}")
    return "\n".join(lines)


def _text_of(item: Any) -> str:
    return "(" + ", ".join(f"{k} {v}" for k, v in item.items()) + ")" if isinstance(item, dict) else str(item)
