"""Makes trials on simulated cities, where the truth of every fix is known.

Every seed makes a different city. Half of its people are tested; the other half are the population for the background
and the strangers for learning a shared reward. Foreign trips come from other tested people, so no person is in both
groups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.trajectories import Trajectories
from astray.simulate import ANOMALY_KINDS, Simulation, city
from astray_benchmark import guards
from astray_benchmark.array_types import Ints
from astray_benchmark.contenders import Lesson, Strangers
from astray_benchmark.injectors import DAY, INJECTORS, NEED_A_POOL
from astray_benchmark.protocols import Case, Setting, Trial
from astray_benchmark.trial_parts import anomalies_for, claim, in_time, intruder, intrusion, submitted

TEST_SHARE = 0.25  # the share of a person's trips to test
SUBSTITUTED = 1 / 3  # the share of unseen trips that P3 changes into anomalies
INTERVAL = 5.0  # seconds between fixes, the same for all people, so that intervals do not give foreign trips away
INTRUDED = 10  # trips of an intruder in P7; fewer if a person's stream is too short


@dataclass(frozen=True)
class Simulated:
    """Makes trials of people in simulated cities.

    >>> data = Simulated(people=2, days=14)
    >>> trial = data.trial(Case(Setting(rate=0.2), "p01", seed=0))
    >>> sorted(set(trial.kind.tolist())), trial.test.agents, trial.lesson.population.agents
    (['', 'agent-swap'], ['p01'], ['p02', 'p03'])
    """

    people: int = 10  # how many are tested in each city; as many again live there
    days: int = 90
    name: ClassVar[str] = "simulated"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Returns the size of the cities."""
        return {"people": self.people, "days": self.days}

    @property
    def fingerprint(self) -> str:
        """Returns a hash of the first city's trips."""
        trips = _city(self.people, self.days, 0).trips
        digest = hashlib.sha256()
        for column in FIX_COLUMNS:
            digest.update(np.round(trips.columns[column], 5).tobytes())
        return digest.hexdigest()

    def subjects(self, setting: Setting) -> Sequence[str]:
        """Returns the people who are tested."""
        return [f"p{i:02d}" for i in range(self.people)]

    def trial(self, case: Case) -> Trial:
        """Draws a trial of one person of one city."""
        s, sim = case.setting, _city(self.people, self.days, case.seed)
        trips = sim.trips
        rng = np.random.default_rng([case.seed, 1, int(case.subject[1:])])
        own = np.flatnonzero(trips.agent_ids == case.subject)
        if s.split == "chronological":
            own = own[np.argsort(trips.columns["time"][trips.offsets[own]], kind="stable")]
        else:
            own = rng.permutation(own)
        train, unseen = np.split(own, [len(own) - round(TEST_SHARE * len(own))])
        tested = np.isin(trips.agent_ids, self.subjects(s))
        crowd = trips[~tested]
        others = rng.permutation(np.flatnonzero(tested & (trips.agent_ids != case.subject)))
        if s.injected:
            foreign = np.zeros(0, np.int64)
            unseen, changed = np.split(unseen, [len(unseen) - round(SUBSTITUTED * len(unseen))])
            wrong = _anomalies(sim, changed, others, anomalies_for(len(unseen), s.rate), rng)
        elif s.reading == "intruder":
            foreign = intruder(trips, others, min(INTRUDED, len(unseen) // 2), rng)
            others = np.setdiff1d(others, foreign)
            swapped = submitted(trips, foreign, unseen[intrusion(len(unseen), len(foreign), rng)], DAY)
            wrong = _labelled(swapped, s.reading, source=list(map(str, trips[foreign].ids)))
        else:
            foreign, others = np.split(others, [anomalies_for(len(unseen), s.rate)])
            swapped = submitted(trips, foreign, rng.choice(unseen, len(foreign)))
            wrong = _labelled(swapped, s.reading or "agent-swap", source=list(map(str, trips[foreign].ids)))
        strays = others[: round(s.contamination / (1.0 - s.contamination) * len(train))]
        along = rng.choice(train, len(strays))
        if s.history:
            train = rng.permutation(train)[: s.history] if s.split == "random" else train[-s.history :]
        sets = {"train": train, "unseen": unseen, "foreign": foreign, "strays": strays}
        guards.no_trip_twice(**sets, population=np.flatnonzero(~tested))
        guards.nobody_in_both(
            subject=[case.subject], injected=trips.agent_ids[np.r_[foreign, strays]], population=crowd.agent_ids
        )
        normal = _labelled(trips[unseen], "")
        test = Trajectories.concat([normal, wrong])
        if s.family == "stream":
            order = np.argsort(test.columns["time"][test.offsets[:-1]], kind="stable")
        else:  # so that the place in the set tells nothing; the same whatever was learned from
            order = np.random.default_rng([case.seed, 2, int(case.subject[1:])]).permutation(len(test))
        test = test[order]
        learned = in_time(Trajectories.concat([trips[np.sort(train)], submitted(trips, strays, along)]))
        lesson = Lesson(
            claim(learned, case.subject, "trip"),
            crowd,
            Strangers(f"simulated-{self.people}-{self.days}-{case.seed}", lambda: crowd),
        )
        return Trial(
            lesson,
            claim(test, case.subject, "test"),
            test.context["kind"],
            test.context["source"],
            test.columns["anomalous"] if s.injected else None,
        )


def _anomalies(sim: Simulation, mine: Ints, others: Ints, wanted: int, rng: np.random.Generator) -> Trajectories:
    """Makes anomalies from some of a person's trips: ``wanted`` of each kind, or fewer if too few trips suit it.

    They are the injections of P3 and, under names that begin with "driven ", the simulator's anomalies, in which a
    person really travels a different way on its streets.
    """
    trips = sim.trips
    person = str(trips.agent_ids[mine[0]])
    half = len(mine) // 2
    parts = []
    for kind, change in INJECTORS.items():
        if kind != "agent-swap":  # the simulator's is the same
            own = trips[rng.permutation(mine[half:] if kind in NEED_A_POOL else mine)]
            pool = {"pool": trips[mine[:half]]} if kind in NEED_A_POOL else {}
            made = change(own, rng, most=wanted, **pool)
            if len(made.source):
                parts.append(_labelled(made.trips, kind, made.truth))
    # The simulator's agent-swap takes trips of the others.
    given = trips[np.r_[mine, others[: 2 * len(mine)]]]
    for kind in ANOMALY_KINDS:
        try:
            driven = sim.inject(given, (kind,), rate=wanted / len(mine), seed=int(rng.integers(2**31)))
        except DataError:
            continue  # no trip suits this kind
        hit = np.flatnonzero((driven.agent_ids == person) & (driven.context["kind"] == kind))[:wanted]
        if len(hit):
            parts.append(_labelled(driven[hit], f"driven {kind}", driven[hit].columns["anomalous"]))
    return Trajectories.concat(parts)


def _labelled(
    trips: Trajectories, kind: str, anomalous: NDArray[np.bool_] | None = None, source: Sequence[str] | None = None
) -> Trajectories:
    """Returns trips with their kind and a mark on anomalous fixes; by default, on all, or none if the kind is empty."""
    columns = {name: trips.columns[name] for name in FIX_COLUMNS}
    columns["anomalous"] = np.full(trips.n_rows, bool(kind)) if anomalous is None else anomalous
    said = {"kind": [kind] * len(trips), "source": list(map(str, trips.ids)) if source is None else source}
    return Trajectories(columns, trips.offsets, trips.agent_ids, trips.trajectory_ids, said)


@lru_cache(maxsize=1)
def _city(people: int, days: int, seed: int) -> Simulation:
    return city(people=2 * people, days=days, seed=seed, interval=(INTERVAL, INTERVAL))
