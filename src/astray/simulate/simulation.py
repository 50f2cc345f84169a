"""The simulation: everybody's trips of so many days, and the same trips with something wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from astray.errors import DataError
from astray.simulate.anomalies import KINDS
from astray.simulate.injection import go_wrong
from astray.simulate.movement import MODES, NOWHERE, move, record
from astray.simulate.people import Diary, Person, person
from astray.simulate.places import Places, Town, stream
from astray.simulate.streets import Floats, Ints, Streets, to_degrees
from astray.simulate.ways import IMPROVISED, Plans, Traveller
from astray.trajectories import Trajectories

EPOCH = 1_736_121_600.0
"""The first midnight: Monday 2025-01-06 00:00 UTC. The city's clocks show UTC."""

_VARIANTS = (0.58, 0.74, 0.79)
"""Up to here in [0, 1) a trip takes the usual way, the second, the third; the rest are improvised."""

_PAUSE = 180.0
"""Least seconds between an arrival and the next departure."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A made city and what its people did; made by :func:`city`.

    Attributes
    ----------
    trips
        Everybody's normal trips, person by person in the order of time: columns ``time``, ``lat``, ``lon``,
        context ``mode`` ("walk", "cycle", "drive").
    people
        Who they are, what they do and where; places are numbers into ``places``.
    plans
        What each trip was meant to be, in the order of ``trips``.
    town
        The streets and places (also as ``streets`` and ``places``).
    """

    trips: Trajectories
    people: tuple[Person, ...]
    plans: Plans
    town: Town

    @property
    def streets(self) -> Streets:
        """The street network, for drawing: crossings ``lat``, ``lon`` and the ``edges`` between them."""
        return self.town.streets

    @property
    def places(self) -> Places:
        """Homes, workplaces, shops and the like: ``lat``, ``lon`` and ``kind`` of each."""
        return self.town.places

    def split(self, test_share: float = 0.25, *, random: int | None = None) -> tuple[Trajectories, Trajectories]:
        """Each person's trips in two: the earlier ones to learn from, the last ``test_share`` to test on.

        With ``random`` (a seed) the test trips are drawn at random instead.

        >>> train, test = city(people=2, days=7).split(0.25)
        >>> bool(train.agent("p00").columns["time"].max() < test.agent("p00").columns["time"].min())
        True
        """
        if not 0 < test_share < 1:
            raise DataError(f"test_share is {test_share}; give a share between 0 and 1, such as 0.25")
        rng = None if random is None else np.random.default_rng(random)
        tested = np.zeros(len(self.trips), dtype=bool)
        for mine in np.split(np.arange(len(self.trips)), np.flatnonzero(np.diff(self.plans.person)) + 1):
            size = round(test_share * len(mine))
            tested[mine[len(mine) - size :] if rng is None else rng.permutation(mine)[:size]] = True
        return self.trips[~tested], self.trips[tested]

    def route(self, trajectory_id: str) -> tuple[Floats, Floats]:
        """Latitudes and longitudes of the way on the streets that a normal trip took, corner by corner."""
        trip = self._trip(trajectory_id)
        who = self.people[int(self.plans.person[trip])]
        return to_degrees(self.plans.journey(trip, Traveller(self.town, who)).route.xy)

    def inject(
        self, trips: Trajectories, kinds: Sequence[str] = tuple(KINDS), rate: float = 0.05, *, seed: int = 0
    ) -> Trajectories:
        """The same trips with a share of them replaced by anomalous versions.

        Parameters
        ----------
        trips
            Trips of this simulation, such as one side of :meth:`split`. Those that are anomalous already
            stay.
        kinds
            Which kinds, of :data:`astray.simulate.ANOMALY_KINDS`, in equal parts.
        rate
            Share of the trips to replace, spread evenly over the people.
        seed
            Which trips, and what happens in them.

        Returns
        -------
        Trajectories
            In the same order with the same names, with the column ``anomalous`` (per fix) and the context
            ``kind`` ("" for normal trips) added. An anomalous trip is driven and recorded afresh, by the
            logger of the person whose trip it replaces. In ``agent-swap`` the other person's trip is one of
            ``trips`` too, unless they all belong to one person.

        Notes
        -----
        Not every trip can carry every kind: only habitual trips are made at a wrong time, and only those that
        the person does not also make the other way at about that hour are reversed. Such trips go to more
        usual places than the average trip, so a detector that sees places alone has an AUROC below 0.5 there.

        Examples
        --------
        >>> sim = city(people=2, days=14)
        >>> labelled = sim.inject(sim.trips, kinds=("loiter",), rate=0.1, seed=1)
        >>> loitering = labelled[labelled.context["kind"] == "loiter"]
        >>> loitering.columns["anomalous"].any(), loitering.columns["anomalous"].all()
        (np.True_, np.False_)
        """
        unknown = [name for name in kinds if name not in KINDS]
        if unknown or not kinds:
            raise DataError(f"kinds of anomaly {list(kinds)}: give some of {', '.join(KINDS)}")
        if not 0 <= rate <= 1:
            raise DataError(f"rate is {rate}; give the share of trips to replace, between 0 and 1")
        kind = np.array(trips.context.get("kind", np.full(len(trips), "")), dtype=f"U{max(map(len, KINDS))}")
        truth = trips.columns.get("anomalous", np.zeros(trips.n_rows, dtype=bool))
        labelled = trips.with_columns({"anomalous": truth}, {"kind": kind})
        rng = np.random.default_rng(seed)
        numbers = np.array([self._trip(str(name)) for name in trips.trajectory_ids], dtype=np.int64)
        normal = np.flatnonzero(kind == "")
        wanted = min(round(rate * len(trips)), len(normal))
        if wanted == 0:
            return labelled
        wrong = go_wrong(self.town, self.people, self.plans, numbers, normal, kinds, wanted, rng)

        rows = np.array([row for row, _, _ in wrong])
        journeys = [journey for _, journey, _ in wrong]
        intervals = np.array([self.people[i].interval for i in self.plans.person[numbers[rows]]])
        motion = move(self.town.streets, journeys, rng)
        fixes = record(motion, intervals, [journey.marked for journey in journeys], rng)
        depart = np.array([journey.depart for journey in journeys])
        lat, lon = to_degrees(fixes.xy)
        anomalous = Trajectories(
            {
                "time": EPOCH + depart[fixes.journey] + fixes.seconds,
                "lat": lat,
                "lon": lon,
                "anomalous": fixes.marked,
            },
            np.concatenate([[0], np.cumsum(np.bincount(fixes.journey))]),
            trips.agent_ids[rows],
            trips.trajectory_ids[rows],
            {
                "mode": np.array(MODES)[[journey.mode for journey in journeys]],
                "kind": np.array([name for _, _, name in wrong], dtype=kind.dtype),
            },
        )
        order = np.arange(len(trips))
        order[rows] = len(trips) + np.arange(len(rows))
        return Trajectories.concat([labelled, anomalous])[order]

    def contaminate(
        self,
        trips: Trajectories,
        rate: float = 0.05,
        *,
        kinds: Sequence[str] = ("agent-swap",),
        seed: int = 0,
    ) -> Trajectories:
        """Training data less clean than believed: :meth:`inject`, by default with other people's trips.

        The truth is in ``anomalous`` and ``kind`` for whoever evaluates; a detector must not be shown it.
        """
        return self.inject(trips, kinds, rate, seed=seed)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.trips.trajectory_ids.tolist())}

    def _trip(self, trajectory_id: str) -> int:
        """The position in ``trips`` and ``plans`` of the trip of this name."""
        if trajectory_id not in self._position:
            raise DataError(f"trip {trajectory_id!r} is not of this simulation; give trips of its .trips or .split()")
        return self._position[trajectory_id]


