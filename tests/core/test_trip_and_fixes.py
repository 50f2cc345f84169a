"""What the score of a trip and the scores of its fixes say together."""

from __future__ import annotations

import numpy as np
import pytest

from astray import Detector, Trajectories
from astray.simulate import city

KILOMETRE = 1 / 111.2  # in degrees of latitude


@pytest.fixture(scope="module")
def person() -> tuple[Detector, Trajectories, Trajectories]:
    """A model of p00, new trips of p00, and new trips of others under p00's name."""
    past, new = city(people=4, days=30, seed=5).split(0.3)
    others = new.without("p00")
    names = [f"other-{i}" for i in range(len(others))]
    theirs = Trajectories(
        {name: others.columns[name] for name in ("time", "lat", "lon")}, others.offsets, ["p00"] * len(others), names
    )
    detector = Detector(seed=0).fit(past.agent("p00"), population=past.without("p00"))
    return detector, new.agent("p00"), theirs


def lowest_fixes(detector: Detector, trips: Trajectories) -> np.ndarray:
    """The lowest normality of a fix of each trip."""
    fixes = detector.score_fixes(trips)["normality"].to_numpy()
    return np.minimum.reduceat(fixes, trips.offsets[:-1])


def test_a_trip_far_from_normal_has_fixes_far_from_normal(
    person: tuple[Detector, Trajectories, Trajectories],
) -> None:
    detector, own, theirs = person
    for trips in (own, theirs):
        normality = detector.score(trips)["normality"].to_numpy()
        lowest = lowest_fixes(detector, trips)
        assert (lowest[normality < -4] < -2).all()
        assert (lowest[normality < -2] < -1).all()
    assert (detector.score(theirs)["normality"].to_numpy() < -4).sum() > 20


@pytest.mark.parametrize("kilometres", [1, 3])
def test_country_where_the_agent_has_never_been_is_not_painted_as_normal(
    person: tuple[Detector, Trajectories, Trajectories], kilometres: int
) -> None:
    """The middle of a normal trip is moved to the north, more and more, and back again."""
    detector, own, _ = person
    drops = []
    for trip in (own[i] for i in range(6)):
        n = trip.n_rows
        place = np.arange(n) / n
        away = np.clip(np.minimum(place - 0.2, 0.8 - place) / 0.1, 0, 1)
        moved = trip.with_columns({"lat": trip.columns["lat"] + away * kilometres * KILOMETRE})
        before, after = (detector.score_fixes(trips)["normality"].to_numpy()[away == 1] for trips in (trip, moved))
        drops.append(before.mean() - after.mean())
        assert detector.score(moved)["normality"][0] < detector.score(trip)["normality"][0] - 1
        assert after.min() < -2
        assert np.median(after) < -0.6
    assert np.median(drops) > 1
