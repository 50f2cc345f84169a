"""Says how unusual each aspect of a trip is by itself, and which rates by aspect a detector promises."""

from __future__ import annotations

import math
from collections.abc import Mapping

from astray.scoring.decisions import total_rate

USUAL = 0.25
"""An aspect is as usual if more than this share of normal trips is as unusual in it."""


def aspect_words(p_aspects: Mapping[str, float]) -> str:
    """Says how unusual each aspect is, the rarest first; an empty text if nothing is known.

    >>> aspect_words({"place": 0.4, "route": 0.9, "manner": 0.01, "time": 0.1})
    'manner: about 1 normal trip in 100 is this unusual; time: 1 in 10; place and route: as usual'
    """
    known = {aspect: p for aspect, p in p_aspects.items() if not math.isnan(p)}
    rare = sorted((p, aspect) for aspect, p in known.items() if p <= USUAL)
    usual = [aspect for aspect, p in known.items() if p > USUAL]
    said = [f"{aspect}: 1 in {1 / max(p, 1e-9):,.0f}" for p, aspect in rare]
    said[:1] = [first.replace("1 in", "about 1 normal trip in") + " is this unusual" for first in said[:1]]
    return "; ".join([*said, f"{listed(usual)}: as usual"] if usual else said)


def promise(rates: Mapping[str, float]) -> str:
    """Says which share of normal trips is flagged by each aspect, and in total.

    >>> promise({"place": 0.015, "manner": 0.005})
    'as unusual in place as at most 1.5 % of normal trips are, or in manner as 0.5 % are; in total at most 2 %'
    """
    (first, share), *rest = rates.items()
    said = f"as unusual in {first} as at most {100 * share:g} % of normal trips are"
    said += "".join(f", or in {aspect} as {100 * share:g} % are" for aspect, share in rest)
    return f"{said}; in total at most {100 * total_rate(rates):g} %" if rest else said


def listed(words: list[str]) -> str:
    """Joins words in the way of a sentence.

    >>> listed(["place"]), listed(["place", "route", "time"])
    ('place', 'place, route and time')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
