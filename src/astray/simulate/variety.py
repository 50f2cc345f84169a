"""The switches for the differences between simulated worlds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variety:
    """Selects the properties that each world's seed draws; those that are off are as in :func:`astray.simulate.city`.

    Attributes
    ----------
    towns
        Size, density, street plan and position on earth.
    modes
        Public transport, and people who walk, cycle, drive and ride in different shares.
    lives
        Shift workers, students, pensioners, parents, couriers and taxi drivers beside commuters; people with
        regular and with irregular habits; households and colleagues.
    loggers
        Intervals from one second to two minutes; different position errors; loggers that people switch on late
        or off early; recordings that include stops or break in two; trips and days without a recording.
    drift
        Holidays, moves to another home, and new jobs.

    Examples
    --------
    >>> Variety(drift=False)
    Variety(towns=True, modes=True, lives=True, loggers=True, drift=False)
    >>> Variety.none() == Variety(False, False, False, False, False)
    True
    """

    towns: bool = True
    modes: bool = True
    lives: bool = True
    loggers: bool = True
    drift: bool = True

    @classmethod
    def none(cls) -> Variety:
        """Returns a variety with everything off: the city and its commuters."""
        return cls(False, False, False, False, False)