def city(
    people: int | Sequence[int] = 20,
    days: int = 60,
    seed: int = 0,
    *,
    interval: tuple[float, float] = (2.0, 12.0),
) -> Simulation:
    """Make a city and let its people live there.

    The time taken is proportional to the number of people: on one core a second or two for 20 people and
    60 days, and 6 ms a person for two days with ``interval=(30, 60)``.

    Parameters
    ----------
    people
        How many people, or the numbers of those wanted: ``people=range(500, 1000)`` is one part of a larger
        city that several processes make together.
    days
        How many days from Monday 2025-01-06 on. Each person makes two to four trips a day.
    seed
        The same seed makes the same city; its person "p07" is the same, and does the same, whoever else is
        there.
    interval
        Shortest and longest typical seconds between two fixes; each person's logger has its own.

    Examples
    --------
    >>> sim = city(people=2, days=7, seed=0)
    >>> sim.people[1].id, sim.trips.agents, list(sim.trips.columns)
    ('p01', ['p00', 'p01'], ['time', 'lat', 'lon'])
    >>> sim.trips.trajectory_ids[:2].tolist()
    ['p00-0000', 'p00-0001']
    """
    numbers = list(range(people)) if isinstance(people, (int, np.integer)) else list(people)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers) or days < 1:
        raise DataError(f"people {people!r} for {days} days; give one or more of each, nobody twice")
    if not 0 < interval[0] <= interval[1]:
        raise DataError(f"interval is {interval}; give the shortest and longest seconds, such as (2, 12)")
    town = Town.found(seed)
    persons = tuple(person(town, number, interval) for number in numbers)
    lives = [_live(town, who, position, days) for position, who in enumerate(persons)]
    plans = Plans(*(np.concatenate([getattr(life.plans, f.name) for life in lives]) for f in fields(Plans)))
    lat, lon = to_degrees(np.concatenate([life.xy for life in lives]))
    trips = Trajectories(
        {"time": np.concatenate([life.time for life in lives]), "lat": lat, "lon": lon},
        np.concatenate([[0], np.cumsum(np.concatenate([life.lengths for life in lives]))]),
        [who.id for who, life in zip(persons, lives, strict=True) for _ in life.lengths],
        [f"{who.id}-{k:04d}" for who, life in zip(persons, lives, strict=True) for k in range(len(life.lengths))],
        {"mode": np.array(MODES)[plans.mode]},
    )
    return Simulation(trips, persons, plans, town)


