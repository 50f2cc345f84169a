"""Imports optional packages, or raises an error that names the extra of astray that installs them."""

from __future__ import annotations

import importlib
import importlib.util

from astray.core.errors import MissingPackageError, Remedy, joined


def require_extra(extra: str, purpose: str, *packages: str, otherwise: Remedy = "") -> None:
    """Imports the packages of an extra, or raises an error that says how to install them.

    ``purpose`` is the subject of the message; ``otherwise`` is a second remedy that works without the packages.

    >>> require_extra("learn", "learning a reward", "no_such_package")
    Traceback (most recent call last):
    ...
    astray.core.errors.MissingPackageError: learning a reward needs no_such_package; pip install 'astray[learn]'
    """
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            install = f"pip install 'astray[{extra}]'"
            remedy = joined(install, ", or ", otherwise) if otherwise else install
            raise MissingPackageError(f"{purpose} needs {error.name or package}", remedy=remedy) from error


def can_learn() -> bool:
    """Returns True if torch is installed, which learning a reward needs; scoring does not."""
    return importlib.util.find_spec("torch") is not None
