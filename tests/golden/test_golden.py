"""Golden scores: today's code gives what version 0.2 gave, to 1e-6, on the same data.

Numbers, names, decisions and events are one test for each case, prose is another, so that a sentence that was
rewritten on purpose does not hide a score that has changed. ``bench/golden.py`` says how the results were frozen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from golden_cases import CASES, NEEDS, Desk
from golden_results import (
    TOLERANCE,
    differences,
    is_number,
    read_scores,
    score_differences,
    without_prose,
    word_differences,
)

SHOWN = 25


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    needed = NEEDS.get(request.param)
    if needed is not None and needed not in os.environ:
        pytest.skip(f"{needed} does not point to the folder with the data")
    return str(request.param)


def report(found: list[str]) -> str:
    return "\n".join([f"{len(found)} differences from version 0.2", *found[:SHOWN]])


def test_numbers_names_decisions_and_events_are_those_of_version_0_2(case: str, desk: Desk):
    scores, _ = without_prose(desk.result(case))
    different = score_differences(case, scores)
    assert not different, report(different)


def test_words_are_those_of_version_0_2(case: str, desk: Desk):
    _, words = without_prose(desk.result(case))
    different = word_differences(case, words)
    assert not different, report(different)


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_a_single_frozen_value_is_found_and_its_place_named(name: str):
    frozen = read_scores(name)
    places = [place for place, _ in leaves(frozen)]
    assert len(places) > 300
    assert differences(frozen, frozen) == []
    found = deepcopy(frozen)
    for place in places[:: len(places) // 10]:
        holder = found
        for step in place[:-1]:
            holder = holder[step]
        value = holder[place[-1]]
        holder[place[-1]] = value + 0.0015 * max(abs(value), 1.0) if is_number(value) else f"not {value}"
        (said,) = differences(frozen, found)
        assert said.startswith("/" + "/".join(map(str, place)))
        holder[place[-1]] = value


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields every single value of a result with the keys that lead to it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from leaves(one, (*place, name))
    if not isinstance(value, (dict, list)):
        yield place, value


@pytest.mark.parametrize(
    ("frozen", "found", "is_same"),
    [
        (-1.5, -1.5 + TOLERANCE / 2, True),
        (-1.5, -1.5 + 2 * TOLERANCE, False),
        (250.0, 250.0 + 200 * TOLERANCE, True),
        (1.7e9, 1.7e9 + 0.01, False),
        (None, 0.0, False),
        ("nan", 0.0, False),
        (1, True, False),
        (["normal"], ["review"], False),
        (["normal"], ["normal", "normal"], False),
        ({"score": 0.0}, {}, False),
        ({}, {"score": 0.0}, False),
    ],
)
def test_numbers_are_compared_to_the_tolerance_and_all_else_exactly(frozen: Any, found: Any, is_same: bool):
    assert (differences(frozen, found) == []) == is_same


def test_the_frozen_results_stay_small():
    assert sum(file.stat().st_size for file in Path(__file__).parent.iterdir() if file.is_file()) < 700_000
