"""From a FILE argument and settings to trajectories: all at once, or in batches where the file is large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from astray.cli.console import counted, progress, say_left_out
from astray.detectors.scoring import chunks
from astray.readers import Report, iter_read, read, recognise
from astray.settings import Settings
from astray.trajectories import Trajectories

STREAMED_BYTES = 32 << 20
"""Files larger than this are streamed, which needs the rows of a trip to stand together; smaller ones are loaded."""

BATCH_ROWS = 250_000

Batch = tuple[Trajectories, float]
"""Some trips, and which share of the file had been read when they came."""


@dataclass
class Source:
    """A file of trips, or those of one agent in it, as the settings say; what was left out is in ``report``."""

    path: Path
    settings: Settings
    agent: str | None = None
    report: Report = field(default_factory=Report)

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the reader is told beside the path."""
        s = self.settings
        told: dict[str, Any] = dict(s.columns or {}) | s.given(["time_unit", "time_zone", "users", "cache"])
        return told | {name: _value(name, text) for name, text in (s.read or {}).items()}

    @cached_property
    def is_streamed(self) -> bool:
        """Whether the file is too large to be loaded, and of a format that can be streamed."""
        if self.settings.whole or self.path.is_dir() or "names" in self.options:
            return False
        kind = self.settings.format or recognise(self.path)
        return kind in ("table", "csv", "parquet", "porto") and self.path.stat().st_size > STREAMED_BYTES

    def load(self) -> Trajectories:
        """Everything."""
        with progress(f"reading {self.path}", quiet=self.settings.quiet) as done:
            trips = read(
                self.path,
                self.settings.format,
                skip_bad=self.settings.skip_bad,
                report=self.report,
                progress=counted(done),
                **self.options,
            )
        return trips if self.agent is None else trips.agent(self.agent)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Everything in order, some trips at a time: streamed where the file is large, else loaded and cut."""
        return self._streamed(rows) if self.is_streamed else cut(self.load(), rows)

    def _streamed(self, rows: int) -> Iterator[Batch]:
        share = 0.0

        def note(done: int, total: int) -> None:
            nonlocal share
            share = done / total if total else 1.0

        for batch in iter_read(
            self.path,
            rows,
            self.settings.format,
            skip_bad=self.settings.skip_bad,
            report=self.report,
            progress=note,
            **self.options,
        ):
            mine = batch if self.agent is None else batch[batch.agent_ids == self.agent]
            if len(mine):
                yield mine, share

    def say_left_out(self) -> None:
        """Say on standard error what was left out and supposed."""
        say_left_out(self.report, quiet=self.settings.quiet)


def cut(trips: Trajectories, rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Trips that are loaded, some at a time."""
    for chunk in chunks(trips.lengths, rows):
        yield trips[chunk], chunk.stop / len(trips)


def _value(name: str, text: str) -> Any:
    """The value of a reader's option that was given as text."""
    if name in ("names", "context", "columns"):
        return [part.strip() for part in text.split(":")]
    return {"true": True, "false": False}.get(text.lower(), text)
