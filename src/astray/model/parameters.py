"""The parameters of a detector: the settings that the command line has too, and further ones for programmers.

The class is the detector's constructor. A parameter is declared once, here or in :mod:`astray.core.settings`, and its
help becomes a paragraph of the detector's docstring.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from astray.core.settings import Chance, Check, Deciding, FleetOnly, ItsOwn, Learning, LocalTime, OneAgent, OwnReward
from astray.core.zones import Zone

if TYPE_CHECKING:
    import numpy as np

    from astray.core.trajectories import Trajectories
    from astray.features.featurizer import FeaturizerConfig
    from astray.irl.dynamics import Dynamics
    from astray.irl.learn_config import LearnConfig
    from astray.model.inbox import ObservingConfig
    from astray.model.shared_training import GoingOnConfig, Progress
    from astray.scoring.scale_config import ScaleConfig

EXPERT = "For experts: a :class:`~{}`, or a (nested) mapping of the fields that differ from the default."


def parameter(default: Any, help: str, check: Check | None = None) -> Any:
    """Declares a parameter that is not a setting of the command line."""
    return field(default=default, metadata={"help": help, "check": check})


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters(LocalTime, Chance, Deciding, Learning, OwnReward, OneAgent, ItsOwn, FleetOnly):
    """The parameters of a :class:`~astray.Detector`."""

    pooled: bool | None = parameter(
        None,
        "True: trips of several agents are one pool with one memory, such as the taxis of a town. By default each of "
        "several agents has its own memory, and a model of one agent compares everybody's trips with that agent's "
        "past. False: even a single agent gets a model for many, to which :meth:`~astray.Detector.enroll` adds others.",
    )
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
        None, EXPERT.format("astray.model.shared_training.GoingOnConfig")
    )
    suspect: bool = parameter(
        True,
        "True: the model does not remember past trips that are almost certainly somebody else's (``suspects_``). It "
        "recognises them only with a population.",
    )
    weights: Mapping[str, float] | None = parameter(
        None, "How much of the background comes from each source: ``policy``, ``explore``, ``population``, ``given``."
    )
    background: Callable[[Trajectories, np.random.Generator], Trajectories] | None = parameter(
        None,
        "A function of past trips and a random generator that returns trips to compare them with: further background, "
        "the source ``given``. The agent then learns its own reward. A saved model does not hold it.",
    )
    dynamics: Dynamics | None = parameter(
        None,
        "For states and actions: the world in which the policy acts (:class:`~astray.irl.dynamics.GymDynamics` or an "
        "object of yours); by default it is learned from the demonstrations. A saved model does not hold it.",
    )
    config: LearnConfig | Mapping[str, Any] | None = parameter(
        None, EXPERT.format("astray.irl.learn_config.LearnConfig") + " The parameters above override it."
    )
    ways: int = parameter(
        20,
        "In a model of many agents: how many of an agent's past routes an explanation shows.",
        ((lambda value: isinstance(value, int) and value >= 0), "a whole number, 0 or more"),
    )

    @property
    def given_zone(self) -> Zone | None:
        """The time zone that ``time_zone`` names; None if it names none."""
        return None if self.time_zone is None else Zone.of(self.time_zone)


def documented(doc: str, kind: type[Parameters]) -> str:
    """Returns a class's docstring with a section on its parameters before the one on its attributes."""
    own, lines = {f.name for f in fields(OwnReward)}, []
    for f in fields(kind):
        whose = " (Only where the agent learns its own reward.)" if f.name in own else ""
        words = f"{f.metadata['help']} {f.metadata.get('more', '')}".rstrip() + whose
        lines += [f.name, *textwrap.wrap(words, 116, initial_indent="    ", subsequent_indent="    ")]
    section = "\n".join(["Parameters", "----------", *lines, "", "Attributes\n"])
    return inspect.cleandoc(doc).replace("Attributes\n", section, 1)
