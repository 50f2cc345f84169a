"""Planning on graphs is exact: compared with dense linear algebra, with all ways of small graphs, and with Dijkstra."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import pytest

from astray.features.memory import Memory
from astray.features.moves import MOVES, NONE, Moves, expect, remembered
from astray.features.popularity import Popularity
from astray.irl.cell_graph import CellGraph, Window, cell_graph
from astray.irl.planning import (
    GREATEST_C,
    Demonstration,
    Graph,
    cost_of,
    expected_lengths,
    hard_values,
    likelihood_and_slope,
    log_likelihood,
    most_likely_c,
    planned,
    policy,
    regrets,
    soft_values,
    states_on,
)

LENGTHS = np.hypot(*MOVES.T)


def king(rows: int, columns: int, rng: np.random.Generator, sharpness: float = 1.0) -> tuple[Graph, CellGraph]:
    """A king on a board, whose states are (cell, last move), with random probabilities of its moves."""
    window = Window((0, 0), (rows, columns), 0.0)
    n, lasts = len(window), NONE + 1
    state = np.arange(n * lasts).reshape(n, lasts)
    cell = np.repeat(np.arange(n), lasts)
    to = window.number(window.cells[cell][None] + MOVES[:, None])
    after = np.where(to < n, state[np.minimum(to, n - 1), np.arange(NONE)[:, None]], n * lasts)
    p = np.exp(sharpness * rng.standard_normal((NONE, n * lasts)))
    graph = Graph(-np.log(p / p.sum(axis=0)), after, LENGTHS)
    nothing = np.zeros((n, NONE), np.bool_)
    return graph, CellGraph(window, graph, state, cell, nothing, nothing)


def dense_values(graph: Graph, c: float, goal: np.ndarray) -> np.ndarray:
    """-log z by solving the linear system as it stands in the books."""
    n = graph.n_states
    weights = np.zeros((n, n + 1))
    cost = graph.cost(c)
    for move, after in enumerate(graph.after):
        weights[np.arange(n), after] += np.exp(-cost[move])
    weights = weights[:, :n]
    z = np.ones(n)
    free = np.flatnonzero(~goal)
    right = weights[np.ix_(free, np.flatnonzero(goal))].sum(axis=1)
    z[free] = np.linalg.solve(np.eye(len(free)) - weights[np.ix_(free, free)], right)
    return -np.log(z)


def ways_to(graph: Graph, goal: np.ndarray, start: int, most: int) -> Iterator[list[int]]:
    """All ways of at most so many moves from a start to the first time at the goal."""
    if goal[start]:
        yield []
    elif most:
        for move, after in enumerate(graph.after[:, start]):
            if after < graph.n_states:
                yield from ([move, *rest] for rest in ways_to(graph, goal, int(after), most - 1))


def dijkstra(cost: np.ndarray, after: np.ndarray, goal: np.ndarray, start: int) -> float:
    """The least cost from a start to the goal, forwards."""
    heap, done = [(0.0, start)], set()
    while heap:
        so_far, state = heapq.heappop(heap)
        if goal[state]:
            return so_far
        if state not in done:
            done.add(state)
            for move, to in enumerate(after[:, state].tolist()):
                if np.isfinite(cost[move, state]):
                    heapq.heappush(heap, (so_far + float(cost[move, state]), to))
    return np.inf


def draw(chosen: np.ndarray, after: np.ndarray, goal: np.ndarray, start: int, rng: np.random.Generator) -> np.ndarray:
    """A way drawn from a policy."""
    moves, state = [], start
    while not goal[state]:
        p = chosen[:, state]
        moves.append(int(rng.choice(len(p), p=p / p.sum())))
        state = int(after[moves[-1], state])
    return np.array(moves, np.int64)


@pytest.mark.parametrize("size", [(3, 3), (4, 5), (6, 6)])
@pytest.mark.parametrize("c", [0.0, 0.2, 0.5, 1.5, 4.0])
def test_soft_values_solve_the_linear_equations(size: tuple[int, int], c: float) -> None:
    graph, board = king(*size, np.random.default_rng(0))
    goal = board.goal(np.array([size[0] - 1, 1]))
    found = soft_values(graph.cost(c), graph.after, goal)
    np.testing.assert_allclose(found, dense_values(graph, c, goal), rtol=0, atol=1e-8)


def test_soft_values_sum_over_all_ways() -> None:
    """At this cost a way of more than seven moves hardly counts, so those of at most seven can be added up."""
    graph, board = king(2, 2, np.random.default_rng(1))
    cost, goal, start = graph.cost(4.0), board.goal(np.array([1, 1])), board.start(np.array([0, 0]))
    total = sum(np.exp(-cost_of(cost, graph.after, start, way)) for way in ways_to(graph, goal, start, 7))
    assert soft_values(cost, graph.after, goal)[start] == pytest.approx(-np.log(total), abs=1e-8)


def test_soft_values_are_exact_where_the_desirability_underflows() -> None:
    """A corridor of 2,000 cells: z is exp(-6,000), which no float holds."""
    n = 2000
    after = np.stack([np.arange(1, n + 1), np.r_[n, np.arange(n - 1)]])
    cost = np.full((2, n), 3.0)
    cost[after == n] = np.inf
    goal = np.arange(n) == n - 1
    # Far from the ends z falls by the factor x of each cell, x = exp(-3) (1 + x x).
    x = (1 - np.sqrt(1 - 4 * np.exp(-6.0))) / (2 * np.exp(-3.0))
    values = soft_values(cost, after, goal)
    assert values[500] - values[501] == pytest.approx(-np.log(x), abs=1e-9)
    assert values[0] > 5900


def test_many_ways_of_equal_cost_do_not_overflow() -> None:
    """A hundred parallel moves at each of 300 places: as many ways as no float can count."""
    n, width = 300, 100
    after = np.tile(np.arange(1, n + 1), (width, 1))
    goal = np.arange(n) == n - 1
    values = soft_values(np.where(after < n, 1.0, np.inf), after, goal)
    assert values[0] == pytest.approx((n - 1) * (1.0 - np.log(width)), rel=1e-12)


def test_the_goal_cannot_be_reached_from_beyond_a_wall() -> None:
    after = np.array([[1, 2, 4, 4]])
    goal = np.array([False, False, True, False])
    for values in (hard_values, soft_values):
        found = values(np.where(after < 4, 1.0, np.inf), after, goal)
        assert found.tolist() == [2.0, 1.0, 0.0, np.inf]
    assert planned(np.where(after < 4, 1.0, np.inf), after, found, 3).tolist() == []


def test_the_policy_sums_to_one_and_its_ways_have_the_likelihood_that_is_said() -> None:
    rng = np.random.default_rng(2)
    graph, board = king(4, 4, rng)
    cost, goal, start = graph.cost(0.7), board.goal(np.array([3, 2])), board.start(np.array([0, 0]))
    values = soft_values(cost, graph.after, goal)
    chosen = policy(cost, graph.after, values, goal)
    np.testing.assert_allclose(chosen[:, ~goal].sum(axis=0), 1.0, atol=1e-8)
    way = draw(chosen, graph.after, goal, start, rng)
    states = states_on(graph.after, start, way)
    step_by_step = np.log(chosen[way, states[:-1]]).sum()
    assert log_likelihood(cost, graph.after, values, start, way) == pytest.approx(step_by_step, abs=1e-8)


def test_the_slope_of_the_likelihood_is_expected_less_demonstrated_length() -> None:
    """Finite differences of the log-likelihood; and the expected length is that of ways drawn from the policy."""
    rng = np.random.default_rng(3)
    graph, board = king(4, 4, rng)
    goal, start, c, h = board.goal(np.array([3, 3])), board.start(np.array([0, 0])), 0.6, 1e-4
    way = draw(policy(*_soft(graph, c, goal), goal), graph.after, goal, start, rng)
    past = [Demonstration(graph, goal, start, way)]
    (above, _), (below, _), (_, slope) = (likelihood_and_slope(past, c + step) for step in (h, -h, 0.0))
    assert slope == pytest.approx((above - below) / (2 * h), rel=1e-5)
    chosen = policy(*_soft(graph, c, goal), goal)
    lengths = [graph.length[draw(chosen, graph.after, goal, start, rng)].sum() for _ in range(2000)]
    error = np.std(lengths) / np.sqrt(len(lengths))
    assert abs(np.mean(lengths) - expected_lengths(graph, chosen)[start]) < 4 * error


def _soft(graph: Graph, c: float, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cost = graph.cost(c)
    return cost, graph.after, soft_values(cost, graph.after, goal)


def test_hard_values_and_planned_ways_are_those_of_dijkstra() -> None:
    for seed in range(5):
        graph, board = king(6, 6, np.random.default_rng(seed), sharpness=2.0)
        cost, goal = graph.cost(0.5), board.goal(np.array([4, 1]))
        values = hard_values(cost, graph.after, goal)
        for start in range(0, graph.n_states, 37):
            assert values[start] == pytest.approx(dijkstra(cost, graph.after, goal, start), abs=1e-12)
            way = planned(cost, graph.after, values, start)
            assert goal[states_on(graph.after, start, way)[-1]]
            assert cost_of(cost, graph.after, start, way) == pytest.approx(values[start], abs=1e-12)


def test_values_up_to_a_limit_are_the_same() -> None:
    graph, board = king(6, 6, np.random.default_rng(0), sharpness=2.0)
    cost, goal = graph.cost(0.5), board.goal(np.array([4, 1]))
    values = hard_values(cost, graph.after, goal)
    limit = float(np.median(values))
    np.testing.assert_array_equal(
        hard_values(cost, graph.after, goal, limit), np.where(values <= limit, values, np.inf)
    )


def test_soft_values_become_hard_ones_as_the_noise_goes_to_nought() -> None:
    """With temperature t the values are t softmin(cost / t)."""
    graph, board = king(5, 5, np.random.default_rng(4))
    cost, goal = graph.cost(1.0), board.goal(np.array([4, 4]))
    hard = hard_values(cost, graph.after, goal)
    gaps = [np.abs(t * soft_values(cost / t, graph.after, goal) - hard).max() for t in (1.0, 0.3, 0.1, 0.01)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01
    assert gaps[0] > 0.1


def plan(graph: Graph, c: float, goal: np.ndarray, start: int) -> np.ndarray:
    """The planned way."""
    cost = graph.cost(c)
    return planned(cost, graph.after, hard_values(cost, graph.after, goal), start)


def regret(graph: Graph, c: float, goal: np.ndarray, start: int, moves: np.ndarray) -> float:
    """The regret of a way."""
    cost = graph.cost(c)
    each = regrets(cost, graph.after, hard_values(cost, graph.after, goal), start, moves)
    assert (each >= -1e-9).all()
    return float(each.sum())


def test_the_regret_of_a_way_is_what_it_costs_beyond_the_planned_way() -> None:
    rng = np.random.default_rng(5)
    graph, board = king(5, 5, rng)
    cost, goal, start = graph.cost(0.5), board.goal(np.array([4, 3])), board.start(np.array([0, 0]))
    chosen = policy(*_soft(graph, 0.5, goal), goal)
    best = plan(graph, 0.5, goal, start)
    assert regret(graph, 0.5, goal, start, best) == pytest.approx(0.0, abs=1e-12)
    for _ in range(30):
        way = draw(chosen, graph.after, goal, start, rng)
        beyond = cost_of(cost, graph.after, start, way) - cost_of(cost, graph.after, start, best)
        assert regret(graph, 0.5, goal, start, way) == pytest.approx(beyond, abs=1e-9)
        assert beyond > 0 or way.tolist() == best.tolist()


@pytest.mark.parametrize("true", [0.3, 1.5])
def test_the_cost_of_way_is_recovered_from_ways_of_the_model(true: float) -> None:
    rng = np.random.default_rng(6)
    graph, board = king(6, 6, rng)
    past = []
    for goal_cell in ([5, 5], [0, 5], [3, 1]):
        goal, start = board.goal(np.array(goal_cell)), board.start(np.array([0, 0]))
        chosen = policy(*_soft(graph, true, goal), goal)
        past += [Demonstration(graph, goal, start, draw(chosen, graph.after, goal, start, rng)) for _ in range(60)]
    found = most_likely_c(past)
    assert found == pytest.approx(true, rel=0.25)
    likelihood = [likelihood_and_slope(past, c)[0] for c in (found, 0.8 * found, 1.25 * found)]
    assert max(likelihood) == likelihood[0]


def test_agents_that_always_take_the_shortest_way_have_the_greatest_cost() -> None:
    graph, board = king(4, 4, np.random.default_rng(7))
    goal, start = board.goal(np.array([3, 3])), board.start(np.array([0, 0]))
    assert most_likely_c([Demonstration(graph, goal, start, np.array([1, 1, 1]))]) == GREATEST_C


# -------------------------------------------------------------------- the graph of a memory


def moves_through(cells: list[tuple[int, int]], trip: int = 0) -> Moves:
    """The moves of a trip from cell to cell."""
    at = np.array(cells)
    move = np.array([MOVES.tolist().index(step) for step in np.diff(at, axis=0).tolist()])
    n = len(move)
    return Moves(np.full(n, trip), np.zeros(n), at[:-1], np.r_[NONE, move[:-1]][:n], move)


def town(rng: np.random.Generator, size: int, n_trips: int) -> tuple[Memory, list[Moves]]:
    """A memory of trips along the streets of a town, every third row and column of cells."""
    trips, streets = {}, list(range(1, size, 3))
    made = []
    for i in range(n_trips):
        (r0, c0), (r1, c1) = rng.choice(streets, (2, 2))
        there = [(r, c0) for r in _from(r0, r1)] + [(r1, c) for c in _from(c0, c1)][1:]
        if len(there) > 1:
            made.append(moves_through(there, i))
            trips[f"t{i}"] = remembered(made[-1]).ravel()
    return Memory[str]().add(trips), made


def _from(a: int, b: int) -> list[int]:
    return list(range(a, b + 1)) if a <= b else list(range(a, b - 1, -1))


def test_the_graph_of_a_memory_has_the_probabilities_that_the_statistics_have() -> None:
    memory, made = town(np.random.default_rng(8), 13, 40)
    window, others = Window((0, 0), (13, 13), 0.0), Popularity()
    for without in (-1, 3):
        world = cell_graph(window, memory, others, without)
        for moves in made[:10]:
            states = [world.start(cell, last) for cell, last in zip(moves.cell, moves.last.tolist(), strict=True)]
            held_out = np.full(len(moves.move), without)
            looked = expect(moves, memory, others, held_out)
            np.testing.assert_allclose(np.exp(-world.graph.surprise[:, states].T), looked, rtol=1e-5)
            walked = states_on(world.graph.after, states[0], moves.move)
            assert walked[:-1].tolist() == states


def test_a_planned_way_follows_the_streets_that_the_agent_knows() -> None:
    memory, _ = town(np.random.default_rng(9), 13, 200)
    world = cell_graph(Window((0, 0), (13, 13), 0.0), memory, Popularity())
    start, end = np.array([1, 1]), np.array([10, 10])
    best = plan(world.graph, 0.5, world.goal(end), world.start(start))
    cells = world.cells_on(start, best)
    assert cells[-1].tolist() == end.tolist()
    assert ((cells[:, 0] % 3 == 1) | (cells[:, 1] % 3 == 1)).all()
    nobody = cell_graph(Window((0, 0), (13, 13), 0.0), Memory[str](), Popularity())
    straight = plan(nobody.graph, 0.5, nobody.goal(end), nobody.start(start))
    assert nobody.graph.length[straight].sum() == pytest.approx(9 * np.sqrt(2))


def test_the_trip_that_is_planned_does_not_show_its_own_way() -> None:
    """Only one trip took the northern way: held out, nobody knows it."""
    south = [(1, c) for c in range(1, 12)]
    north = [(1, 1), (2, 1), (3, 1), *((4, c) for c in range(2, 11)), (3, 11), (2, 11), (1, 11)]
    memory = Memory[str]().add(
        {"north": remembered(moves_through(north)).ravel()}
        | {f"s{i}": remembered(moves_through(south)).ravel() for i in range(3)}
    )
    window = Window((0, 0), (7, 13), 0.0)
    taken = moves_through(north).move
    blank = Memory[str]().add({f"s{i}": remembered(moves_through(south)).ravel() for i in range(3)})
    held, seen, never = (
        regret(world.graph, 0.5, world.goal(np.array([1, 11])), world.start(np.array([1, 1])), taken)
        for world in (
            cell_graph(window, memory, Popularity(), 0),
            cell_graph(window, memory, Popularity()),
            cell_graph(window, blank, Popularity()),
        )
    )
    assert held == pytest.approx(never, rel=1e-5)
    assert seen < held - 5


@pytest.mark.parametrize("c", [0.5, 1.5])
def test_how_near_the_policy_of_open_ground_is_to_the_exact_one(c: float) -> None:
    """The statistics of trips take z = exp(-c distance), as if the way to the goal led over open ground.

    In a town of streets this brings the policy much nearer to the exact one than knowing no goal does: the divergence,
    in nats a step, over the states where the exact policy is.
    """
    memory, _ = town(np.random.default_rng(10), 22, 300)
    world = cell_graph(Window((0, 0), (22, 22), 0.0), memory, Popularity())
    graph, start, end = world.graph, np.array([4, 4]), np.array([16, 19])
    goal = world.goal(end)
    cost, after, values = _soft(graph, c, goal)
    exact = policy(cost, after, values, goal)
    away = world.window.cells[world.cell] - end
    left = np.hypot(*np.moveaxis(away[None] + MOVES[:, None], -1, 0))
    log_open = -graph.surprise - c * (graph.length[:, None] + left)

    visits = np.zeros(graph.n_states + 1)
    now = np.zeros(graph.n_states + 1)
    now[world.start(start)] = 1.0
    for _ in range(400):
        visits += now
        flow = exact * now[:-1]
        now = np.bincount(after.ravel(), flow.ravel(), graph.n_states + 1)
        now[:-1][goal] = 0.0
    weight = visits[:-1] / visits[:-1].sum()

    def divergence(log: np.ndarray) -> float:
        log = np.where(after < graph.n_states, log, -np.inf)
        log = log - np.log(np.exp(log).sum(axis=0))
        with np.errstate(invalid="ignore", divide="ignore"):
            kl = np.where(exact > 0, exact * (np.log(exact) - log), 0.0).sum(axis=0)
        return float((weight * kl).sum())

    no_goal, open_ground = divergence(-graph.surprise), divergence(log_open)
    print(c, no_goal, open_ground)
    assert open_ground < 0.6 * no_goal
    assert open_ground < 0.1
