"""Planning: how an agent goes to a goal, exactly, in a linearly solvable decision process (Todorov 2007).

An agent moves on a graph. Without a goal it makes each move with a known probability p0, the passive dynamics. With a
goal it pays c for each unit of length, and a way to the goal has the probability

    p(way | start, goal) = exp(-cost(way)) / Z(start, goal),    cost(way) = -log p0(way) + c length(way),

where Z, the desirability of the start, is the sum of exp(-cost) over all ways that end when they first reach the goal.
This is the maximum-entropy model of Ziebart (2008) with p0 as its measure, and Z solves linear equations:
Z(s) = sum over moves of exp(-cost of the move) Z(where it leads), and Z = 1 at the goal. The policy follows, and so
does the likelihood of a way; c is the one parameter that inverse reinforcement learning infers from past ways.

The **planned way** is the most probable one, the way of the least cost; the **regret** of a way is its cost less that
of the planned way. The least cost is what the soft value -log Z becomes as the noise goes to 0.

All functions are pure. States and moves are numbers; ``moves x states`` arrays say what each move costs in each state,
and where it leads. :mod:`astray.irl.cell_graph` makes such a graph from a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]

TOLERANCE = 1e-9  # of soft values, in nats, and of expected lengths, as a share
AT_ONCE = 16  # sweeps between two looks at how far the sums still are from their limits
ROUNDING = 1e-14  # a change by this share is rounding
MOST_SWEEPS = 100_000
TOGETHER = 2.0  # nats: fewer take more rounds, more take more corrections
LEAST_C, GREATEST_C = 0.01, 20.0  # of a cell of way: outside, the likelihood of ways hardly changes any more


class Graph(NamedTuple):
    """Moves between states; a move that leads to state number ``n_states`` leaves the graph, and is never made."""

    surprise: Doubles  # (moves, states): -log p0; inf for an impossible move
    after: Ints  # (moves, states): the state that each move leads to
    length: Doubles  # (moves,): how far each move goes

    @property
    def n_states(self) -> int:
        """Returns the number of states."""
        return int(self.surprise.shape[1])

    def cost(self, c: float) -> Doubles:
        """Returns what each move costs in each state, in nats: (moves, states)."""
        cost = self.surprise + c * self.length[:, None]
        return np.where(self.after < self.n_states, cost, np.inf)


# -------------------------------------------------------------------- values: the cost of the way to the goal


def hard_values(cost: Doubles, after: Ints, goal: Bools, limit: float = np.inf) -> Doubles:
    """Returns the least cost of a way from each state to the goal, a mask of states; inf where there is no way.

    Bellman's equation, solved in the order of costs, as Dijkstra does, but for :data:`TOGETHER` nats of states at once
    (delta-stepping; Meyer and Sanders 2003). Costs above a ``limit`` count as inf, which saves looking at most of a
    large graph.

    >>> after = np.array([[1, 2, 3]])  # one move, to the next of three states
    >>> hard_values(np.array([[2.0, 3.0, 1.0]]), after, np.array([False, False, True])).tolist()
    [5.0, 3.0, 0.0]
    """
    values = np.append(np.where(goal, 0.0, np.inf), np.inf)
    before, starts = _predecessors(after)
    pending, top = np.append(goal, False), 0.0  # the states whose change those before them have not seen yet
    while len(changed := np.flatnonzero(pending)):
        near = values[changed] <= top
        if not near.any():
            top = float(values[changed].min()) + TOGETHER
            near = values[changed] <= top
        pending[changed[near]] = False
        states = _those_before(changed[near], before, starts)
        states = states[~goal[states]]
        new = (cost[:, states] + values[after[:, states]]).min(axis=0, initial=np.inf)
        lower = (new < values[states]) & (new <= limit)
        values[states[lower]] = new[lower]
        pending[states[lower]] = True
    return values[:-1]


def _predecessors(after: Ints) -> tuple[Ints, Ints]:
    """Returns the states that lead to each state, state by state, and where those of each state begin."""
    n = after.shape[1]
    to = after.ravel()
    order = np.argsort(to, kind="stable")
    return order % n, np.searchsorted(to[order], np.arange(n + 1))


def _those_before(states: Ints, before: Ints, starts: Ints) -> Ints:
    """Returns the distinct states that lead to some states."""
    first, count = starts[states], starts[states + 1] - starts[states]
    rows = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    found = np.zeros(len(starts) - 1, np.bool_)
    found[before[rows]] = True
    return np.flatnonzero(found)


def soft_values(cost: Doubles, after: Ints, goal: Bools, tolerance: float = TOLERANCE) -> Doubles:
    """Returns -log Z of each state: the soft minimum of the costs of all ways to the goal; inf where there is no way.

    The linear equations are solved for Z / exp(-hard value), which is at least 1, so that nothing underflows.

    >>> after = np.array([[1, 2, 3], [0, 1, 3]])  # to the next state, or stay
    >>> cost = -np.log(np.full((2, 3), 0.5)) + np.log(2.0)  # each move with 1/2, at a cost of log 2
    >>> np.exp(-soft_values(cost, after, np.array([False, False, True]))).round(6).tolist()
    [0.111111, 0.333333, 1.0]
    """
    values = hard_values(cost, after, goal)
    known = np.isfinite(values)
    while True:
        padded = np.append(values, np.inf)
        with np.errstate(invalid="ignore"):  # inf - inf, where there is no way
            weight = np.exp(values - cost - padded[after])
        weight[:, ~known | goal] = 0.0
        found, is_exact = _limit(weight, after, (goal | ~known).astype(np.float64), known.astype(np.float64), tolerance)
        values = values - np.log(found)  # and scaled anew, if the sums became too large
        if is_exact:
            return values


def policy(cost: Doubles, after: Ints, values: Doubles, goal: Bools) -> Doubles:
    """Returns the probability of each move in each state, given the soft values: (moves, states); 0 at the goal."""
    padded = np.append(values, np.inf)
    with np.errstate(invalid="ignore"):
        found = np.exp(values - cost - padded[after])
    found[:, goal | ~np.isfinite(values)] = 0.0
    return np.asarray(found)


def expected_lengths(graph: Graph, chosen: Doubles, tolerance: float = TOLERANCE) -> Doubles:
    """Returns the expected length of a way from each state to the goal, if moves are ``chosen`` by a policy."""
    once = (chosen * graph.length[:, None]).sum(axis=0)
    found, _ = _limit(chosen, graph.after, once, once, tolerance)
    return found


def _limit(weight: Doubles, after: Ints, constant: Doubles, x: Doubles, tolerance: float) -> tuple[Doubles, bool]:
    """Returns the limit of x <- weight x[after] + constant, from below; False if it was left because it grows large.

    The first ``x`` must not exceed the result of its own sweep. Then all changes are positive; and if each is at most
    r times the one before it, all later ones together add at most r / (1 - r) of the last.
    """
    for _ in range(0, MOST_SWEEPS, AT_ONCE):
        last, change = x, x
        for _ in range(AT_ONCE):
            sums = np.append(x, 0.0)
            last, x = x, (weight * sums[after]).sum(axis=0) + constant
            before, change = change, x - last
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.where(x > 0, change / x, 0.0)
            ratio = np.where(relative > ROUNDING, change / before, 0.0).max(initial=0.0)
        largest = float(relative.max(initial=0.0))
        if largest <= ROUNDING or (ratio < 1.0 and largest * ratio / (1.0 - ratio) <= tolerance):
            return x, True
        if x.max() > 1e200:
            return x, False
    raise ArithmeticError(f"sums over ways have not converged after {MOST_SWEEPS} sweeps")


# -------------------------------------------------------------------- ways


def states_on(after: Ints, start: int, moves: Sequence[int] | Array) -> Ints:
    """Returns the states of a way: the start, and where each of its moves leads."""
    found = [start]
    for move in moves:
        found.append(int(after[move, found[-1]]))
    return np.array(found, np.int64)


def cost_of(cost: Doubles, after: Ints, start: int, moves: Sequence[int] | Array) -> float:
    """Returns the cost of a way."""
    states = states_on(after, start, moves)
    return float(cost[np.asarray(moves, np.int64), states[:-1]].sum())


def log_likelihood(cost: Doubles, after: Ints, values: Doubles, start: int, moves: Sequence[int] | Array) -> float:
    """Returns log p(way | start, goal) from the soft values; the way must reach the goal with its last move only."""
    return float(values[start]) - cost_of(cost, after, start, moves)


def planned(cost: Doubles, after: Ints, values: Doubles, start: int) -> Ints:
    """Returns the moves of the planned way, the one of the least cost, from the hard values; none without a way."""
    padded, state = np.append(values, np.inf), start
    found: list[int] = []
    if not np.isfinite(padded[start]):
        return np.zeros(0, np.int64)
    # Each move comes nearer to the goal by its cost, so no state occurs twice unless moves cost nothing.
    while padded[state] > 0 and len(found) < len(values):
        found.append(int((cost[:, state] + padded[after[:, state]]).argmin()))
        state = int(after[found[-1], state])
    return np.array(found, np.int64)


def regrets(cost: Doubles, after: Ints, values: Doubles, start: int, moves: Sequence[int] | Array) -> Doubles:
    """Returns the regret of each move of a way, from the hard values: what the way costs more because of it.

    It is the cost of the move and of the planned way from where it leads, less that of the planned way from before it:
    the advantage, negated. The sum over a way that ends at the goal is the regret of the way.
    """
    states = states_on(after, start, moves)
    return np.asarray(cost[np.asarray(moves, np.int64), states[:-1]] + np.diff(values[states]))


# -------------------------------------------------------------------- inverse reinforcement learning of c


class Demonstration(NamedTuple):
    """A past way of the agent, on its graph."""

    graph: Graph
    goal: Bools  # a mask of states
    start: int
    moves: Ints


def likelihood_and_slope(demonstrations: Sequence[Demonstration], c: float) -> tuple[float, float]:
    """Returns the log-likelihood of past ways given their goals, and its derivative by c.

    The derivative is that of maximum-entropy inverse reinforcement learning: expected less demonstrated length.
    """
    total, slope = 0.0, 0.0
    for graph, goal, start, moves in demonstrations:
        cost = graph.cost(c)
        values = soft_values(cost, graph.after, goal)
        total += log_likelihood(cost, graph.after, values, start, moves)
        expected = expected_lengths(graph, policy(cost, graph.after, values, goal))
        slope += float(expected[start] - graph.length[moves].sum())
    return total, slope


def most_likely_c(demonstrations: Sequence[Demonstration], tolerance: float = 1e-3) -> float:
    """Returns the cost c of a unit of length that makes past ways most likely, to a relative tolerance.

    The log-likelihood is concave, so its slope falls with c, and bisection of log c finds where it is 0. Ways that are
    as short as ways can be are the more likely the greater c is; for them the result is :data:`GREATEST_C`.
    """

    def slope(log_c: float) -> float:
        return likelihood_and_slope(demonstrations, float(np.exp(log_c)))[1]

    low, high = float(np.log(LEAST_C)), float(np.log(GREATEST_C))
    if slope(low) <= 0:
        return LEAST_C
    if slope(high) >= 0:
        return GREATEST_C
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return float(np.exp((low + high) / 2))
