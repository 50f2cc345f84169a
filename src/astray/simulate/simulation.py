"""The result of a simulation: the trips of all people, and the same trips with injected anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.simulate.anomalies import KINDS
from astray.simulate.gps_loggers import record
from astray.simulate.injection import make_anomalies
from astray.simulate.life_changes import Change
from astray.simulate.movement import move
from astray.simulate.people import Person
from astray.simulate.person_trips import recorded_trips
from astray.simulate.places import Places
from astray.simulate.planned_trips import Plans
from astray.simulate.route_choice import Traveller
from astray.simulate.streets import Floats, Streets, to_degrees
from astray.simulate.town import Town


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated town and the trips of its people, as :func:`city` and :func:`world` return it.

    Attributes
    ----------
    trips
        The normal trips of all people, person by person in the order of time: columns ``time``, ``lat``, ``lon``,
        context ``mode`` ("walk", "cycle", "drive"; in a world also "bus", "train", "metro"). Trips of a world have
        two more contexts: ``life`` (the kind of life) and ``phase`` (0, 1, ...; see ``changes``).
    people
        The traits and habits of the people; places are numbers into ``places``.
    plans
        The plan of each trip, in the order of ``trips``.
    town
        The streets and places (also as ``streets`` and ``places``).
    changes
        The changes in people's lives, person by person in the order of time.
    """

    trips: Trajectories
    people: tuple[Person, ...]
    plans: Plans
    town: Town
    changes: tuple[Change, ...] = ()

    @property
    def streets(self) -> Streets:
        """The street network, for maps: crossings ``lat``, ``lon`` and the ``edges`` between them."""
        return self.town.streets

    @property
    def places(self) -> Places:
        """Homes, workplaces, shops and the like: ``lat``, ``lon`` and ``kind`` of each."""
        return self.town.places

    def split(self, test_share: float = 0.25, *, random: int | None = None) -> tuple[Trajectories, Trajectories]:
        """Splits each person's trips: returns the earlier ones for training, and the last ``test_share`` for testing.

        With ``random`` (a seed), it draws the test trips at random instead.

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
        """Returns latitudes and longitudes of the route of a normal trip, corner by corner."""
        trip = self._trip(trajectory_id)
        who = self.people[int(self.plans.person[trip])]
        route = self.plans.journey(trip, Traveller(self.town, who)).route
        return to_degrees(route.xy, self.streets.centre)

    def inject(
        self, trips: Trajectories, kinds: Sequence[str] = tuple(KINDS), rate: float = 0.05, *, seed: int = 0
    ) -> Trajectories:
        """Returns the trips with a share of them replaced by anomalous versions.

        Parameters
        ----------
        trips
            Trips of this simulation, such as one part of :meth:`split`. Trips that are already anomalous stay.
        kinds
            Kinds of anomaly, from :data:`astray.simulate.ANOMALY_KINDS`, in equal parts.
        rate
            Share of the trips to replace, spread evenly over the people.
        seed
            The seed for the choice of trips and for the anomalies.

        Returns
        -------
        Trajectories
            The trips in the same order with the same names, and with the column ``anomalous`` (per fix) and the
            context ``kind`` ("" for normal trips). An anomalous trip is moved and recorded anew, by the logger of
            the person whose trip it replaces. In ``agent-swap``, the other person's trip is one of ``trips`` too,
            unless one person owns them all.

        Notes
        -----
        Not every trip suits every kind: only habitual trips can be made at a wrong time, and only trips whose way back
        the person does not make at about the same hour are reversed. Such trips go to more usual places than the
        average trip, so a detector that sees only places has an AUROC below 0.5 on them.

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
        anomalies = make_anomalies(self.town, self.people, self.plans, numbers, normal, kinds, wanted, rng)

        rows = np.array([row for row, _, _ in anomalies])
        journeys = [journey for _, journey, _ in anomalies]
        plans = self.plans.rows(numbers[rows])
        fixes = record(
            move(self.town.streets, journeys, rng),
            [self.people[i].logger for i in plans.person],
            rng,
            marked=[journey.marked for journey in journeys],
            late=plans.late,
            early=plans.early,
        )
        replacements = recorded_trips(
            self.town,
            fixes,
            np.array([journey.depart for journey in journeys]),
            trips.agent_ids[rows],
            trips.trajectory_ids[rows],
            np.array([journey.mode for journey in journeys]),
        )
        others = {name: values[rows] for name, values in trips.context.items() if name != "mode"}
        others["kind"] = np.array([name for _, _, name in anomalies], dtype=kind.dtype)
        replacements = replacements.with_columns({"anomalous": fixes.marked}, others)
        order = np.arange(len(trips))
        order[rows] = len(trips) + np.arange(len(rows))
        return Trajectories.concat([labelled, replacements])[order]

    def contaminate(
        self,
        trips: Trajectories,
        rate: float = 0.05,
        *,
        kinds: Sequence[str] = ("agent-swap",),
        seed: int = 0,
    ) -> Trajectories:
        """Contaminates training data: calls :meth:`inject`, by default with other people's trips.

        The column ``anomalous`` and the context ``kind`` hold the truth for the evaluation; hide them from detectors.
        """
        return self.inject(trips, kinds, rate, seed=seed)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.trips.trajectory_ids.tolist())}

    def _trip(self, trajectory_id: str) -> int:
        """Returns the position of a trip in ``trips`` and ``plans``."""
        if trajectory_id not in self._position:
            raise DataError(
                f"trip {trajectory_id!r} is not of this simulation", remedy="give trips of its .trips or .split()"
            )
        return self._position[trajectory_id]
