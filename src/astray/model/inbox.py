"""The inbox of an agent: flagged trips that the model has not learned from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from astray.core.trip_ids import TripId
from astray.features.memory import Memory


@dataclass(frozen=True)
class ObservingConfig:
    """Sets when the model asks about flagged trips, and when it warns that habits drift."""

    alike: float = 0.1  # two trips are alike if they share at least this part of their novel keys
    together: int = 2  # the fewest alike trips that it asks about
    tokens: float = 2.0  # a new agent has this many; a question costs one
    tokens_a_trip: float = 0.05  # each trip adds this to the tokens
    most_tokens: float = 5.0  # an agent saves up no more tokens
    most_waiting: int = 50  # the most trips that wait; the oldest leave
    doubt: float = 2.0  # learned is a trip with a p-value above this factor times the share of flagged trips lately,
    most_doubt: float = 0.5  # and always one with a p-value above this
    lately: int = 20  # how many of the last trips this share and the warning are about
    drifting: int = 5  # the fewest flagged trips among these that it warns of


@dataclass(frozen=True, eq=False)
class Inbox:
    """Trips of an agent that were flagged and not learned from."""

    waiting: Memory = field(default_factory=Memory)  # trips that nobody has judged
    rejected: Memory = field(default_factory=Memory)  # trips that proved not to be the agent's
    asked: tuple[tuple[TripId, ...], ...] = ()  # groups of waiting trips that are open questions to a person
    tokens: float = ObservingConfig.tokens  # how many questions the model may ask
    flags: tuple[bool, ...] = ()  # whether each of the last trips was flagged

    @property
    def bits(self) -> int:
        """The flags as a number: a leading 1, then a bit for each flag."""
        return int("1" + "".join("1" if flag else "0" for flag in self.flags), 2)

    def with_flag(self, flagged: bool, config: ObservingConfig) -> Inbox:
        """Returns the inbox after one more trip, flagged or not."""
        tokens = min(self.tokens + config.tokens_a_trip, config.most_tokens)
        return replace(self, tokens=tokens, flags=(*self.flags, flagged)[-config.lately :])

    def without(self, trips: Collection[TripId]) -> Inbox:
        """Returns the inbox without some waiting trips; closes a question that is left with fewer than two trips."""
        gone = set(trips)
        left = [(group, tuple(t for t in group if t not in gone)) for group in self.asked]
        asked = tuple(now for before, now in left if now == before or len(now) > 1)
        return replace(self, waiting=self.waiting.remove(gone), asked=asked)

    def reject(self, trips: Collection[TripId]) -> Inbox:
        """Returns the inbox with these waiting trips rejected: it refuses trips like them."""
        proved = self.waiting.remove(set(self.waiting.trip_ids) - set(trips))
        return replace(self.without(trips), rejected=self.rejected.merge(proved))

    def know(self, proved: Memory) -> Inbox:
        """Returns the inbox with further trips that proved not to be the agent's."""
        return replace(self, rejected=self.rejected.merge(proved.remove(self.rejected.trip_ids)))

    def allow(self, names: Collection[TripId]) -> Inbox:
        """Returns the inbox after some trips, rejected or not, proved to be the agent's."""
        return replace(self, rejected=self.rejected.remove(names))

    def add(self, trip: Memory, config: ObservingConfig) -> Inbox:
        """Returns the inbox with one more waiting trip; drops the oldest if too many wait."""
        waiting = self.waiting.merge(trip)
        gone = set(waiting.trip_ids[: max(len(waiting) - config.most_waiting, 0)])
        asked = tuple(group for group in self.asked if not gone.intersection(group))
        return replace(self, waiting=waiting.remove(gone), asked=asked)


def flags_of(bits: int) -> tuple[bool, ...]:
    """Returns the flags that :attr:`Inbox.bits` made into a number."""
    return tuple(bit == "1" for bit in f"{bits:b}"[1:])
