"""Packs values and arrays into bytes: safetensors with a JSON header, versioned and checked; no pickle, no torch.

The safetensors library lays out the arrays. Their header holds one entry, ``astray``: the version of the format, the
kind of contents, their plain values, and a checksum over these and every array. Bytes that are cut, damaged or newer
than this program are refused whole. The checksum has no key: it finds accidents, not forgery.

The part "model" of every model is packed like this. A reward and the state of a watch are files of such bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import DTypeLike, NDArray

from astray.core.atomic import replacing
from astray.core.errors import ModelFileError
from astray.model.plain_values import check_offsets, check_shape, plain, restore, restore_array, unpack_text

Array = NDArray[Any]
FilePath = str | os.PathLike[str]

VERSION = 6
_ENTRY = "astray"


@dataclass(frozen=True, eq=False)
class Contents:
    """Values and arrays that were read; every access checks their type."""

    place: str
    kind: str
    values: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: str = ""  # where these values are among all; the names of their arrays begin with it

    def value(self, name: str, hint: Any) -> Any:
        """Returns a value in its original type: a number, a text, or a dataclass with its arrays."""
        if name not in self.values:
            raise self.wrong(f"{name} is missing")
        with self.fitting_together(name):
            return restore(hint, self.values[name], self.arrays, self.path + name)

    def within(self, name: str) -> Contents:
        """Returns the part of these contents that is under ``name``."""
        return replace(self, values=self.value(name, dict[str, Any]), path=f"{self.path}{name}.")

    def array(self, name: str, dtype: DTypeLike, *shape: int | None, unbounded: bool = False) -> Array:
        """Returns an array of this type and shape; None stands for any length.

        Its numbers must be finite, unless they may be ``unbounded``.
        """
        with self.fitting_together(name):
            array = restore_array(self.path + name, self.arrays, dtype, not unbounded)
            check_shape(self.path + name, array, *shape)
        return array

    def offsets(self, name: str, total: int, n: int | None = None) -> NDArray[np.int64]:
        """Returns offsets that cut ``total`` rows into pieces: ``n`` pieces, if that is given."""
        offsets = self.array(name, np.int64, None if n is None else n + 1)
        with self.fitting_together(name):
            check_offsets(self.path + name, offsets, total)
        return offsets

    def text(self, name: str, n: int | None = None) -> list[str]:
        """Returns the texts that :func:`pack_text` packed: ``n`` of them, if that is given."""
        with self.fitting_together(name):
            texts = unpack_text(self.path + name, self.arrays)
            if n not in (None, len(texts)):
                raise ValueError(f"there are {len(texts)} texts, not {n}")
        return texts

    def wrong(self, what: str) -> ModelFileError:
        """Returns an error that says what is wrong with these contents."""
        return damaged(self.place, what)

    @contextmanager
    def fitting_together(self, what: str = "") -> Iterator[None]:
        """Raises a ModelFileError if the block, which builds an object from the contents, finds them inconsistent."""
        try:
            yield
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            # The checksum matched, so somebody wrote this on purpose.
            raise self.wrong(f"{what}: {error}" if what else f"its parts do not fit together ({error})") from error


# -------------------------------------------------------------------- refusals


def damaged(place: FilePath, what: str) -> ModelFileError:
    """Returns an error that says what is wrong with a file or a store."""
    remedy = "it is damaged or was not written by astray: save the model again"
    return ModelFileError(what, place=str(place), remedy=remedy)


def not_whole(place: FilePath, error: object) -> ModelFileError:
    """Returns an error for a file that could not be read to its end."""
    remedy = "copy it again, or fit and save the model again"
    return ModelFileError(f"not a whole model file ({error})", place=str(place), remedy=remedy)


def not_a_model(place: FilePath, what: str = "not a model of astray") -> ModelFileError:
    """Returns an error for a file of another kind."""
    return ModelFileError(what, place=str(place), remedy="give a file that astray fit has written")


def too_new(place: FilePath, version: int, known: int) -> ModelFileError:
    """Returns an error for a format that only a newer astray knows."""
    reason = f"written in version {version} of the format, this astray reads up to {known}"
    return ModelFileError(reason, place=str(place), remedy="upgrade astray")


def outdated(place: FilePath) -> ModelFileError:
    """Returns an error for a model of an earlier astray."""
    reason = "written by astray 0.2 or earlier, whose models this version cannot read"
    return ModelFileError(reason, place=str(place), remedy="fit the model again with astray fit")


def not_saved(place: FilePath, error: Exception) -> ModelFileError:
    """Returns an error for a file that could not be written."""
    return ModelFileError(
        f"the model was not saved ({getattr(error, 'strerror', None) or error})",
        place=str(place),
        remedy="make room or choose another place, and save again; an older file of that name is untouched",
    )


def refuse_folder(path: Path) -> None:
    """Raises a ModelFileError if a model would be written where a folder is."""
    if path.is_dir():
        raise ModelFileError("a folder where a file was expected", place=path, remedy="name the model's file")


def check_readable(path: Path) -> None:
    """Raises a ModelFileError for a path that names no regular file."""
    if path.is_dir():
        raise ModelFileError("a folder where a model file was expected", place=path, remedy="name the file")
    if not path.exists():
        raise ModelFileError("there is no such file", place=path, remedy="check the path")
    if not path.is_file():  # reading from a pipe could wait for ever
        reason = "a pipe or a device, which cannot be read twice"
        raise ModelFileError(reason, place=path, remedy="write it to a file first")


# -------------------------------------------------------------------- bytes


def pack(
    kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array] | None = None, place: FilePath = "model"
) -> bytes:
    """Returns values, with the arrays in them, and further arrays as bytes; equal contents give equal bytes.

    >>> found = unpack(pack("toy", {"n": 3, "inside": {"a": np.arange(2.0)}}), "toy")
    >>> found.kind, found.value("n", int), found.within("inside").array("a", np.float64, 2).tolist()
    ('toy', 3, [0.0, 1.0])
    """
    every = dict(arrays or {})
    head = {"version": VERSION, "kind": kind, "values": plain(values, every)}
    native = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("=")).reshape(a.shape) for name, a in every.items()}
    try:
        signed = _canonical(head | {"checksum": _checksum(head, native)})
    except ValueError as error:
        reason = "the model holds a number that is not finite, and was not saved"
        raise ModelFileError(reason, place=str(place), remedy="fit it again") from error
    return safetensors.numpy.save(native, {_ENTRY: signed})


def unpack(data: bytes, place: FilePath) -> Contents:
    """Returns the contents that :func:`pack` packed, checked against their checksum; ``place`` is for messages."""
    try:
        metadata = _field(_header(data).get("__metadata__", {}), dict)
        if _ENTRY not in metadata:
            raise not_a_model(place, "a safetensors file, but not a model of astray")
        head = _strict_json(_field(metadata[_ENTRY], str))
        _check_version(place, head)
        arrays = safetensors.numpy.load(data)
    except (LookupError, ValueError, OverflowError, RecursionError, safetensors.SafetensorError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise not_whole(place, error) from error
    checksum = head.pop("checksum", None)
    contents = Contents(str(place), str(head.get("kind")), head.get("values", {}), arrays)
    if not isinstance(contents.values, dict):
        raise contents.wrong("its values are not a mapping")
    if checksum != _checksum(head, arrays):
        raise contents.wrong("its contents do not match their checksum")
    return contents


def _header(data: bytes) -> dict[str, Any]:
    """Returns the header. The library reads it only from files on a disk, and accepts duplicate names."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= len(data) - 8:
        raise ValueError("it ends before its header does")
    header: dict[str, Any] = _field(_strict_json(data[8 : 8 + size]), dict)
    return header


