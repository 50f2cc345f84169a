"""An agent's own scale: from the scores of its past trips and, while these are few, of similar agents' trips.

The shared reward has not learned from the agent, so each past trip, scored by what came before it, scores like a new
normal trip: lives drift, and a memory that also holds what came after a trip knows it too well. A few trips show
little, so centre and spread are shrunk towards those of all agents (empirical Bayes, Efron and Morris 1975), and
p-values use the trips of all agents as well as the agent's own.

There are four scales. A trip may be over or under way; and the memory may be fresh or stale, if the model has learned
nothing for days. An open trip is looked at many times, so its scale is that of the lowest running score of past trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId
from astray.features.featurizer import Featurizer, Prepared
from astray.features.hashing import changes
from astray.features.memory import Memory
from astray.features.statistics import SEEN
from astray.features.trip_looks import looks
from astray.features.trip_rows import TripRows
from astray.irl.posterior import combined
from astray.irl.shared import Reward, band_of, trip_rewards
from astray.scoring.decisions import level
from astray.scoring.normality import AspectScale, Calibration, Location, Sample, locate, over_heads, shrunk
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]

SCALES = 4  # whole trips and open ones, with a fresh memory and with a stale one


def _scale_number(unfinished: bool, stale: bool) -> int:
    return 2 * stale + unfinished


@dataclass(frozen=True, eq=False)
class OwnScores:
    """The rewards of an agent's past trips, each scored by the trips before it.

    Attributes
    ----------
    trips
        The rewards of trips, (trips, 4, aspects): of the whole trip, and of its lowest running score; then the same
        with a stale memory. NaN for a trip that has not been scored, or had too few trips before it.
    step
        Centre and spread of the step rewards; None if no trip has been scored.
    """

    trips: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, SCALES, 0), np.float32))
    step: Location | None = None

    @classmethod
    def unknown(cls, n: int, aspects: int) -> OwnScores:
        """Returns the entries for ``n`` trips that have not been scored."""
        return cls(np.full((n, SCALES, aspects), np.nan, np.float32))

    def follow(self, before: Memory, after: Memory) -> OwnScores:
        """Returns the scores in the order of a changed memory; new trips have none yet."""
        # New trips have number -1, which takes the last row.
        known = np.concatenate([self.trips, np.full((1, *self.trips.shape[1:]), np.nan, np.float32)])
        return replace(self, trips=known[before.number_of(after.trip_ids)])

    def of_aspects(self, aspects: int) -> NDArray[np.float32]:
        """Returns the trip rewards for this number of aspects, which an empty set of scores does not know."""
        return self.trips if self.trips.shape[2] else self.unknown(len(self.trips), aspects).trips

    def known(self, aspects: int, unfinished: bool = False, stale: bool = False) -> NDArray[np.float64]:
        """Returns the rewards (trips, aspects) of the trips that have been scored."""
        rewards = self.of_aspects(aspects)[:, _scale_number(unfinished, stale)]
        return rewards[~np.isnan(rewards).any(axis=1)].astype(np.float64)

    def with_scores(self, fresh: OwnScores, number: Array) -> OwnScores:
        """Returns the scores with those of further trips; ``number`` is their position in the memory, or -1."""
        trips = self.of_aspects(fresh.trips.shape[2]).copy()
        trips[number[number >= 0]] = fresh.trips[number >= 0]
        return OwnScores(trips, fresh.step or self.step)


def fits(reward: Reward, featurizer: Featurizer) -> bool:
    """Returns True if the reward takes the statistics and features of this featurizer."""
    trip = reward.trip
    return trip is not None and (len(trip.mean), len(reward.step.mean)) == (
        len(featurizer.statistics[SEEN]),
        len(featurizer.names),
    )


def own_scores(
    rows: TripRows,
    featurizer: Featurizer,
    number: Array,
    reward: Reward,
    weights: Sequence[float],
    config: ScaleConfig,
) -> OwnScores:
    """Scores remembered trips, each by the trips before it; ``number`` is their position in the memory.

    The memory must be in the order of time. The scores of a trip whose number is -1 mean nothing.
    """
    before = np.where(number >= 0, number, len(featurizer.memory))
    return scores_of(see(rows, featurizer, reward, before), featurizer, reward, weights, config)


class SeenTrips(NamedTuple):
    """The familiarity and rewards of trips, with one agent's memory."""

    rows: TripRows
    familiar: NDArray[np.float32]  # the familiarity of the rows
    rewards: NDArray[np.float64]  # the rewards of whole trips: (trips, aspects, heads)
    before: NDArray[np.int64] | None = None  # how many of the memory's first trips each was compared with; None: all


