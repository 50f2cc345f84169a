"""How scores are scaled, as data."""

from __future__ import annotations

from dataclasses import dataclass

from astray.core.errors import DataError


@dataclass(frozen=True)
class LengthConfig:
    """How the mean and the worst window of normal trips are measured at every length of a trip."""

    shortest: float = 1 / 8  # of a window: a shorter trip is measured as if it had this length
    ratio: float = 2**0.5  # from one length to the next
    enough: int = 50  # trips that reach a length set its scale;
    share: float = 0.5  # or this share of all trips, if there are few


@dataclass(frozen=True)
class ScaleConfig:
    """How scores are scaled: by the agent's own past trips and, as long as these are few, by everybody's."""

    prior_trips: float = 10.0  # trips that everybody's centre and spread count as, beside the agent's own
    stand_in_up_to: float = 100.0  # trips behind a p-value: everybody's trips replace those that the agent lacks
    odd: float = 0.02  # share of the agent's own trips that an aspect may find odd before it counts less
    folds: int = 10  # parts of the agent's days; each is held out in turn to measure how new its places are
    prefix: float = 0.5  # share of a past trip that shows what an open trip scores
    mistaken: float = 0.5  # of the agent's own trips, at most, are expected among the suspected ones
    rounds: int = 5  # searches for suspected trips, at most
    least_to_suspect: int = 10  # past trips, at least, before any is suspected
    least_segment: float = 60.0  # seconds of a segment; a shorter one is noise
    least_segment_steps: float = 2.0  # steps of a segment, if steps have no time
    least_heads: int = 3  # heads that have not learned from a trip, at least, for it to set the scale of an own reward
    least_held_out: int = 10  # held-out trips, at least, to set the scale of an own reward; with fewer, all trips do
    lengths: LengthConfig = LengthConfig()

    def __post_init__(self) -> None:
        for name in ("odd", "prefix"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise DataError(f"{name} is {getattr(self, name)}", remedy="give a share above 0, up to 1")
        if not (self.prior_trips > 0.0 and self.stand_in_up_to >= 0.0 and self.mistaken >= 0.0):
            raise DataError(
                f"prior_trips is {self.prior_trips}, stand_in_up_to {self.stand_in_up_to}, mistaken {self.mistaken}",
                remedy="give prior_trips above 0, the others 0 or more",
            )
        if self.folds < 2 or self.rounds < 1:
            raise DataError(
                f"folds is {self.folds}, rounds is {self.rounds}", remedy="give at least 2 folds and at least 1 round"
            )
