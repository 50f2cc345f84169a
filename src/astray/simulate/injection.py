"""Chooses the trips to replace by anomalies, evenly over the people, and a suitable kind for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from astray.core.errors import DataError
from astray.simulate.anomalies import KINDS, Case, Donor, Past
from astray.simulate.movement import weekend
from astray.simulate.people import Person
from astray.simulate.planned_trips import Plans
from astray.simulate.route_choice import Traveller
from astray.simulate.routes import Journey
from astray.simulate.streets import Ints
from astray.simulate.town import Town

Anomaly = tuple[int, Journey, str]
"""An anomalous trip: its position among the given trips, the anomalous journey, the kind of anomaly."""


def make_anomalies(
    town: Town,
    people: Sequence[Person],
    plans: Plans,
    trips: Ints,
    normal: Ints,
    kinds: Sequence[str],
    wanted: int,
    rng: np.random.Generator,
) -> list[Anomaly]:
    """Makes ``wanted`` anomalies from trips, with the same number of each kind.

    ``trips`` are positions in ``plans``; ``normal`` are the positions in ``trips`` of those that may be replaced. Trips
    of other people also come from the normal ones, or from all plans if one person owns all normal ones.
    """
    pool = trips[normal]
    if len(np.unique(plans.person[pool])) < 2:
        pool = np.arange(len(plans.person))

    # Systematic sampling: put each person's trips together in random order and take every n-th, so that people's
    # shares differ by less than one trip. The other trips of a person are in reserve, in case a kind does not suit
    # the first ones.
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

    anomalies: list[Anomaly] = []
    # The second pass is for kinds that suited no trip in the first one.
    for queue, share in [*zip(queues, shares, strict=True), *((queue, wanted) for queue in queues)]:
        due, slots = slots[:share], slots[share:]
        if due and queue:
            who = int(plans.person[trips[queue[0]]])
            past = Past(Traveller(town, people[who]), plans.of(who))
            made, due = _assign(queue, due, trips, plans, past, _donor(town, people, plans, pool, who), rng)
            anomalies += made
        slots = slots + due
    if slots:
        raise DataError(
            f"{len(slots)} of {wanted} anomalies could not be made (first {slots[0]!r}): no trip is left for them",
            remedy="lower the rate, give more trips or more people, or other kinds",
        )
    return anomalies


def _assign(
    queue: list[int],
    slots: Sequence[str],
    trips: Ints,
    plans: Plans,
    past: Past,
    donor: Donor,
    rng: np.random.Generator,
) -> tuple[list[Anomaly], list[str]]:
    """Assigns each kind to the first suitable trip in a person's queue; returns the anomalies and the kinds left."""
    made: list[Anomaly] = []
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
    """Returns a function that draws another person's trip from the pool."""

    def draw(rng: np.random.Generator, on_weekend: bool) -> Journey | None:
        for trip in rng.choice(pool, 50).tolist():
            if plans.person[trip] != who and weekend(plans.depart[trip]) == on_weekend:
                return plans.journey(trip, Traveller(town, people[int(plans.person[trip])]))
        return None

    return draw
