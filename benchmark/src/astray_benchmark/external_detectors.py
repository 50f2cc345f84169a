"""External detectors, named by their class: ``package.module:Class``.

The class has the interface of scikit-learn's outlier detectors, for trips instead of rows:

- ``fit(trips)``, or ``fit(trips, population)`` if it uses other people's trips (None where there are none);
- ``score_samples(trips)``: one number for each trip, high if it is normal, NaN if it has no score.

It may also have

- ``score_fixes(trips)``: one such number for each fix, for the tables of where and when;
- ``learn(trip)``, or ``learn(trip, flagged)`` to get the decision, too: learns from a trip of a stream (P7);
- a parameter ``seed`` (or ``random_state``), which is set to the seed of the draw.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Floats
from astray_benchmark.calibration import CalibratedModel, PValueFollower, fit_and_calibrate
from astray_benchmark.contenders import Lesson, Person


@dataclass(frozen=True)
class ExternalDetector:
    """An external detector, calibrated like the baselines, by left-out training trips.

    Parameters
    ----------
    name
        The name in tables.
    place
        The class: ``package.module:Class``. The module may be in the current folder.
    options
        Arguments of its constructor.
    """

    name: str
    place: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Raise errors about misspelt options before anything runs.
        made = import_class(self.place)
        takes = _parameters(made)
        unknown = [] if _any_name(takes) else [name for name in self.options if name not in takes]
        if unknown:
            known = ", ".join(takes) or "none"
            raise DataError(
                f"{made.__name__} has no parameter {unknown[0]!r}", place=self.place, remedy=f"there are {known}"
            )
        wanted = list(_parameters(made.fit).values())[2:]  # after self and the trips
        for parameter in wanted:
            if parameter.name != "population" and parameter.default is parameter.empty and parameter.kind not in _REST:
                raise DataError(
                    f"its fit requires {parameter.name!r}, which the benchmark does not give",
                    place=self.place,
                    remedy="fit gets the trips and, in a parameter of the name population, those of others",
                )

    @property
    def source(self) -> str:
        """Returns a hash of the class's file, to notice that its code has changed."""
        return hashlib.sha256(Path(inspect.getfile(import_class(self.place))).read_bytes()).hexdigest()

    def fit(self, lesson: Lesson, seed: int) -> CalibratedModel:
        """Learns from all training trips, and measures the scale on left-out ones."""

        def scores(model: Any, trips: Trajectories) -> tuple[Floats, Floats]:
            return trip_scores(model, trips), fix_scores(model, trips)

        fitted = fit_and_calibrate(
            lesson.train, seed, lambda train: self._fitted(train, lesson.population, seed), scores
        )
        return CalibratedModel(*fitted, trip_scores, fix_scores)

    def _fitted(self, train: Trajectories, population: Trajectories | None, seed: int) -> Any:
        made = import_class(self.place)
        takes = _parameters(made)
        seeds = {name: seed for name in ("seed", "random_state") if name in takes and name not in self.options}
        model = made(**seeds, **self.options)
        if "population" in _parameters(model.fit):
            model.fit(train, population=population)
        else:
            model.fit(train)
        return model  # the result of fit may be anything, so ignore it


@dataclass(frozen=True)
class ExternalStreamDetector(ExternalDetector):
    """An external detector with ``learn``, which can also follow streams (P7)."""

    def begin(self, lesson: Lesson, seed: int) -> ExternalFollower:
        """Learns from the past; see :class:`astray_benchmark.contenders.StreamMethod`."""
        return ExternalFollower(self.fit(lesson, seed))


@dataclass(eq=False)
class ExternalFollower(PValueFollower):
    """An external detector in a stream; it keeps the scale measured on the past."""

    fitted: CalibratedModel

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Lets the detector learn from the trip; asks nobody."""
        learn = self.fitted.model.learn
        if "flagged" in _parameters(learn):
            learn(trip, flagged=self.flagged)
        else:
            learn(trip)
        return 0


def external(name: str, place: str, options: Mapping[str, Any]) -> ExternalDetector:
    """Returns the detector ``package.module:Class``; one with ``learn`` can also follow streams."""
    kind = ExternalStreamDetector if hasattr(import_class(place), "learn") else ExternalDetector
    return kind(name, place, options)


def trip_scores(model: Any, trips: Trajectories) -> Floats:
    """Returns a detector's score of every trip."""
    return _scores(model.score_samples, trips, "score_samples", len(trips), "trip", "trips")


def fix_scores(model: Any, trips: Trajectories) -> Floats:
    """Returns a detector's score of every fix; NaN if it has no ``score_fixes``."""
    if not hasattr(model, "score_fixes"):
        return np.full(trips.n_rows, np.nan)
    return _scores(model.score_fixes, trips, "score_fixes", trips.n_rows, "fix", "fixes")


@cache
def import_class(place: str) -> type[Any]:
    """Imports the class at ``package.module:Class``."""
    module, _, name = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = f"no module named {error.name!r}"
        raise DataError(
            missing, place=place, remedy="give package.module:Class, and run astray in the folder of the module"
        ) from None
    except AttributeError:
        raise DataError(
            f"the module {module!r} has no {name!r}", place=place, remedy="check the name of the class"
        ) from None
    except Exception as error:  # a module may do anything when it is imported
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise DataError(
            f"the module {module!r} cannot be imported ({error}{line})", place=place, remedy="correct the module"
        ) from error
    if not isinstance(made, type):
        raise DataError(f"{name!r} is not a class", place=place, remedy="give package.module:Class")
    lacks = [what for what in ("fit", "score_samples") if not callable(getattr(made, what, None))]
    if lacks:
        raise DataError(
            f"{name!r} has no method {lacks[0]}", place=place, remedy="give it fit(trips) and score_samples(trips)"
        )
    return made


def _scores(
    score: Callable[[Trajectories], Any], trips: Trajectories, name: str, wanted: int, what: str, plural: str
) -> Floats:
    """Calls a detector's ``score``; raises an error unless it returns ``wanted`` numbers."""
    try:
        values = np.asarray(score(trips), np.float64)
    except (TypeError, ValueError) as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # the detector's own error
        raise DataError(f"{name} did not return numbers", remedy=f"return one number per {what}") from error
    if values.shape != (wanted,) or np.isinf(values).any():
        what_came = f"the shape {values.shape}" if values.shape != (wanted,) else "infinite values"
        raise DataError(
            f"{name} returned {what_came} for {wanted} {what if wanted == 1 else plural}",
            remedy="return one finite number, or NaN, each",
        )
    return values


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _any_name(takes: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in takes.values())


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters
