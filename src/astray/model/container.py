"""The model file: one safetensors file, arrays and a JSON header, versioned and checked; no pickle, no torch.

The header holds one entry, ``astray``: the format's version, the kind of model, its plain values, and a checksum over
these and every array. A file that is cut, damaged or newer than this program is refused whole. The checksum has no key:
it tells accidents, not intent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from astray.core.atomic import replacing
from astray.core.errors import ModelFileError
from astray.model.values import plain, restore

Array = NDArray[Any]
FilePath = str | os.PathLike[str]
T = TypeVar("T")

VERSION = 5  # 4: a reward of whole trips; the memory counts cells of the earth, which earlier files do not hold
# 5: the names of trips in two parts, agent and trajectory, which version 4 glued
OLDEST = 4
_ENTRY = "astray"
_CODES = {
    "float64": "F64",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "int32": "I32",
    "uint32": "U32",
    "int8": "I8",
    "uint8": "U8",
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The contents of a model file, as read; every look into it is checked."""

    path: Path
    kind: str
    values: Mapping[str, Any]
    arrays: Mapping[str, Array]

    def value(self, name: str, hint: Any) -> Any:
        """A plain value, made into what it was: a number, a text, a configuration."""
        if name not in self.values:
            raise self.wrong(f"{name} is missing")
        try:
            return restore(hint, self.values[name])
        except (TypeError, ValueError) as error:
            raise self.wrong(f"{name}: {error}") from error

    def within(self, name: str) -> ModelFile:
        """The same file, with the values that stand under ``name``."""
        return replace(self, values=self.value(name, dict[str, Any]))

    def array(
        self, name: str, dtype: DTypeLike, *shape: int | None, gaps: bool = False, unbounded: bool = False
    ) -> Array:
        """An array of this type and shape; None for a length that may be anything.

        Its numbers must be finite; with ``gaps`` they may be NaN, and ``unbounded`` they may be infinite, too.
        """
        if name not in self.arrays:
            raise self.wrong(f"the array {name} is missing")
        array = self.arrays[name]
        fits = len(shape) == array.ndim and all(s in (None, n) for s, n in zip(shape, array.shape, strict=True))
        if array.dtype != np.dtype(dtype) or not fits:
            wanted = "x".join("n" if s is None else str(s) for s in shape)
            raise self.wrong(
                f"the array {name} is {array.dtype} of shape {array.shape}, not {np.dtype(dtype)} {wanted}"
            )
        if array.dtype.kind == "f" and not unbounded and not (np.isfinite(array) | (gaps & np.isnan(array))).all():
            raise self.wrong(f"the array {name} holds a number that is not finite")
        return array

    def offsets(self, name: str, total: int, n: int | None = None) -> NDArray[np.int64]:
        """Offsets that cut ``total`` rows into pieces (``n`` of them, where that is known)."""
        offsets = self.array(name, np.int64, None if n is None else n + 1)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != total or (np.diff(offsets) < 0).any():
            raise self.wrong(f"the offsets {name} do not cut {total} rows")
        return offsets

    def text(self, name: str, n: int | None = None) -> list[str]:
        """Texts that :func:`pack_text` packed."""
        letters = self.array(f"{name}.utf8", np.uint8, None)
        offsets = self.offsets(f"{name}.ends", len(letters), n).tolist()
        try:
            whole = letters.tobytes()
            return [whole[a:b].decode() for a, b in pairwise(offsets)]
        except UnicodeDecodeError as error:
            raise self.wrong(f"{name} is not text") from error

    def wrong(self, what: str) -> ModelFileError:
        """An error that says what is wrong with this file."""
        return damaged(self.path, what)

    @contextmanager
    def fitting_together(self) -> Iterator[None]:
        """Refuse the file if what is made of it inside the block shows that its parts do not fit together."""
        try:
            yield
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            # The checksum held, so somebody wrote this on purpose, or an older astray did.
            raise self.wrong(f"its parts do not fit together ({error})") from error


def pack_text(name: str, texts: Sequence[str]) -> dict[str, Array]:
    """Texts as two arrays: their letters, and where each ends."""
    encoded = [t.encode() for t in texts]
    return {
        f"{name}.utf8": np.frombuffer(b"".join(encoded), np.uint8),
        f"{name}.ends": np.cumsum([0, *(len(e) for e in encoded)], dtype=np.int64),
    }


