"""Says which numbers of a step (states and actions) are unusual, compared with similar past steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

LIKE = 25  # how many similar past steps are compared with a step
MOST = 2  # the most numbers that are named
MATERIAL = 0.5  # a number is named only if it costs this many standard deviations of n(s, a)
RATHER = 0.5  # an action is named before a state that costs up to twice as much: the agent chose the action


class Odd(NamedTuple):
    """A number of a step, and the range (10 % to 90 %) of this number in otherwise similar past steps."""

    column: int
    value: float
    low: float
    high: float
    past: int

    def words(self, n_states: int) -> str:
        """Returns the number in words; columns count from 0, actions after states."""
        name = f"state {self.column}" if self.column < n_states else f"action {self.column - n_states}"
        usual = f"in the {self.past} past steps most like this one it was {self.low:.3g} to {self.high:.3g}"
        return f"{name} was {self.value:.3g}; {usual}"


class OddChoice(NamedTuple):
    """A discrete action, and the most frequent one in otherwise similar past steps."""

    column: int  # its first column in the step
    action: int
    usual: int
    times: int
    past: int

    def words(self, n_states: int) -> str:
        """Returns the action in words."""
        usual = f"in {self.times} of the {self.past} past steps most like this one it was {self.usual}"
        return f"the action was {self.action}; {usual}"


def odd_numbers(
    step: Floats,
    past: Floats,
    scale: Floats,
    n_states: int,
    normality: Callable[[Array], Floats],
    discrete: bool = False,
) -> list[Odd | OddChoice]:
    """Returns the numbers of a step (its state, then its action) that cost it most normality, most important first.

    The cost of a number is the normality that the step would gain with the number of otherwise similar past steps. A
    ``discrete`` action, whose columns are one-hot, counts as one number.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 500)
    >>> past = np.column_stack([x, rng.uniform(-1, 1, 500), 2 * x])  # the action is twice the first state
    >>> odd = odd_numbers(np.array([0.5, 0.0, -1.0]), past, np.ones(3), 2, lambda s: -3 * np.abs(s[:, 2] - 2 * s[:, 0]))
    >>> [(o.column, round(o.low), round(o.high)) for o in odd]
    [(2, 1, 1)]
    """
    found: list[Odd | OddChoice] = []
    now = step
    for _ in range(MOST):
        numbers = range(n_states) if discrete else range(len(step))
        odd = [_compare(now, past, scale, column) for column in numbers]
        if discrete:
            odd.append(_compare_choice(now, past, scale, n_states))
        tried = np.stack([usual for _, usual in odd])
        cost = normality(tried) - normality(now[None])
        cost[[o.column for o in found]] = -np.inf
        worst = int(np.argmax(np.where(np.arange(len(odd)) < n_states, RATHER * cost, cost)))
        if not cost[worst] >= MATERIAL:
            break
        found.append(odd[worst][0])
        now = tried[worst]
    return found


def _compare(step: Floats, past: Floats, scale: Floats, column: int) -> tuple[Odd | OddChoice, Floats]:
    """Compares one number of a step with otherwise similar past steps; also returns the step with their median."""
    like = _otherwise_like(step, past, scale, slice(column, column + 1))[:, 0]
    low, middle, high = np.quantile(like, [0.1, 0.5, 0.9])
    usual = step.copy()
    usual[column] = middle
    return Odd(column, float(step[column]), float(low), float(high), len(like)), usual


def _compare_choice(step: Floats, past: Floats, scale: Floats, n_states: int) -> tuple[Odd | OddChoice, Floats]:
    """Compares the action with that of otherwise similar past steps; also returns the step with the most frequent."""
    counts = _otherwise_like(step, past, scale, slice(n_states, None)).sum(axis=0)
    action, best = int(step[n_states:].argmax()), int(counts.argmax())
    usual = np.append(step[:n_states], np.arange(len(counts)) == best)
    return OddChoice(n_states, action, best, int(counts[best]), int(counts.sum())), usual


def _otherwise_like(step: Floats, past: Floats, scale: Floats, columns: slice) -> Floats:
    """Returns these columns of the past steps that are most similar to the step in all other columns."""
    apart = ((past - step) / scale) ** 2
    apart[:, columns] = 0.0
    n = min(LIKE, len(past))
    return np.asarray(past[np.argpartition(apart.sum(axis=1), n - 1)[:n], columns])
