"""Finds the expected route: how the agent would have continued where a trip left its known ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.encoders import scores_of
from astray.features.featurizer import Featurizer
from astray.features.steps import Steps
from astray.irl.actor import Actor
from astray.irl.dynamics import Integrator, ScoredIntegrator
from astray.irl.gps_demonstrator import policy_states

Array = NDArray[Any]
Floats = NDArray[np.float64]
Way = tuple[Floats, Floats]  # latitudes, longitudes

HABITUAL = 50  # the most past ways in an explanation
EXPECTED = 5  # the most expected ways
MOST_STEPS = 60  # the most steps of a way that the policy drives
BESIDE = 150.0  # two ways are the same within this many metres
SHOWN = 2000.0  # metres of a past way to show; more if the trip continued for longer
AHEAD = 400.0  # metres for which a past trip must have continued
LOOKED_AT = 500  # the most places of a trip that are compared with past ways
MILESTONES = 20  # the number of places at which two ways are compared


def expected_ways(
    steps: Steps, starts: Sequence[int], habitual: Sequence[Way], featurizer: Featurizer, actor: Actor | None
) -> list[Way]:
    """Returns the ways that were expected instead of the segments that begin at ``starts``, the likeliest first.

    A policy knows nothing of streets, but past trips keep to them. So the expected ways continue past trips that this
    trip followed until a segment, the first one if possible. If there are none, the policy drives on from there.
    """
    paths = [featurizer.projection.to_metres(*way) for way in habitual if len(way[0]) > 1]
    for start in starts:
        before = slice(max(start, 1))
        # At the start of a trip its direction is part of the unusual segment, so it is ignored.
        found = followed(paths, steps.location[before], steps.velocity[before] * (start > 0))
        if found:
            shown = max(2 * _along(steps.location[start:])[-1], SHOWN)
            found = [way[: int(np.searchsorted(_along(way), shown)) + 1] for way in found]
            return [featurizer.projection.to_degrees(way) for way in found]
    return [] if actor is None else rolled_out(featurizer, actor, steps, starts[0])


def followed(paths: Sequence[Array], track: Array, velocity: Array) -> list[Array]:
    """Returns how past ways continued from the last place where the track ran along one of them.

    Past ways and the track are n x 2 each, in metres. The ways that ran along the track longest count most.
    """
    rows = np.unique(np.linspace(0, len(track) - 1, min(len(track), LOOKED_AT)).astype(int))
    track, velocity = track[rows], velocity[rows]
    beside = np.array([_passes(path, track, velocity)[0].any(axis=1) for path in paths]).reshape(-1, len(rows))
    shared = np.flatnonzero(beside.any(axis=0))
    if not len(shared):
        return []
    left = shared[-1]
    on = ways_on(paths, track[left], velocity[left], weights=beside[:, : left + 1].mean(axis=1))
    # A past way runs beside the track, but an expected one must begin on it.
    return [np.concatenate([track[left][None], way]) for way in on]


def ways_on(
    paths: Sequence[Array], place: Array, velocity: Array, most: int = EXPECTED, weights: Array | None = None
) -> list[Array]:
    """Returns how past ways (n x 2 each, metres) continued from a place, the most travelled way first.

    Only ways in the direction of travel count. Of ways that run beside each other, one is returned.
    ``weights`` give how much each past way counts.

    >>> east = np.column_stack([np.arange(0, 5000, 500.0), np.zeros(10)])
    >>> [way[-1].tolist() for way in ways_on([east, east + 9000], np.array([1000.0, 50.0]), np.array([9.0, 0.0]))]
    [[4500.0, 0.0]]
    """
    ways, weight = [], []
    for number, path in enumerate(paths):
        (passes,), (apart,), (share,) = _passes(path, place[None], velocity[None])
        if passes.any():
            piece = int(np.where(passes, apart, np.inf).argmin())
            left = path[piece] + share[piece] * (path[piece + 1] - path[piece])
            ways.append(np.concatenate([left[None], path[piece + 1 + int(share[piece] == 1.0) :]]))
            weight.append(1.0 if weights is None else float(weights[number]))
    return _most_travelled(ways, np.array(weight), most) if ways else []


def _passes(path: Array, places: Array, velocity: Array) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Compares places with the pieces of a path: (places, pieces) each.

    Returns True where the piece passes the place in the direction of travel with enough of the path ahead, their
    distance, and the share of the piece before its point nearest to the place.
    """
    pieces = np.diff(path, axis=0)
    length = np.hypot(*pieces.T)
    apart, share = _apart(places, path)
    ahead = np.cumsum(length[::-1])[::-1] - share * length
    return (apart <= BESIDE) & (velocity @ pieces.T >= 0) & (ahead >= AHEAD), apart, share


