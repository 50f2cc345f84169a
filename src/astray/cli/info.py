"""``astray info``: what a model is, what it has seen, and how it decides."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o
from astray.cli.console import tell
from astray.settings import Settings
from astray.text import harmless, number_of

if TYPE_CHECKING:
    from astray.detectors.agent import IRLDetector
    from astray.detectors.fleet import FleetDetector
    from astray.scoring.decisions import Threshold
    from astray.trip_ids import TripId
    from astray.zones import Zone

NAMED = 5
"""Agents of a pool that are named, at most."""


@o.with_settings()
def command(
    settings: Settings,
    model: o.Model,
    as_json: Annotated[bool, Option("--json", help="As JSON, with everything there is.")] = False,
) -> None:
    """Say what a model is, what it has seen, and how it decides.

    [b]Examples[/b]

      astray info me.astray
      astray info fleet.astray --json | jq .agents
    """
    from astray.detectors.fleet import FleetDetector
    from astray.storage import load

    detector = load(model)
    about = _of_file(model, isinstance(detector, FleetDetector)) | _seen(detector)
    parameters = detector.saved_parameters
    about["thresholds"] = {name: parameters[name] for name in ("false_alarm_rate", "eps", "gamma", "min_history")}
    about["reward"] = {"aspects": list(detector.reward_.aspects), "made": detector.reward_.made}
    about["calibration"] = _calibration(detector)
    about["learning"] = _learning(detector)
    about["settings"] = {name: value for name, value in parameters.items() if value is not None}
    if as_json:
        print(json.dumps(about, indent=2, default=str))
    else:
        tell(_text({name: harmless(words) for name, words in _facts(about, detector).items()}, _room()))


# -------------------------------------------------------------------- everything there is


def _of_file(model: Path, fleet: bool) -> dict[str, Any]:
    from astray import __version__
    from astray.storage import VERSION
    from astray.storage.fleet_file import VERSION as FLEET_VERSION

    status = model.stat()
    written = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    return {
        "file": str(model),
        "bytes": status.st_size,
        "written": written,
        "format": FLEET_VERSION if fleet else VERSION,
        "astray": __version__,
    }


def _seen(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector):
        rows = dict(model.members_.rows())
        zone = model.zone(next(iter(rows), ""))
        trips = sorted(row.trips for row in rows.values())
        moments = [time for row in rows.values() if row.trips for time in (row.first, row.last)]
        spread = {"least": trips[0], "median": trips[len(trips) // 2], "most": trips[-1]} if trips else {}
        return {
            "kind": "a fleet: one reward for all, a memory for each",
            "sees": "GPS trips",
            "agents": len(trips),
            "trips": sum(trips),
            "trips_of_an_agent": spread,
            "period": _period(moments, zone),
            "time_zones": dict(Counter(str(model.zone(agent)) for agent in rows).most_common()),
            "anomalous": len(model.anomalous_),
            "popularity": len(model.popularity_.agents),
        }
    agents, zone = model.agents, model.zone("")
    gps = model.featurizer_ is not None
    starts = model.kept_.columns["time"][model.kept_.offsets[:-1]].tolist() if gps else []
    remembered = model.featurizer_.memory.times.tolist() if model.featurizer_ is not None else []
    return {
        "kind": "one agent" if len(agents) == 1 else "a pool of agents",
        "sees": "GPS trips" if gps else "states and actions",
        "agents": len(agents),
        "names": sorted(agents)[:NAMED],
        "trips": model.n_trips_,
        "period": _period(remembered or starts, zone),
        "time_zones": {str(zone): len(agents)} if gps else {},
        "updates": model.n_updates_,
        "anomalous": len(model.anomalous_),
        "suspects": [trip._asdict() for trip in model.suspects_],
        "popularity": 0 if model.featurizer_ is None else len(model.featurizer_.popularity.agents),
    }


def _period(starts: list[float], zone: Zone) -> list[str]:
    """The days, in local time, on which the first and the last trip began."""
    return [f"{zone.clock(t):%Y-%m-%d}" for t in (min(starts), max(starts))] if starts else []


def _calibration(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    """What scores are measured on: how many trips p-values are read from, and of one agent the scale."""
    from astray.detectors.fleet import FleetDetector
    from astray.scoring.own_scale import ENOUGH_TRIPS

    if isinstance(model, FleetDetector):
        return {"trips": ENOUGH_TRIPS, "stand_ins": True}  # at least, for everybody
    found = model.calibration_
    about = {
        "trips": round(found.normal.total, 6),
        "stand_ins": model.is_shared,
        "trip": {"centre": round(found.trip.centre, 4), "spread": round(found.trip.spread, 4)},
        "step": {"centre": round(found.step.centre, 4), "spread": round(found.step.spread, 4)},
        "trip_noise": round(found.trip_noise, 4),
    }
    return about | ({} if found.by_length is None else {"window_length": found.window_length})


def _learning(model: IRLDetector | FleetDetector) -> dict[str, Any]:
    """The last row of the history of learning a reward of the agent's own."""
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector) or not model.history_.height:
        return {"iterations": 0}
    history = model.history_
    last = {name: round(value, 4) for name, value in history.tail(1).row(0, named=True).items() if value is not None}
    return {"iterations": history.height} | last


# -------------------------------------------------------------------- what a person wants to know of it


