"""The parameters of the detectors: the settings that they share with the command line, and those for programmers.

These classes are the detectors' constructors. A parameter is declared once, here or in :mod:`astray.core.settings`, and
its help becomes a paragraph of the detector's docstring.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from astray.core.settings import Chance, Check, Deciding, FleetOnly, ItsOwn, Learning, LocalTime, OneAgent, OwnReward

if TYPE_CHECKING:
    import numpy as np

    from astray.core.trajectories import Trajectories
    from astray.features.featurizer import FeaturizerConfig
    from astray.irl.dynamics import Dynamics
    from astray.irl.learn_config import LearnConfig
    from astray.model.fleet_training import GoingOnConfig
    from astray.model.inbox import ObservingConfig
    from astray.model.training import Progress
    from astray.scoring.scale_config import ScaleConfig

EXPERT = "For experts: a :class:`~{}`, or a (nested) mapping of those of its fields that differ from the default."


def parameter(default: Any, help: str, check: Check | None = None) -> Any:
    """Declare a parameter that is no setting of the command line."""
    return field(default=default, metadata={"help": help, "check": check})


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters(LocalTime, Chance, Deciding, Learning):
    """What every detector takes."""

    n_jobs: int = parameter(
        1,
        "Threads for scoring; -1 for as many as there are cores.",
        ((lambda value: isinstance(value, int)), "a whole number"),
    )
    progress: Progress | None = parameter(
        None, "Called as ``progress(iteration, iterations, measures)`` while fitting. A saved model does not hold it."
    )
    featurizer: FeaturizerConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.features.featurizer.FeaturizerConfig")
    )
    scaling: ScaleConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.scoring.scale_config.ScaleConfig")
    )
    observing: ObservingConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.model.inbox.ObservingConfig")
    )
    sharing: GoingOnConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.model.fleet_training.GoingOnConfig")
    )


@dataclass(kw_only=True, eq=False, repr=False)
class AgentParameters(Parameters, OwnReward, OneAgent, ItsOwn):
    """What an :class:`~astray.IRLDetector` takes."""

    suspect: bool = parameter(
        True,
        "Whether past trips that are almost certainly somebody else's are taken out of the memory (``suspects_``); "
        "only with a population can they be told.",
    )
    weights: Mapping[str, float] | None = parameter(
        None, "How much of the background comes from each source: ``policy``, ``explore``, ``population``, ``given``."
    )
    background: Callable[[Trajectories, np.random.Generator], Trajectories] | None = parameter(
        None,
        "A function of past trips and a generator that gives trips to tell them from: further background, the source "
        "``given``. A reward of the agent's own is learned then. A saved model does not hold it.",
    )
    dynamics: Dynamics | None = parameter(
        None,
        "For states and actions: the world the policy acts in (:class:`~astray.irl.dynamics.GymDynamics` or one's "
        "own); by default it is learned from the demonstrations. A saved model does not hold it.",
    )
    config: LearnConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.irl.learn_config.LearnConfig") + " The parameters above go first."
    )


@dataclass(kw_only=True, eq=False, repr=False)
class FleetParameters(Parameters, FleetOnly):
    """What a :class:`~astray.FleetDetector` takes; landmarks and encoders of a featurizer are not for a fleet."""

    ways: int = parameter(
        20,
        "How many past ways of each agent are kept to be shown.",
        ((lambda value: isinstance(value, int) and value >= 0), "a whole number, 0 or more"),
    )


def documented(doc: str, kind: type[Parameters]) -> str:
    """A class's docstring with its parameters in a section before that of the attributes."""
    own, said = {f.name for f in fields(OwnReward)}, []
    for f in fields(kind):
        whose = " (A reward of the agent's own.)" if f.name in own else ""
        words = f"{f.metadata['help']} {f.metadata.get('more', '')}".rstrip() + whose
        said += [f.name, *textwrap.wrap(words, 116, initial_indent="    ", subsequent_indent="    ")]
    section = "\n".join(["Parameters", "----------", *said, "", "Attributes\n"])
    return inspect.cleandoc(doc).replace("Attributes\n", section, 1)
