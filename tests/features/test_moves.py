"""Moves: the way of a trip over cells, and how unexpected each move is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from astray.core.projection import METRES_A_DEGREE, Projection
from astray.features.familiarity import Frame
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Memory
from astray.features.moves import (
    DIRECTNESS,
    MOVES,
    NONE,
    SIZE,
    Moves,
    deviation,
    expect,
    looked_up,
    moves_of,
    probabilities,
    remembered,
)
from astray.features.paths import make_paths
from astray.features.popularity import Popularity
from astray.features.steps import steps_of
from astray.simulate import city

HERE = Frame(Projection(45.1, 7.6))
EAST, NORTH, WEST = 2, 0, 6


def way(*cells: tuple[int, int], frame: Frame = HERE) -> Moves:
    """The moves of one trip through the middles of cells, given as columns and rows from the projection's centre."""
    xy = (np.array(cells, float) + 0.5) * SIZE
    paths = make_paths(np.arange(len(xy)) * 60.0, xy + middle(frame), np.array([0, len(xy)]))
    return moves_of(steps_of(paths, 15.0), frame)


def middle(frame: Frame) -> np.ndarray:
    """Metres from the projection's centre to the next corner of cells."""
    x, y = frame.projection.to_grid(np.zeros((1, 2)))
    x = x * np.cos(np.radians(np.floor(y / METRES_A_DEGREE / 0.5 + 0.5) * 0.5))
    return np.array([-x[0] % SIZE, -y[0] % SIZE])


def memory_of(*ways: Moves) -> Memory:
    return Memory().add({f"trip {i}": remembered(moves).ravel() for i, moves in enumerate(ways)})


def deviates(moves: Moves, memory: Memory, goal: Moves | None = None) -> float:
    """The deviation of a trip that ends where ``goal`` does, by default where it ends."""
    end = moves if goal is None else goal
    row, column = end.cell[-1] + MOVES[end.move[-1]] + 0.5
    goals = np.array([[column / np.cos(np.radians(end.band[-1] * 0.5))], [row]]) * SIZE
    return float(deviation(moves, expect(moves, memory, Popularity()), 1, goals)[0])


class TestMoves:
    def test_a_straight_way_moves_straight(self) -> None:
        moves = way((0, 0), (1, 0), (2, 0), (2, 1))
        assert moves.move.tolist() == [EAST, EAST, NORTH]
        assert moves.last.tolist() == [NONE, EAST, EAST]

    def test_sparse_fixes_move_as_a_king_does(self) -> None:
        moves = way((0, 0), (4, 2))
        assert (MOVES[moves.move].sum(axis=0) == [2, 4]).all()
        assert (np.abs(np.diff(moves.cell, axis=0)).max(axis=1) == 1).all()

    @pytest.mark.parametrize("every", [0.5, 1.0, 2.0, 5.0])
    def test_moves_do_not_depend_on_how_often_the_receiver_reports(self, every: float) -> None:
        along = np.arange(0.0, 60.0, every)
        xy = np.column_stack([along * 40.0, np.zeros(len(along))]) + middle(HERE) + SIZE / 2
        paths = make_paths(along * 10.0, xy, np.array([0, len(xy)]))
        moves = moves_of(steps_of(paths, 15.0), HERE)
        assert moves.move.tolist() == [EAST] * len(moves.move)
        assert len(moves.move) in (14, 15, 16)

    def test_noise_at_the_edge_of_a_cell_moves_nowhere(self) -> None:
        rng = np.random.default_rng(0)
        edge = middle(HERE) + np.column_stack([np.full(200, SIZE), SIZE / 2 + np.zeros(200)])
        xy = edge + rng.uniform(-15.0, 15.0, edge.shape)
        moves = moves_of(steps_of(make_paths(np.arange(200) * 15.0, xy, np.array([0, 200])), 15.0), HERE)
        assert not len(moves.move)

    def test_a_gap_begins_a_new_way(self) -> None:
        xy = (np.array([(0, 0), (1, 0), (5, 0), (6, 0)]) + 0.5) * SIZE + middle(HERE)
        paths = make_paths(np.arange(4) * 60.0, xy, np.array([0, 2, 4]), trip=np.array([0, 0]))
        moves = moves_of(steps_of(paths, 15.0), HERE)
        assert moves.last.tolist() == [NONE, NONE]
        assert moves.trip.tolist() == [0, 0]

    @pytest.mark.parametrize("lat", [45.2, 45.25, -33.75])
    def test_two_agents_with_other_centres_have_the_same_moves(self, lat: float) -> None:
        degrees = np.linspace(lat - 0.02, lat + 0.02, 40), np.linspace(7.0, 7.03, 40)
        keys = []
        for centre in (Projection(lat, 7.0), Projection(lat + 0.3, 7.4)):
            paths = make_paths(np.arange(40) * 15.0, centre.to_metres(*degrees), np.array([0, 40]))
            keys.append(remembered(moves_of(steps_of(paths, 15.0), Frame(centre))))
        # Between two bands of latitude, and where a point lies on an edge, one or two moves may differ.
        assert len(np.intersect1d(*keys)) >= 0.9 * len(np.unique(keys[0]))

    def test_across_the_antimeridian_a_way_begins_anew(self) -> None:
        centre = Projection(10.0, 180.0)
        xy = np.column_stack([np.linspace(-2000.0, 2000.0, 30), np.full(30, SIZE / 2)])
        moves = moves_of(steps_of(make_paths(np.arange(30) * 15.0, xy, np.array([0, 30])), 15.0), Frame(centre))
        assert set(moves.move.tolist()) == {EAST}
        assert len(moves.move) < 30


