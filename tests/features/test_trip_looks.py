"""Looks at a trip as it goes on: each equals the statistics of its first rows as an unfinished trip."""

from __future__ import annotations

import numpy as np
import pytest

from astray import Detector
from astray.features.trip_looks import looks
from astray.features.trip_rows import TripRows
from astray.simulate import city


@pytest.fixture(scope="module")
def fleet() -> Detector:
    return Detector(iterations=0).fit(city(people=3, days=14, seed=1).trips)


@pytest.mark.parametrize("which", ["nothing", "without", "before"])
def test_each_look_equals_the_statistics_of_the_rows_so_far(fleet: Detector, which: str) -> None:
    mine = city(people=3, days=14, seed=1).trips.agent("p00")
    featurizer = fleet.agent_model("p00").featurizer
    rows, number = featurizer.rows(mine), featurizer.memory.number_of(mine.ids)
    of_trips = {} if which == "nothing" else {which: number}
    maker = np.repeat(featurizer.popularity.number_of(["p00"]), rows.n_trips)
    ends = looks(rows.steps.time, rows.starts, most=8, settled=60.0)
    found = featurizer.statistics_at(ends, rows, featurizer.familiarity(rows, **of_trips), maker=maker, **of_trips)
    assert len(found) == len(ends) > 3 * rows.n_trips
    for i in np.random.default_rng(0).choice(len(ends), 40, replace=False).tolist():
        trip = int(rows.steps.trip[ends[i]])
        one: TripRows = rows[np.array([trip])]
        n = int(np.count_nonzero(rows.steps.trip[: ends[i] + 1] == trip))
        so_far = one.prefixes(np.array([(n - 0.5) / len(one.steps)]))
        assert len(so_far.steps) == n
        alone = {name: values[[trip]] for name, values in of_trips.items()}
        expected = featurizer.measure(so_far, maker=maker[:1], **alone)[1][0]
        np.testing.assert_allclose(found[i], expected, rtol=2e-5, atol=1e-5)


def test_the_last_row_is_looked_at_and_no_row_is_before_the_trip_has_settled() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 50)
    starts = np.cumsum(lengths) - lengths
    time = np.concatenate([np.cumsum(rng.uniform(1.0, 30.0, n)) for n in lengths])
    found = looks(time, starts, most=5, settled=90.0)
    trip = np.searchsorted(starts, found, side="right") - 1
    last = starts + lengths - 1
    assert set(last.tolist()) <= set(found.tolist())
    assert np.bincount(trip, minlength=50).max() <= 5
    early = time[found] - time[starts[trip]] < 90.0
    assert (found[early] == last[trip[early]]).all()  # only trips that end before are looked at so soon
    lasting = np.flatnonzero(time[last] - time[starts] > 400.0)
    assert (np.bincount(trip, minlength=50)[lasting] == 5).all()
    assert len(looks(np.zeros(0), np.zeros(0, np.int64), 5, 90.0)) == 0
