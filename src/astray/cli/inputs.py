"""Reads the trajectories in FILE arguments, as the settings say: all at once, or in batches if files are large."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from astray.cli.console import progress, say, without_panics
from astray.cli.running import as_flag
from astray.core.atomic import keep_from
from astray.core.errors import AstrayError, DataError, Option, instead_of, some_names
from astray.core.settings import TABLES, Settings
from astray.core.trajectories import Trajectories
from astray.detector import Detector
from astray.jobs.slabs import Batch
from astray.readers import Report, iter_read, read, recognised_formats
from astray.readers.compression import is_compressed, size_of
from astray.readers.formats import format_by_suffix
from astray.readers.input_files import expand_patterns
from astray.scoring.scores import chunks

STREAMED_BYTES = 32 << 20
"""Larger files are streamed, for which the rows of each trip must be adjacent; smaller ones are loaded."""

BATCH_ROWS = 250_000
"""How many fixes of a streamed file are in one batch."""

LOADED_ROWS = 100_000
"""How many fixes of a loaded file are in one batch; scores must not depend on the number of workers."""

FEW_ROWS = 400_000
"""Fewer fixes are scored sooner than worker processes could start."""

PARQUET = (".parquet", ".pq")


@dataclass
class Source:
    """Files of trips, or the trips of one ``agent`` in them, read as the settings say.

    If a file does not say whose trips they are, its reader names the agent after the file or folder. Such trips count
    as those of ``agent``, or else of ``owner``, the only agent of a model, and a remark says so.
    """

    path: Path | Sequence[Path]
    settings: Settings
    agent: str | None = None
    owner: str | None = None
    one_agent: bool = False  # True if fixes without an agent belong to one agent
    zone: str | None = None  # the model's, for times without one; a zone in the settings takes precedence
    report: Report = field(default_factory=Report)

    @classmethod
    def of(
        cls, path: Path | Sequence[Path], settings: Settings, detector: Detector, agent: str | None = None
    ) -> Source:
        """Returns a source for a model, whose agent and time zone are used where the files name none."""
        return cls(path, settings, agent, only_agent(detector), zone=detector.time_zone)

    @property
    def name(self) -> str:
        """The name of the files in messages."""
        return some_names([str(path) for path in ([self.path] if isinstance(self.path, Path) else self.path)], 1)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options for the reader of the format."""
        settings = self.settings
        options: dict[str, Any] = dict(settings.columns or {}) | settings.given(["time_unit", "users", "cache"])
        zone = settings.time_zone or self.zone
        if zone is not None and not set(self.formats) <= {"geolife", "porto"}:  # whose times are in UTC
            options["time_zone"] = zone
        options |= {name: _value(name, text) for name, text in (settings.read or {}).items()}
        if (self.agent is not None or self.one_agent) and "table" in self.formats:
            options.setdefault("one_agent", True)
        return options

    @cached_property
    def formats(self) -> list[str]:
        """The format that the settings name, or those that are recognised."""
        named = self.settings.format
        if named is None:
            # Only a table without a header line needs the names of its columns.
            return ["table"] if "names" in (self.settings.read or {}) else recognised_formats(self.path)
        return ["table" if named in TABLES else named]

    @cached_property
    def streamed_files(self) -> list[Path]:
        """The files that are too large to load and are streamed: one, or several of Parquet; else empty."""
        if self.settings.whole or "names" in self.options or self.formats not in (["table"], ["porto"]):
            return []
        paths, files = expand_patterns(self.path), self.files
        parquet = all(file.suffix.lower() in PARQUET for file in files)
        if not all(file.is_file() for file in files) or not (parquet or (len(files) == 1 and files == paths)):
            return []
        total = sum(size_of(file) if is_compressed(file) else file.stat().st_size for file in files)
        return files if total > STREAMED_BYTES else []

    def _arguments(self, done: Callable[[float], None]) -> dict[str, Any]:
        """Returns all arguments for the reader, which calls ``done`` with the share that it has read."""
        given = {"format": self.settings.format, "skip_bad": self.settings.skip_bad, "trips": self.settings.trips}
        progress = {"report": self.report, "progress": lambda n, total: done(n / total if total else 1.0)}
        return given | self.options | progress

    def load(self) -> Trajectories:
        """Reads all trips."""
        with progress(f"reading {self.name}", quiet=self.settings.quiet) as done, without_panics():
            trips = self._attributed(read(self.path, **self._arguments(done)))
        mine = self._asked_for(trips)
        if not len(mine):
            raise self._empty(trips.agents)
        return mine

    def batches(self) -> Iterator[Batch]:
        """Yields all trips in order, in batches; streams the files if they are large, otherwise loads them."""
        return self.weighed()[0]

    def weighed(self) -> tuple[Iterator[Batch], bool]:
        """Returns the batches, and True if they are too few to be worth other processes."""
        if self.streamed_files:
            return self._streamed(), False
        loaded = self.load()
        pieces = ((loaded[piece], piece.stop / len(loaded)) for piece in chunks(loaded.lengths, LOADED_ROWS))
        return pieces, loaded.n_rows < FEW_ROWS

    @property
    def files(self) -> list[Path]:
        """The files that are read; of a folder, those below it of a known format."""
        return [
            file
            for path in expand_patterns(self.path)
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
            if not path.is_dir() or (file.suffix.lower() in format_by_suffix() and file.is_file())
        ]

    def _streamed(self) -> Iterator[Batch]:
        shares = deque([0.0], maxlen=1)
        others: dict[str, None] | None = {}  # the agents so far, until a wanted trip is found
        sizes = {file: file.stat().st_size for file in self.streamed_files}
        whole, before = max(sum(sizes.values()), 1), 0
        for file, size in sizes.items():
            for batch in _without_panics(iter_read(file, BATCH_ROWS, **self._arguments(shares.append))):
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
        """Returns the error for files without a wanted trip; they have trips of these agents."""
        if not agents:
            remedy = "look at the file, and at the options"
            return DataError("no trip in it can be used", place=self.name, remedy=remedy)
        remedy = instead_of(self.agent or "", agents)
        return DataError(f"no trip of agent {self.agent!r}", place=self.name, remedy=remedy)

    def _attributed(self, trips: Trajectories) -> Trajectories:
        """Returns the trips; if the files do not say whose they are, with the name of the agent or owner."""
        owner = self.agent or self.owner
        after = self.report.named_after
        if owner is None or len(after) != 1 or trips.agents != list(after) or trips.agents == [owner]:
            return trips
        chosen = self.agent is not None or self.one_agent  # with --agent, not by the model
        why = "" if chosen else ", the agent of this model"
        reason = f"it does not say whose trips these are, so they are taken as trips of {owner}{why}"
        self.report.assume(self.name, reason, "" if chosen else "name another agent with --agent NAME")
        owners = [owner] * len(trips)
        return Trajectories(trips.columns, trips.offsets, owners, trips.trajectory_ids, trips.context)

    def keep_from(self, output: Path | None, model: Path | None = None) -> None:
        """Raises an error if ``output`` is a file of trips, or the ``model``."""
        if output is not None and output.exists():
            keep_from(output, self.files, "the trips are read from this file")
            keep_from(output, [] if model is None else [model], "this is the model")

    def say_left_out(self) -> None:
        """Prints to standard error what was left out and, unless quiet, what was assumed and how trips were cut."""
        given = self.settings.time_zone or (self.settings.read or {}).get("time_zone")
        if self.report.names_no_zone and given is None and self.zone is not None:
            reason = f"times name no zone and were read as {self.zone}, the model's"
            self.report.assume(self.name, reason, ("pass theirs if not, such as ", Option("time_zone", "UTC")))
        if self.report.counts or ((self.report.assumptions or self.report.cut) and not self.settings.quiet):
            say(self.report.told(as_flag))