def see(
    rows: TripRows,
    featurizer: Featurizer,
    reward: Reward,
    before: NDArray[np.int64] | None = None,
    familiar: NDArray[np.float32] | None = None,
) -> SeenTrips:
    """Computes the rewards of whole trips, each by the first ``before`` trips of the memory; by default by all of them.

    ``familiar`` is the familiarity of the rows, if the caller has it already.
    """
    assert reward.trip is not None
    familiar = featurizer.familiarity(rows, before=before) if familiar is None else familiar
    statistics = featurizer.trip_statistics(rows, familiar, None, _makers(featurizer, rows.n_trips), before)
    return SeenTrips(rows, familiar, trip_rewards(reward.trip, statistics), before)


def scores_of(
    seen: SeenTrips, featurizer: Featurizer, reward: Reward, weights: Sequence[float], config: ScaleConfig
) -> OwnScores:
    """Scores trips, seen with this featurizer's memory, for all four scales."""
    rows, memory = seen.rows, featurizer.memory
    began = np.full(rows.n_trips, -np.inf)
    began[rows.present] = rows.steps.time[rows.starts]
    known = np.full(rows.n_trips, len(memory)) if seen.before is None else seen.before
    # What a memory of that age would know of the trips before each one. If it is too little, the fresh score stands in.
    known_then = np.minimum(np.searchsorted(memory.times, began - config.staleness, side="right"), known)
    with_lowest = (featurizer, reward, weights, config)
    found = np.full((rows.n_trips, SCALES, len(reward.aspects)), np.nan, np.float32)
    found[:, 0], found[:, 1] = seen.rewards.mean(axis=2), lowest_running(seen, *with_lowest)
    found[:, 2:] = found[:, :2]
    older = np.flatnonzero((known_then < known) & (known_then >= config.least_before))
    if len(older):
        then = see(rows[older], featurizer, reward, known_then[older])
        found[older, 2], found[older, 3] = then.rewards.mean(axis=2), lowest_running(then, *with_lowest)
    found[known < config.least_before] = np.nan
    return OwnScores(found, _step_location(seen, known >= config.least_before, featurizer, reward, weights))


def lowest_running(
    seen: SeenTrips, featurizer: Featurizer, reward: Reward, weights: Sequence[float], config: ScaleConfig
) -> NDArray[np.float64]:
    """Returns the rewards of trips, (trips, aspects), at the look at which their combined reward is lowest.

    NaN for a trip without rows.
    """
    assert reward.trip is not None
    rows = seen.rows
    found = np.full((rows.n_trips, len(reward.aspects)), np.nan)
    ends = looks(rows.steps.time, rows.starts, config.looks, config.settled)
    if not len(ends):
        return found
    maker = _makers(featurizer, rows.n_trips)
    statistics = featurizer.statistics_at(ends, rows, seen.familiar, None, maker, seen.before)
    running = trip_rewards(reward.trip, statistics).mean(axis=2)
    score, trip = combined(running[:, :, None], weights)[:, 0], rows.steps.trip[ends]
    lowest_first = np.lexsort((score, trip))
    lowest = lowest_first[changes(trip[lowest_first])]
    found[trip[lowest]] = running[lowest]
    return found


def _step_location(
    seen: SeenTrips, usable: Array, featurizer: Featurizer, reward: Reward, weights: Sequence[float]
) -> Location | None:
    """Returns centre and spread of the rewards of the steps of usable trips; None if there are no such steps."""
    here = usable[seen.rows.steps.trip]
    features = featurizer.features(seen.rows.steps[here], seen.familiar[here])
    steps = over_heads(reward.step(features), step_weights(reward, weights))
    return locate(steps) if len(steps) else None