# -------------------------------------------------------------------- refusals, also of a fleet's file


def damaged(path: Path, what: str) -> ModelFileError:
    """What is wrong with a file."""
    remedy = "it is damaged or was not written by astray: save the model again"
    return ModelFileError(what, place=path, remedy=remedy)


def not_whole(path: Path, error: Exception) -> ModelFileError:
    """A file that could not be read to its end."""
    remedy = "copy it again, or fit and save the model again"
    return ModelFileError(f"not a whole model file ({error})", place=path, remedy=remedy)


def too_new(path: Path, version: int, known: int) -> ModelFileError:
    """A file of a version that is not known yet."""
    reason = f"written in version {version} of the format, this astray reads up to {known}"
    return ModelFileError(reason, place=path, remedy="upgrade astray")


def not_saved(path: Path, error: Exception) -> ModelFileError:
    """A model that could not be written."""
    return ModelFileError(
        f"the model was not saved ({getattr(error, 'strerror', None) or error})",
        place=path,
        remedy="make room or choose another place, and save again; an older file of that name is untouched",
    )


def refuse_folder(path: Path) -> None:
    """Refuse to write a model where a folder is."""
    if path.is_dir():
        raise ModelFileError("a folder where a file was expected", place=path, remedy="name the model's file")


# -------------------------------------------------------------------- writing


def write(path: FilePath, kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array | Sequence[Array]]) -> None:
    """Write a model file, whole or not at all.

    An array may be given in parts, which the file holds one after the other: a large model is not copied to be saved.
    Equal contents give equal bytes.
    """
    target = Path(path)
    pieces = packed(kind, values, arrays, target)
    refuse_folder(target)
    try:
        with replacing(target) as file:
            for piece in pieces:
                file.write(piece)
    except OSError as error:
        raise not_saved(target, error) from error


