"""Limits libraries to one thread, so that results do not depend on the number of cores.

A library that multiplies matrices on several threads adds the numbers in a different order. The matrices here are
small, so more threads would also be slower. :mod:`astray.core.processes` spreads work over processes instead.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class _Library(NamedTuple):
    """A library that may work on several threads."""

    get: Callable[[], int]
    set: Callable[[int], object]
    is_shared: bool  # True: one setting for the process; False: one for each calling thread


_lock = threading.Lock()
_inside = 0
_before: list[tuple[_Library, int]] = []  # the threads of shared libraries before the first block began


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits numpy and, if it is loaded, torch to one thread inside the block; restores their limits afterwards.

    A limit that applies to the whole process is restored when the last such block ends.
    """
    global _inside
    with _lock:
        found = [(library, library.get()) for library in (*_numpy_libraries(), *_torch_libraries())]
        if not _inside:
            _before[:] = [(library, n) for library, n in found if library.is_shared]
        _inside += 1
        for library, _ in found:
            library.set(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            own = [(library, n) for library, n in found if not library.is_shared]
            for library, n in own if _inside else [*own, *_before]:
                library.set(n)


@cache
def _numpy_libraries() -> tuple[_Library, ...]:
    import numpy  # noqa: F401  (only loaded libraries are found)

    return tuple(
        _Library(
            library.get_num_threads,
            # threadpoolctl lets only the first thread change a shared number; here all threads want the same.
            getattr(library, "_real_set_num_threads", library.set_num_threads),
            library.internal_api != "mkl" and getattr(library, "threading_layer", "") != "openmp",
        )
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
    )


def _torch_libraries() -> tuple[_Library, ...]:
    torch = sys.modules.get("torch")
    return () if torch is None else (_Library(torch.get_num_threads, torch.set_num_threads, is_shared=False),)