def _makers(featurizer: Featurizer, n: int) -> NDArray[np.int64] | None:
    """Returns the agent's number in the popularity, once for each of its trips; None if it is not there."""
    maker = featurizer.popularity.number_of([featurizer.popularity.excluded or ""])
    return np.repeat(maker, n) if maker[0] >= 0 else None


def step_weights(reward: Reward, weights: Sequence[float]) -> tuple[float, ...]:
    """Returns the weights of the step reward's aspects, taken from the trip reward's aspects of the same names."""
    of_trip = dict(zip(reward.aspects, weights, strict=True))
    return tuple(of_trip.get(aspect, 1.0) for aspect in reward.step.aspects)


@dataclass(frozen=True, eq=False)
class OwnScale:
    """The scales of an agent's trips, whole and unfinished, with a fresh memory and with a stale one."""

    reward: Reward
    asked: Sequence[float]  # the weights of the reward's aspects that the user gave
    own: OwnScores
    history: float  # the number of past trips that the scores are based on
    config: ScaleConfig
    _made: dict[int, Calibration] = field(default_factory=dict, repr=False)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weights of the aspects for this agent."""
        return own_weights(self.reward, self.asked, self.own, self.history, self.config)

    def calibration(self, unfinished: bool = False, stale: bool = False) -> Calibration:
        """Returns the scales for whole trips or for unfinished ones, with a fresh memory or with a stale one."""
        number = _scale_number(unfinished, stale)
        if number not in self._made:
            self._made[number] = self._calibrated(unfinished, stale)
        return self._made[number]

    def _calibrated(self, unfinished: bool, stale: bool) -> Calibration:
        reward, own, history, weights = self.reward, self.own, self.history, self.weights
        assert reward.reference is not None
        everybody = reward.reference.rewards("under_way" if unfinished else "trips", history, weights)
        known = own.known(len(weights), unfinished, stale)
        trip, normal = self._scale(combined(known[:, :, None], weights)[:, 0], locate(everybody), everybody)
        step_shares = step_weights(reward, self.asked)
        return Calibration(
            reward.aspects,
            weights,
            self._step(len(own.known(len(weights))), step_shares),
            trip,
            normal=normal,
            trip_noise=float(reward.reference.noise / np.sqrt(1.0 + history) / trip.spread),
            step_weights=step_shares,
            least_segment=self.config.least_segment,
            by_aspect=self._by_aspect(known, unfinished),
        )

    def _scale(self, mine: Array, usual: Location, everybody: Array) -> tuple[Location, Sample]:
        """Returns centre and spread of the agent's trips, and the scores of normal ones, from rewards of one kind.

        ``everybody`` are those of all agents, whose centre and spread are ``usual``.
        """
        location, wanted = shrunk(mine, usual, self.config.prior_trips), self.config.stand_in_up_to
        # A life may drift as no simulated one does, so where others stand in, an own trip says more than one of theirs.
        each = float(np.clip(wanted / max(len(mine), 1), 1.0, self.config.replaces))
        stand_in = max(wanted - each * len(mine), 0.0)
        return location, Sample.of(
            # All agents' scores, in units of all agents: in its own units, each agent has about the same tail.
            np.concatenate([location.standardise(mine), usual.standardise(everybody)]),
            np.concatenate([np.full(len(mine), each), np.full(len(everybody), stand_in / len(everybody))]),
        )

    def _by_aspect(self, mine: Array, unfinished: bool) -> tuple[AspectScale, ...]:
        """Returns the scale of each aspect alone, made as that of all together; an empty one if it does not count."""
        usual = _usual_aspects(self.reward, int(band_of(self.history)), unfinished)
        return tuple(
            AspectScale(*self._scale(mine[:, k], *of_aspect)) if weight else AspectScale()
            for k, (weight, of_aspect) in enumerate(zip(self.asked, usual, strict=True))
        )

    def _step(self, trips: int, shares: tuple[float, ...]) -> Location:
        """Returns centre and spread of the rewards of the agent's steps, shrunk towards those of all agents."""
        usual = _usual_step(self.reward, int(band_of(self.history)), shares)
        own = self.own.step
        if own is None:
            return usual
        share = trips / (trips + self.config.prior_trips)
        return Location(
            share * own.centre + (1.0 - share) * usual.centre, share * own.spread + (1.0 - share) * usual.spread
        )


