"""Watching: any line may come, the process may be killed at any moment, and each event is written once."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import astray
from astray import ByContext, Detector, Trajectories
from astray.core.errors import DataError, InUseError, ModelFileError
from astray.explain import ASPECTS
from astray.runtime import Summary, watch
from astray.runtime.events import reopened
from astray.runtime.json_fixes import MAX_LINE
from astray.runtime.position import TAIL, Position
from astray.runtime.state import State, fingerprint
from astray.simulate import city
from fitted import QUICK

Event = dict[str, Any]


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=5, days=12, seed=0).trips


@pytest.fixture(scope="module")
def model_file(people: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "fleet.astray"
    known = people[people.agent_ids != "p04"]
    Detector(**QUICK, eps=-0.5, seed=0).fit(known).save(path)
    return path


@pytest.fixture(scope="module")
def fleet(model_file: Path) -> Detector:
    loaded = astray.load(model_file)
    assert isinstance(loaded, Detector)
    return loaded


@pytest.fixture(scope="module")
def stream(people: Trajectories) -> list[str]:
    """Returns the last trips of all agents, sorted by time; two agents have swapped their names."""
    names = {"p00": "p01", "p01": "p00"}
    fixes = []
    for agent in people.agents:
        trips = people.agent(agent)[-2:]
        for t, lat, lon in zip(*(trips.columns[c].tolist() for c in ("time", "lat", "lon")), strict=True):
            fixes.append((t, names.get(agent, agent), lat, lon))
    return [line(agent=a, time=t, lat=lat, lon=lon) for t, a, lat, lon in sorted(fixes)]


def line(**said: Any) -> str:
    return json.dumps(said)


def heard(model: Any, lines: Iterable[str | bytes], **settings: Any) -> tuple[list[Event], Summary]:
    out = io.StringIO()
    summary = watch(model, lines, out, **settings)
    return [json.loads(said) for said in out.getvalue().splitlines()], summary


def of_kind(events: Sequence[Event], *kinds: str) -> list[Event]:
    return [e for e in events if e["event"] in kinds]


# ---------------------------------------------------------------- what is said


def test_every_trip_that_ends_has_the_scores_of_the_table(
    fleet: Detector, people: Trajectories, stream: list[str]
) -> None:
    events, summary = heard(fleet, stream, stay=None)
    ended = of_kind(events, "trip_ended")
    assert len(ended) == summary.trips == 10
    for event in of_kind(ended, "trip_ended"):
        agent = str({"p00": "p01", "p01": "p00"}.get(event["agent"], event["agent"]))
        trips = people.agent(agent)
        began = datetime.fromisoformat(event["start"]).timestamp()
        start = int(np.abs(trips.columns["time"][trips.offsets[:-1]] - began).argmin())
        one = trips[start : start + 1]
        renamed = Trajectories(one.columns, one.offsets, [event["agent"]], ["live"])
        row = fleet.score(renamed).row(0, named=True)
        tolerance = 0.05 if event["agent"] == "p04" else 1e-3  # a stranger is seen from its first fix
        for name in ("normality", "uncertainty", "score", "p_value", "p_place", "p_route", "p_manner", "p_time"):
            assert event[name] == pytest.approx(row[name], abs=tolerance)
        assert event["decision"] == row["decision"]


def test_alerts_open_and_close_in_turn_and_give_a_reason(fleet: Detector, stream: list[str]) -> None:
    events, summary = heard(fleet, stream)
    opened = of_kind(events, "alert_opened")
    assert len(opened) == summary.alerts > 0
    for agent in {e["agent"] for e in opened}:
        own = [e["event"] for e in of_kind(events, "alert_opened", "alert_closed") if e["agent"] == agent]
        assert own == ["alert_opened", "alert_closed"] * (len(own) // 2)
    for e in opened:
        assert e["decision"] in ("anomaly", "review")
        assert e["because"] == ASPECTS[e["aspect"]]
        assert "past trips" in e["words"]
        assert 0.0 < e["p_value"] <= 1.0
        assert all(0.0 < e[f"p_{aspect}"] <= 1.0 for aspect in ASPECTS)
        assert e["uncertainty"] >= 0.0
        assert e["normality"] <= -0.5  # of the trip so far
    ended = {(e["agent"], e["trip"]) for e in of_kind(events, "trip_ended")}
    assert {(e["agent"], e["trip"]) for e in opened} <= ended


def test_rates_by_aspect_decide_on_alerts_and_name_their_aspect(fleet: Detector, stream: list[str]) -> None:
    events, _ = heard(fleet, stream, false_alarm_rate={"route": 0.2})
    opened = of_kind(events, "alert_opened")
    assert opened
    for e in opened:
        assert (e["aspect"], e["because"]) == ("route", ASPECTS["route"])
        assert e["p_route"] <= 0.2
    for e in of_kind(events, "trip_ended"):
        assert (e["decision"] != "normal") == (e["p_route"] <= 0.2 or e["history"] == 0)
    with pytest.raises(DataError, match="for time cannot be told"):
        heard(fleet, stream, false_alarm_rate={"time": 1e-6})


def test_events_are_numbered_and_valid_json(fleet: Detector, stream: list[str]) -> None:
    out = io.StringIO()
    watch(fleet, stream[:500], out, scores=0)

    def never(name: str) -> None:
        raise AssertionError(name)

    events = [json.loads(said, parse_constant=never) for said in out.getvalue().splitlines()]
    assert [e["sequence"] for e in events] == list(range(1, len(events) + 1))


def test_scores_are_written_as_often_as_asked(fleet: Detector, stream: list[str]) -> None:
    assert not of_kind(heard(fleet, stream[:300])[0], "score")
    assert len(of_kind(heard(fleet, stream[:300], scores=0)[0], "score")) == 300
    now_and_then = of_kind(heard(fleet, stream[:300], scores=60.0)[0], "score")
    assert 0 < len(now_and_then) < 300


def test_agents_do_not_disturb_each_other(fleet: Detector, stream: list[str]) -> None:
    together, _ = heard(fleet, stream)
    for agent in ("p01", "p04"):
        alone, _ = heard(fleet, [said for said in stream if f'"{agent}"' in said])
        own = [e for e in together if e.get("agent") == agent]
        assert [_unnumbered(e) for e in own] == [_unnumbered(e) for e in alone]


def _unnumbered(event: Event) -> Event:
    return {k: v for k, v in event.items() if k != "sequence"}


def test_watch_accepts_other_thresholds_than_the_models(fleet: Detector, stream: list[str]) -> None:
    none, _ = heard(fleet, stream, eps=-100.0)
    assert not of_kind(none, "alert_opened")
    assert {e["decision"] for e in of_kind(none, "trip_ended") if e["history"]} == {"normal"}
    strangers = {e["agent"]: e["decision"] for e in of_kind(none, "trip_ended") if not e["history"]}
    assert set(strangers.values()) == {"review"}
    assert [e["agent"] for e in of_kind(none, "agent_unknown")] == list(strangers)
    everybody, _ = heard(fleet, stream, eps=100.0, gamma=100.0)
    assert {e["decision"] for e in of_kind(everybody, "trip_ended")} == {"anomaly", "review"}
    with pytest.raises(DataError, match="past trips"):
        heard(fleet, stream, false_alarm_rate=1e-6)


# ---------------------------------------------------------------- what is refused


NOW = 1_700_000_000.0
GOOD = {"agent": "p00", "time": NOW, "lat": 45.0, "lon": 7.0}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("{", "not JSON"),
        ('{"agent": "p00", "time": 17', "not JSON"),
        ("[" * 50_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"\x80\x04\x95pickle", "not JSON"),
        ("[1, 2, 3]", "not a JSON object"),
        ("null", "not a JSON object"),
        (line(**GOOD, type="bomb"), "unknown type 'bomb'"),
        (line(**GOOD, type=["fix"]), "unknown type"),
        (line(**GOOD, note="x" * 1_000_000), f"longer than {MAX_LINE}"),
        (line(agent="p00", time=NOW, lat=45.0), "longitude is missing"),
        (line(agent="p00", lat=45.0, lon=7.0), "time is missing"),
        (line(time=NOW, lat=45.0, lon=7.0), "agent is missing"),
        (line(**GOOD | {"lat": 91}), "latitude outside [-90, 90] (91)"),
        (line(**GOOD | {"lon": 1e9}), "longitude"),
        ('{"agent": "p00", "time": 1700000000, "lat": NaN, "lon": 7}', "NaN is not a number"),
        ('{"agent": "p00", "time": 1700000000, "lat": 1e999, "lon": 7}', "not a finite number"),
        ('{"agent": "p00", "time": 1700000000, "lat": "nan", "lon": 7}', "not a finite number"),
        (line(**GOOD | {"lat": None}), "latitude is missing or not a finite number"),
        (line(**GOOD | {"lat": True}), "latitude is missing or not a finite number (True)"),
        (line(**GOOD | {"lat": [45]}), "latitude is missing or not a finite number ([45])"),
        (line(**GOOD | {"lat": 0, "lon": 0}), "a receiver without a fix"),
        (line(**GOOD | {"time": "yesterday"}), "time is missing or not understood (yesterday)"),
        (line(**GOOD | {"time": 20081023025304}), "not a plausible number"),
        (line(**GOOD | {"time": 10**400}), "time is missing or not understood"),
        (line(**GOOD | {"time": NOW + 3600}), "from the future"),
        (line(**GOOD | {"time": NOW - 7 * 86_400}), "late"),
        (line(**GOOD | {"agent": ["p00"]}), "neither text nor a number"),
        (line(**GOOD | {"agent": "x" * 1000}), "longer than 200"),
        ('{"agent": "\\ud800", "time": 1700000000, "lat": 45, "lon": 7}', "characters that cannot be shown"),
        (line(**GOOD | {"agent": "\x1b[2J"}), "characters that cannot be shown"),
    ],
)
def test_a_bad_line_is_refused_and_the_next_one_is_used(fleet: Detector, bad: str | bytes, reason: str) -> None:
    lines: list[str | bytes] = [line(**GOOD | {"time": NOW - 10}), bad, line(**GOOD)]
    events, summary = heard(fleet, lines, now=lambda: NOW)
    refused = of_kind(events, "refused")
    assert len(refused) == summary.refused == 1
    assert reason in refused[0]["reason"]
    assert refused[0]["line"] == 2
    assert (summary.fixes, of_kind(events, "trip_ended")[0]["fixes"]) == (2, 2)


class Pieces(io.BytesIO):
    """A feed that can only be read in pieces, because a line may be endless."""

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert 0 < size <= 2 * MAX_LINE
        return super().readline(size)

    def __next__(self) -> bytes:
        raise AssertionError("a whole line was asked for")


def test_an_endless_line_is_never_held_in_memory_as_a_whole(fleet: Detector) -> None:
    endless = Pieces(line(**GOOD).encode() + b"\n" + b"x" * 5_000_000 + b"\n" + line(**GOOD).encode())
    events, summary = heard(fleet, endless)
    assert [e["reason"] for e in of_kind(events, "refused")] == [f"the line is longer than {MAX_LINE} bytes"]
    assert summary.lines == 3


def test_a_byte_order_mark_before_the_first_line_is_ignored(fleet: Detector) -> None:
    for first in ("\ufeff" + line(**GOOD), b"\xef\xbb\xbf" + line(**GOOD).encode()):
        _, summary = heard(fleet, [first])  # type: ignore[list-item]
        assert (summary.fixes, summary.refused) == (1, 0)


def test_a_duplicate_and_a_teleport_are_faults_not_alerts(fleet: Detector) -> None:
    lines = [
        line(**GOOD),
        line(**GOOD),
        line(**GOOD | {"time": NOW + 1, "lat": 50.0}),
        line(**GOOD | {"time": NOW + 2}),
    ]
    events, _ = heard(fleet, lines, now=lambda: NOW)
    assert [e["fault"] for e in of_kind(events, "fault")] == ["repeated time", "teleport"]
    assert not of_kind(events, "alert_opened", "refused")


def test_many_names_and_units_are_understood(fleet: Detector) -> None:
    lines: list[str | bytes] = [
        line(user_id="p00", timestamp=NOW, latitude=45, lng=7),
        line(Agent="p00", t=(NOW + 1) * 1000, lat="45", lon="7", speed=3.5),
        line(agent="p00", time="2023-11-14T22:13:22Z", lat=45, lon=7, x=1.0),
        line(agent="p00", time="2023-11-14 23:13:23+01:00", lat=45, lon=7).encode() + b"\r\n",
    ]
    events, summary = heard(fleet, lines, scores=0)
    assert not of_kind(events, "refused", "fault")
    assert [e["time"] for e in of_kind(events, "score")] == [f"2023-11-14T23:13:2{i}+01:00" for i in range(4)]
    assert summary.fixes == 4


def test_late_fixes_are_put_in_their_place_within_the_window(fleet: Detector, stream: list[str]) -> None:
    own = [said for said in stream if '"p03"' in said]
    swapped = [said for pair in zip(own[1::2], own[::2], strict=False) for said in pair]
    tidy, _ = heard(fleet, own[: len(swapped)])
    late, summary = heard(fleet, swapped, max_late=120.0)
    assert summary.refused == 0
    assert [_unnumbered(e) for e in of_kind(late, "trip_ended")] == [
        _unnumbered(e) for e in of_kind(tidy, "trip_ended")
    ]
    _, strict = heard(fleet, swapped)
    assert strict.refused > 0


# ---------------------------------------------------------------- agents


def test_a_model_of_one_agent_refuses_lines_of_other_agents(people: Trajectories) -> None:
    one = Detector().fit(people.agent("p00")[:20])
    lines = [line(time=NOW, lat=45, lon=7), line(**GOOD | {"time": NOW + 1}), line(**GOOD | {"agent": "p01"})]
    events, summary = heard(one, lines)
    assert [e["reason"] for e in of_kind(events, "refused")] == ["the model does not know this agent"]
    assert (summary.fixes, summary.trips) == (2, 1)
    assert heard(one, lines, strangers=True)[1].refused == 0


def test_a_pool_accepts_all_agents_that_it_has_learned_from(people: Trajectories) -> None:
    first = Trajectories.concat([people.agent(agent)[:4] for agent in people.agents])
    pool = Detector(keep=2, pooled=True, iterations=1).fit(first)
    lines = [line(**GOOD | {"agent": agent}) for agent in [*people.agents, "nobody"]]
    _, summary = heard(pool, lines)
    assert (summary.fixes, summary.refused) == (len(people.agents), 1)


def test_a_fleet_scores_strangers_for_review_unless_strangers_is_false(fleet: Detector) -> None:
    lines = [line(**GOOD | {"agent": "nobody", "time": NOW + 10 * i, "lat": 45 + i * 1e-3}) for i in range(30)]
    events, _ = heard(fleet, lines, eps=100.0)
    ended = of_kind(events, "trip_ended")[0]
    assert (ended["decision"], ended["history"]) == ("review", 0.0)
    assert heard(fleet, lines, strangers=False)[1].refused == 30


def test_memory_is_bounded_for_any_number_of_agents(fleet: Detector) -> None:
    lines = (line(**GOOD | {"agent": f"x{i}", "time": NOW + i}) for i in range(600))
    events, summary = heard(fleet, lines, max_agents=40, finish=False)
    assert summary.agents == 10  # a quarter is for strangers
    assert summary.closed == 590
    closed = of_kind(events, "agent_closed")
    assert [e["agent"] for e in closed] == [f"x{i}" for i in range(590)]  # the least recently heard first
    assert {e["ended"] for e in of_kind(events, "trip_ended")} == {"evicted"}


def test_a_flood_of_strangers_does_not_push_out_known_agents(fleet: Detector) -> None:
    known = [line(**GOOD | {"agent": a}) for a in ("p00", "p01")]
    flood = [line(**GOOD | {"agent": f"x{i}"}) for i in range(100)]
    events, _ = heard(fleet, [*known, *flood], max_agents=4, finish=False)
    assert not {"p00", "p01"} & {e["agent"] for e in of_kind(events, "agent_closed")}


def test_the_known_agent_with_the_oldest_last_fix_makes_room(fleet: Detector) -> None:
    lines = [line(**GOOD | {"agent": a, "time": NOW + i}) for i, a in enumerate(("p00", "p01", "p00", "p02"))]
    events, summary = heard(fleet, lines, max_agents=2, finish=False)
    assert [e["agent"] for e in of_kind(events, "agent_closed")] == ["p01"]
    assert summary.agents == 2


def test_a_message_can_end_a_trip_or_give_the_time(fleet: Detector) -> None:
    lines = [
        *(line(**GOOD | {"agent": a}) for a in ("p00", "p01", "p02")),
        line(type="end", agent="p00"),
        line(type="clock", time=NOW + 600),
        line(**GOOD | {"agent": "p02", "time": NOW + 600}),
        line(type="clock", time=NOW + 1300),
    ]
    events, summary = heard(fleet, lines, finish=False)
    assert [(e["agent"], e["ended"]) for e in of_kind(events, "trip_ended")] == [("p00", "closed"), ("p01", "gap")]
    assert summary.agents == 1


def test_a_fix_must_have_the_context_that_a_threshold_uses(fleet: Detector) -> None:
    by_call = ByContext("call", {"street": 100.0}, otherwise=-100.0)
    lines = [line(**GOOD), line(**GOOD, call="street")]
    events, _ = heard(fleet, lines, eps=by_call, gamma=100.0)
    assert "call" in of_kind(events, "refused")[0]["reason"]
    assert of_kind(events, "trip_ended")[0]["decision"] == "anomaly"


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("max_late", [0.0, 30.0])
def test_a_watch_stopped_and_started_at_any_line_writes_the_same_events(
    fleet: Detector, stream: list[str], tmp_path: Path, max_late: float
) -> None:
    settings = {"max_late": max_late, "scores": 300.0, "max_agents": 4}
    expected, whole = heard(fleet, stream, finish=True, **settings)
    rng, at = random.Random(0), 0
    said: list[Event] = []
    for _ in range(8):
        upto = rng.randrange(at, len(stream))
        # Sometimes the input goes on, sometimes it is read again from its beginning or from a while before.
        begin = rng.choice([at, 0, max(0, at - 200)])
        events, _ = heard(fleet, stream[begin:upto], state=tmp_path / "state", **settings)
        said, at = said + events, max(at, upto)
    events, summary = heard(fleet, stream, state=tmp_path / "state", finish=True, **settings)
    assert said + events == expected
    assert summary == whole


def test_a_watch_killed_at_any_moment_loses_no_event_and_writes_none_twice(
    model_file: Path, fleet: Detector, stream: list[str], tmp_path: Path
) -> None:
    expected, _ = heard(fleet, stream, scores=120.0, finish=True)
    feed, out, state = tmp_path / "feed.jsonl", tmp_path / "events.jsonl", tmp_path / "state"
    feed.write_text("\n".join(stream) + "\n")
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        import astray
        from astray.runtime.watcher import watch
        from astray.runtime.events import reopened

        model, feed, out, state = map(Path, sys.argv[1:])

        def lines():
            with open(feed, "rb") as file:
                for i, line in enumerate(file):
                    if i % 50 == 0:
                        time.sleep(0.01)
                    yield line

        detector = astray.load(model)
        print("ready", flush=True)
        watch(detector, lines(), out, state=state, scores=120.0, finish=True, save_every=0.05)
        print("done", flush=True)
        """
    )
    command = [sys.executable, "-c", program, *map(str, (model_file, feed, out, state))]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    rng, kills = random.Random(1), 0
    for attempt in range(6):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if attempt < 4:
            time.sleep(rng.uniform(0.0, 0.4))
            process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        if "done" in rest:
            break
        kills += 1
    assert kills >= 2
    assert [json.loads(said) for said in out.read_text().splitlines()] == expected