def _facts(about: Mapping[str, Any], model: IRLDetector | FleetDetector) -> dict[str, str]:
    """The model in a few words each, by heading."""
    calibration, fleet = about["calibration"], "names" not in about
    low = _low(model)
    if "window_length" in calibration:
        steps = "steps" if about["sees"] == "states and actions" else "seconds"
        low += f", over the whole trip or its worst {calibration['window_length']:g} {steps}"
    facts = {
        "model": f"{about['file']}, {'' if fleet else 'of '}{about['kind']}",
        "of": _whose(about),
        "learned from": number_of(about["trips"], "trip") + _when(about["period"]),
        "time zone": _zones(about["time_zones"]),
        "reward": _reward(about["reward"]["made"]) + _asked(model),
        "others": _others(about["popularity"]),
        "never teach": f"{number_of(about['anomalous'], 'trip')} known as anomalous" if about["anomalous"] else "",
        "taken out": _suspects(getattr(model, "suspects_", ())),
        "written": f"{about['written'].replace('T', ' ').removesuffix('+00:00')} UTC" + _updates(about.get("updates")),
        "anomaly": low,
        "review": f"the same, where the uncertainty is above {_level(model.gamma)}, or fewer than "
        f"{number_of(model.min_history, 'past trip')} {'stands' if model.min_history == 1 else 'stand'} behind it",
        "calibrated": _calibrated(calibration, fleet),
        "size": _size(about["bytes"]),
        "seed": str(about["settings"].get("seed", 0)),
        "version": f"format {about['format']} of model files, read by astray {about['astray']}",
    }
    return {name: words for name, words in facts.items() if words}


def _others(n: int) -> str:
    """Of how many agents it is known where they go.

    >>> _others(1), _others(3)
    ('where 1 agent goes is known', 'where 3 agents go is known')
    """
    return f"where {number_of(n, 'agent')} {'goes' if n == 1 else 'go'} is known" if n else ""


def _low(model: IRLDetector | FleetDetector) -> str:
    """What is called low."""
    from astray.detectors.agent import IRLDetector
    from astray.scoring.decisions import PAPER_EPS

    eps = model.eps
    if eps is None and isinstance(model, IRLDetector) and model.preset == "kdd19":
        eps = PAPER_EPS
    if eps is not None:
        return f"a score of {_level(eps)} or less"
    return f"a score as low as at most {100 * model.false_alarm_rate:g} % of normal trips have"


def _reward(made: Mapping[str, Any]) -> str:
    """Where the reward comes from.

    >>> _reward({"towns": 16, "people": 30, "days": 60, "went_on": 1})
    'learned from 60 days of 30 simulated people in each of 16 towns, then from trips of others here'
    """
    if "towns" not in made:
        return "learned from these trips"
    n = made["towns"] + made.get("cities", 0)
    towns = "one town" if n == 1 else f"each of {n} towns"
    begun = f"learned from {made['days']} days of {made['people']} simulated people in {towns}"
    return begun + (", then from trips of others here" if made.get("went_on") else "")


def _asked(model: IRLDetector | FleetDetector) -> str:
    """What it is asked about, if not all."""
    return f"; asked about {', '.join(model.look_for)}" if model.look_for else ""


def _suspects(trips: Sequence[TripId]) -> str:
    return f"{', '.join(map(str, trips))}: probably somebody else's" if trips else ""


def _calibrated(calibration: Mapping[str, Any], fleet: bool) -> str:
    from astray.scoring.decisions import least_rate

    n = calibration["trips"]
    if not n:
        return ""
    if not calibration["stand_ins"]:
        said = f"on {number_of(round(n), 'past trip')}, left out of learning"
    else:
        whose = "an agent's" if fleet else "the agent's"
        said = (
            f"on {n:,.0f} normal trips{' or more' if fleet else ''}: {whose} own, and others' for those that it lacks"
        )
    return f"{said}; --false-alarm-rate can be as low as {least_rate(n):g}"


def _whose(about: Mapping[str, Any]) -> str:
    names = about.get("names")
    if names is None:
        spread = about["trips_of_an_agent"]
        trips = ", with {least:,} to {most:,} trips each, {median:,} in the middle".format(**spread) if spread else ""
        return number_of(about["agents"], "agent") + trips
    rest = about["agents"] - len(names)
    return ", ".join(name or "an agent without a name" for name in names) + (f" and {rest:,} more" if rest else "")


def _when(period: list[str]) -> str:
    return f", {period[0]} to {period[1]}" if period else ""


def _zones(zones: Mapping[str, int]) -> str:
    """In which zones the agents live.

    >>> _zones({"Europe/Lisbon": 3}), _zones({"Europe/Lisbon": 3, "Asia/Tokyo": 1})
    ('Europe/Lisbon', 'Europe/Lisbon (3 agents), Asia/Tokyo (1 agent)')
    """
    if len(zones) < 2:
        return "".join(zones)
    shown = [f"{name} ({number_of(n, 'agent')})" for name, n in list(zones.items())[:NAMED]]
    return ", ".join(shown) + (f" and {len(zones) - NAMED:,} more" if len(zones) > NAMED else "")


def _updates(n: int | None) -> str:
    return "" if not n else f"; updated {'once' if n == 1 else f'{n:,} times'} since it was fitted"


def _level(threshold: Threshold) -> str:
    """A threshold, or what it goes by."""
    from astray.scoring.decisions import ByContext, ByHour

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


def _room() -> int:
    """Letters of a line."""
    return min(shutil.get_terminal_size((114, 24)).columns, 114)


def _text(facts: Mapping[str, str], room: int = 114) -> str:
    """A line a fact, or some where it is longer than there is room.

    >>> print(_text({"of": "ana", "learned from": "76 trips"}))
    of            ana
    learned from  76 trips
    """
    width = max(map(len, facts)) + 2
    lines = []
    for name, words in facts.items():
        first, *rest = textwrap.wrap(words, room - width, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"{name:<{width}}{first}", *(" " * width + line for line in rest)]
    return "\n".join(lines)
