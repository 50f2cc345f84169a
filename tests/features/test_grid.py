"""The grid of the earth: a place has the same cell and the same keys whoever looks at it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray.core.projection import Projection
from astray.features.familiarity import DEFAULT_HABITS, DEFAULT_LAGS, Frame, keys_of
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.grid import MANY, cells, row_narrowing
from astray.features.steps import steps_of
from astray.simulate import city

places = st.tuples(st.floats(-80, 80), st.floats(-179, 179))


@settings(max_examples=200, deadline=None)
@given(places, st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.sampled_from([150.0, 500.0, 5000.0]))
def test_a_place_has_one_cell_through_any_projection(
    place: tuple[float, float], north: float, east: float, size: float
) -> None:
    lat, lon = place
    centres = Projection(lat, lon), Projection(lat + north, lon + east)
    found = [centre.to_grid(centre.to_metres(np.array([lat]), np.array([lon]))) for centre in centres]
    assert np.allclose(*found, atol=1e-6)
    # A place on the very edge of a cell may fall to either side of it.
    rows, columns = zip(*(cells(f, size, 0.5) for f in found), strict=True)
    off_edge = np.abs(found[0][1] / size + 0.5 - np.rint(found[0][1] / size + 0.5)) > 1e-6
    if off_edge.all():
        assert rows[0] == rows[1]
        assert abs(columns[0] - columns[1]) <= 1
        if abs(np.diff(np.divide([f[0, 0] for f in found], size))[0]) == 0.0:
            assert columns[0] == columns[1]


@settings(max_examples=100, deadline=None)
@given(st.floats(-9e6, 9e6), st.floats(-2e7, 2e7), st.sampled_from([150.0, 1000.0]), st.sampled_from([0.0, 0.5]))
def test_the_cell_of_a_place_is_the_same_alone_among_few_and_among_many(
    y: float, x: float, size: float, shift: float
) -> None:
    few = cells(np.array([[x], [y]]), size, shift)
    many = cells(np.repeat([[x], [y]], MANY, axis=1) + np.arange(MANY) % 3 * 50.0, size, shift)
    assert [values[0] for values in few] == [values[0] for values in many]
    row, column = (int(values[0]) for values in few)
    assert math.floor(x * row_narrowing(row, size, shift) / size + shift) == column


@pytest.mark.parametrize("lat", [0.0, 41.15, -65.0])
def test_a_cell_is_as_wide_as_it_is_high_anywhere(lat: float) -> None:
    here, metres = Projection(lat, 7.0), np.arange(0.0, 10_000.0, 10.0)
    still = np.zeros(len(metres))
    _, columns = cells(here.to_grid(np.column_stack([metres, still])), 500.0, 0.0)
    rows, _ = cells(here.to_grid(np.column_stack([still, metres])), 500.0, 0.0)
    # Ten kilometres are twenty cells, or twenty-one if one is broken at either end.
    assert len(set(columns)) in (20, 21)
    assert len(set(rows)) in (20, 21)


def test_all_keys_of_trips_are_those_of_any_other_centre() -> None:
    trips = city(people=1, days=6, seed=0).trips
    featurizer = Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0))
    # The other centre lies to the east: farther north, metres of longitude would be stretched, and speeds with them.
    moved = replace(featurizer, projection=Projection(featurizer.projection.lat, featurizer.projection.lon + 0.2))
    one, other = (
        keys_of(steps_of(v.paths(trips), 30.0, DEFAULT_LAGS), DEFAULT_HABITS, Frame(v.projection, 3600.0))
        for v in (featurizer, moved)
    )
    assert one.shape == other.shape
    assert (one == other).mean() > 0.9999  # but for what lies on an edge
