"""Imports other libraries only when they are needed, because importing takes long and some are optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from astray.core.errors import AstrayError


def library(module: str) -> Any:
    """Imports a module of another library, such as "sklearn.svm"; the error says how to install the library.

    >>> library("math").sqrt(4.0)
    2.0
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        name = {"sklearn": "scikit-learn", "pyod": "PyOD"}.get(top := module.partition(".")[0], top)
        raise AstrayError(
            f"this method needs {name}", remedy="install it with: pip install 'astray-benchmark[baselines]'"
        ) from missing
