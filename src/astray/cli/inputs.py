"""From a FILE argument and settings to trajectories: all at once, or in batches where the file is large."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from astray.cli.console import progress, say_left_out, without_panics
from astray.core.atomic import keep_from
from astray.core.errors import AstrayError, DataError, Option, some_names
from astray.core.settings import TABLES, Settings
from astray.core.trajectories import Trajectories
from astray.core.zones import Zone, home_of
from astray.detector import Detector
from astray.jobs.slabs import Batch
from astray.readers import Report, iter_read, read, recognised_formats
from astray.readers.compression import is_compressed, size_of
from astray.readers.formats import format_by_suffix
from astray.readers.input_files import expand_patterns
from astray.scoring.scores import chunks

STREAMED_BYTES = 32 << 20
"""Files larger than this are streamed, which needs the rows of a trip to stand together; smaller ones are loaded."""

BATCH_ROWS = 250_000
"""Fixes of a streamed file that are read at a time."""

LOADED_ROWS = 100_000
"""Fixes of a loaded file that are worked on at a time, whatever the number of workers: scores do not depend on it."""

FEW_ROWS = 400_000
"""Fewer fixes than this are scored before worker processes would have begun."""

PARQUET = (".parquet", ".pq")


@dataclass
class Source:
    """Files of trips, or those of one agent in them, as the settings say; what was left out is in ``report``.

    What a file says about whose trips they are wins, always. Trips that are named only after one file or folder are of
    ``agent``, if one is asked for, or else of ``owner``, the one agent that a model is of; that is said.
    """

    path: Path | Sequence[Path]
    settings: Settings
    agent: str | None = None
    owner: str | None = None
    one_agent: bool = False  # whether fixes that name no agent are meant to be one agent's
    zone: str | None = None  # of times that name none, unless the settings say another one: the model's
    report: Report = field(default_factory=Report)

    @classmethod
    def of(
        cls,
        path: Path | Sequence[Path],
        settings: Settings,
        detector: Detector,
        agent: str | None = None,
    ) -> Source:
        """Trips for a model; what they do not say of themselves is as the model has it."""
        return cls(path, settings, agent, only_agent(detector), zone=detector.time_zone)

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return some_names([str(path) for path in ([self.path] if isinstance(self.path, Path) else self.path)], 1)

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the reader is told beside the path."""
        settings = self.settings
        told: dict[str, Any] = dict(settings.columns or {}) | settings.given(["time_unit", "users", "cache"])
        zone = settings.time_zone or self.zone
        if zone is not None and not set(self.formats) <= {"geolife", "porto"}:  # whose times are in UTC
            told["time_zone"] = zone
        told |= {name: _value(name, text) for name, text in (settings.read or {}).items()}
        if (self.agent is not None or self.one_agent) and "table" in self.formats:
            told.setdefault("one_agent", True)
        return told

    @cached_property
    def formats(self) -> list[str]:
        """The format that was named, or those that are recognised."""
        named = self.settings.format
        if named is None:
            # Who gives the names of the columns knows that it is a table without a header line.
            return ["table"] if "names" in (self.settings.read or {}) else recognised_formats(self.path)
        return ["table" if named in TABLES else named]

    @property
    def is_streamed(self) -> bool:
        """Whether what is to be read is too large to be loaded, and of a format that can be streamed."""
        return bool(self._streamed_files)

    @cached_property
    def _streamed_files(self) -> list[Path]:
        """What is streamed: one file, or several of Parquet, each by itself; none if everything is loaded."""
        if self.settings.whole or "names" in self.options or self.formats not in (["table"], ["porto"]):
            return []
        paths, files = expand_patterns(self.path), self.files
        parquet = all(file.suffix.lower() in PARQUET for file in files)
        if not all(file.is_file() for file in files) or not (parquet or (len(files) == 1 and files == paths)):
            return []
        total = sum(size_of(file) if is_compressed(file) else file.stat().st_size for file in files)
        return files if total > STREAMED_BYTES else []

    def _told(self, done: Callable[[float], None]) -> dict[str, Any]:
        """All that the reader is told, and what it tells how far it is."""
        settings = self.settings
        told = {"format": settings.format, "skip_bad": settings.skip_bad, "trips": settings.trips} | self.options
        return told | {"report": self.report, "progress": lambda n, total: done(n / total if total else 1.0)}

    def load(self) -> Trajectories:
        """Everything."""
        with progress(f"reading {self.name}", quiet=self.settings.quiet) as done, without_panics():
            trips = self._attributed(read(self.path, **self._told(done)))
        mine = self._asked_for(trips)
        if not len(mine):
            raise self._empty(trips.agents)
        return mine

    def batches(self) -> Iterator[Batch]:
        """Everything in order, some trips at a time: streamed where the file is large, else loaded and cut."""
        return self.weighed()[0]

    def weighed(self) -> tuple[Iterator[Batch], bool]:
        """The batches, and whether they are so little that no other process would have begun before they are done."""
        if self.is_streamed:
            return self._streamed(BATCH_ROWS), False
        loaded = self.load()
        return cut(loaded, LOADED_ROWS), loaded.n_rows < FEW_ROWS

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [
            file for path in expand_patterns(self.path) for file in (_files_below(path) if path.is_dir() else [path])
        ]

    def _streamed(self, rows: int) -> Iterator[Batch]:
        shares = deque([0.0], maxlen=1)
        others: dict[str, None] | None = {}  # as long as nobody was found who is asked for
        sizes = {file: file.stat().st_size for file in self._streamed_files}
        whole, before = max(sum(sizes.values()), 1), 0
        for file, size in sizes.items():
            for batch in _without_panics(iter_read(file, rows, **self._told(shares.append))):
                trips = self._attributed(batch)
                mine = self._asked_for(trips)
                if len(mine):
                    others = None
                    yield mine, (before + size * shares[-1]) / whole
                elif others is not None:
                    others |= dict.fromkeys(trips.agents)
            before += size
            shares.append(0.0)
        if others is not None:
            raise self._empty(list(others))

    def _asked_for(self, trips: Trajectories) -> Trajectories:
        return trips if self.agent is None else trips[trips.agent_ids == self.agent]

    def _empty(self, agents: Sequence[str]) -> DataError:
        """What is wrong where nothing is left, though there are trips of these agents."""
        if not agents:
            remedy = "look at the file, and at the options"
            return DataError("no trip in it can be used", place=self.name, remedy=remedy)
        there = f"there are {some_names(agents)}"
        return DataError(f"no trip of agent {self.agent!r}", place=self.name, remedy=there)

    def _attributed(self, trips: Trajectories) -> Trajectories:
        """The trips, with the agent that is asked for if nothing says whose they are."""
        owner = self.agent or self.owner
        after = self.report.named_after
        if owner is None or len(after) != 1 or trips.agents != list(after) or trips.agents == [owner]:
            return trips
        chosen = self.agent is not None or self.one_agent  # by --agent, not by the model
        why = "" if chosen else ", the agent of this model"
        reason = f"it does not say whose trips these are, so they are taken as trips of {owner}{why}"
        self.report.assume(self.name, reason, "" if chosen else "name another agent with --agent NAME")
        owners = [owner] * len(trips)
        return Trajectories(trips.columns, trips.offsets, owners, trips.trajectory_ids, trips.context)

    def zone_of(self, trips: Trajectories) -> Zone:
        """In which zone some of its trips are told: the settings', or else where they were made."""
        return home_of(trips) if self.settings.time_zone is None else Zone.of(self.settings.time_zone)

    def keep_from(self, output: Path | None, model: Path | None = None) -> None:
        """Refuse to write over a file that is read; ``model`` is one that is to stay a model."""
        if output is not None and output.exists():
            keep_from(output, self.files, "the trips are read from this file")
            keep_from(output, [] if model is None else [model], "this is the model")

    def say_left_out(self) -> None:
        """Say on standard error what was left out and supposed."""
        said = self.settings.time_zone or (self.settings.read or {}).get("time_zone")
        if self.report.names_no_zone and said is None and self.zone is not None:
            other = Option("time_zone", "UTC")
            self.report.assume(
                self.name,
                f"times name no zone and were read as {self.zone}, the model's",
                ("pass theirs if not, such as ", other),
            )
        say_left_out(self.report, quiet=self.settings.quiet)