class TestProbabilities:
    def test_they_back_off_as_witten_and_bell_do(self) -> None:
        counts = np.zeros((1, 2, 8), np.float32)
        counts[0, 0, :2] = 3, 1  # the cell alone: 4 trips, 2 moves
        counts[0, 1, 0] = 2  # after the move before: 2 trips, 1 move
        by_cell = np.full(8, 1 / 8)
        by_cell = (np.array([3, 1, 0, 0, 0, 0, 0, 0]) + 2 * by_cell) / 6
        by_both = (np.array([2, 0, 0, 0, 0, 0, 0, 0]) + by_cell) / 3
        np.testing.assert_allclose(probabilities(counts)[0], by_both, rtol=1e-6)

    def test_nothing_counted_leaves_what_was_known(self) -> None:
        beyond = np.random.default_rng(0).dirichlet(np.ones(8), 5).astype(np.float32)
        np.testing.assert_array_equal(probabilities(np.zeros((5, 2, 8), np.float32), beyond), beyond)

    def test_they_sum_to_one(self) -> None:
        rng = np.random.default_rng(1)
        counts = rng.poisson(0.5, (100, 2, 8)).astype(np.float32)
        np.testing.assert_allclose(probabilities(counts).sum(axis=1), 1.0, rtol=1e-5)

    def test_a_memory_counts_each_move_once_a_trip(self) -> None:
        there = way((0, 0), (1, 0), (2, 0))
        counts = memory_of(there, there).counts(looked_up(there))
        assert counts[:, :, EAST].tolist() == [[2.0, 2.0], [2.0, 2.0]]
        assert counts.sum() == 8.0