own_scale = lru_cache(32)(OwnScale)
"""Makes an :class:`OwnScale`; caches those of the last agents, who mostly make the next trips, too."""


@lru_cache(16)
def _usual_step(reward: Reward, band: int, shares: tuple[float, ...]) -> Location:
    """Returns centre and spread of the rewards of all agents' steps, in a band of history."""
    assert reward.reference is not None
    return locate(combined(reward.reference.steps[band][:, :, None], shares)[:, 0])


@lru_cache(32)
def _usual_aspects(reward: Reward, band: int, unfinished: bool) -> tuple[tuple[Location, NDArray[np.float64]], ...]:
    """Returns the rewards of each aspect of all agents' trips in a band of history, with their centre and spread."""
    assert reward.reference is not None
    rewards = (reward.reference.under_way if unfinished else reward.reference.trips)[band].astype(np.float64)
    return tuple((locate(of_aspect), of_aspect) for of_aspect in rewards.T)


def own_weights(
    reward: Reward, weights: Sequence[float], own: OwnScores, history: float, config: ScaleConfig
) -> tuple[float, ...]:
    """Returns an agent's weights of the aspects; an aspect by which its own past trips look odd gets less weight.

    A reward of 0 means that a trip is as likely under the background. If more than a share ``config.odd`` of the
    agent's own trips, each by what came before it, have rewards below 0, the weight of the aspect falls until only that
    share has. Place keeps its weight, because the agent's own scale shows how often it goes to new places. How an agent
    travels is known only after some trips, so with few of them the other aspects weigh less. A reward that has learned
    from a pool's own trips knows which of them are odd, so its weights stay.
    """
    assert reward.reference is not None
    if reward.of_a_pool:
        return tuple(weights)
    mine = own.known(len(weights))
    everybody = reward.reference.trips[int(band_of(history))]
    stand_in = max(config.stand_in_up_to - len(mine), 0.0)
    shares = np.concatenate([np.ones(len(mine)), np.full(len(everybody), stand_in / len(everybody))])
    known = (1.0 + history) / (1.0 + history + config.prior_trips)
    found = [float(weights[0])]
    for k, weight in enumerate(weights[1:], start=1):
        low = level(config.odd, Sample.of(np.concatenate([mine[:, k], everybody[:, k]]), shares))
        found.append(float(weight * known * np.exp(min(low, 0.0))))
    return tuple(found)


def scored_past(
    past: Prepared,
    featurizer: Featurizer,
    reward: Reward,
    weights: Sequence[float],
    config: ScaleConfig,
    suspect: bool,
) -> tuple[Featurizer, OwnScores, tuple[TripId, ...]]:
    """Scores an agent's remembered trips; if ``suspect`` is True, forgets those that somebody else probably made.

    Returns the featurizer without the suspected trips, the scores of the others, and the suspected trips.
    """
    ids, rows = past.trips.ids, featurizer.rows(past)
    found = suspected(ids, rows, featurizer, reward, config) if suspect else ()
    featurizer = featurizer.forget(found)
    featurizer = featurizer.with_memory(featurizer.memory.ordered())
    number = featurizer.memory.number_of(ids)
    fresh = own_scores(rows, featurizer, number, reward, weights, config)
    return featurizer, OwnScores.unknown(len(featurizer.memory), len(reward.aspects)).with_scores(fresh, number), found


