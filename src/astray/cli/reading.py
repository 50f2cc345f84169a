"""From a FILE argument and settings to trajectories: all at once, or in batches where the file is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from astray.cli.console import counted, progress, say_left_out
from astray.detectors.agent import IRLDetector
from astray.detectors.fleet import FleetDetector
from astray.errors import DataError, Place
from astray.fixes import candidates
from astray.readers import Report, iter_read, read, recognise
from astray.readers.columns import recognised
from astray.readers.delimited import sniff
from astray.readers.table import is_parquet, parquet_schema
from astray.scoring.scores import chunks
from astray.settings import Settings
from astray.trajectories import Trajectories

STREAMED_BYTES = 32 << 20
"""Files larger than this are streamed, which needs the rows of a trip to stand together; smaller ones are loaded."""

BATCH_ROWS = 250_000

NAMED = 5
"""Agents of a file that are named, at most, where one is not among them."""

Batch = tuple[Trajectories, float]
"""Some trips, and which share of the file had been read when they came."""


@dataclass
class Source:
    """A file of trips, or those of one agent in it, as the settings say; what was left out is in ``report``.

    Where the file does not say whose trips they are, they are of ``owner``, if there is one, and not of an agent with
    the file's name.
    """

    path: Path
    settings: Settings
    agent: str | None = None
    owner: str | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        if self.agent is not None and self.agent != self.owner:
            self.owner = None  # the agent that is asked for is another one, perhaps by the file's name

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the reader is told beside the path."""
        s = self.settings
        told: dict[str, Any] = dict(s.columns or {}) | s.given(["time_unit", "time_zone", "users", "cache"])
        told |= {name: _value(name, text) for name, text in (s.read or {}).items()}
        if self.owner is not None and self.kind in ("gpx", "geojson", "jsonlines"):
            told.setdefault("agent", self.owner)  # there the option says whose tracks those are that do not say it
        return told

    @cached_property
    def kind(self) -> str:
        """The format: the one that was named, or the one that is recognised."""
        named = self.settings.format
        if named is None:
            # Who gives the names of the columns knows that it is a table without a header line.
            return "table" if "names" in (self.settings.read or {}) else recognise(self.path)
        return {"csv": "table", "parquet": "table"}.get(named, named)

    @cached_property
    def is_owned(self) -> bool:
        """Whether this is a table without a column for agents, all trips of which are the owner's."""
        if self.owner is None or self.kind != "table" or self.path.is_dir() or "agent" in self.options:
            return False
        if is_parquet(self.path):
            names: Sequence[str] = parquet_schema(self.path).names()
        else:
            written = {name: self.options.get(name) for name in ("delimiter", "encoding", "names")}
            names = sniff(self.path, recognised, **written).names
        return "agent" not in candidates(names)

    @cached_property
    def is_streamed(self) -> bool:
        """Whether the file is too large to be loaded, and of a format that can be streamed."""
        if self.settings.whole or self.path.is_dir() or "names" in self.options:
            return False
        return self.kind in ("table", "porto") and self.path.stat().st_size > STREAMED_BYTES

    def load(self) -> Trajectories:
        """Everything."""
        with progress(f"reading {self.path}", quiet=self.settings.quiet) as done:
            trips = read(
                self.path,
                self.settings.format,
                skip_bad=self.settings.skip_bad,
                report=self.report,
                progress=counted(done),
                trips=self.settings.trips,
                **self.options,
            )
        trips = self._attributed(trips)
        mine = self._asked_for(trips)
        if not len(mine):
            raise self._empty(trips.agents)
        return mine

    def batches(self) -> Iterator[Batch]:
        """Everything in order, some trips at a time: streamed where the file is large, else loaded and cut."""
        return self._streamed(BATCH_ROWS) if self.is_streamed else cut(self.load(), BATCH_ROWS)

    def _streamed(self, rows: int) -> Iterator[Batch]:
        share = 0.0
        others: dict[str, None] | None = {}  # as long as nobody was found who is asked for

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
            trips=self.settings.trips,
            **self.options,
        ):
            trips = self._attributed(batch)
            mine = self._asked_for(trips)
            if len(mine):
                others = None
                yield mine, share
            elif others is not None:
                others |= dict.fromkeys(trips.agents)
        if others is not None:
            raise self._empty(list(others))

    def _asked_for(self, trips: Trajectories) -> Trajectories:
        return trips if self.agent is None else trips[trips.agent_ids == self.agent]

    def _empty(self, agents: Sequence[str]) -> DataError:
        """What is wrong where nothing is left, though there are trips of these agents."""
        if not agents:
            remedy = "look at the file, and at the options"
            return DataError("no trip in it can be used", place=Place(str(self.path)), remedy=remedy)
        rest = f" and {len(agents) - NAMED:,} more" if len(agents) > NAMED else ""
        there = f"there are {', '.join(agents[:NAMED])}{rest}"
        return DataError(f"no trip of agent {self.agent!r}", place=Place(str(self.path)), remedy=there)

    def _attributed(self, trips: Trajectories) -> Trajectories:
        if self.owner is None or not self.is_owned:
            return trips
        owners = [self.owner] * len(trips)
        return Trajectories(trips.columns, trips.offsets, owners, trips.trajectory_ids, trips.context)

    def say_left_out(self) -> None:
        """Say on standard error what was left out and supposed."""
        say_left_out(self.report, quiet=self.settings.quiet)


def only_agent(detector: IRLDetector | FleetDetector) -> str | None:
    """Whose model it is, if it is of one agent."""
    alone = not isinstance(detector, FleetDetector) and len(detector.agents) == 1
    return detector.agents[0] if alone else None


def cut(trips: Trajectories, rows: int) -> Iterator[Batch]:
    """Trips that are loaded, some at a time."""
    for chunk in chunks(trips.lengths, rows):
        yield trips[chunk], chunk.stop / len(trips)


def _value(name: str, text: str) -> Any:
    """The value of a reader's option that was given as text."""
    if name in ("names", "context", "columns"):
        return [part.strip() for part in text.split(":")]
    return {"true": True, "false": False}.get(text.lower(), text)