def _most_travelled(ways: Sequence[Array], weight: Array, most: int) -> list[Array]:
    """Returns one way of each bundle of ways that run beside each other, the heaviest bundle first."""
    reach = float(np.median([_along(way)[-1] for way in ways]))
    stones = np.stack([_milestones(way, reach) for way in ways])
    apart = np.hypot(*np.moveaxis(stones[:, None] - stones[None], -1, 0)).mean(axis=-1)
    together = (apart <= 2 * BESIDE) * weight
    found: list[Array] = []
    left = np.ones(len(ways), bool)
    while left.any() and len(found) < most:
        support = np.where(left, together[:, left].sum(axis=1), -1.0)
        first = int(support.argmax())
        found.append(ways[first])
        left &= (apart[first] > 2 * BESIDE) & (np.arange(len(ways)) != first)
    return found


def rolled_out(featurizer: Featurizer, actor: Actor, steps: Steps, row: int) -> list[Way]:
    """Returns ways that the policy drives from before step ``row``: its mean way first, then some random ones.

    They last as long as the rest of the trip, within bounds.
    """
    at = steps[np.array([row])]
    left = float(steps.time[-1] - steps.time[row])
    horizon = int(np.clip(np.ceil(left / featurizer.config.interval), 5, MOST_STEPS))
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((horizon, EXPECTED, len(actor.action_mean)))
    noise[:, 0] = 0.0
    metres = np.repeat(policy_states(at, featurizer), EXPECTED, axis=0)
    motion, scores = Integrator(metres, featurizer.config.interval), scores_of(featurizer.encoder)
    scored = None if scores is None else ScoredIntegrator(motion, scores)
    states = metres if scored is None else scored.begin(metres)
    way = [metres[:, :2]]
    for wind in noise:
        states, _ = (scored or motion).step(states, actor.mean(states) + actor.std * wind, rng)
        way.append((states if scored is None else scored.metres)[:, :2])
    return [featurizer.projection.to_degrees(places) for places in np.stack(way, axis=1)]


# -------------------------------------------------------------------- lengths


def _apart(places: Array, path: Array) -> tuple[Floats, Floats]:
    """Returns the distance from each place to each piece of a path, and the share of it before the nearest point.

    >>> apart, share = _apart(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0]]))
    >>> apart.tolist(), share.tolist()
    ([[4.0, 7.0]], [[0.3, 0.8]])
    """
    piece = np.diff(path, axis=0)
    to = places[:, None] - path[None, :-1]
    share = np.clip((to * piece).sum(axis=-1) / np.maximum((piece**2).sum(axis=-1), 1e-9), 0.0, 1.0)
    return np.hypot(*np.moveaxis(to - share[..., None] * piece, -1, 0)), share


def _along(way: Array) -> Floats:
    """Returns the distance travelled at each place of a way."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(way, axis=0).T))])


def _milestones(way: Array, reach: float) -> Floats:
    """Returns places at equal distances along a way, up to ``reach`` metres; beyond its end, its end."""
    wanted, at = np.linspace(0.0, reach, MILESTONES), _along(way)
    return np.column_stack([np.interp(wanted, at, column) for column in way.T])
