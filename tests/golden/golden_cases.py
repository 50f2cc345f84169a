"""The golden cases: each runs astray on frozen inputs and returns what came out as plain JSON values.

``bench/golden.py`` ran these cases with version 0.2 and froze the results; ``test_golden.py`` runs them again with the
code under test. Almost everything goes through the command line and the service's HTTP interface. The few calls of the
Python interface stand in the section "Adapter": when a class or a module gets another name, only that section changes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import httpx
import numpy as np
import polars as pl

HERE = Path(__file__).parent
PAST, NEWCOMER, NEW = (HERE / f"{name}.csv.gz" for name in ("past", "newcomer", "new"))
"""Past trips of p00 to p04, past trips of p05, and new trips of all six, of which some went wrong."""

Json = Any

# -------------------------------------------------------------------- adapter: all calls of astray's Python interface

COMMAND = [sys.executable, "-m", "astray"]


def command_line(arguments: Sequence[str]) -> int:
    """Runs a command in this process and returns its exit code."""
    from astray.cli import main

    return main(list(arguments))


def fit_learning_fleet(past: Path, model: Path) -> None:
    """Fits a fleet whose reward goes on learning from these few agents, which no option of the command asks for."""
    import astray

    sharing = {"least_agents": 2, "memories": 2, "demonstrations": 10, "short_demonstrations": 6}
    sharing |= {"imagined": 5, "reference": 40}
    astray.Detector(iterations=2, sharing=sharing, seed=0).fit(astray.read(past)).save(model)


def explain(model: Path, trips: Path, trip: str) -> Any:
    """Returns the explanation object of one trip, whose attributes are read by ``explanation``."""
    import astray

    return astray.load(model).explain(astray.read(trips), trip)


class Steps:
    """A detector of numeric states and actions, which only the Python interface fits."""

    def __init__(self, **settings: Any) -> None:
        import astray

        self.detector = astray.Detector(seed=0, **settings)

    @staticmethod
    def runs(states: Sequence[Any], actions: Sequence[Any], agent: str = "") -> Any:
        """Makes trajectories of arrays."""
        import astray

        return astray.Trajectories.from_steps(states, actions, agent_ids=agent)

    def fit(self, runs: Any, population: Any = None) -> None:
        """Fits the detector."""
        self.detector.fit(runs, population=population)

    def partial_fit(self, runs: Any) -> None:
        """Lets the detector go on learning."""
        self.detector.partial_fit(runs)

    def save_and_load(self, model: Path) -> None:
        """Continues with what a model file gives back."""
        import astray

        self.detector.save(model)
        self.detector = astray.load(model)

    def score(self, runs: Any) -> pl.DataFrame:
        """Scores runs."""
        return self.detector.score(runs)

    def score_steps(self, runs: Any) -> pl.DataFrame:
        """Scores steps."""
        return self.detector.score_fixes(runs)

    def explain(self, runs: Any, position: int) -> Any:
        """Explains one run."""
        return self.detector.explain(runs, position)


# -------------------------------------------------------------------- the bench on which cases work


class Answer(NamedTuple):
    """What a command wrote to standard output and to standard error."""

    out: str
    err: str


class Desk:
    """A folder with the models that several cases begin with, each fitted when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copies = 0
        self._results: dict[str, Json] = {}

    def result(self, name: str) -> Json:
        """Returns the result of a case, computed once."""
        if name not in self._results:
            self._results[name] = as_json(CASES[name](self))
        return self._results[name]

    def file(self, ending: str) -> Path:
        """Returns the path of a new file."""
        self._copies += 1
        return self.folder / f"file{self._copies}{ending}"

    def run(self, *arguments: str | Path, stdin: str = "") -> Answer:
        """Runs a command of astray in this process, which must succeed."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        given = mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        with given, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line([str(argument) for argument in arguments])
        said = []
        for stream in (out, err):
            stream.flush()
            said.append(stream.buffer.getvalue().decode().replace(str(self.folder), "").replace(str(HERE), ""))  # type: ignore[attr-defined]
        assert code == 0, f"astray {' '.join(map(str, arguments))}: {said[1]}"
        return Answer(*(re.sub(r"/?file\d+\.", "file.", text) for text in said))

    def fit(self, *arguments: str | Path) -> Path:
        """Fits a model from files and options."""
        model = self.file(".astray")
        self.run("fit", *arguments, "-o", model)
        return model

    def copy(self, model: Path) -> Path:
        """Returns a copy of a model, for a case that changes it."""
        copy = self.file(".astray")
        shutil.copy(model, copy)
        return copy

    def table(self, *arguments: str | Path) -> Json:
        """Runs a command that writes a table, and returns its columns and what it said."""
        output = self.file(".jsonl")
        said = self.run(*arguments, "-o", output)
        return {**columns(pl.read_ndjson(output, infer_schema_length=None)), "said": said.err}

    def write(self, trips: pl.DataFrame) -> Path:
        """Writes trips to a new CSV file."""
        file = self.file(".csv")
        trips.write_csv(file)
        return file

    @cached_property
    def fleet(self) -> Path:
        """A fleet of p00 to p04 with the shipped reward."""
        return self.fit(PAST)

    @cached_property
    def agent(self) -> Path:
        """A model of p00, with the others in the file as population."""
        return self.fit(PAST, "--agent", "p00")

    @cached_property
    def alone(self) -> Path:
        """A model of p01 with the shipped reward and no population."""
        return self.fit(self.write(frame(PAST).filter(pl.col("agent") == "p01")))

    @cached_property
    def feed(self) -> list[dict[str, Any]]:
        """The fixes of all new trips in the order of time, without the names of trips."""
        return in_order(frame(NEW))


def in_order(trips: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns fixes as a feed sends them: in the order of time, without the names of trips."""
    fixes = trips.with_columns(time=pl.col("time").str.to_datetime(time_zone="UTC").dt.epoch("ms") / 1000)
    return fixes.sort("time", "agent").select("agent", "time", "lat", "lon").to_dicts()