def _without_panics(batches: Iterator[Trajectories]) -> Iterator[Trajectories]:
    while True:
        with without_panics():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def only_agent(detector: Detector) -> str | None:
    """Whose model it is, if it is of one agent."""
    return detector.agents[0] if detector.is_one and len(detector.agents) == 1 else None


def refuse_unknown(detector: Detector, trips: Trajectories) -> None:
    """Refuse to let a model learn trips of agents that it does not know."""
    unknown = detector.unknown_agents(trips)
    if not unknown:
        return
    reason = f"the model does not know {some_names(unknown)}"
    if not detector.is_one:
        raise AstrayError(f"{reason}: not enrolled", remedy="run astray enroll first")
    only = only_agent(detector)
    raise AstrayError(f"{reason}: it is of {only}", remedy=f"--agent {shlex.quote(only or '')} leaves the others out")


def _files_below(folder: Path) -> list[Path]:
    """The files below a folder that would be read."""
    return [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in format_by_suffix() and file.is_file()]


def read_part(text: str | None) -> tuple[int, int] | None:
    """``3/16`` as numbers.

    >>> read_part("3/16"), read_part(None)
    ((3, 16), None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, n = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= n:
        raise AstrayError(f"--part {text} is no part of a whole", remedy="give a number and of how many, such as 3/16")
    return number, n


def cut(trips: Trajectories, rows: int) -> Iterator[Batch]:
    """Trips that are loaded, some at a time."""
    for chunk in chunks(trips.lengths, rows):
        yield trips[chunk], chunk.stop / len(trips)


def _value(name: str, text: str) -> Any:
    """The value of a reader's option that was given as text."""
    if name in ("names", "context", "columns"):
        return [part.strip() for part in text.split(":")]
    return {"true": True, "false": False}.get(text.lower(), text)
