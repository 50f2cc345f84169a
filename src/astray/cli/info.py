"""``astray info``: shows what a model is, what it has learned from, and how it decides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o
from astray.cli.console import tell_facts
from astray.core.errors import some_names
from astray.core.settings import Settings
from astray.core.text import number_of

if TYPE_CHECKING:
    from astray.core.zones import Zone
    from astray.detector import Detector
    from astray.scoring.decisions import Threshold

NAMED = 5
"""The most agents of a pool, and the most time zones, to name."""


@o.with_settings()
def command(
    settings: Settings,
    model: o.Model,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a model is, what it has learned from, and how it decides.

    Prints a line for each fact: the agents, their trips and period, the reward, the score below which a trip is an
    anomaly or goes to review, and the lowest false-alarm rate that the model supports.

    [b]Examples[/b]

      astray info me.astray
      astray info fleet.astray --json | jq .agents
    """
    from astray.detector import load

    detector = load(model)
    about = _about(model, detector)
    if as_json:
        print(json.dumps(about, indent=2, default=str))
    else:
        tell_facts(_facts(about, detector))


# -------------------------------------------------------------------- all facts


def _about(file: Path, model: Detector) -> dict[str, Any]:
    """Returns all facts about a model, for JSON."""
    from astray import __version__
    from astray.model.file import VERSION

    parameters = model.saved_parameters
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "written": datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        "format": VERSION,
        "astray": __version__,
        **(_of_one(model) if model.is_one else _of_many(model)),
        "thresholds": {name: parameters[name] for name in ("false_alarm_rate", "eps", "gamma", "min_history")},
        "reward": {"aspects": list(model.reward_.aspects), "made": model.reward_.made},
        "calibration": _calibration(model),
        "learning": _learning(model),
        "settings": {name: value for name, value in parameters.items() if value is not None},
    }