def frame(file: Path) -> pl.DataFrame:
    """Reads one of the frozen inputs."""
    return pl.read_csv(file, schema_overrides={"time": pl.String})


def columns(table: pl.DataFrame) -> Json:
    """Returns a table as lists by column; a column with only one value is that value."""
    lists = {name: table[name].to_list() for name in table.columns}
    return {"rows": table.height} | {
        name: values[0] if len(values) > 1 and len({repr(value) for value in values}) == 1 else values
        for name, values in lists.items()
    }


def info(desk: Desk, model: Path) -> Json:
    """Returns what ``astray info`` says of a model, without what depends on the file and the program."""
    wanted = ("agents", "trips", "period", "time_zones", "anomalous", "popularity", "thresholds", "calibration")
    about = json.loads(desk.run("info", model, "--json").out)
    return {name: about[name] for name in wanted} | {"learning": about["learning"], "suspects": about.get("suspects")}


def explanation(found: Any) -> Json:
    """Returns the numbers and words of an explanation."""
    plain = ("agent", "trajectory", "trip_normality", "trip_uncertainty", "score", "p_value", "aspect", "history")
    plain += ("decision", "eps", "gamma", "leave", "normality", "uncertainty", "passed")
    of_segment = ("start", "stop", "start_time", "end_time", "normality", "uncertainty", "aspect", "counts", "words")
    return {
        **{name: getattr(found, name) for name in plain},
        "segments": [{name: getattr(segment, name) for name in of_segment} for segment in found.segments],
        "reasons": [{name: getattr(why, name) for name in ("group", "effect", "words")} for why in found.reasons],
        "habitual": len(found.habitual),
        "expected": [[len(lat), lat[-1], lon[-1]] for lat, lon in found.expected],
        "words": str(found),
    }


def as_json(value: Any) -> Json:
    """Returns a value as JSON has it: arrays as lists, numbers rounded far below the tolerance, NaN as a text."""
    if isinstance(value, dict):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(one) for one in value]
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float):
        return round(value, 8 if abs(value) < 1000 else 6) if math.isfinite(value) else str(value)
    assert value is None or isinstance(value, (str, int)), f"{value!r} is no JSON value"
    return value