class TestDeviation:
    usual = way(*((i, 0) for i in range(12)))
    detour = way(
        *((i, 0) for i in range(4)), *((4, j) for j in range(4)), *((7, 3 - j) for j in range(4)), (8, 0), (11, 0)
    )

    def test_the_usual_way_is_less_surprising_than_a_detour(self) -> None:
        memory = memory_of(*[self.usual] * 5)
        assert deviates(self.usual, memory) < 0.1 < 1.0 < deviates(self.detour, memory)

    def test_on_unknown_ground_the_goal_tells_a_straight_way_from_a_detour(self) -> None:
        assert deviates(self.usual, Memory()) < deviates(self.detour, Memory())

    def test_the_policy_is_the_exact_one_on_open_ground(self) -> None:
        """One cost, no streets: the value of a cell is its distance, and the policy p exp(c (progress - length))."""
        moves = way((0, 0), (1, 0))
        goal = way((0, 0), (1, 0), (2, 0), (30, 0))
        p = expect(moves, Memory(), Popularity())
        row, column = goal.cell[-1] + MOVES[goal.move[-1]] - moves.cell[0]
        before, after = np.hypot(row, column), np.hypot(row - MOVES[:, 0], column - MOVES[:, 1])
        q = p[0] * np.exp(DIRECTNESS * (before - after - np.hypot(*MOVES.T)))
        q /= q.sum()
        log = np.log(q)
        variance = (q * log * log).sum() - (q * log).sum() ** 2
        expected = (-log[EAST] + (q * log).sum()) / np.sqrt(variance + 4.0)
        assert deviates(moves, Memory(), goal) == pytest.approx(expected, abs=1e-4)

    def test_trips_that_the_policy_makes_deviate_by_about_one(self) -> None:
        """Moves drawn from the probabilities, with the goal infinitely far away: a mean of 0, a spread of 1."""
        rng = np.random.default_rng(3)
        n, length = 400, 50
        p = rng.dirichlet(np.ones(8), n * length).astype(np.float32).clip(1e-6)
        far = np.array([[0.0], [1e15]])
        q = p * np.exp(DIRECTNESS * (MOVES[:, 0] - np.hypot(*MOVES.T)))
        q /= q.sum(axis=1, keepdims=True)
        drawn = (q.cumsum(axis=1) < rng.random((n * length, 1))).sum(axis=1).clip(0, 7)
        zeros = np.zeros(n * length, np.int64)
        moves = Moves(
            np.repeat(np.arange(n), length), zeros.astype(float), np.zeros((n * length, 2), int), zeros, drawn
        )
        found = deviation(moves, p, n, np.repeat(far, n, axis=1) / 1e9)
        assert abs(found.mean()) < 0.15
        assert found.std() == pytest.approx(1.0, abs=0.12)

    def test_a_trip_without_moves_is_neither_usual_nor_unusual(self) -> None:
        still = way((0, 0), (0, 0))
        assert deviation(still, expect(still, Memory(), Popularity()), 1, np.zeros((2, 1))).tolist() == [0.0]


class TestAFeaturizer:
    trips = city(people=3, days=14, seed=2).trips

    def featurizer(self) -> Featurizer:
        own = self.trips.agent("p00")
        blank = Featurizer.of(own, FeaturizerConfig(), np.random.default_rng(0))
        return blank.remember(own).among(self.trips.without("p00"))

    def test_a_remembered_trip_does_not_count_towards_itself(self) -> None:
        own, featurizer = self.trips.agent("p00"), self.featurizer()
        some = own[:6]
        within = featurizer.measure(featurizer.rows(some), featurizer.memory.number_of(some.ids))[1]
        for i, trip in enumerate(some.ids):
            alone = featurizer.forget([trip])
            np.testing.assert_array_equal(within[i], alone.measure(alone.rows(some[i : i + 1]))[1][0])

    def test_others_ways_make_new_ways_less_surprising(self) -> None:
        featurizer, new = self.featurizer(), self.trips.agent("p01")
        alone = replace(featurizer, popularity=Popularity())
        with_others, without = (of.measure(of.rows(new))[1][:, -1] for of in (featurizer, alone))
        assert with_others.mean() < without.mean()

    def test_a_trip_is_compared_with_the_trips_before_it(self) -> None:
        own, featurizer = self.trips.agent("p00"), self.featurizer()
        memory = featurizer.memory.ordered()
        featurizer = featurizer.with_memory(memory)
        for i in (5, 12):
            trip = own[np.flatnonzero(own.isin([memory.trip_ids[i]]))]
            earlier = featurizer.forget(memory.trip_ids[i:])
            expected = earlier.measure(earlier.rows(trip))[1]
            found = featurizer.measure(featurizer.rows(trip), before=np.array([i]))[1]
            np.testing.assert_array_equal(found[:, -1], expected[:, -1])

    def test_the_way_is_judged_when_the_trip_is_over(self) -> None:
        featurizer = self.featurizer()
        rows = featurizer.rows(self.trips.agent("p00"))
        assert not np.isnan(featurizer.measure(rows)[1][:, -1]).any()
        begun = rows.prefixes(np.full(rows.n_trips, 0.7))
        assert np.isnan(featurizer.measure(begun)[1][:, -1]).all()
