"""Makes methods by their names: astray's, the baselines, the controls, and external detectors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from astray.core.errors import DataError
from astray.core.settings import PAPER_PRESETS
from astray_benchmark.astray_methods import STREAMING, FleetStream, Own, Shared
from astray_benchmark.baseline_methods import BaselineMethod, RefittedStream
from astray_benchmark.baselines import BASELINES, COMPARISONS, GENERATORS
from astray_benchmark.contenders import Contender, Method
from astray_benchmark.external_detectors import external
from astray_benchmark.half_space_trees import HalfSpaceTreesStream
from astray_benchmark.variants import PRETRAINED, VARIANTS, WHOLE


def _of_paper(preset: str) -> Callable[[str, Mapping[str, Any]], Method]:
    return lambda name, options: Own(name, False, {"preset": preset, **options})


_ASTRAY: dict[str, Callable[[str, Mapping[str, Any]], Method]] = {
    "astray": lambda name, options: Own(name, True, options),
    "astray-alone": lambda name, options: Own(name, False, options),
    "astray-shared": lambda name, options: Shared(name, options),
    "astray-pretrained": lambda name, options: Own(name, True, {**PRETRAINED, **options}),
    **{preset: _of_paper(preset) for preset in PAPER_PRESETS},
}

CONTROLS = {"recorder-interval": "astray_benchmark.baselines.recorder:RecorderInterval"}
"""Controls, which have no access to behaviour, with the modules and names of their classes."""

METHODS = (*_ASTRAY, *BASELINES, *COMPARISONS, *GENERATORS, *CONTROLS)
"""The names of all methods."""

OWN_BACKGROUND = ("astray", *PAPER_PRESETS, *BASELINES, *GENERATORS)
"""The methods for data of one pool, without other agents."""

QUICK = ("astray", "astray-alone", "familiarity", "cell-ratio", "cell-trigram", "knn-location", "lof", "iforest")
"""The methods that take seconds for a person."""

QUICK_POOL = tuple(name for name in QUICK if name not in ("astray-alone", *COMPARISONS))
"""The quick methods for data of one pool."""

TREES = {"river-trees": True, "river-trees-unflagged": False}
"""The versions of Half-Space Trees that follow a stream; True: they also learn from flagged trips."""

REFITTED = {f"{name}-unflagged": name for name in ("familiarity", "cell-trigram")}
"""Baselines that follow a stream and are refitted after every few trips."""

FOLLOWING = (*STREAMING, *TREES, *REFITTED)
"""All methods that follow a stream."""

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")


def method(spec: str) -> Contender:
    """Makes a method from its name and options, which follow colons and have values in JSON or plain text.

    ``package.module:Class`` is an external detector; see :mod:`astray_benchmark.external_detectors`.

    >>> method("lof").name
    'lof'
    >>> method("astray:encoder=raw:iterations=20").options
    {'encoder': 'raw', 'iterations': 20}
    """
    if spec in VARIANTS:
        return Own(spec, True, VARIANTS[spec])
    base, *given = re.split(r":(?=[A-Za-z_]\w*=)", spec)
    options = {}
    for part in given:
        key, _, value = part.partition("=")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    if base in _ASTRAY:
        return _ASTRAY[base](spec, options)
    if base in STREAMING:
        return FleetStream(spec, base, options)
    if base in TREES:
        return HalfSpaceTreesStream(spec, TREES[base], options)
    if base in REFITTED:
        return RefittedStream(spec, REFITTED[base], options)
    if base in BASELINES | COMPARISONS | GENERATORS:
        return BaselineMethod(spec, base, options)
    if ":" in base or base in CONTROLS:
        return external(spec, CONTROLS.get(base, base), options)
    if "." in base:
        module, _, name = base.rpartition(".")
        raise DataError(f"no method named {base!r}", remedy=f"a class of your own is {module}:{name}, with a colon")
    known = ", ".join((*METHODS, *FOLLOWING))
    raise DataError(f"no method named {base!r}", remedy=f"there are {known}, or give package.module:Class")


_GROUPS = {"ablation": (WHOLE, *VARIANTS), "stream": FOLLOWING}


def methods(specs: Iterable[str]) -> list[Contender]:
    """Makes methods from their names; a text may hold several, separated by commas.

    ``ablation`` stands for astray in parts, ``stream`` for every method that follows a stream.

    >>> [m.name for m in methods(["astray,lof", 'astray:weights={"policy": 0, "explore": 1}'])]
    ['astray', 'lof', 'astray:weights={"policy": 0, "explore": 1}']
    """
    wanted = [one.strip() for spec in specs for one in _OUTSIDE_BRACKETS.split(spec) if one.strip()]
    named = [one for spec in wanted for one in _GROUPS.get(spec, (spec,))]
    return [method(spec) for spec in dict.fromkeys(named)]