def _without_panics(batches: Iterator[Trajectories]) -> Iterator[Trajectories]:
    """Yields the batches; applies :func:`without_panics` only while it reads one."""
    while True:
        with without_panics():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def only_agent(detector: Detector) -> str | None:
    """Returns the agent of a model of one agent; None for a fleet or a pool."""
    return detector.agents[0] if detector.is_one and len(detector.agents) == 1 else None


def refuse_unknown(detector: Detector, trips: Trajectories) -> None:
    """Raises an error for trips of agents that the model does not know."""
    unknown = detector.unknown_agents(trips)
    if not unknown:
        return
    reason = f"the model does not know {some_names(unknown)}"
    if not detector.is_one:
        raise AstrayError(f"{reason}: not enrolled", remedy="run astray enroll first")
    only = only_agent(detector)
    raise AstrayError(f"{reason}: it is of {only}", remedy=f"--agent {shlex.quote(only or '')} leaves the others out")


def read_part(text: str | None) -> tuple[int, int] | None:
    """Reads a part such as ``3/16`` as two numbers.

    >>> read_part("3/16"), read_part(None)
    ((3, 16), None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, n = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= n:
        raise AstrayError(f"--part {text} is not a part", remedy="give a number and the number of parts, such as 3/16")
    return number, n


def _value(name: str, text: str) -> Any:
    """Returns the value of a reader's option that was given as text."""
    if name in ("names", "context", "columns"):
        return [part.strip() for part in text.split(":")]
    return {"true": True, "false": False}.get(text.lower(), text)
