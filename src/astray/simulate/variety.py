"""What may differ from one made world to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variety:
    """What a seed draws anew for each world; what is off is as in :func:`astray.simulate.city`.

    Attributes
    ----------
    towns
        Size, density, street plan, and where on earth the town lies.
    modes
        Public transport, and people who walk, cycle, drive and ride in different shares.
    lives
        Shift workers, students, pensioners, parents, couriers and taxis beside commuters; regular and curious
        people; households and colleagues.
    loggers
        Intervals from a second to two minutes, better and worse positions, loggers that are switched on late
        and off early, that run through stops or break off, and trips and days that are not recorded.
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
        """Everything off: the city and its commuters."""
        return cls(False, False, False, False, False)
