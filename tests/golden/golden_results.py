"""Frozen results: how they are stored, and how a new result is compared with them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORDS = HERE / "words.json"
"""Everything that is prose, by case and place, in a file of its own that a diff shows line by line."""

PROSE = frozenset({"words", "said", "because", "reason", "remedy", "drift"})
"""Fields that hold prose. Their text is frozen in words.json."""

WITH_NUMBERS = frozenset({"words", "because"})
"""Of these, fields whose numbers are frozen with the scores, so that they are held when a sentence is rewritten."""

TOLERANCE = 1e-6

TOLERANCES = {"porto": 5e-6, "states_and_actions": 0.1, "own_reward": 0.05}
"""Cases that depend on the processor, which rounds products and sines in its own way; frozen and found on one, version
0.2 and today's code agree to the last digit. In ``porto`` version 0.2 differs from itself by 1.6e-6 on two processors.
In ``states_and_actions`` and ``own_reward`` a policy learns by trial, which amplifies rounding: in the former it
differs by .09, and in one decision at the threshold; in the latter one processor differs from another by .015.
"""

Json = Any
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")


def scores_file(case: str) -> Path:
    """Returns the file with the frozen numbers, names and decisions of a case."""
    return HERE / f"{case}.json.gz"


def read_scores(case: str) -> Json:
    """Reads the frozen numbers, names and decisions of a case."""
    return json.loads(gzip.decompress(scores_file(case).read_bytes()))


def read_words() -> dict[str, dict[str, str]]:
    """Reads the frozen prose: by case, text by place."""
    return json.loads(WORDS.read_text(encoding="utf-8")) if WORDS.exists() else {}


def write_scores(case: str, scores: Json) -> None:
    """Freezes the numbers, names and decisions of a case; the same scores give the same bytes."""
    text = json.dumps(scores, separators=(",", ":"), ensure_ascii=False)
    scores_file(case).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write_words(words: dict[str, dict[str, str]]) -> None:
    """Freezes the prose of all cases."""
    WORDS.write_text(json.dumps(words, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def without_prose(value: Json, place: str = "") -> tuple[Json, dict[str, str]]:
    """Splits a result into what is exact and its prose, by place. Numbers in explanations stay, sorted."""
    words: dict[str, str] = {}

    def split(value: Json, place: str, field: str) -> Json:
        if isinstance(value, dict):
            return {name: split(one, f"{place}/{name}", name) for name, one in value.items()}
        if isinstance(value, list):
            return [split(one, f"{place}/{i}", field) for i, one in enumerate(value)]
        if field in PROSE and isinstance(value, str) and value:
            words[place] = value
            return sorted(float(number) for number in NUMBER.findall(value)) if field in WITH_NUMBERS else "prose"
        return value

    return split(value, place, ""), words


def score_differences(case: str, found: Json) -> list[str]:
    """Returns every place where the numbers, names and decisions of a case differ from the frozen ones."""
    different = differences(read_scores(case), found, tolerance=TOLERANCES.get(case, TOLERANCE))
    if case not in TOLERANCES:
        return different
    decisions = [said for said in different if "/decision/" in said]
    return different if len(decisions) > 1 else [said for said in different if said not in decisions]


def word_differences(case: str, found: dict[str, str]) -> list[str]:
    """Returns every place where the prose of a case differs from the frozen one."""
    frozen = read_words().get(case, {})
    if case in TOLERANCES:
        frozen, found = ({place: NUMBER.sub("#", text) for place, text in of.items()} for of in (frozen, found))
    return differences(frozen, found)


def differences(frozen: Json, found: Json, place: str = "", tolerance: float = TOLERANCE) -> list[str]:
    """Returns every place where two results differ: numbers by more than the tolerance, all else at all."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        missing = [f"{place}/{name}: is missing" for name in frozen if name not in found]
        more = [f"{place}/{name}: was not there" for name in found if name not in frozen]
        return (
            missing
            + more
            + [
                said
                for name in frozen
                if name in found
                for said in differences(frozen[name], found[name], f"{place}/{name}", tolerance)
            ]
        )
    if isinstance(frozen, list) and isinstance(found, list):
        if len(frozen) != len(found):
            return [f"{place}: {len(frozen)} values were frozen, there are {len(found)}"]
        pairs = enumerate(zip(frozen, found, strict=True))
        return [said for i, (one, other) in pairs for said in differences(one, other, f"{place}/{i}", tolerance)]
    if is_number(frozen) and is_number(found):
        # Relative for large numbers, but times in seconds since 1970 are still held to a millisecond.
        near = abs(frozen - found) <= tolerance * min(max(abs(frozen), 1.0), 1000.0)
        return [] if near else [f"{place}: {frozen!r} was frozen, {found!r} was found"]
    same = frozen == found and isinstance(frozen, bool) == isinstance(found, bool)
    return [] if same else [f"{place}: {frozen!r} was frozen, {found!r} was found"]


def is_number(value: Json) -> bool:
    """Returns True for an int or a float, but not for True and False."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def count(value: Json) -> int:
    """Returns how many single values a result holds."""
    if isinstance(value, dict):
        return sum(map(count, value.values()))
    return sum(map(count, value)) if isinstance(value, list) else 1
