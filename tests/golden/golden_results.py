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


def differences(frozen: Json, found: Json, place: str = "") -> list[str]:
    """Returns every place where a result differs from the frozen one: numbers beyond TOLERANCE, all else at all."""
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
                for said in differences(frozen[name], found[name], f"{place}/{name}")
            ]
        )
    if isinstance(frozen, list) and isinstance(found, list):
        if len(frozen) != len(found):
            return [f"{place}: {len(frozen)} values were frozen, there are {len(found)}"]
        pairs = enumerate(zip(frozen, found, strict=True))
        return [said for i, (one, other) in pairs for said in differences(one, other, f"{place}/{i}")]
    if is_number(frozen) and is_number(found):
        # Relative for large numbers, but times in seconds since 1970 are still held to a millisecond.
        near = abs(frozen - found) <= TOLERANCE * min(max(abs(frozen), 1.0), 1000.0)
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