@dataclass(frozen=True, eq=False)
class _Life:
    """One person's trips and the fixes of them."""

    plans: Plans
    lengths: Ints
    time: Floats
    xy: Floats


def _live(town: Town, who: Person, position: int, days: int) -> _Life:
    """Let one person live for so many days."""
    rng = stream(town.seed, 5, who.index)
    book = Diary(town, who, days)
    n = len(book.depart)
    if n == 0:
        nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
        return _Life(Plans(none, none, none, none, none, nothing), none, nothing, np.zeros((0, 2)))
    variant = np.searchsorted(_VARIANTS, rng.random(n), side="right")
    plans = Plans(
        np.full(n, position),
        np.array(book.origin),
        np.array(book.destination),
        np.array(book.mode),
        np.where(variant < IMPROVISED, variant, IMPROVISED + np.arange(n)),
        np.array(book.depart),
    )
    traveller = Traveller(town, who)
    motion = move(town.streets, [plans.journey(k, traveller) for k in range(n)], rng)
    # Nobody leaves before arriving: t_k = max(meant_k, t_(k-1) + duration_(k-1) + pause), in closed form.
    busy = np.concatenate([[0.0], np.cumsum(motion.duration + _PAUSE)[:-1]])
    plans = replace(plans, depart=busy + np.maximum.accumulate(plans.depart - busy))
    fixes = record(motion, np.full(n, who.interval), [NOWHERE] * n, rng)
    lengths = np.bincount(fixes.journey, minlength=n)
    return _Life(plans, lengths, EPOCH + plans.depart[fixes.journey] + fixes.seconds, fixes.xy)