def _of_many(model: Detector) -> dict[str, Any]:
    """Returns what a fleet has learned from."""
    rows = dict(model.memories_.rows())
    trips = sorted(row.trips for row in rows.values())
    moments = [time for row in rows.values() if row.trips for time in (row.first, row.last)]
    return {
        "kind": "a fleet: one reward for all, a memory for each",
        "sees": model.fitted.sees,
        "agents": len(trips),
        "trips": sum(trips),
        "trips_of_an_agent": {"least": trips[0], "median": trips[len(trips) // 2], "most": trips[-1]} if trips else {},
        "period": _period(moments, model.zone(next(iter(rows), ""))),
        "time_zones": dict(Counter(str(model.zone(agent)) for agent in rows).most_common()),
        "anomalous": len(model.anomalous_),
        "popularity": model.fitted.n_others,
    }


def _of_one(model: Detector) -> dict[str, Any]:
    """Returns what a model of one agent or pool has learned from."""
    agents, zone, world = model.agents, model.zone(""), model.fitted
    return {
        "kind": "one agent" if len(agents) == 1 else "a pool of agents",
        "sees": world.sees,
        "agents": len(agents),
        "names": sorted(agents)[:NAMED],
        "trips": model.n_trips_,
        "period": _period(world.starts, zone),
        "time_zones": {str(zone): len(agents)} if world.starts else {},
        "updates": model.n_updates_,
        "anomalous": len(model.anomalous_),
        "suspects": [trip._asdict() for trip in model.suspects_],
        "popularity": world.n_others,
    }


def _period(starts: list[float], zone: Zone) -> list[str]:
    """Returns the days, in local time, on which the first and the last trip began."""
    return [f"{zone.clock(t):%Y-%m-%d}" for t in (min(starts), max(starts))] if starts else []


def _calibration(model: Detector) -> dict[str, Any]:
    """Returns the number of trips behind the p-values and, for a model of one agent, the scale."""
    from astray.model.configuration import scale_config

    if not model.is_one:
        return {"trips": scale_config(model).stand_in_up_to, "stand_ins": True}  # at least, for each agent
    found = model.calibration_
    about = {
        "trips": round(found.normal.total, 6),
        "stand_ins": model.reward_.trip is not None,
        "trip": {"centre": round(found.trip.centre, 4), "spread": round(found.trip.spread, 4)},
        "step": {"centre": round(found.step.centre, 4), "spread": round(found.step.spread, 4)},
        "trip_noise": round(found.trip_noise, 4),
    }
    return about | ({} if found.by_length is None else {"window_length": found.window_length})


def _learning(model: Detector) -> dict[str, Any]:
    """Returns the number of learning iterations, if known, and the measures of the last one."""
    history = model.training_history_
    if not history.height:
        return {"iterations": 0}
    last = {name: round(value, 4) for name, value in history.tail(1).row(0, named=True).items() if value is not None}
    return {"iterations": history.height} | last


# -------------------------------------------------------------------- the facts for a person


def _facts(about: Mapping[str, Any], model: Detector) -> dict[str, str]:
    """Returns headings with the facts in a few words; empty facts are not printed."""
    fleet, period, others, updates = not model.is_one, about["period"], about["popularity"], about.get("updates")
    size, suspected = about["bytes"], [str(trip) for trip in model.suspects_]
    zones = [f"{zone} ({number_of(n, 'agent')})" for zone, n in about["time_zones"].items()]
    return {
        "model": f"{about['file']}, {'' if fleet else 'of '}{about['kind']}",
        "of": _whose(about),
        "learned from": number_of(about["trips"], "trip") + (f", {' to '.join(period)}" if period else ""),
        "time zone": some_names(zones, NAMED) if len(zones) > 1 else "".join(about["time_zones"]),
        "reward": _reward(about["reward"]["made"])
        + (f"; asked about {', '.join(model.look_for)}" if model.look_for else ""),
        "others": f"where {number_of(others, 'agent')} {'goes' if others == 1 else 'go'} is known" if others else "",
        "never learned": f"{number_of(about['anomalous'], 'trip')} known as anomalous" if about["anomalous"] else "",
        "taken out": f"{', '.join(suspected)}: probably somebody else's" if suspected else "",
        "written": f"{about['written'].replace('T', ' ').removesuffix('+00:00')} UTC"
        + (f"; updated {'once' if updates == 1 else f'{updates:,} times'} since it was fitted" if updates else ""),
        "anomaly": _low(model, about),
        "review": f"the same, where the uncertainty is above {_level(model.gamma)}, or fewer than "
        f"{number_of(model.min_history, 'past trip')} {'stands' if model.min_history == 1 else 'stand'} behind it",
        "calibrated": _calibrated(about["calibration"], fleet),
        "size": f"{size / 1e6:,.1f} MB" if size >= 1_000_000 else f"{size / 1e3:.0f} kB",
        "seed": str(about["settings"].get("seed", 0)),
        "version": f"format {about['format']} of model files, read by astray {about['astray']}",
    }


def _whose(about: Mapping[str, Any]) -> str:
    names = about.get("names")
    if names is None:
        spread = about["trips_of_an_agent"]
        trips = ", with {least:,} to {most:,} trips each, {median:,} in the middle".format(**spread) if spread else ""
        if spread and spread["least"] == spread["most"]:
            trips = f", with {number_of(spread['most'], 'trip')} each"
        return number_of(about["agents"], "agent") + trips
    rest = about["agents"] - len(names)
    return ", ".join(name or "an agent without a name" for name in names) + (f" and {rest:,} more" if rest else "")


def _low(model: Detector, about: Mapping[str, Any]) -> str:
    """Says which scores are low."""
    from astray.explain.aspect_phrases import promise

    eps = model.fitted.eps
    if eps is not None:
        low = f"a score of {_level(eps)} or less"
    elif isinstance(model.false_alarm_rate, Mapping):
        return f"a trip that is {promise(model.false_alarm_rate)}"
    else:
        low = f"a score as low as at most {100 * model.false_alarm_rate:g} % of normal trips have"
    window = about["calibration"].get("window_length")
    unit = "steps" if about["sees"] == "states and actions" else "seconds"
    return low if window is None else f"{low}, over the whole trip or its worst {window:g} {unit}"


def _reward(made: Mapping[str, Any]) -> str:
    """Says what the reward was learned from, and whether a second stage was kept.

    >>> _reward({"towns": 16, "people": 30, "days": 60, "went_on": 1})
    'learned from 60 days of 30 simulated people in each of 16 towns, then from trips of others here'
    >>> _reward({"towns": 1, "people": 30, "days": 60, "pool": 2000})
    'learned from 60 days of 30 simulated people in one town, then from 2,000 trips of this pool'
    >>> made = {"towns": 1, "people": 30, "days": 60}
    >>> _reward({**made, "second_stages": [{"people": 24, "kept": True}]})
    'learned from 60 days of 30 simulated people in one town, then a second stage from 24 others here'
    >>> _reward({**made, "second_stages": [{"people": 24, "kept": False}]})
    'learned from 60 days of 30 simulated people in one town; 24 others here could not improve it'
    """
    if "towns" not in made:
        return "learned from these trips"
    n = made["towns"] + made.get("cities", 0)
    towns = "one town" if n == 1 else f"each of {n} towns"
    begun = f"learned from {made['days']} days of {made['people']} simulated people in {towns}"
    if "pool" in made:
        return f"{begun}, then from {number_of(made['pool'], 'trip')} of this pool"
    begun += ", then from trips of others here" if made.get("went_on") else ""
    stages = made.get("second_stages", ())
    for stage in stages[-1:]:
        who = number_of(stage["people"], "other")
        begun += f", then a second stage from {who} here" if stage["kept"] else f"; {who} here could not improve it"
    return begun


def _calibrated(calibration: Mapping[str, Any], fleet: bool) -> str:
    from astray.scoring.decisions import least_rate

    n = calibration["trips"]
    if not n:
        return ""
    said = f"on {number_of(round(n), 'past trip')}, held out of learning"
    if calibration["stand_ins"]:
        whose, more = ("an agent's", " or more") if fleet else ("the agent's", "")
        said = f"on {n:,.0f} normal trips{more}: {whose} own, and others' for those that it lacks"
    return f"{said}; --false-alarm-rate can be as low as {least_rate(n):g}"


def _level(threshold: Threshold) -> str:
    """Returns a threshold in words."""
    from astray.scoring.decisions import ByContext, ByHour

    if isinstance(threshold, ByHour):
        return f"{threshold.otherwise:g} (otherwise at some hours)"
    if isinstance(threshold, ByContext):
        return f"{threshold.otherwise:g} (otherwise by {threshold.column})"
    return str(threshold) if callable(threshold) else f"{threshold:g}"
