"""``astray benchmark``: the command itself lives beside the protocols."""

from astray.benchmark.command import command

__all__ = ["command"]