def suspected(
    ids: Sequence[TripId], rows: TripRows, featurizer: Featurizer, reward: Reward, config: ScaleConfig
) -> tuple[TripId, ...]:
    """Returns the remembered trips that somebody else probably made.

    Several trips of one stranger make each other look familiar. So each round scores all trips with a memory that lacks
    those found suspicious in the last round, until the same ones are found again.
    """
    # Without other agents, a trip of somebody else looks like an odd one of the agent's own.
    comparable = len(featurizer.popularity.agents) > 0 and len(featurizer.memory) >= config.least_to_suspect
    if reward.trip is None or reward.reference is None or not comparable:
        return ()
    place_alone = [float(aspect == reward.aspects[0]) for aspect in reward.aspects]
    doubted, probability = np.zeros(len(ids), np.bool_), np.zeros(len(ids))
    for _ in range(config.rounds):
        seen = featurizer.forget(ids[i] for i in np.flatnonzero(doubted).tolist())
        place = trip_rewards(reward.trip, seen.measure(rows, seen.memory.number_of(ids))[1])[:, 0].mean(axis=1)
        usual = locate(reward.reference.rewards("trips", seen.memory.history, place_alone))
        probability = somebody_elses(place, usual, config.prior_trips)
        before, doubted = doubted, probability > 0.5
        if np.array_equal(before, doubted):
            break
    return tuple(ids[i] for i in most_suspect(probability, config.mistaken).tolist())


def most_suspect(probability: Array, mistaken: float) -> NDArray[np.int64]:
    """Selects the trips most probably somebody else's, so that at most ``mistaken`` wrong ones are expected.

    >>> most_suspect(np.array([0.1, 0.99, 0.9, 0.6, 0.55]), 0.5).tolist()
    [1, 2]
    """
    first = np.argsort(-probability, kind="stable")
    taken = (np.cumsum(1.0 - probability[first]) <= mistaken) & (probability[first] > 0.5)
    return np.sort(first[taken])


def somebody_elses(
    log_ratio: Array, usual: Location, prior_trips: float = ScaleConfig.prior_trips, iterations: int = 50
) -> NDArray[np.float64]:
    """Returns, for each trip, the probability that somebody else made it; the share of such trips is unknown.

    ``log_ratio`` is the reward of place, which estimates log p(trip | own) - log p(trip | other). Normal trips of an
    average agent have the location ``usual``, but this agent may be more or less regular. So expectation maximisation
    fits the location of its own trips, with ``prior_trips`` usual ones added, together with the share of foreign trips.
    Both distributions have long tails (Student's t).

    >>> regular = np.array([5.0, 5.2, 4.8] * 10 + [-5.0])
    >>> somebody_elses(regular, Location(4.0, 2.0)).round(1).tolist()[-2:]
    [0.0, 1.0]
    >>> explorer = np.array([5.0, -2.0, 3.0, 0.0] * 8 + [-3.0])
    >>> somebody_elses(explorer, Location(4.0, 2.0)).round(1).tolist()[-2:]
    [0.0, 0.0]
    """
    found, known = np.zeros(len(log_ratio)), ~np.isnan(log_ratio)
    values = np.clip(log_ratio[known], -30.0, 30.0)
    share, probability = 0.02, np.zeros(len(values))
    for _ in range(iterations if len(values) else 0):
        own = _weighted(values, 1.0 - probability, usual, prior_trips)
        odds = share / (1.0 - share) * np.exp(_log_t(values, usual) - values - _log_t(values, own))
        probability = odds / (1.0 + odds)
        share = float(np.clip(probability.mean(), 1e-6, 0.5))
    # Because of the tails, a lower ratio could make somebody else less probable; prevent that.
    order = np.argsort(-values, kind="stable")
    found[np.flatnonzero(known)[order]] = np.maximum.accumulate(probability[order])
    return found


def _weighted(values: Array, weights: Array, usual: Location, prior_trips: float) -> Location:
    """Returns centre and spread of weighted values, shrunk towards the usual ones."""
    total = weights.sum() + prior_trips
    centre = (weights @ values + prior_trips * usual.centre) / total
    square = weights @ np.square(values - centre) + prior_trips * usual.spread**2
    return Location(float(centre), float(np.sqrt(square / total)))


def _log_t(values: Array, where: Location) -> NDArray[np.float64]:
    """Returns the log density, up to a constant, of Student's t with three degrees of freedom."""
    apart = (values - where.centre) / where.spread
    return np.asarray(-2.0 * np.log1p(np.square(apart) / 3.0) - np.log(where.spread))
