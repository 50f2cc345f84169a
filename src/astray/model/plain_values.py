"""Turns dataclasses into plain values and arrays that a model file can hold, and back, checked against their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from astray.core.errors import DataError, ModelFileError

Array = NDArray[Any]
T = TypeVar("T")


def plain(value: Any, arrays: dict[str, Array] | None = None, path: str = "") -> Any:
    """Converts a value for JSON: dataclasses become mappings, tuples become lists, numpy numbers plain ones.

    If ``arrays`` is given, arrays (texts and tables, too) move there, and leave None in their places.

    >>> from astray.features.memory import Forgetting
    >>> plain({"rule": Forgetting(max_trips=3), "sizes": (1, 2)})
    {'rule': {'max_trips': 3, 'window': None, 'half_life': None}, 'sizes': [1, 2]}
    >>> arrays = {}
    >>> plain({"n": 3, "layers": [(np.zeros(2), 1.0)]}, arrays), arrays
    ({'n': 3, 'layers': [[None, 1.0]]}, {'layers.0.0': array([0., 0.])})
    """
    if isinstance(value, np.ndarray) and arrays is not None:
        arrays |= pack_text(path, value.tolist()) if value.dtype.kind == "U" else {path: value}
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {name: _plain_field(value, name, arrays, _inside(path, name)) for name in names}
    if isinstance(value, pl.DataFrame):
        value = {name: value[name].cast(pl.Float64).to_numpy() for name in value.columns}
    if isinstance(value, Mapping):
        return {str(k): plain(v, arrays, _inside(path, k)) for k, v in value.items()}
    if isinstance(value, (str, bool, int, float, NoneType)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Iterable):
        return [plain(v, arrays, _inside(path, i)) for i, v in enumerate(value)]
    raise ModelFileError(f"{value!r} cannot be saved in a model file", remedy="set it to a plain value before saving")


def pack_text(name: str, texts: Sequence[str]) -> dict[str, Array]:
    """Returns texts as two arrays: their letters, and where each ends."""
    encoded = [t.encode() for t in texts]
    return {
        f"{name}.utf8": np.frombuffer(b"".join(encoded), np.uint8),
        f"{name}.ends": np.cumsum([0, *(len(e) for e in encoded)], dtype=np.int64),
    }


def unpack_text(name: str, arrays: Mapping[str, Array]) -> list[str]:
    """Returns the texts that :func:`pack_text` packed; raises ``ValueError`` if the arrays hold none."""
    letters, ends = arrays[f"{name}.utf8"], arrays[f"{name}.ends"]
    if letters.dtype != np.uint8 or letters.ndim != 1:
        raise ValueError(f"{name} is not text")
    check_offsets(name, ends, len(letters))
    whole = letters.tobytes()
    try:
        return [whole[a:b].decode() for a, b in pairwise(ends.tolist())]
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text") from error


def check_offsets(name: str, offsets: Array, total: int) -> None:
    """Raises ``ValueError`` unless offsets cut ``total`` rows into pieces."""
    is_rising = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) and (np.diff(offsets) >= 0).all()
    if not is_rising or offsets[0] != 0 or offsets[-1] != total:
        raise ValueError(f"the offsets {name} do not cut {total} rows")


def check_shape(name: str, array: Array, *shape: int | None) -> None:
    """Raises ``ValueError`` unless an array has this shape; None stands for any length."""
    if array.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, array.shape, strict=True)):
        wanted = "x".join("n" if s is None else str(s) for s in shape)
        raise ValueError(f"the array {name} is of shape {array.shape}, not {wanted}")


def _inside(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


_evaluated_hints = cache(get_type_hints)  # evaluating the types of a class takes Python milliseconds


def _hints_of(kind: Any) -> Mapping[str, Any]:
    """Returns the types of the fields of a dataclass, by name."""
    return _evaluated_hints(kind)


def _plain_field(owner: Any, name: str, arrays: dict[str, Array] | None, path: str) -> Any:
    """Returns a field in its own type, so that saving a loaded model gives equal bytes: 5 becomes 5.0 in a float."""
    value = plain(getattr(owner, name), arrays, path)
    try:
        return plain(restore(_hints_of(cast(Hashable, type(owner)))[name], value))
    except TypeError:
        return value


def restore(hint: Any, value: Any, arrays: Mapping[str, Array] | None = None, path: str = "") -> Any:
    """Returns the value of type ``hint`` that :func:`plain` made plain; raises ``TypeError`` if it does not fit.

    ``arrays`` are those that :func:`plain` moved there. Their numbers must have the type in the hint and, except in
    tables, be finite.

    >>> from astray.features.featurizer import FeaturizerConfig
    >>> restore(FeaturizerConfig, plain(FeaturizerConfig(interval=10.0))) == FeaturizerConfig(interval=10.0)
    True
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return _restore_any(inner, value, arrays, path)
    if origin is np.ndarray and value is None and arrays is not None:
        return restore_array(path, arrays, get_args(inner[1])[0])
    if hint is pl.DataFrame and isinstance(value, Mapping) and arrays is not None:
        columns = {k: restore_array(_inside(path, k), arrays, np.float64, bounded=False) for k in value}
        for name, column in columns.items():
            check_shape(_inside(path, name), column, len(next(iter(columns.values()))))
        return pl.DataFrame(columns)
    is_named = origin is None and isinstance(hint, type) and issubclass(hint, tuple)  # a NamedTuple
    if (origin is tuple or is_named) and isinstance(value, (list, tuple)):
        hints = tuple(_hints_of(hint).values()) if is_named else inner
        hints = hints[:1] * len(value) if hints[1:] == (...,) else hints
        pairs = zip(hints, value, strict=True)
        found = tuple(restore(h, v, arrays, _inside(path, i)) for i, (h, v) in enumerate(pairs))
        return hint(*found) if is_named else found
    if origin is dict and isinstance(value, Mapping):
        return {restore(inner[0], k): restore(inner[1], v, arrays, _inside(path, k)) for k, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        hints_by_name = _hints_of(cast(Hashable, hint))
        unknown = sorted(set(value) - set(hints_by_name))
        if unknown:
            raise TypeError(f"{getattr(hint, '__name__', hint)} has no field named {unknown[0]!r}")
        given = {name: restore(hints_by_name[name], v, arrays, _inside(path, name)) for name, v in value.items()}
        return hint(**given)  # type: ignore[operator]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    raise TypeError(f"{value!r} is not a value of {hint}")


def _restore_any(hints: Sequence[Any], value: Any, arrays: Mapping[str, Array] | None, path: str) -> Any:
    for hint in hints:
        try:
            return restore(hint, value, arrays, path)
        except TypeError:
            continue
    raise TypeError(f"{value!r} is not one of {', '.join(map(str, hints))}")


def restore_array(path: str, arrays: Mapping[str, Array], dtype: DTypeLike, bounded: bool = True) -> Array:
    """Returns an array of this type, whose numbers must be finite if they are ``bounded``; raises ``ValueError``."""
    if dtype is np.str_:
        return np.array(unpack_text(path, arrays), np.str_)
    if path not in arrays:
        raise ValueError(f"the array {path} is missing")
    array = arrays[path]
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"the array {path} is {array.dtype}, not {np.dtype(dtype)}")
    if bounded and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"the array {path} holds a number that is not finite")
    return array


def configured(default: T, given: T | Mapping[str, Any] | None) -> T:
    """Returns the given configuration; or, given a (nested) mapping of fields, the default with these changed.

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
