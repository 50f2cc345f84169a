"""What astray says when it refuses: every error names the place and the remedy."""

from __future__ import annotations


class AstrayError(Exception):
    """The base of every error that astray raises on purpose."""


class DataError(AstrayError, ValueError):
    """The data given cannot be used; the text says where it is wrong and what to do."""


class TrainingError(AstrayError, RuntimeError):
    """Learning broke down (a loss that is not a number, a reward that explodes); the previous model stands."""


class NotFittedError(AstrayError, AttributeError):
    """A result was asked of something that has not been fitted yet."""


class ModelFileError(AstrayError, ValueError):
    """A model file cannot be read or written; the text says why, and an older file of that name is untouched."""