def packed(
    kind: str, values: Mapping[str, Any], arrays: Mapping[str, Array | Sequence[Array]], target: Path = Path("model")
) -> list[bytes | memoryview]:
    """The bytes of a model file, one piece after the other."""
    parts = {name: _parts(given) for name, given in arrays.items()}
    # The widest types first, as readers that map the file into memory want their arrays aligned.
    order = sorted(parts, key=lambda name: (-parts[name][0].itemsize, name))
    entries: dict[str, Any] = {}
    at = 0
    for name in order:
        dtype, shape, size = _describe(parts[name])
        entries[name] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = {"version": VERSION, "kind": kind, "values": plain(values)}
    try:
        signed = head | {"checksum": _checksum(head, parts)}
    except ValueError as error:
        reason = "the model holds a number that is not finite, and was not saved"
        raise ModelFileError(reason, place=target, remedy="fit it again") from error
    header = json.dumps({"__metadata__": {_ENTRY: _canonical(signed)}, **entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return [len(header).to_bytes(8, "little"), header, *(_bytes(part) for name in order for part in parts[name])]


def _parts(given: Array | Sequence[Array]) -> list[Array]:
    arrays = [given] if isinstance(given, np.ndarray) else list(given)
    # The format is little-endian.
    return [np.ascontiguousarray(a, a.dtype.newbyteorder("<")).reshape(a.shape) for a in arrays]


def _describe(parts: Sequence[Array]) -> tuple[str, list[int], int]:
    first = parts[0]
    if any(p.dtype != first.dtype or p.shape[1:] != first.shape[1:] for p in parts):
        raise ModelFileError(
            "the parts of one array differ in type or width", remedy="save arrays of one type and width"
        )
    shape = list(first.shape) if len(parts) == 1 else [sum(len(p) for p in parts), *first.shape[1:]]
    return first.dtype.name, shape, sum(p.nbytes for p in parts)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _checksum(head: Mapping[str, Any], parts: Mapping[str, Sequence[Array]]) -> str:
    digest = hashlib.blake2b(_canonical(head).encode(), digest_size=16)
    for name in sorted(parts):
        digest.update(f"{name} {_describe(parts[name])}".encode())
        for part in parts[name]:
            digest.update(_bytes(part))
    return digest.hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# -------------------------------------------------------------------- reading


def read(path: FilePath) -> ModelFile:
    """Read a model file whole, and check it against its checksum.

    Each array is read straight into its place: opening a model takes no more memory than the model itself.
    """
    source = Path(path)
    if source.is_dir():
        raise ModelFileError("a folder where a model file was expected", place=source, remedy="name the file")
    if source.exists() and not source.is_file():  # to wait for what comes out of a pipe may take for ever
        reason = "a pipe or a device, which cannot be read twice"
        raise ModelFileError(reason, place=source, remedy="write it to a file first")
    try:
        with source.open("rb") as file:
            return parse(file, os.fstat(file.fileno()).st_size, source)
    except FileNotFoundError as error:
        raise ModelFileError("there is no such file", place=source, remedy="check the path") from error
    except OSError as error:
        raise not_whole(source, error) from error


def parse(file: BinaryIO, size: int, source: Path) -> ModelFile:
    """The model in an open file of so many bytes."""
    try:
        header = _header(file, size)
        entry = _field(header.pop("__metadata__", {}), dict).get(_ENTRY)
        if entry is None:
            reason = "a safetensors file, but not a model of astray"
            raise ModelFileError(reason, place=source, remedy="give a file that astray fit has written")
        head = _plain_json(_field(entry, str))
        _check_version(source, head)
        arrays = _arrays(file, size - file.tell(), header)
    except (ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise not_whole(source, error) from error
    checksum = head.pop("checksum", None)
    model = ModelFile(source, str(head.get("kind")), head.get("values", {}), arrays)
    if not isinstance(model.values, dict):
        raise model.wrong("its values are not a mapping")
    if checksum != _checksum(head, {name: [array] for name, array in arrays.items()}):
        raise model.wrong("its contents do not match their checksum")
    return model


def _plain_json(text: str | bytes) -> Any:
    """JSON without NaN and infinities, which it does not have, and with every name once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("its header has a name twice")
        return dict(pairs)

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):  # NaN, Infinity, or too large a number, which would be read as infinite
            raise ValueError(f"its header holds {number[:40]}")
        return float(number)

    return json.loads(text, object_pairs_hook=once, parse_constant=finite, parse_float=finite)


def _header(file: BinaryIO, whole: int) -> dict[str, Any]:
    """The header of a safetensors file: the arrays by name, and ``__metadata__``."""
    size = int.from_bytes(file.read(8), "little")
    if not 0 < size <= whole - 8:
        raise ValueError("it ends before its header does")
    return _field(_plain_json(file.read(size)), dict)


def _arrays(file: BinaryIO, left: int, entries: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays that a header speaks of: they follow it one after the other, up to the end of the file."""
    arrays: dict[str, Array] = {}
    at = 0
    places = {name: _integers(_field(entry, dict).get("data_offsets")) for name, entry in entries.items()}
    for name in sorted(places, key=places.__getitem__):
        dtype = _DTYPES.get(_field(entries[name].get("dtype"), str))
        shape = _integers(entries[name].get("shape"))
        if dtype is None or min(shape, default=0) < 0:
            raise ValueError(f"the array {name} has no type or shape that is known")
        size = dtype.itemsize * math.prod(shape)
        if places[name] != [at, at + size] or at + size > left:
            raise ValueError(f"the array {name} is not where it should be")
        arrays[name] = np.empty(shape, dtype)
        if file.readinto(_bytes(arrays[name])) != size:  # type: ignore[attr-defined]
            raise ValueError(f"it ends within the array {name}")
        at += size
    if at != left:
        raise ValueError("it goes on after its last array")
    return arrays


def _integers(value: Any) -> list[int]:
    return [_field(n, int) for n in _field(value, list)]


def _field(value: Any, kind: type[T]) -> T:
    """A value of the header, if it is of this kind."""
    if type(value) is not kind:
        raise ValueError(f"a {kind.__name__} was expected in its header, not {type(value).__name__}")
    return value


def _check_version(path: Path, head: Any) -> None:
    version = head.get("version") if isinstance(head, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ModelFileError(
            "the file does not say which version of the format it has", place=path, remedy="save the model again"
        )
    if version < OLDEST:
        raise ModelFileError(
            "written by an earlier astray, whose models this one cannot use", place=path, remedy="fit the model again"
        )
    if version > VERSION:
        raise too_new(path, version, VERSION)
