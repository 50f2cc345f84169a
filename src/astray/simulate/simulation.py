"""The simulation: everybody's trips of so many days, and the same trips with something wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.simulate.anomalies import KINDS
from astray.simulate.changes import Change
from astray.simulate.injection import go_wrong
from astray.simulate.movement import move
from astray.simulate.people import Person
from astray.simulate.places import Places
from astray.simulate.recording import record
from astray.simulate.routes import MODES
from astray.simulate.streets import Floats, Streets, to_degrees
from astray.simulate.town import Town
from astray.simulate.ways import Plans, Traveller


@dataclass(frozen=True, eq=False)
class Simulation:
    """A made city and what its people did; made by :func:`city` or :func:`world`.

    Attributes
    ----------
    trips
        Everybody's normal trips, person by person in the order of time: columns ``time``, ``lat``, ``lon``,
        context ``mode`` ("walk", "cycle", "drive"; in a world also "bus", "train", "metro"). A world has two
        more: ``life`` (the kind of life) and ``phase`` (0, 1, ...; see ``changes``).
    people
        Who they are, what they do and where; places are numbers into ``places``.
    plans
        What each trip was meant to be, in the order of ``trips``.
    town
        The streets and places (also as ``streets`` and ``places``).
    changes
        What changed in people's lives and when, person by person in the order of time.
    """

    trips: Trajectories
    people: tuple[Person, ...]
    plans: Plans
    town: Town
    changes: tuple[Change, ...] = ()

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

        >>> from astray.simulate import city
        >>> train, test = city(people=2, days=7).split(0.25)
        >>> bool(train.agent("p00").columns["time"].max() < test.agent("p00").columns["time"].min())
        True
        """
        if not 0 < test_share < 1:
            raise DataError(f"test_share is {test_share}", remedy="give a share between 0 and 1, such as 0.25")
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
        way = self.plans.journey(trip, Traveller(self.town, who)).route.xy
        return to_degrees(way, self.streets.centre)

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
        >>> from astray.simulate import city
        >>> sim = city(people=2, days=14)
        >>> labelled = sim.inject(sim.trips, kinds=("loiter",), rate=0.1, seed=1)
        >>> loitering = labelled[labelled.context["kind"] == "loiter"]
        >>> loitering.columns["anomalous"].any(), loitering.columns["anomalous"].all()
        (np.True_, np.False_)
        """
        unknown = [name for name in kinds if name not in KINDS]
        if unknown or not kinds:
            raise DataError(f"unknown kinds of anomaly {list(kinds)}", remedy=f"give some of {', '.join(KINDS)}")
        if not 0 <= rate <= 1:
            raise DataError(f"rate is {rate}", remedy="give the share of trips to replace, between 0 and 1")
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
        plans = self.plans.rows(numbers[rows])
        owners = [self.people[i] for i in plans.person]
        motion = move(self.town.streets, journeys, rng)
        fixes = record(
            motion,
            np.array([who.interval for who in owners]),
            [journey.marked for journey in journeys],
            rng,
            loggers=[who.logger for who in owners],
            late=np.maximum(plans.late, 0.0),
            early=np.maximum(plans.early, 0.0),
        )
        depart = np.array([journey.depart for journey in journeys])
        lat, lon = to_degrees(fixes.xy, self.streets.centre)
        anomalous = Trajectories(
            {
                "time": self.town.midnight + depart[fixes.journey] + fixes.seconds,
                "lat": lat,
                "lon": lon,
                "anomalous": fixes.marked,
            },
            np.concatenate([[0], np.cumsum(np.bincount(fixes.journey))]),
            trips.agent_ids[rows],
            trips.trajectory_ids[rows],
            {name: values[rows] for name, values in trips.context.items()}
            | {
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
            raise DataError(
                f"trip {trajectory_id!r} is not of this simulation", remedy="give trips of its .trips or .split()"
            )
        return self._position[trajectory_id]
