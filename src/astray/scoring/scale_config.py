"""The settings for the scale of scores, as data."""

from __future__ import annotations

from dataclasses import dataclass

from astray.core.errors import DataError


@dataclass(frozen=True)
class LengthConfig:
    """The settings for measuring the mean and the worst window of normal trips by length."""

    shortest: float = 1 / 8  # the shortest length, as a share of a window; shorter trips are treated as this long
    ratio: float = 2**0.5  # the ratio of one length to the one before
    enough: int = 50  # a length is measured if at least this number of trips reach it
    share: float = 0.5  # or, if there are few trips, this share of them


@dataclass(frozen=True)
class ScaleConfig:
    """The settings for scaling scores by the agent's past trips and, while these are few, by those of all agents."""

    prior_trips: float = 10.0  # the centre and spread of all agents weigh as much as this number of the agent's trips
    stand_in_up_to: float = 100.0  # trips for a p-value; if the agent has fewer, those of all agents fill up
    replaces: float = 2.0  # trips of all agents that one of the agent's own replaces, at most
    odd: float = 0.02  # share of the agent's own trips that may look odd by an aspect before it loses weight
    least_before: int = 10  # a past trip sets the scale if at least this many trips came before it
    stale_after: float = 86_400.0  # seconds after the newest past trip from which the memory counts as stale
    staleness: float = 3 * 86_400.0  # seconds before each past trip that a stale memory does not know
    looks: int = 16  # rows at which the running score of a past trip is read, at most
    settled: float = 60.0  # seconds after which an open trip can raise an alert
    mistaken: float = 0.5  # the expected number of the agent's own trips among the suspected ones, at most
    rounds: int = 5  # the most searches for suspected trips
    least_to_suspect: int = 10  # no trip is suspected if there are fewer past trips
    least_segment: float = 60.0  # the shortest segment in seconds; a shorter one is noise
    least_segment_steps: float = 2.0  # the shortest segment in steps, if steps have no time
    least_heads: int = 3  # a trip scales an own reward only if at least this many heads have not learned from it
    least_held_out: int = 10  # with fewer held-out trips, all trips set the scale of an own reward
    lengths: LengthConfig = LengthConfig()

    def __post_init__(self) -> None:
        if not 0.0 < self.odd <= 1.0:
            raise DataError(f"odd is {self.odd}", remedy="give a share above 0, up to 1")
        for name in ("least_before", "stale_after", "staleness", "settled"):
            if not getattr(self, name) >= 0:
                raise DataError(f"{name} is {getattr(self, name)}", remedy="give 0 or more")
        if not (self.prior_trips > 0.0 and self.stand_in_up_to >= 0.0 and self.mistaken >= 0.0):
            raise DataError(
                f"prior_trips is {self.prior_trips}, stand_in_up_to {self.stand_in_up_to}, mistaken {self.mistaken}",
                remedy="give prior_trips above 0, the others 0 or more",
            )
        if not self.replaces >= 1.0:
            raise DataError(f"replaces is {self.replaces}", remedy="give 1 or more")
        if self.looks < 1 or self.rounds < 1:
            raise DataError(f"looks is {self.looks}, rounds is {self.rounds}", remedy="give at least 1 of each")
