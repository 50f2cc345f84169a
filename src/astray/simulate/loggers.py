"""How people record: which trips, from when to when, and how well."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logger:
    """One person's logger and the care taken with it; the default records every trip from end to end.

    Attributes
    ----------
    noise
        Error of the positions relative to everybody's.
    white
        How much of the error that is new with every fix is left; receivers that fix often smooth it away.
    jitter
        How irregular the intervals are, relative to everybody's.
    gaps
        Share of trips with a gap of minutes.
    dropouts
        Further gaps an hour, at random.
    indoors
        Share of stands of minutes during which nothing is received.
    rests
        Share of fixes that are left out while the person stands, as loggers do that count metres.
    spikes
        Share of fixes that are thrown off by 100 m or so.
    share
        Share of trips that are recorded at all; about half of what is missing are whole days.
    late, early
        Share of trips that are switched on late, and off early.
    minutes
        How late or early, typically; idle loggers run twice as long.
    idle
        Share of trips with the logger running for some minutes before the departure, and after the arrival.
    runs_on
        Probability that the logger runs through a stop, so that one recording holds two trips.
    stop
        Minutes that such a stop lasts at most.
    cuts
        Share of recordings that break in the middle and go on as another recording.
    span
        From which to which share of the days there are recordings.
    """

    noise: float = 1.0
    white: float = 1.0
    jitter: float = 1.0
    gaps: float = 0.08
    dropouts: float = 0.0
    indoors: float = 0.0
    rests: float = 0.0
    spikes: float = 0.0
    share: float = 1.0
    late: float = 0.0
    early: float = 0.0
    minutes: float = 0.0
    idle: float = 0.0
    runs_on: float = 0.0
    stop: float = 0.0
    cuts: float = 0.0
    span: tuple[float, float] = (0.0, 1.0)
