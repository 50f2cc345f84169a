"""Changes in people's lives, known to the day: holidays, moves and new jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from astray.simulate.daily_routines import ROUTINES
from astray.simulate.people import Person
from astray.simulate.planned_trips import Diary
from astray.simulate.routes import DRIVE
from astray.simulate.town import Town


@dataclass(frozen=True)
class Change:
    """A change in one person's life.

    Attributes
    ----------
    person
        The person's name ("p07").
    time
        The midnight before the first day of the change, in seconds since 1970.
    what
        "move", "job", "away" (a holiday in the resort), "break" (a holiday without trips) or "back" (from either).
    phase
        The phase of life that begins.
    who
        The person's traits from then on: another home, another workplace.
    """

    person: str
    time: float
    what: str
    phase: int
    who: Person


@dataclass(frozen=True)
class Phase:
    """A phase of one person's life: the days from ``first`` to before ``last``."""

    first: int
    last: int
    what: str
    number: int
    who: Person


def draw_phases(town: Town, who: Person, days: int) -> list[Phase]:
    """Draws the phases of a person's life; in two months one person in five moves, and one in five changes jobs."""
    rng = town.stream(30, who.index)
    chance = 1 - 0.78 ** (days / 60.0)
    turns = [(rng.random(), rng.uniform(0.25, 0.8), what) for what in ("move", "job")]
    events = [(int(share * days), what) for luck, share, what in turns if luck < chance and days >= 14]
    holidays = int(rng.poisson(0.5 * days / 60.0)) if days >= 28 else 0
    events += [(int(rng.uniform(0.1, 0.85) * days), str(rng.choice(["away", "break"]))) for _ in range(holidays)]
    phases = [Phase(0, days, "", 0, who)]
    used = lasting = 0
    for day, what in sorted(events):
        now = phases[-1]
        if day <= now.first or (what == "job" and now.who.life in ("pensioner", "taxi")):
            continue
        phases[-1] = replace(now, last=day)
        used += 1
        if what in ("away", "break"):
            end = min(day + int(rng.integers(5, 15)), days)
            phases.append(Phase(day, end, what, used, _on_holiday(town, now.who, rng)))
            if end < days:
                phases.append(Phase(end, days, "back", lasting, now.who))
        else:
            lasting = used
            change = _with_new_home if what == "move" else _with_new_job
            phases.append(Phase(day, days, what, used, change(town, now.who, rng)))
    return phases


def fill_diary(diary: Diary, phases: Sequence[Phase]) -> None:
    """Adds the trips of all phases; on a holiday the person drives away on the first day and back on the last."""
    home = phases[0].who.home
    for phase in phases:
        if phase.what == "break":
            continue
        diary.who, diary.phase = phase.who, phase.number
        if phase.what == "away":
            diary.tour(phase.first, DRIVE, [home, phase.who.home], [diary.about(9.5, 1.0)])
            _add_days(diary, phase.who, range(phase.first + 1, phase.last - 1))
            diary.tour(phase.last - 1, DRIVE, [phase.who.home, home], [diary.about(11.0, 1.5)])
        else:
            home = phase.who.home
            _add_days(diary, phase.who, range(phase.first, phase.last))


def _add_days(diary: Diary, who: Person, days: range) -> None:
    """Adds a person's trips of some days by the routine of the person's life."""
    for day in days:
        ROUTINES[who.life](diary, day)


def _on_holiday(town: Town, who: Person, rng: np.random.Generator) -> Person:
    """Draws a room and four other places in the resort."""
    room, *haunts = rng.choice(town.places.of_kind("resort"), 5, replace=False).tolist()
    return replace(who, life="holiday", home=room, haunts=tuple(haunts))


def _with_new_home(town: Town, who: Person, rng: np.random.Generator) -> Person:
    """Draws another home, far from the old one, and shops near it."""
    homes, shops = town.places.of_kind("home"), town.places.of_kind("shop")
    far = town.places.distance(who.home, homes)
    home = int(rng.choice(homes[far > min(1500.0, float(far.max()) / 2)]))
    near = town.places.nearest(home, shops, 5)
    return replace(who, home=home, shops=tuple(rng.choice(near, 2, replace=False).tolist()))


def _with_new_job(town: Town, who: Person, rng: np.random.Generator) -> Person:
    """Draws another workplace, other hours, and a cafe near work."""
    offices = np.flatnonzero(town.places.kind == town.places.kind[who.work])  # a student moves to the other campus
    cafes = town.places.of_kind("leisure")
    far = town.places.distance(who.work, offices)
    work = int(rng.choice(offices[far > min(800.0, float(far.max()) / 2)]))
    cafe = int(cafes[np.argmin(np.abs(town.places.distance(work, cafes) - 600.0))])
    return replace(who, work=work, cafe=cafe, leaves=who.leaves + float(rng.normal(0, 0.7)))