def test_events_that_are_repeated_on_a_pipe_are_equal_and_have_the_same_numbers(
    fleet: Detector, stream: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def until(n: int) -> Iterable[str]:
        yield from stream[:n]
        raise Killed

    out = io.StringIO()
    expected, _ = heard(fleet, stream, scores=60.0, finish=True)
    saved, allowed = State.save, [0]

    def save(state: State, path: Path) -> None:
        if allowed:
            allowed.pop()
            saved(state, path)

    # The state is saved once, and much later the end comes without another save.
    monkeypatch.setattr(State, "save", save)
    for n in (700, 900):
        with pytest.raises(Killed):
            watch(fleet, until(n), out, state=tmp_path / "state", scores=60.0, save_every=0.0)
        allowed.append(0)
    watch(fleet, stream, out, state=tmp_path / "state", scores=60.0, finish=True)
    events = [json.loads(said) for said in out.getvalue().splitlines()]
    assert len(events) > len(expected)  # some were said again
    by_number: dict[int, Event] = {}
    for event in events:
        assert by_number.setdefault(event["sequence"], event) == event
    assert [by_number[n] for n in sorted(by_number)] == expected


def test_without_a_state_all_events_are_appended_to_the_file(
    fleet: Detector, stream: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "events.jsonl"
    days = [stream[:400], stream[400:800], stream[400:800]]
    made = [watch(fleet, day, out, scores=0).fixes for day in days]
    assert made == [400, 400, 400]
    events = [json.loads(said) for said in out.read_text().splitlines()]
    assert [e["sequence"] for e in events] == list(range(1, len(events) + 1))
    expected = [event for day in days for event in heard(fleet, day, scores=0)[0]]
    assert [_unnumbered(e) for e in events] == [_unnumbered(e) for e in expected]


@pytest.mark.parametrize("torn", [0, 20])
def test_new_lines_after_a_kill_before_the_save_get_all_their_events_once(
    fleet: Detector, stream: list[str], tmp_path: Path, torn: int
) -> None:
    """A pipe does not repeat the lines that were read before the kill, so the new lines have other events."""
    out, state, older = (tmp_path / name for name in ("events.jsonl", "state", "older"))
    first, lost, then = stream[:200], stream[200:400], stream[400:700]
    watch(fleet, first, out, state=state, scores=0)
    older.write_bytes(state.read_bytes())
    watch(fleet, lost, out, state=state, scores=0)
    before = out.read_text()
    whole = before[: len(before) - torn]
    out.write_text(whole)
    whole = whole[: whole.rindex("\n") + 1]

    def told() -> list[str]:
        """Returns what a watch appends that starts from the older state."""
        state.write_bytes(older.read_bytes())
        watch(fleet, then, out, state=state, scores=0)
        assert out.read_text().startswith(whole)
        return out.read_text().removeprefix(whole).splitlines()

    added = told()
    state.write_bytes(older.read_bytes())
    expected, _ = heard(fleet, then, state=state, scores=0)
    assert [_unnumbered(json.loads(said)) for said in added] == [_unnumbered(e) for e in expected]
    numbers = [json.loads(said)["sequence"] for said in out.read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    # Killed again before a save, and started on the same lines: they are found, and what was torn is written anew.
    assert told() == added
    out.write_text(out.read_text()[:-30])
    assert told() == added


def test_an_event_is_skipped_only_if_the_file_has_it_in_the_same_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with reopened(path) as events:
        for time in (1, 2, 2, 3):
            events.say("fault", time=time)
    with reopened(path, after=1) as events:
        for time in (2, 2, 2, 3):
            events.say("fault", time=time)
        assert events.sequence == 6
    told = [json.loads(said) for said in path.read_text().splitlines()]
    assert [(e["sequence"], e["time"]) for e in told] == [(1, 1), (2, 2), (3, 2), (4, 3), (5, 2), (6, 3)]


def test_watch_accepts_file_names(fleet: Detector, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("events.jsonl", "w.state")]
    for i in range(2):
        watch(fleet, [line(**GOOD | {"time": NOW + i})], names[0], state=names[1], scores=0)
    assert len(Path(names[0]).read_text().splitlines()) == 2


@pytest.mark.parametrize(("version", "said"), [(1, "an earlier astray"), (99, "a newer astray; upgrade")])
def test_a_state_of_another_version_is_refused(
    fleet: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, said: str
) -> None:
    monkeypatch.setattr("astray.runtime.state.VERSION", version)
    heard(fleet, [line(**GOOD)], state=tmp_path / "state")
    monkeypatch.undo()
    with pytest.raises(DataError, match=said):
        heard(fleet, [line(**GOOD)], state=tmp_path / "state")


def test_an_interruption_while_waiting_saves_the_state(fleet: Detector, tmp_path: Path) -> None:
    def interrupted() -> Iterable[str]:
        yield line(**GOOD)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heard(fleet, interrupted(), state=tmp_path / "state", save_every=1e9)
    assert State.load(tmp_path / "state", fingerprint(fleet)).position.lines == 1


def test_a_second_watch_that_would_write_into_the_same_events_is_refused(
    fleet: Detector, stream: list[str], tmp_path: Path
) -> None:
    def lines() -> Iterator[str]:
        yield from stream[:50]
        with pytest.raises(InUseError, match=r"events\.jsonl: another process is changing it"):
            watch(fleet, stream[:5], tmp_path / "events.jsonl")
        yield from stream[50:]

    watch(fleet, lines(), tmp_path / "events.jsonl")
    watch(fleet, stream, tmp_path / "alone.jsonl")
    assert (tmp_path / "events.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_a_second_watch_with_the_same_state_is_refused(fleet: Detector, stream: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"

    def lines() -> Iterator[str]:
        yield from stream[:50]
        with pytest.raises(InUseError, match=r"state\.lock: another process is changing it"):
            watch(fleet, stream[:5], tmp_path / "other.jsonl", state=state)
        yield from stream[50:100]

    summary = watch(fleet, lines(), tmp_path / "events.jsonl", state=state)
    assert (summary.lines, (tmp_path / "other.jsonl").exists()) == (100, False)


def test_the_state_of_another_model_is_refused(fleet: Detector, people: Trajectories, tmp_path: Path) -> None:
    heard(fleet, [line(**GOOD)], state=tmp_path / "state")
    other = Detector(**QUICK, seed=1).fit(people[people.agent_ids != "p00"])
    with pytest.raises(DataError, match="another model"):
        heard(other, [line(**GOOD)], state=tmp_path / "state")


def test_enrolling_further_trips_keeps_the_state_usable(model_file: Path, people: Trajectories, tmp_path: Path) -> None:
    fleet = astray.load(model_file)
    assert isinstance(fleet, Detector)
    heard(fleet, [line(**GOOD)], state=tmp_path / "state")
    fleet.enroll(people.agent("p04")[:3])
    assert heard(fleet, [line(**GOOD | {"time": NOW + 1})], state=tmp_path / "state")[1].fixes == 2


@pytest.mark.parametrize("spoil", [lambda b: b[:-7], lambda b: b"", lambda b: b[:200] + b"\x00" + b[201:]])
def test_a_damaged_state_is_refused(fleet: Detector, tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    state = tmp_path / "state"
    heard(fleet, [line(**GOOD)], state=state)
    state.write_bytes(spoil(state.read_bytes()))
    with pytest.raises(ModelFileError):
        heard(fleet, [line(**GOOD)], state=state)


def test_a_model_is_refused_as_a_state_and_a_state_as_a_model(
    fleet: Detector, model_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="not the state of a watch"):
        heard(fleet, [line(**GOOD)], state=model_file)
    heard(fleet, [line(**GOOD)], state=tmp_path / "state")
    with pytest.raises(ModelFileError):
        astray.load(tmp_path / "state")


def test_a_long_input_read_again_is_recognised_and_a_different_one_refused() -> None:
    lines = [f"line {i}" for i in range(5 * TAIL)]
    done = Position()
    for said in lines[: 3 * TAIL]:
        done.advance(said)
    kept = Position(done.lines, done.head, done.tail)
    assert list(kept.unread(lines)) == lines[3 * TAIL :]
    assert list(kept.unread(lines[3 * TAIL - 10 :])) == lines[3 * TAIL :]
    assert list(kept.unread(lines[3 * TAIL :])) == lines[3 * TAIL :]
    assert list(kept.unread(lines[:50])) == []
    with pytest.raises(DataError, match="differs"):
        list(kept.unread([*lines[: 2 * TAIL], *["other"] * (2 * TAIL)]))


def test_the_longest_overlap_counts_if_lines_repeat() -> None:
    done = Position()
    for said in ["a", "x", "x", "x"]:
        done.advance(said)
    assert list(done.unread(["x", "x", "x", "b"])) == ["b"]
    assert list(done.unread(["x", "b", "x"])) == ["b", "x"]
    assert list(done.unread(["x", "x", "b"])) == ["b"]


def test_a_file_of_events_is_cut_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with reopened(path) as events:
        assert events.sequence == 0
    path.write_text('{"sequence": 7}\n{"sequence": 8')
    with reopened(path) as events:
        events.say("score")
    assert path.read_text() == '{"sequence": 7}\n{"sequence": 8, "event": "score"}\n'


def test_events_are_not_appended_to_something_else(tmp_path: Path) -> None:
    for content in (b"agent,time,lat,lon\na,1,2,3", b"\x00" * 100, b'{"agent": "a"}\n'):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(DataError, match="it does not hold events; name another file"), reopened(path):
            pass
        assert path.read_bytes() == content


def test_foreign_lines_among_events_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    odd = ['{"sequence": 1e999}', '{"sequence": 1e30}', '{"sequence": true}', '{"sequence": "9"}', "[" * 100_000, "7"]
    path.write_text("\n".join(['{"sequence": 3, "event": "score"}', *odd, ""]))
    for after in (None, 0):
        with reopened(path, after) as events:
            events.say("fault")
    assert [json.loads(line)["sequence"] for line in path.read_text().splitlines()[-1:]] == [4]


def test_events_are_not_written_into_the_state_or_its_lock(fleet: Detector, tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name in ("state", "state.lock"):
        with pytest.raises(DataError, match="this is the file of the state, or its lock"):
            watch(fleet, [], tmp_path / name, state=state)
    lock = tmp_path / "state.lock"
    lock.write_text('{"sequence": 1, "event": "score"}\n')
    with pytest.raises(DataError, match="exists and is not empty"):
        watch(fleet, [], lock, state=state)
    assert lock.read_text() == '{"sequence": 1, "event": "score"}\n'


def test_missing_folders_are_refused_with_a_remedy(fleet: Detector, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "file"
    with pytest.raises(DataError, match=r"there is no folder .*; make it first"):
        watch(fleet, [], nowhere)
    with pytest.raises(DataError, match=r"there is no folder .*; make it first"):
        watch(fleet, [], io.StringIO(), state=nowhere)


@pytest.mark.parametrize("wrong", [{"scores": float("nan")}, {"scores": -1.0}, {"max_late": float("inf")}])
def test_invalid_seconds_are_refused(fleet: Detector, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="give seconds, 0 or more"):
        watch(fleet, [], io.StringIO(), **wrong)


def test_events_are_synced_to_disk_before_the_state_that_counts_them(
    fleet: Detector, stream: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the new state replaces the old one, the whole file of events has been synced."""
    events, state = tmp_path / "events.jsonl", tmp_path / "state"
    synced: list[tuple[int, int]] = []
    fsync, replace = os.fsync, os.replace

    def noted(file: int) -> None:
        synced.append((os.fstat(file).st_ino, os.fstat(file).st_size))
        fsync(file)

    def moved(source: Path, target: Path) -> None:
        if target.name == "state" and events.stat().st_size:
            assert (events.stat().st_ino, events.stat().st_size) in synced
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", moved)
    watch(fleet, stream[:600], events, state=state, save_every=0.0, scores=0.0)
    assert events.stat().st_size
    assert State.load(state, fingerprint(fleet)).sequence > 100


def test_watching_never_changes_the_model(fleet: Detector, stream: list[str], tmp_path: Path) -> None:
    fleet.save(tmp_path / "before")
    heard(fleet, stream[:500])
    fleet.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_watching_needs_no_training_library(model_file: Path, stream: list[str], tmp_path: Path) -> None:
    (tmp_path / "feed").write_text("\n".join(stream[:200]))
    program = (
        "import sys, io, astray\nfrom astray.runtime.watcher import watch\n"
        "watch(astray.load(sys.argv[1]), open(sys.argv[2], 'rb'), io.StringIO())\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(model_file), str(tmp_path / "feed")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
