"""The pure step of one agent: its state is bytes, and no cut of the inputs changes anything."""

from __future__ import annotations

from typing import Any

import pytest

from astray import Detector, Trajectories
from astray.core.errors import DataError, ModelFileError
from astray.runtime.agent_step import Fix, Output, Tick, TripFinished, advance
from astray.runtime.agent_stream import AlertClosed, AlertOpened, FixScored
from astray.simulate import city

DAY = 86_400.0


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=3, days=21, seed=3).trips


@pytest.fixture(scope="module")
def model(trips: Trajectories) -> Detector:
    return Detector(iterations=0).fit(Trajectories.concat([trips.agent(a)[:40] for a in ("p00", "p01")]))


def fixes_of(trips: Trajectories) -> list[Fix]:
    found = zip(*(trips.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True)
    return sorted(Fix(*fix) for fix in found)


@pytest.fixture(scope="module")
def inputs(trips: Trajectories) -> list[Fix | Tick]:
    fixes = fixes_of(trips.agent("p00")[40:46])
    return [*fixes, Tick(fixes[-1].time + DAY)]


def told(outputs: tuple[Output, ...]) -> list[Any]:
    """Returns outputs as texts, so that NaN equals NaN."""
    return [repr(output) for output in outputs]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_any_cut_of_the_inputs_gives_the_same_bytes_and_outputs(
    model: Detector, inputs: list[Fix | Tick], size: int
) -> None:
    whole, expected = advance(model, "p00", b"", inputs)
    state, outputs = b"", []
    some = inputs if size > 1 else inputs[:150]
    if size == 1:
        whole, expected = advance(model, "p00", b"", some)
    for at in range(0, len(some), size):
        state, found = advance(model, "p00", state, some[at : at + size])
        outputs += found
    assert state == whole
    assert told(tuple(outputs)) == told(expected)


def test_finished_trips_have_the_scores_of_a_file_and_teach_the_memory(
    model: Detector, trips: Trajectories, inputs: list[Fix | Tick]
) -> None:
    _, outputs = advance(model, "p00", b"", inputs, learn=False)
    finished = [output for output in outputs if isinstance(output, TripFinished)]
    table = model.score(trips.agent("p00")[40:46])
    assert [f.trip.score for f in finished] == pytest.approx(table["score"].to_list(), abs=1e-6)
    assert {f.became for f in finished} == {""}
    state, outputs = advance(model, "p00", b"", inputs)
    learned = [o.became for o in outputs if isinstance(o, TripFinished)].count("learned")
    assert learned >= 3
    again, _ = advance(model, "p00", state, [])
    assert again == state
    first = next(o for o in advance(model, "p00", state, inputs[:1])[1] if isinstance(o, FixScored))
    assert first.score.fault == "late"
    later = [Fix(fix.time + 30 * DAY, fix.lat, fix.lon) for fix in inputs[:80] if isinstance(fix, Fix)]
    _, outputs = advance(model, "p00", state, [*later, Tick(later[-1].time + DAY)])
    (trip,) = [o.trip for o in outputs if isinstance(o, TripFinished)][:1]
    assert trip.history == 40 + learned


def test_somebody_elses_trip_raises_an_alert_and_waits(model: Detector, trips: Trajectories) -> None:
    fixes = [fix for trip in range(40, 48) for fix in fixes_of(trips.agent("p02")[trip : trip + 1])]
    _, outputs = advance(model, "p00", b"", [*fixes, Tick(fixes[-1].time + DAY)])
    opened = [o for o in outputs if isinstance(o, AlertOpened)]
    closed = [o for o in outputs if isinstance(o, AlertClosed)]
    assert len(opened) == len(closed) >= 1
    assert "waiting" in [o.became for o in outputs if isinstance(o, TripFinished)]


def test_advance_does_not_change_the_model_and_a_stranger_starts_without_history(
    model: Detector, inputs: list[Fix | Tick], trips: Trajectories
) -> None:
    before = {agent: len(memory.counts) for agent, memory in model.memories_.items()}
    _, outputs = advance(model, "new", b"", inputs)
    assert {agent: len(memory.counts) for agent, memory in model.memories_.items()} == before
    histories = [o.trip.history for o in outputs if isinstance(o, TripFinished)]
    assert histories[0] == 0.0
    opened = [o.trip.history for o in outputs if isinstance(o, AlertOpened)]
    assert all(history >= model.min_history for history in opened), "with little history a trip raises no alert"


def test_a_state_of_another_agent_or_a_damaged_one_is_refused(model: Detector, inputs: list[Fix | Tick]) -> None:
    state, _ = advance(model, "p00", b"", inputs[:20])
    with pytest.raises(DataError, match="not a state of 'p01'"):
        advance(model, "p01", state, [])
    with pytest.raises(ModelFileError):
        advance(model, "p00", state[:-3] + b"xyz", [])
