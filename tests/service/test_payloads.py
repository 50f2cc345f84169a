"""Every format is read and answered as its golden file says, and no input whatever makes a decoder raise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from astray.service.batches import Batch, FeedFix, Receipt
from astray.service.feeds import FEEDS, FORMATS
from astray.service.feeds.feed_answers import REFUSED_HEADER
from astray.service.feeds.row_checks import Sent

CASE_FILES = sorted((Path(__file__).parents[1] / "data" / "feeds").glob("*.json"))
GOLDEN = {path.stem: json.loads(path.read_text("utf-8"))["cases"] for path in CASE_FILES}
CASES = [pytest.param(name, case, id=f"{name}: {case['says']}") for name, cases in GOLDEN.items() for case in cases]


def body_of(case: dict[str, Any]) -> bytes:
    body = case["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def read(name: str, case: dict[str, Any]) -> Batch:
    return FORMATS[name].decode(Sent(body_of(case), case["query"], case["headers"], case["now"], case.get("agent")))


def expected(row: list[Any]) -> FeedFix:
    agent, time, lat, lon, accuracy, *more = row
    trip, goal = more or ("", None)
    return FeedFix(agent, time, lat, lon, trip, goal and tuple(goal), accuracy)


def test_every_format_has_golden_cases():
    assert set(GOLDEN) == set(FORMATS)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_every_message_decodes_to_its_golden_case(name: str, case: dict[str, Any]):
    found = read(name, case)
    assert found.fixes == [expected(row) for row in case["fixes"]]
    assert [[row.index, row.reason] for row in found.refused] == case["refused"]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_message_is_answered_exactly_as_its_sender_expects(name: str, case: dict[str, Any]):
    found = read(name, case)
    answer = FORMATS[name].answer(Receipt(len(found.fixes), found.refused))
    assert answer.status_code == case["status"]
    assert answer.headers["content-type"] == "application/json"
    if "answer" in case:
        assert answer.body.decode() == case["answer"]
    if answer.status_code == 422:
        assert set(json.loads(answer.body)["error"]) == {"reason", "remedy"}


def test_a_refused_message_says_in_words_how_to_set_up_the_sender():
    found = FORMATS["owntracks"].decode(Sent(b"{}", {}, {}, 2e9))
    remedy = json.loads(FORMATS["owntracks"].answer(Receipt(0, found.refused)).body)["error"]["remedy"]
    assert set(re.findall(r"(/\S+) for ", remedy)) == set(FEEDS)
    assert ".md" not in remedy


def test_refused_rows_are_reported_in_a_header_if_the_body_has_no_room():
    case = next(case for case in GOLDEN["overland"] if len(case["refused"]) == 5)
    answer = FORMATS["overland"].answer(Receipt(1, read("overland", case).refused))
    assert answer.headers[REFUSED_HEADER].startswith("5; the phone says that the position is not valid")


def test_a_reason_from_outside_cannot_break_a_header():
    body = b'{"_type":"location","topic":"owntracks/a/b","tst":"\xc3\xa9\\r\\nX: 1","lat":1,"lon":2}'
    found = FORMATS["owntracks"].decode(Sent(body, {}, {}, 2e9))
    header = FORMATS["owntracks"].answer(Receipt(0, found.refused)).headers[REFUSED_HEADER]
    assert header.isascii()
    assert header.isprintable()


def test_an_overland_batch_of_a_thousand_points_is_read_without_a_table_for_each():
    """A zone without a colon is what Overland sends; it takes the fast way, as one with a colon does."""
    from astray.core.times import _USUAL

    assert _USUAL.fullmatch("2015-10-01T08:00:00-0700")


def test_the_sender_settings_in_the_documentation_work():
    """Every address of the page is one that is served, and what its applications put into it is understood."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "feeds.md").read_text("utf-8")
    served = set(FEEDS)
    addresses = [urlsplit(one) for one in re.findall(r"https://gps\.example\.org/[^\s'`<]+", page)]
    assert {one.path.removesuffix("/TOKEN") for one in addresses} == served
    values = {"%LAT": "41.15", "%LON": "-8.61", "%TIMESTAMP": "1763380000", "%ACC": "9"}
    values |= {"{0}": "41.15", "{1}": "-8.61", "{2}": "1763380000000", "{3}": "1", "{4}": "80", "{5}": "0"}
    for one in addresses:
        query = {name: values.get(value[0], value[0]) for name, value in parse_qs(one.query).items()}
        if query:
            (fix,) = FEEDS[one.path.removesuffix("/TOKEN")].decode(Sent(b"", query, {}, 1_763_380_100.0)).fixes
            assert fix[:4] == ("ana", 1763380000.0, 41.15, -8.61)


# -------------------------------------------------------------------- whatever comes

scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
KEYS = sorted(
    {key for cases in GOLDEN.values() for case in cases for key in json.dumps(case).split('"') if key.isidentifier()}
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A golden body of which some parts are something else."""
    if draw(st.integers(0, 9)) == 0:
        return draw(values)
    if isinstance(value, dict):
        kept = {key: draw(changed(part)) for key, part in value.items() if draw(st.integers(0, 9))}
        return kept | draw(st.dictionaries(st.sampled_from(KEYS), scalars, max_size=1))
    if isinstance(value, list):
        return [draw(changed(part)) for part in value]
    return value


bodies = (
    st.binary(max_size=200)
    | values.map(lambda value: json.dumps(value).encode())
    | st.sampled_from([case for cases in GOLDEN.values() for case in cases])
    .flatmap(lambda case: changed(case["body"]))
    .map(lambda value: value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode())
)
maps = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), st.text(max_size=30), max_size=6)


@settings(max_examples=400, deadline=None)
@given(bodies, maps, maps, st.none() | st.just("ana"))
@example(b"[" * 100_000, {}, {}, None)
@example(b'{"agent": "a", "time": 1' + b"0" * 5000 + b', "lat": 1, "lon": 1}', {}, {}, None)
@example(b'{"_type": "location", "topic": {}, "tid": [], "tst": 1e300, "lat": true, "lon": {}}', {}, {}, None)
@example(b'{"locations": [null, [], {"geometry": {"type": "Point", "coordinates": [[], {}]}}]}', {}, {}, None)
@example(b'{"agent": "\\ud800", "time": 0, "lat": 1, "lon": 1}', {"id": "\ud800"}, {}, None)
@example(b"", {"id": "a", "timestamp": "9" * 19, "lat": "1e400", "lon": "\x00"}, {}, None)
@example(b'{"position": {"fixTime": [1]}, "device": {"uniqueId": true}}', {}, {}, "ana")
@example(b'{"agent": 1' + b"0" * 4000 + b', "time": 1, "lat": 1, "lon": 1}', {}, {}, None)
def test_decoders_never_raise_and_return_only_valid_fixes(body, query, headers, agent):
    for form in FORMATS.values():
        found = form.decode(Sent(body, query, headers, 2e9, agent))
        for fix in found.fixes:
            assert -90 <= fix.lat <= 90
            assert -180 <= fix.lon <= 180
            assert fix.time <= 2e9 + 600
            assert 0 < len(fix.agent) <= 200
        answer = form.answer(Receipt(len(found.fixes), found.refused))
        assert answer.status_code in (200, 422)
        msgspec.json.decode(answer.body)
