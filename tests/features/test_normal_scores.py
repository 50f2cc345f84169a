"""Normal scores: rising, invertible, finite for any number, and of unit spread whatever the distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray.features.normal_scores import SPAN, NormalScores

METRES = st.lists(st.integers(-10_000, 10_000).map(lambda n: n / 10.0), min_size=2, max_size=60)


@settings(max_examples=100, deadline=None)
@given(METRES)
def test_scores_rise_and_lead_back(numbers: list[float]):
    rows = np.array(numbers)[:, None]
    scores = NormalScores.fit(rows)
    rising = np.sort(np.r_[rows[:, 0], np.linspace(rows.min() - 10.0, rows.max() + 10.0, 50)])[:, None]
    found = scores(rising)
    assert np.isfinite(found).all()
    assert (np.diff(found[:, 0]) >= 0.0).all()
    width = float(np.ptp(rows)) + 10.0
    np.testing.assert_allclose(scores.inverse(found), rising, atol=1e-6 * max(width, float(scores.spread[0])))


@pytest.mark.parametrize("tail", [1.0, 3.0, 6.0])
def test_a_heavy_tail_leaves_the_usual_numbers_their_room(tail: float):
    """A standard deviation would be that of the tail, and squeeze all usual numbers into one."""
    rng = np.random.default_rng(0)
    numbers = rng.choice([-1.0, 1.0], 5000) * np.exp(tail * rng.standard_normal(5000))
    found = NormalScores.fit(numbers[:, None])(numbers[:, None])[:, 0]
    inside = np.abs(found) < SPAN
    assert inside.mean() > 0.98
    assert found[inside].std() == pytest.approx(1.0, abs=0.1)
    assert np.ptp(found[np.abs(numbers) < np.median(np.abs(numbers))]) > 1.0


def test_equal_numbers_and_the_farthest_ones_have_scores():
    scores = NormalScores.fit(np.full((20, 1), 7.0))
    near, far = scores(np.array([[7.0], [7e9]]))[:, 0]
    assert abs(near) < 1.0
    assert 10.0 < far < 40.0
    assert np.isfinite(scores.inverse(np.array([[1e6], [-1e6]]))).all()