# -------------------------------------------------------------------- simulated city: fit, score, explain


def fleet_scores(desk: Desk) -> Json:
    """Scores trips and fixes with a fleet; p05 is unknown to it."""
    strict = ("--false-alarm-rate", "0.1", "--gamma", "0.45", "--min-history", "28")
    return {
        "trips": desk.table("score", desk.fleet, NEW),
        "by eps": desk.table("score", desk.fleet, NEW, "--eps", "-1.5"),
        "strict": desk.table("score", desk.fleet, NEW, *strict),
        "fixes": desk.table("score", desk.fleet, NEW, "--fixes", "--agent", "p00"),
        "fixes of a stranger": desk.table("score", desk.fleet, NEW, "--fixes", "--agent", "p05"),
        "past": desk.table("score", desk.fleet, PAST, "--agent", "p02"),
        "info": info(desk, desk.fleet),
    }


def fleet_that_learns(desk: Desk) -> Json:
    """Scores with a fleet whose reward went on learning from its own agents, and one that looks at two aspects."""
    model, some = desk.file(".astray"), desk.fit(PAST, "--look-for", "place,time", "--seed", "3")
    fit_learning_fleet(PAST, model)
    return {
        "trips": desk.table("score", model, NEW),
        "fixes": desk.table("score", model, NEW, "--fixes", "--agent", "p03"),
        "place and time": desk.table("score", some, NEW),
        "info": info(desk, model),
    }


def agent_scores(desk: Desk) -> Json:
    """Scores trips of one agent, with and without a population."""
    return {
        "with others": desk.table("score", desk.agent, NEW, "--agent", "p00"),
        "everybody": desk.table("score", desk.agent, NEW),
        "fixes": desk.table("score", desk.agent, NEW, "--fixes", "--agent", "p00"),
        "alone": desk.table("score", desk.alone, NEW, "--agent", "p01"),
        "without two trips": desk.table(
            "score", desk.fit(PAST, "--agent", "p00", "--anomalous", "p00-0003", "--anomalous", "p00-0004"), NEW
        ),
        "info": [info(desk, model) for model in (desk.agent, desk.alone)],
    }


def own_reward(desk: Desk) -> Json:
    """Learns rewards of the agent's own: from the shipped one, and as in the paper; the latter goes on learning."""
    own = desk.fit(PAST, "--agent", "p00", "--preset", "own", "--iterations", "1")
    paper = desk.fit(PAST, "--agent", "p00", "--preset", "kdd19", "--iterations", "2")
    found = {
        "own": desk.table("score", own, NEW, "--agent", "p00"),
        "own fixes": desk.table("score", own, NEW, "--fixes", "--agent", "p00"),
        "own info": info(desk, own),
        "own words": {"words": desk.run("explain", own, NEW, "p00/p00-0029").out},
        "paper": desk.table("score", paper, NEW, "--agent", "p00"),
        "paper fixes": desk.table("score", paper, NEW, "--fixes", "--agent", "p00"),
        "paper info": info(desk, paper),
        "paper explained": explanation(explain(paper, NEW, "p00/p00-0029")),
    }
    said = desk.run("update", paper, NEW, "--agent", "p00", "--anomalous", "p00-0029").err
    return found | {"updated": desk.table("score", paper, NEW, "--agent", "p00"), "update": {"said": said}}


def pool(desk: Desk) -> Json:
    """Learns all agents as one: with the shipped reward, and with one that went on learning from the pool."""
    shipped = desk.fit(PAST, "--pooled", "--preset", "shared")
    learned = desk.fit(PAST, "--pooled", "--iterations", "2")
    found = {
        "shipped": desk.table("score", shipped, NEW),
        "learned": desk.table("score", learned, NEW),
        "fixes": desk.table("score", learned, NEW, "--fixes", "--agent", "p02"),
        "info": [info(desk, shipped), info(desk, learned)],
        "explained": explanation(explain(learned, NEW, "p05/p05-0022")),
    }
    said = [desk.run("update", learned, NEWCOMER).err, desk.run("forget", learned, "p01").err]
    return found | {"updated": desk.table("score", learned, NEW), "updates": [{"said": one} for one in said]}


