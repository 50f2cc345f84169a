"""Makes the configurations for learning, featurizing and scoring from a detector's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from astray.core.errors import DataError
from astray.core.settings import ASPECTS, PAPER_PRESETS
from astray.core.trajectories import Trajectories
from astray.core.zones import standard_offset
from astray.features.featurizer import FeaturizerConfig
from astray.irl.step_demonstrator import STEP_COUNTERFACTUALS
from astray.model.inbox import ObservingConfig
from astray.model.parameters import Parameters
from astray.model.plain_values import configured
from astray.scoring.decisions import aspect_rates
from astray.scoring.scale_config import ScaleConfig

if TYPE_CHECKING:
    from astray.irl.learn_config import LearnConfig


def preset(name: str) -> LearnConfig:
    """Returns the learning settings of a preset."""
    from astray.irl.kdd19 import KDD19, KDD19_FOURIER
    from astray.irl.learn_config import LearnConfig

    of_paper = dict(zip(PAPER_PRESETS, (KDD19, KDD19_FOURIER), strict=True))
    return of_paper.get(name, LearnConfig())


def learn_config(given: Parameters, gps: bool) -> LearnConfig:
    """Returns the preset, overridden by the fields of ``config``, and these by the detector's own parameters.

    States and actions have other defaults and counterfactuals than GPS trips.
    """
    from astray.irl.learn_config import STATES

    own = {
        "iterations": given.iterations or None,  # 0 asks for the shipped reward as it is
        "objective": given.objective,
        "explorers": None if given.explorers is None else explorer_names(given.explorers),
        "weights": None if given.weights is None else list(given.weights.items()),
        "reward": _present({"heads": given.heads, "networks": given.networks}),
    }
    default = preset(given.preset) if gps or given.preset in PAPER_PRESETS else STATES
    shared = given.background is not None  # nobody knows from which run its trajectories were made
    if shared or (isinstance(given.config, Mapping) and "held_out" in given.config):
        default = replace(default, cross_fit=False)
    config = configured(configured(default, given.config), _present(own))
    if not gps and given.explorers is None and set(config.explorers) - set(STEP_COUNTERFACTUALS):
        return replace(config, explorers=STEP_COUNTERFACTUALS)
    return config


def explorer_names(explorers: Sequence[Any]) -> list[str]:
    """Returns the names of counterfactuals; a function has its own name."""
    return [e if isinstance(e, str) else str(getattr(e, "__name__", type(e).__name__)) for e in explorers]


def own_explorers(explorers: Sequence[Any] | None) -> dict[str, Any]:
    """Returns the counterfactuals that are the user's own functions, by name."""
    found: dict[str, Any] = {}
    for name, explorer in zip(explorer_names(explorers or ()), explorers or (), strict=True):
        if isinstance(explorer, str):
            continue
        if not callable(explorer) or found.setdefault(name, explorer) is not explorer:
            raise DataError(
                f"the explorer {name!r} is not a function, or two functions have this name",
                remedy="give functions with different names",
            )
    return found


def featurizer_config(
    default: FeaturizerConfig, given: FeaturizerConfig | Mapping[str, Any] | None, **own: str | float | None
) -> FeaturizerConfig:
    """Returns the default, overridden by the fields of ``featurizer``, and these by the detector's own parameters."""
    return configured(configured(default, given), _present(own))


def scale_config(given: Parameters) -> ScaleConfig:
    """Returns how scores are scaled: the default, overridden by the fields of ``scaling``."""
    return configured(ScaleConfig(), given.scaling)


def observing_config(given: Parameters) -> ObservingConfig:
    """Returns when the model asks questions: the default, overridden by the fields of ``observing``."""
    return configured(ObservingConfig(), given.observing)


def hours_from(time_zone: str | None, trips: Trajectories) -> float | None:
    """Returns the offset of a zone's hours from UTC, in seconds; None without a zone, or without trips."""
    if time_zone is None or not trips.n_rows:
        return None
    return standard_offset(time_zone, float(np.median(trips.columns["time"])))


PLACE_FIRST = 0.3  # the weight of every other aspect; place has 1
"""Chosen on simulated people and on GeoLife users outside the benchmark: with a higher weight a model finds more trips
of unusual manner or time, but fewer of other people's trips."""


def aspect_weights(
    aspects: Sequence[str], look_for: Sequence[str] | Mapping[str, float] | None, pooled: bool = False
) -> tuple[float, ...]:
    """Returns how much each aspect counts; by default place counts most, but in a pool all count alike.

    >>> aspect_weights(("place", "route"), None), aspect_weights(("place", "route"), ("route",))
    ((1.0, 0.3), (0.0, 1.0))
    """
    if look_for is None:
        return tuple(1.0 if pooled or aspect == aspects[0] else PLACE_FIRST for aspect in aspects)
    wanted = dict(look_for) if isinstance(look_for, Mapping) else dict.fromkeys(look_for, 1.0)
    unknown = [name for name in wanted if name not in aspects]
    if unknown or not wanted or not all(0 <= w < float("inf") for w in wanted.values()) or not any(wanted.values()):
        raise DataError(
            f"look_for is {look_for!r}", remedy=f"give some of {', '.join(aspects)}, or how much each counts"
        )
    return tuple(float(wanted.get(aspect, 0.0)) for aspect in aspects)


def check_rates(given: Parameters) -> None:
    """Raises a DataError if false-alarm rates by aspect contradict ``eps``, ``preset`` or ``look_for``."""
    rate = given.false_alarm_rate
    if not isinstance(rate, Mapping):
        return
    if given.eps is not None:
        raise DataError("eps and false_alarm_rate are each a threshold by itself", remedy="give one of them, not both")
    if given.preset in PAPER_PRESETS:
        raise DataError(
            f"the reward of the preset {given.preset} has no aspects that false_alarm_rate could promise rates for",
            remedy="give one rate, or another preset",
        )
    aspect_rates(rate, ASPECTS, aspect_weights(ASPECTS, given.look_for))


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
