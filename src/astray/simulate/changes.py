"""What changes in people's lives: holidays, moves, new jobs; known to the day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from astray.simulate.diary import Diary
from astray.simulate.lives import LIVES
from astray.simulate.people import Person
from astray.simulate.places import stream
from astray.simulate.routes import DRIVE
from astray.simulate.town import Town


@dataclass(frozen=True)
class Change:
    """A change in somebody's life.

    Attributes
    ----------
    person
        Whose ("p07").
    time
        When, in seconds since 1970: the midnight before the first day on which it shows.
    what
        "move", "job", "away" (a holiday in the resort), "break" (one without trips) or "back" (from either).
    phase
        The phase of life that begins.
    who
        Who the person is from then on: another home, another workplace.
    """

    person: str
    time: float
    what: str
    phase: int
    who: Person


@dataclass(frozen=True)
class Phase:
    """Some days of one life: from ``first`` to before ``last``."""

    first: int
    last: int
    what: str
    number: int
    who: Person


def phases(town: Town, who: Person, days: int) -> list[Phase]:
    """The phases of one person's life; two months bring a move or a new job to one in five each."""
    rng = stream(town.seed, 30, who.index)
    chance = 1 - 0.78 ** (days / 60.0)
    turns = [(rng.random(), rng.uniform(0.25, 0.8), what) for what in ("move", "job")]
    events = [(int(share * days), what) for luck, share, what in turns if luck < chance and days >= 14]
    holidays = int(rng.poisson(0.5 * days / 60.0)) if days >= 28 else 0
    events += [(int(rng.uniform(0.1, 0.85) * days), str(rng.choice(["away", "break"]))) for _ in range(holidays)]
    told = [Phase(0, days, "", 0, who)]
    used = lasting = 0
    for day, what in sorted(events):
        now = told[-1]
        if day <= now.first or (what == "job" and now.who.life in ("pensioner", "taxi")):
            continue
        told[-1] = replace(now, last=day)
        used += 1
        if what in ("away", "break"):
            end = min(day + int(rng.integers(5, 15)), days)
            told.append(Phase(day, end, what, used, _away(town, now.who, rng)))
            if end < days:
                told.append(Phase(end, days, "back", lasting, now.who))
        else:
            lasting = used
            changed = _moved(town, now.who, rng) if what == "move" else _employed(town, now.who, rng)
            told.append(Phase(day, days, what, used, changed))
    return told


def note(book: Diary, told: Sequence[Phase]) -> None:
    """Note down all phases; who goes away drives there on the first day and back on the last."""
    home = told[0].who.home
    for phase in told:
        if phase.what == "away":
            book.live(phase.who, (), LIVES, phase.number)
            book.tour(phase.first, DRIVE, [home, phase.who.home], [book.about(9.5, 1.0)])
            book.live(phase.who, range(phase.first + 1, phase.last - 1), LIVES, phase.number)
            book.tour(phase.last - 1, DRIVE, [phase.who.home, home], [book.about(11.0, 1.5)])
        elif phase.what != "break":
            home = phase.who.home
            book.live(phase.who, range(phase.first, phase.last), LIVES, phase.number)


def _away(town: Town, who: Person, rng: np.random.Generator) -> Person:
    room, *haunts = rng.choice(town.places.of_kind("resort"), 5, replace=False).tolist()
    return replace(who, life="holiday", home=room, haunts=tuple(haunts))


def _moved(town: Town, who: Person, rng: np.random.Generator) -> Person:
    homes, shops = town.places.of_kind("home"), town.places.of_kind("shop")
    far = town.places.distance(who.home, homes)
    home = int(rng.choice(homes[far > min(1500.0, float(far.max()) / 2)]))
    near = shops[np.argsort(town.places.distance(home, shops))[:5]]
    return replace(who, home=home, shops=tuple(rng.choice(near, 2, replace=False).tolist()))


def _employed(town: Town, who: Person, rng: np.random.Generator) -> Person:
    offices = np.flatnonzero(town.places.kind == town.places.kind[who.work])  # a student changes the campus
    cafes = town.places.of_kind("leisure")
    far = town.places.distance(who.work, offices)
    work = int(rng.choice(offices[far > min(800.0, float(far.max()) / 2)]))
    cafe = int(cafes[np.argmin(np.abs(town.places.distance(work, cafes) - 600.0))])
    return replace(who, work=work, cafe=cafe, leaves=who.leaves + float(rng.normal(0, 0.7)))
