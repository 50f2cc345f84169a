"""What a fleet needs of the place where it is kept: a row an agent, what all agents share, and changes all at once.

:class:`~astray.model.fleet_file.FleetFile` is such a place, one file. Another one, such as the tables of a database
server, can stand in its stead: :meth:`FleetDetector.from_store` opens the fleet in it, and
:meth:`FleetDetector.save_changes` writes back what was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from astray.core.errors import ModelFileError

MODEL, COUNTED, ANOMALOUS = 0, 1, 2
"""The parts that are shared: reward and settings, how many agents have been where, and which trips were anomalous."""
PARTS = (MODEL, COUNTED, ANOMALOUS)


class Entry(NamedTuple):
    """What a store says of an agent without reading all that is known of it."""

    number: int  # of its row, if the store numbers them; nobody but the store looks at it
    checksum: bytes  # tells whether what is known of the agent has changed: other contents, another checksum
    trips: int  # that are remembered
    first: float  # when the first of them began, and the last; not a number if there is none
    last: float
    waiting: bool  # whether flagged trips wait
    zone: str


class Row(NamedTuple):
    """An agent as it is written: what is known of it, and what its entry says beside."""

    data: bytes
    trips: int
    first: float
    last: float
    waiting: bool
    zone: str


class Change(Protocol):
    """A change of a store that is under way."""

    def share(self, part: int, data: bytes) -> None:
        """Put something in place of one of :data:`PARTS`."""

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        """Put a row in place of an agent's, or with None take it out.

        ``before`` is the checksum that the agent is supposed to have now, None if it is not supposed to be there. If
        that is not so, somebody else has changed the agent: raises :class:`~astray.core.errors.InUseError`.
        """


class FleetStore(Protocol):
    """Where a fleet is kept. Several threads may read at once, and others may change it meanwhile.

    What is read must be what was written, or :meth:`wrong` is raised: a store checks its rows.
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def shared(self, part: int) -> bytes:
        """What all agents share: one of :data:`PARTS`."""

    def entry(self, agent: str) -> Entry | None:
        """What is said of an agent, as it is now; None if it is not there."""

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        """What is known of an agent, and its entry; None if it is not there."""

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All agents, in no order."""

    def __len__(self) -> int:
        """The number of agents."""

    def changing(self) -> AbstractContextManager[Change]:
        """Change it: all at once when the block ends, or not at all if it raises; nobody else changes it meanwhile."""

    def wrong(self, what: str) -> ModelFileError:
        """An error that says what is wrong with it, to be raised."""
