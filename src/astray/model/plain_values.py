"""Turns settings into plain values that a model file can hold, and back, checked against their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from astray.core.errors import DataError, ModelFileError

T = TypeVar("T")


def plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: dataclasses become mappings, tuples lists, numpy's numbers plain ones.

    >>> from astray.features.memory import Forgetting
    >>> plain({"rule": Forgetting(max_trips=3), "sizes": (1, 2)})
    {'rule': {'max_trips': 3, 'window': None, 'half_life': None}, 'sizes': [1, 2]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain_field(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (str, bool, int, float, NoneType)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    raise ModelFileError(f"{value!r} cannot be saved in a model file", remedy="set it to a plain value before saving")


_evaluated_hints = cache(get_type_hints)  # evaluating the types of a class takes Python milliseconds


def _hints_of(kind: Any) -> Mapping[str, Any]:
    """Returns the types of the fields of a dataclass, by name."""
    return _evaluated_hints(kind)


def _plain_field(owner: Any, name: str) -> Any:
    """Returns a field in its own type, so that saving a loaded model gives equal bytes: 5 becomes 5.0 in a float."""
    value = plain(getattr(owner, name))
    try:
        return plain(restore(_hints_of(cast(Hashable, type(owner)))[name], value))
    except TypeError:
        return value


def restore(hint: Any, value: Any) -> Any:
    """Returns the value of type ``hint`` that :func:`plain` made plain; raises ``TypeError`` if it does not fit.

    >>> from astray.features.featurizer import FeaturizerConfig
    >>> restore(FeaturizerConfig, plain(FeaturizerConfig(interval=10.0))) == FeaturizerConfig(interval=10.0)
    True
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return _restore_any(inner, value)
    if origin is tuple and isinstance(value, (list, tuple)):
        hints = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(restore(h, v) for h, v in zip(hints, value, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {restore(inner[0], k): restore(inner[1], v) for k, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        hints_by_name = _hints_of(cast(Hashable, hint))
        unknown = sorted(set(value) - set(hints_by_name))
        if unknown:
            raise TypeError(f"{getattr(hint, '__name__', hint)} has no field named {unknown[0]!r}")
        return hint(**{name: restore(hints_by_name[name], v) for name, v in value.items()})  # type: ignore[operator]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    raise TypeError(f"{value!r} is not a value of {hint}")


def _restore_any(hints: Sequence[Any], value: Any) -> Any:
    for hint in hints:
        try:
            return restore(hint, value)
        except TypeError:
            continue
    raise TypeError(f"{value!r} is none of {', '.join(map(str, hints))}")


def configured(default: T, given: T | Mapping[str, Any] | None) -> T:
    """Returns the configuration that was given, or the default with the (nested) fields changed that a mapping names.

    >>> from astray.features.featurizer import FeaturizerConfig
    >>> changed = configured(FeaturizerConfig(), {"interval": 10.0, "faults": {"gap": 600.0}})
    >>> changed.interval, changed.faults.gap, changed.faults.top_speed
    (10.0, 600.0, 100.0)
    """
    if given is None:
        return default
    if not isinstance(given, Mapping):
        return given
    try:
        changed: T = restore(type(default), _overridden(plain(default), given))
    except TypeError as error:
        raise DataError(f"{type(default).__name__}: {error}", remedy="correct that value") from None
    return changed


def _overridden(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    pairs = {k: (values.get(k), v) for k, v in given.items()}
    nested = {k: _overridden(a, b) for k, (a, b) in pairs.items() if isinstance(a, Mapping) and isinstance(b, Mapping)}
    return {**values, **plain(given), **nested}