def explanations(desk: Desk) -> Json:
    """Explains the trip of each agent that scored lowest, or was unknown, in numbers and in words."""
    low = ("p00/p00-0029", "p01/p01-0025", "p02/p02-0023", "p03/p03-0029", "p04/p04-0030", "p05/p05-0022")
    return {
        "lowest": {"words": desk.run("explain", desk.fleet, NEW).out},
        "of one": {"words": desk.run("explain", desk.agent, NEW, "--agent", "p00").out},
        "by eps": {"words": desk.run("explain", desk.alone, NEW, "--agent", "p01", "--eps", "0").out},
        "fleet": {trip: {"words": desk.run("explain", desk.fleet, NEW, trip).out} for trip in low},
        "numbers": [explanation(explain(desk.fleet, NEW, trip)) for trip in low[:-1]],
        "numbers of one": explanation(explain(desk.agent, NEW, low[0])),
    }


# -------------------------------------------------------------------- simulated city: go on learning


def enrolling(desk: Desk) -> Json:
    """Enrols an agent, adds trips, takes trips and agents out; scores after each step."""
    model, found = desk.copy(desk.fleet), {}
    for name, arguments in {
        "enrolled": ("enroll", model, NEWCOMER),
        "again": ("enroll", model, NEWCOMER),
        "further trips": ("update", model, NEW, "--agent", "p02", "--anomalous", "p02/p02-0023"),
        "a past trip proved anomalous": ("update", model, "--anomalous", "p01/p01-0003"),
        "a trip forgotten": ("forget", model, "p05", "--trip", "p05-0001", "--trip", "p05-0002"),
        "an agent forgotten": ("forget", model, "p04"),
    }.items():
        said = desk.run(*arguments).err
        table = desk.table("score", model, NEW)
        kept = ("agent", "trajectory", "score", "uncertainty", "p_value", "aspect", "decision", "history")
        found[name] = {column: table[column] for column in kept} | {"info": info(desk, model), "said": said}
    return found


def updating(desk: Desk) -> Json:
    """Lets a model of one agent learn further trips and forget somebody of its population."""
    model, found = desk.copy(desk.agent), {}
    for name, arguments in {
        "further trips": ("update", model, NEW, "--agent", "p00", "--anomalous", "p00-0029"),
        "a past trip proved anomalous": ("update", model, "--anomalous", "p00-0002"),
        "somebody forgotten": ("forget", model, "p03"),
    }.items():
        said = desk.run(*arguments).err
        found[name] = desk.table("score", model, NEW, "--agent", "p00") | {
            "info": info(desk, model),
            "update": {"said": said},
        }
    return found


def claimed(file: Path, agent: str, by: str, days: int, trips: slice) -> pl.DataFrame:
    """Returns trips that ``by`` made in the name of ``agent``, some days later."""
    theirs = frame(file).filter(pl.col("agent") == by)
    names = theirs["trajectory"].unique(maintain_order=True).to_list()[trips]
    later = (
        pl.col("time").str.to_datetime(time_zone="UTC").dt.offset_by(f"{days}d").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
    )
    return theirs.filter(pl.col("trajectory").is_in(names)).with_columns(
        agent=pl.lit(agent), trajectory=pl.lit(f"by-{by}-") + pl.col("trajectory"), time=later
    )


def observing(desk: Desk, model: Path, agent: str) -> Json:
    """Observes own trips, an intruder before and after a "not mine", and a new habit before and after a "mine"."""
    mine = frame(NEW).filter(pl.col("agent") == agent)
    rounds = {
        "own trips": (mine, None),
        "an intruder": (claimed(NEWCOMER, agent, "p05", 14, slice(0, 8)), "--not-mine"),
        "the intruder again": (claimed(NEWCOMER, agent, "p05", 30, slice(8, 16)), None),
        "a new habit": (claimed(PAST, agent, "p03", 60, slice(0, 8)), "--mine"),
        "the habit again": (claimed(PAST, agent, "p03", 75, slice(8, 16)), None),
    }
    found = {}
    for name, (trips, verdict) in rounds.items():
        observed = desk.table("observe", model, desk.write(trips))
        asked = desk.run("answer", model)
        found[name] = {"observed": observed, "asked": {"words": asked.out, "said": asked.err}}
        waiting = [
            f"{agent}/{trip}"
            for trip, what in zip(observed["trajectory"], became(observed), strict=True)
            if what == "waiting"
        ]
        found[name]["waiting"] = waiting
        if verdict is not None and waiting:
            found[name]["answered"] = {"said": desk.run("answer", model, *waiting[-1:], verdict).err}
    return found | {"afterwards": desk.table("score", model, NEW, "--agent", agent), "info": info(desk, model)}


def became(observed: Json) -> list[str]:
    """Returns what became of each observed trip, also where all became the same."""
    found = observed["became"]
    return found if isinstance(found, list) else [found] * observed["rows"]


def fleet_observing(desk: Desk) -> Json:
    """Observes everybody's trips in three rounds with a fleet, answers what it asks, and observes an intruder."""
    model, found = desk.copy(desk.fleet), {}
    desk.run("enroll", model, NEWCOMER)
    trips = frame(NEW).with_columns(start=pl.col("time").min().over("agent", "trajectory"))
    starts = trips["start"].unique().sort().to_list()
    for i in range(3):
        some = starts[i * len(starts) // 3 : (i + 1) * len(starts) // 3]
        observed = desk.table("observe", model, desk.write(trips.filter(pl.col("start").is_in(some)).drop("start")))
        asked = desk.run("answer", model)
        found[f"round {i}"] = {"observed": observed, "asked": {"words": asked.out, "said": asked.err}}
    return found | {"intruder": observing(desk, model, "p01"), "info": info(desk, model)}


def agent_observing(desk: Desk) -> Json:
    """Observes with a model of one agent; a copy of it observes many trips of others that nobody answers for."""
    unanswered, eager = desk.copy(desk.agent), desk.copy(desk.agent)
    others = pl.concat(claimed(file, "p00", by, 14, slice(0, 22)) for file, by in ((NEWCOMER, "p05"), (PAST, "p04")))
    found = {"unanswered": desk.table("observe", unanswered, desk.write(others))}
    found["eager"] = desk.table("observe", eager, desk.write(others), "--false-alarm-rate", "0.1")
    models = (unanswered, eager)
    asked = [{"words": desk.run("answer", model).out, "info": info(desk, model)} for model in models]
    return found | {"asked": asked, "answered": observing(desk, desk.copy(desk.agent), "p00")}


# -------------------------------------------------------------------- simulated city: live


def damaged(feed: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a feed as lines with teleports, repeated times, late fixes and lines that must be refused."""
    lines = []
    for i, fix in enumerate(feed):
        if i % 97 == 50:
            lines.append(json.dumps(fix | {"lat": fix["lat"] + 0.5}))
        lines.append(json.dumps(fix))
        if i % 131 == 60:
            lines.append(json.dumps(fix))
        if i % 211 == 70:
            lines.append(json.dumps(fix | {"time": fix["time"] - 400.0}))
        if i % 401 == 80:
            lines += ["no JSON", json.dumps(fix | {"lat": 95.0}), json.dumps({"agent": "p00", "lat": 45.0})]
    return lines


def events(output: str) -> Json:
    """Returns the events of a watch as one table for each kind and set of fields; scores of single fixes by field."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for event in map(json.loads, output.splitlines()):
        kinds.setdefault(event["event"], []).append(event)
    return {
        kind: {name: [event.get(name) for event in some] for name in dict.fromkeys(name for e in some for name in e)}
        for kind, some in kinds.items()
    }


def watching(desk: Desk) -> Json:
    """Watches feeds: damaged, of one agent at every fix, out of order, and cut by a restart."""
    one = "\n".join(json.dumps(fix) for fix in desk.feed if fix["agent"] == "p00")
    lines = damaged(desk.feed)
    shuffled = [json.dumps(fix) for fix in desk.feed if fix["agent"] in ("p01", "p02")]
    for i in range(0, len(shuffled) - 3, 7):
        shuffled[i], shuffled[i + 2] = shuffled[i + 2], shuffled[i]
    output, state = desk.file(".jsonl"), desk.file(".state")
    cut = ["watch", desk.fleet, "--state", state, "-o", output, "--false-alarm-rate", "0.05"]
    begun = desk.run(*cut, stdin="\n".join(lines[: len(lines) // 2]) + "\n")
    ended = desk.run(*cut, stdin="\n".join(lines) + "\n")
    whole = desk.run("watch", desk.fleet, "--scores", "120", stdin="\n".join(lines))
    found = {
        "fleet": events(whole.out) | {"said": whole.err},
        "restarted": events(output.read_text()) | {"restarts": [{"said": begun.err}, {"said": ended.err}]},
    }
    for name, model, options, feed in (
        ("one agent", desk.agent, ("--scores", "0"), one),
        ("one agent by eps", desk.agent, ("--eps", "-1", "--time-zone", "UTC"), one),
        ("late", desk.fleet, ("--max-late", "60"), "\n".join(shuffled)),
        ("no strangers", desk.fleet, ("--no-strangers", "--max-agents", "3"), "\n".join(lines[:700])),
    ):
        seen = desk.run("watch", model, *options, stdin=feed)
        found[name] = events(seen.out) | {"said": seen.err}
    return found


class Service:
    """``astray serve`` in a process of its own, and a client of it."""

    def __init__(self, desk: Desk, *options: str | Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        folder = desk.file(".served")
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0)
        command = [*COMMAND, "serve", str(folder), "--port", str(port), *map(str, options)]
        self.log = desk.file(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def wait(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds."""
        until = time.monotonic() + 60.0
        while not holds():
            assert time.monotonic() < until, f"the service did not settle: {self.log.read_text()}"
            time.sleep(0.05)

    def get(self, path: str) -> Json:
        """Returns what the service answers."""
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, method: str, path: str, body: Json) -> Json:
        """Sends a body and returns the answer."""
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def settled(self) -> bool:
        """Returns True when every alert and every flagged trip has its words."""
        alerts, review = self.get("/api/alerts?limit=500")["alerts"], self.get("/api/review?limit=500")["items"]
        return all(alert["told"] for alert in alerts) and all(item["words"] for item in review)

    def end(self) -> None:
        """Ends the process."""
        self.client.close()
        self.process.terminate()
        self.process.wait(60.0)


@contextlib.contextmanager
def serving(desk: Desk, *options: str | Path) -> Iterator[Service]:
    """Runs a service for a while."""
    service = Service(desk, *options)
    try:
        yield service
    finally:
        service.end()


def post(service: Service, feed: Sequence[dict[str, Any]]) -> None:
    """Posts a feed day by day, and waits each day until all is explained: explanations depend on what is learned."""
    days: dict[int, list[dict[str, Any]]] = {}
    for fix in feed:
        days.setdefault(int(fix["time"] // 86_400), []).append(fix)
    for fixes in days.values():
        receipt = service.send("POST", "/api/fixes", fixes)
        assert receipt["accepted"] == len(fixes), receipt
        service.wait(service.settled)


def served(service: Service, agents: Sequence[str], before: float, full: Sequence[str] = ()) -> Json:
    """Returns the trips, alerts, reviews and agents of a service; nothing that depends on the clock of the machine."""

    def some(rows: list[dict[str, Any]], leave_out: Sequence[str]) -> Json:
        rows = [{name: value for name, value in row.items() if name not in leave_out} for row in rows]
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    trips = {agent: service.get(f"/api/agents/{agent}/trips?limit=200&before={before}")["trips"] for agent in agents}
    described = {}
    for trip in full:
        one = service.get(f"/api/trips/{trip}")
        described[trip] = {name: one[name] for name in ("eps", "leave", "history", "segments", "words", "verdict")}
        described[trip]["verdict"] = one["verdict"] and one["verdict"].get("verdict")
        described[trip]["track"] = {
            name: one["track"][name] for name in ("time", "n", "low", "high", "fault", "passed")
        }
    alerts = [alert for alert in service.get("/api/alerts?limit=500")["alerts"] if alert["began"] < before]
    return {
        "trips": {agent: some(rows, ("trips", "kind", "agent", "zone")) for agent, rows in trips.items()},
        "alerts": some(sorted(alerts, key=lambda a: (a["opened"], a["agent"])), ("at", "id")),
        "review": some(service.get("/api/review?limit=500")["items"], ("zone",)),
        "agents": some(service.get("/api/agents")["agents"], ("state", "normality", "trip", "alert", "paused_until")),
        "described": described,
    }


def service_with_model(desk: Desk) -> Json:
    """Serves a fleet: fixes over HTTP become trips, alerts and reviews; verdicts teach."""
    feed, agents = desk.feed, sorted({fix["agent"] for fix in desk.feed})
    last = feed[-1]["time"] + 86_400.0
    ends = [{"agent": agent, "time": last + i, "lat": 45.0, "lon": 7.0} for i, agent in enumerate(agents)]
    with serving(desk, "--model", desk.fleet) as service:
        service.send("PUT", "/api/settings", {"undo_minutes": 0})
        post(service, [*feed, *ends])
        review = service.get("/api/review?limit=500")["items"]
        trips = [item["id"] for item in review if item["kind"] == "trip"]
        found = {"first": served(service, agents, last, [*trips[:6], agents_trip(service, "p03", last)])}
        verdicts = dict(zip(trips[:2], ("normal", "anomaly"), strict=True))
        for trip, verdict in verdicts.items():
            service.send("POST", f"/api/review/{trip}/verdict", {"verdict": verdict})
        service.wait(lambda: all(taught(service, trip) for trip in verdicts))
        again = [fix | {"time": fix["time"] + 21 * 86_400.0} for fix in feed if fix["agent"] in ("p00", "p04")]
        ends = [fix | {"time": fix["time"] + 21 * 86_400.0} for fix in ends if fix["agent"] in ("p00", "p04")]
        post(service, [*again, *ends])
        return found | {"later": served(service, ("p00", "p04"), last + 21 * 86_400.0, list(verdicts))}


def agents_trip(service: Service, agent: str, before: float) -> str:
    """Returns the name of an agent's last finished trip that was not flagged."""
    rows = service.get(f"/api/agents/{agent}/trips?limit=200&before={before}")["trips"]
    return str(next(row["id"] for row in rows if row["decision"] == "normal"))


def taught(service: Service, trip: str) -> bool:
    """Returns True when the verdict on a trip has taught the model."""
    rows = service.get(f"/api/agents/{trip.partition('/')[0]}/trips?limit=200")["trips"]
    return next(row["state"] for row in rows if row["id"] == trip) != "waiting"


def service_from_nothing(desk: Desk) -> Json:
    """Serves without a model: two agents are learned from their first fix on; then p05 goes in the name of p00."""
    past = frame(PAST).filter(pl.col("agent").is_in(["p00", "p02"]))
    feed = in_order(pl.concat([past, claimed(NEWCOMER, "p00", "p05", 7, slice(0, 6))]))
    last = feed[-1]["time"] + 86_400.0
    ends = [{"agent": agent, "time": last + i, "lat": 45.0, "lon": 7.0} for i, agent in enumerate(("p00", "p02"))]
    with serving(desk) as service:
        post(service, [*feed, *ends])
        return served(service, ("p00", "p02"), last)


# -------------------------------------------------------------------- numeric states and actions


def pendulum(runs: int, gain: float, seed: int, agent: str = "", steps: int = 40) -> Any:
    """Returns runs of a pendulum that a controller with noise brings to rest."""
    rng = np.random.default_rng(seed)
    angle, speed = rng.uniform(-2.0, 2.0, runs), rng.uniform(-1.0, 1.0, runs)
    states, actions = [], []
    for _ in range(steps):
        torque = np.clip(-gain * angle - 0.8 * speed + rng.normal(0.0, 0.1, runs), -2.0, 2.0)
        states.append(np.stack([np.cos(angle), np.sin(angle), speed], axis=1))
        actions.append(torque[:, None])
        speed = speed + 0.05 * (3.0 * np.sin(angle) * 0.5 + 3.0 * torque)
        angle = angle + 0.05 * speed
    return Steps.runs(list(np.stack(states, axis=1)), list(np.stack(actions, axis=1)), agent)


def states_and_actions(desk: Desk) -> Json:
    """Learns from a pendulum's states and actions, alone and told from others; goes on learning; explains."""
    usual, odd = pendulum(60, 2.0, 1), pendulum(12, 0.7, 2)
    alone = Steps(iterations=3)
    alone.fit(usual)
    others = Steps(iterations=2)
    others.fit(pendulum(60, 2.0, 3, "mine"), population=pendulum(60, 1.2, 4, "yours"))
    found = {
        "usual": columns(alone.score(pendulum(20, 2.0, 5))),
        "odd": columns(alone.score(odd)),
        "steps": columns(alone.score_steps(odd)),
        "explained": [explanation(alone.explain(odd, i)) for i in (0, 5)],
        "told from others": columns(others.score(pendulum(20, 1.9, 6, "mine"))),
    }
    alone.save_and_load(desk.file(".astray"))
    found["loaded"] = columns(alone.score(odd))
    alone.partial_fit(pendulum(20, 1.8, 7))
    return found | {"went on": columns(alone.score(odd))}


# -------------------------------------------------------------------- data that are not shipped

NEEDS = {"porto": "ASTRAY_PORTO", "geolife": "ASTRAY_GEOLIFE"}
"""Which environment variable names the folder with the data that a case needs."""

TAXIS = (20000403, 20000621, 20000320)
PEOPLE = ("006", "088", "113")


def porto(desk: Desk) -> Json:
    """Scores three taxis of Porto as a fleet and the first 999 trips as a pool."""
    folder = Path(os.environ["ASTRAY_PORTO"])
    trips = pl.scan_parquet(folder / "porto_trips.parquet").filter(pl.col("TAXI_ID").cast(pl.Int64).is_in(TAXIS))
    taken = trips.sort("TIMESTAMP", "TRIP_ID").collect().group_by("TAXI_ID", maintain_order=True).head(90)
    place = pl.int_range(pl.len()).over("TAXI_ID")
    past, new = desk.write(taken.filter(place < 60)), desk.write(taken.filter(place >= 60))
    model = desk.fit(past)
    found = {
        "fleet": desk.table("score", model, new),
        "fixes": desk.table("score", model, new, "--fixes", "--agent", str(TAXIS[0])),
        "lowest": {"words": desk.run("explain", model, new).out},
        "info": info(desk, model),
        "observed": desk.table("observe", model, new),
        "asked": {"words": desk.run("answer", model).out},
    }
    first = pl.read_csv(folder / "porto_train_first_999_rows.csv", infer_schema_length=0)
    past, new = desk.write(first.head(800)), desk.write(first.tail(199))
    everybody = desk.fit(past, "--pooled", "--preset", "shared")
    return found | {"pool": desk.table("score", everybody, new)}


def geolife(desk: Desk) -> Json:
    """Scores three people of GeoLife as a fleet that learns trip by trip."""
    folder = Path(os.environ["ASTRAY_GEOLIFE"])
    past, new = desk.file("-past"), desk.file("-new")
    for person in PEOPLE:
        files = sorted((folder / person / "Trajectory").glob("*.plt"))
        for i, file in enumerate(files):
            target = (past if i < 0.7 * len(files) else new) / person / "Trajectory" / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.resolve())
    model = desk.fit(past)
    return {
        "fleet": desk.table("score", model, new),
        "lowest": {"words": desk.run("explain", model, new).out},
        "info": info(desk, model),
        "observed": desk.table("observe", model, new),
        "asked": {"words": desk.run("answer", model).out},
        "one": desk.table("score", desk.fit(past, "--agent", PEOPLE[0]), new, "--agent", PEOPLE[0]),
    }


CASES: dict[str, Callable[[Desk], Json]] = {
    case.__name__: case
    for case in (
        fleet_scores,
        fleet_that_learns,
        agent_scores,
        own_reward,
        pool,
        explanations,
        enrolling,
        updating,
        fleet_observing,
        agent_observing,
        watching,
        service_with_model,
        service_from_nothing,
        states_and_actions,
        porto,
        geolife,
    )
}