def _checksum(head: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.blake2b(_canonical(head).encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {(array.dtype.name, list(array.shape), array.nbytes)}".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _strict_json(text: str | bytes) -> Any:
    """Parses JSON, and refuses NaN, infinities and a name that occurs twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("its header has a name twice")
        return dict(pairs)

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):  # NaN, Infinity, or a number so large that it would become infinite
            raise ValueError(f"its header holds {number[:40]}")
        return float(number)

    return json.loads(text, object_pairs_hook=once, parse_constant=finite, parse_float=finite)


def _field(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"its header has {type(value).__name__} where {kind.__name__} belongs")
    return value


def _check_version(place: FilePath, head: Any) -> None:
    version = head.get("version") if isinstance(head, dict) else None
    if not isinstance(version, int) or version < 1:
        reason = "the file does not say which version of the format it has"
        raise ModelFileError(reason, place=str(place), remedy="save the model again")
    if version < VERSION:
        raise outdated(place)
    if version > VERSION:
        raise too_new(place, version, VERSION)


# -------------------------------------------------------------------- files


def write(path: FilePath, kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
    """Writes values, with the arrays in them, and further arrays to a file, whole or not at all."""
    target = Path(path)
    data = pack(kind, values, arrays, target)
    refuse_folder(target)
    try:
        with replacing(target) as file:
            file.write(data)
    except OSError as error:
        raise not_saved(target, error) from error


def read(path: FilePath) -> Contents:
    """Reads a file that :func:`write` wrote."""
    source = Path(path)
    check_readable(source)
    try:
        data = source.read_bytes()
    except OSError as error:
        raise not_whole(source, error) from error
    return unpack(data, source)
