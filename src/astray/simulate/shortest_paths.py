"""Dijkstra's algorithm on the street network."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

import numpy as np

from astray.simulate.streets import Streets


def cheapest_paths(
    streets: Streets,
    cost: Sequence[float],
    start: int,
    goal: int = -1,
    closed: Collection[int] = (),
    within: float = np.inf,
) -> tuple[list[float], list[int]]:
    """Returns the least cost from ``start`` to each crossing, and the crossing before it on the cheapest path.

    ``cost`` has one number per arc (see :attr:`Streets.arcs`). The search stops at ``goal`` or where the cost
    exceeds ``within``, and never enters a ``closed`` crossing. Crossings that it does not reach have infinite
    cost and the predecessor -1.
    """
    least = [np.inf] * len(streets.xy)
    before = [-1] * len(streets.xy)
    for crossing in closed:
        least[crossing] = -np.inf  # no path there can be an improvement
    least[start] = 0.0
    queue = [(0.0, start)]
    arcs, push, pop = streets.arcs, heapq.heappush, heapq.heappop
    while queue:
        so_far, here = pop(queue)
        if so_far > least[here]:
            continue  # a cheaper path was found after this one was queued
        if here == goal or so_far > within:
            break
        for there, arc in arcs[here]:
            total = so_far + cost[arc]
            if total < least[there]:
                least[there] = total
                before[there] = here
                push(queue, (total, there))
    for crossing in closed:
        least[crossing] = np.inf
    return least, before


def trace_path(before: Sequence[int], start: int, goal: int) -> list[int]:
    """Returns the crossings from ``start`` to ``goal`` by predecessors; an empty list if there is no path."""
    path = [goal]
    while path[-1] != start:
        previous = before[path[-1]]
        if previous < 0:
            return []
        path.append(previous)
    return path[::-1]


def cheapest_path(streets: Streets, cost: Sequence[float], start: int, goal: int) -> list[int]:
    """Returns the crossings of the cheapest path; an empty list if there is no path."""
    return trace_path(cheapest_paths(streets, cost, start, goal)[1], start, goal)
