"""Which trips go wrong: evenly over the people, each with a kind of anomaly that it can carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from astray.core.errors import DataError
from astray.simulate.anomalies import KINDS, Case, Past
from astray.simulate.movement import weekend
from astray.simulate.people import Person
from astray.simulate.routes import Journey
from astray.simulate.streets import Ints
from astray.simulate.town import Town
from astray.simulate.ways import Plans, Traveller

Wrong = tuple[int, Journey, str]
"""A trip gone wrong: its position among the trips given, the anomalous journey, the kind of anomaly."""


def go_wrong(
    town: Town,
    people: Sequence[Person],
    plans: Plans,
    trips: Ints,
    normal: Ints,
    kinds: Sequence[str],
    wanted: int,
    rng: np.random.Generator,
) -> list[Wrong]:
    """Make ``wanted`` anomalies out of trips, ``kinds`` in equal parts.

    ``trips`` are positions in ``plans``, and ``normal`` are positions in ``trips`` of those that may be
    replaced. Somebody else's trips come from these too, or from anybody's if they all belong to one person.
    """
    pool = trips[normal]
    if len(np.unique(plans.person[pool])) < 2:
        pool = np.arange(len(plans.person))

    # Systematic sampling: with each person's trips together and in random order every n-th trip is taken,
    # so that people's shares differ by less than one trip. A person's other trips stand by for kinds that
    # do not fit.
    shuffled = rng.permutation(normal)
    shuffled = shuffled[np.argsort(plans.person[trips[shuffled]], kind="stable")]
    cuts = np.flatnonzero(np.diff(plans.person[trips[shuffled]])) + 1
    by_person = [part.tolist() for part in np.split(shuffled, cuts)]
    queues = [by_person[i] for i in rng.permutation(len(by_person))]
    picks = (np.arange(wanted) + rng.random()) * (len(normal) / wanted)
    owners = np.searchsorted(np.cumsum([len(queue) for queue in queues]), picks, side="right")
    shares = np.bincount(owners, minlength=len(queues)).tolist()
    order = [str(kind) for kind in rng.permutation(sorted(set(kinds)))]
    slots = [order[i % len(order)] for i in range(wanted)]

    wrong: list[Wrong] = []
    # The second time round is for what did not fit the first time.
    for queue, share in [*zip(queues, shares, strict=True), *((queue, wanted) for queue in queues)]:
        due, slots = slots[:share], slots[share:]
        if due and queue:
            who = int(plans.person[trips[queue[0]]])
            past = Past(Traveller(town, people[who]), plans.of(who))
            made, due = _carry(queue, due, trips, plans, past, _donor(town, people, plans, pool, who), rng)
            wrong += made
        slots = slots + due
    if slots:
        raise DataError(
            f"{len(slots)} of {wanted} anomalies could not be made (first {slots[0]!r}): no trip is left for them",
            remedy="lower the rate, give more trips or more people, or other kinds",
        )
    return wrong


Donor = Callable[[np.random.Generator, bool], Journey | None]


def _carry(
    queue: list[int],
    slots: Sequence[str],
    trips: Ints,
    plans: Plans,
    past: Past,
    donor: Donor,
    rng: np.random.Generator,
) -> tuple[list[Wrong], list[str]]:
    """Give each kind to the first trip in one person's queue that can carry it; also say what none could."""
    made: list[Wrong] = []
    left: list[str] = []
    for kind in slots:
        for place, row in enumerate(queue):
            trip = int(trips[row])
            ends = int(plans.origin[trip]), int(plans.destination[trip])
            journey = KINDS[kind](Case(plans.journey(trip, past.traveller), *ends, past, donor), rng)
            if journey is not None:
                made.append((row, journey, kind))
                del queue[place]
                break
        else:
            left.append(kind)
    return made, left


def _donor(town: Town, people: Sequence[Person], plans: Plans, pool: Ints, who: int) -> Donor:
    """What draws somebody else's trip from the pool."""

    def draw(rng: np.random.Generator, on_weekend: bool) -> Journey | None:
        for trip in rng.choice(pool, 50).tolist():
            if plans.person[trip] != who and weekend(plans.depart[trip]) == on_weekend:
                return plans.journey(trip, Traveller(town, people[int(plans.person[trip])]))
        return None

    return draw
