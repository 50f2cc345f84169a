"""An agent's own scale: what its past trips score, and, as long as they are few, what those of agents like it do.

The shared reward has not learned from the agent, so every past trip, held out of the memory, is an honest example of
what a normal one scores. A few trips say little: centre and spread are shrunk towards everybody's (empirical Bayes,
Efron and Morris 1975), and everybody's trips stand beside the agent's own where p-values are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId
from astray.features.familiarity import DAY, Frame
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.features.trip_rows import TripRows
from astray.irl.posterior import combined
from astray.irl.shared import Reward, band_of, trip_rewards
from astray.scoring.decisions import level
from astray.scoring.normality import Calibration, Location, Sample, locate, over_heads, shrunk
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]

NIGHT = 4 * 3600.0  # seconds after midnight when a day begins: who comes home late comes home the same day


@dataclass(frozen=True, eq=False)
class OwnScores:
    """What an agent's past trips score by the trip reward, each held out of the memory.

    Attributes
    ----------
    trips
        Their rewards, whole and half-way: (trips, 2, aspects); not a number where they are not known.
    step
        Centre and spread of the step rewards; None if no trip is known.
    """

    trips: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2, 0), np.float32))
    step: Location | None = None

    @classmethod
    def unknown(cls, n: int, aspects: int) -> OwnScores:
        """Of trips that have not been scored."""
        return cls(np.full((n, 2, aspects), np.nan, np.float32))

    def follow(self, before: Memory, after: Memory) -> OwnScores:
        """The scores of the trips of a memory that has changed; what is new has none yet."""
        # The last row is that of trips which were not remembered before.
        known = np.concatenate([self.trips, np.full((1, *self.trips.shape[1:]), np.nan, np.float32)])
        return replace(self, trips=known[before.number_of(after.trip_ids)])

    def of_aspects(self, aspects: int) -> NDArray[np.float32]:
        """The rewards of the trips by so many aspects, which is not known before the first trip was scored."""
        return self.trips if self.trips.shape[2] else self.unknown(len(self.trips), aspects).trips

    def known(self, aspects: int, unfinished: bool = False) -> NDArray[np.float64]:
        """The rewards (trips, aspects) of the trips that have been scored."""
        rewards = self.of_aspects(aspects)[:, int(unfinished)]
        return rewards[~np.isnan(rewards).any(axis=1)].astype(np.float64)

    def with_scores(self, fresh: OwnScores, number: Array) -> OwnScores:
        """The same after some trips have been scored, which are remembered under these numbers; -1: not remembered."""
        trips = self.of_aspects(fresh.trips.shape[2]).copy()
        trips[number[number >= 0]] = fresh.trips[number >= 0]
        return OwnScores(trips, fresh.step or self.step)


def fits(reward: Reward, featurizer: Featurizer) -> bool:
    """Whether a reward is of what a featurizer gives."""
    trip = reward.trip
    return trip is not None and (len(trip.mean), len(reward.step.mean)) == (
        len(featurizer.statistics),
        len(featurizer.names),
    )


def own_scores(
    rows: TripRows,
    featurizer: Featurizer,
    number: Array | None,
    reward: Reward,
    weights: Sequence[float],
    config: ScaleConfig,
) -> OwnScores:
    """The scores of trips, each held out of the memory, which numbers them so; None: it has none of them.

    For the place of a whole trip the other trips of the same day are held out, too: who goes somewhere new comes back
    the same day, and each of the two trips would make the other look familiar. A trip of a day to come has nothing of
    the kind behind it. Unfinished trips are not held out by day: their scale widened so far that alerts of somebody
    else's trips under way fell from 19 to none of 37.
    """
    assert reward.trip is not None
    seen_trips = see(rows, featurizer, reward, config, number)
    found = seen_trips.over_heads
    for some, seen in () if number is None else _without_their_days(featurizer, number, rows.frame, config):
        statistics = seen.measure(rows[some], None, _makers(featurizer, len(some)))[1]
        found[some, 0, 0] = trip_rewards(reward.trip, statistics)[:, 0].mean(axis=1)
    return OwnScores(found, step_location(seen_trips, featurizer, reward, weights))


class SeenTrips(NamedTuple):
    """Trips as an agent's memory sees them.

    Attributes
    ----------
    rows, familiar
        Their rows, and how familiar these are.
    rewards
        The rewards of the trips, whole and half-way: (2, trips, aspects, heads).
    """

    rows: TripRows
    familiar: NDArray[np.float32]
    rewards: NDArray[np.float64]

    @property
    def over_heads(self) -> NDArray[np.float32]:
        """The mean rewards over the heads, as :class:`OwnScores` holds them: (trips, 2, aspects)."""
        return np.asarray(self.rewards.mean(axis=3).swapaxes(0, 1), np.float32)


def see(
    rows: TripRows,
    featurizer: Featurizer,
    reward: Reward,
    config: ScaleConfig,
    number: Array | None = None,
    familiar: NDArray[np.float32] | None = None,
) -> SeenTrips:
    """Trips, each held out of the memory, which numbers them so; None: it has none of them.

    ``familiar`` says how familiar the rows are, if that is known already.
    """
    assert reward.trip is not None
    familiar = featurizer.familiarity(rows, number) if familiar is None else familiar
    both, at = rows.with_prefixes(config.prefix)
    without, made_by = None if number is None else np.tile(number, 2), _makers(featurizer, both.n_trips)
    rewards = trip_rewards(reward.trip, featurizer.trip_statistics(both, familiar[at], without, made_by))
    return SeenTrips(rows, familiar, rewards.reshape(2, rows.n_trips, *rewards.shape[1:]))


def step_location(seen: SeenTrips, featurizer: Featurizer, reward: Reward, weights: Sequence[float]) -> Location | None:
    """Centre and spread of the rewards of steps; None if there are none."""
    features = featurizer.features(seen.rows.steps, seen.familiar)
    steps = over_heads(reward.step(features), step_weights(reward, weights))
    return locate(steps) if len(steps) else None


def _makers(featurizer: Featurizer, n: int) -> NDArray[np.int64] | None:
    """The number of the agent among those of the popularity, for each of its trips; None if it is not among them."""
    maker = featurizer.popularity.number_of([featurizer.popularity.excluded or ""])
    return np.repeat(maker, n) if maker[0] >= 0 else None


def _without_their_days(
    featurizer: Featurizer, number: Array, frame: Frame, config: ScaleConfig
) -> Iterator[tuple[NDArray[np.int64], Featurizer]]:
    """Some remembered trips after the others, each time with a featurizer that remembers nothing of their days."""
    memory, known = featurizer.memory, np.flatnonzero(number >= 0)
    part = ((memory.times + frame.utc_offset - NIGHT) // DAY).astype(np.int64) % config.folds
    for fold in np.unique(part[number[known]]).tolist():
        gone = [memory.trip_ids[i] for i in np.flatnonzero(part == fold)]
        yield known[part[number[known]] == fold], featurizer.forget(gone)


def step_weights(reward: Reward, weights: Sequence[float]) -> tuple[float, ...]:
    """How much the aspects of the step reward count: those of the trip reward of the same names."""
    of_trip = dict(zip(reward.aspects, weights, strict=True))
    return tuple(of_trip.get(aspect, 1.0) for aspect in reward.step.aspects)


@dataclass(frozen=True, eq=False)
class OwnScale:
    """What an agent's trips are measured on.

    Attributes
    ----------
    reward
        The shared reward.
    asked
        How much each of its aspects is asked about.
    own
        What the agent's past trips score.
    history
        How many trips stand behind that.
    config
        How scores are scaled.
    """

    reward: Reward
    asked: Sequence[float]
    own: OwnScores
    history: float
    config: ScaleConfig

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """How much the aspects count for the agent."""
        return own_weights(self.reward, self.asked, self.own, self.history, self.config)

    def calibration(self, unfinished: bool = False) -> Calibration:
        """What trips are measured on that are whole, or unfinished."""
        return self._unfinished if unfinished else self._whole

    @cached_property
    def _whole(self) -> Calibration:
        return self._calibrated(unfinished=False)

    @cached_property
    def _unfinished(self) -> Calibration:
        return self._calibrated(unfinished=True)

    def _calibrated(self, *, unfinished: bool) -> Calibration:
        reward, own, history, weights = self.reward, self.own, self.history, self.weights
        assert reward.reference is not None
        everybody = reward.reference.rewards("prefixes" if unfinished else "trips", history, weights)
        mine = combined(own.known(len(weights), unfinished)[:, :, None], weights)[:, 0]
        usual_trip = locate(everybody)
        trip = shrunk(mine, usual_trip, self.config.prior_trips)
        stand_in = max(self.config.stand_in_up_to - len(mine), 0.0)
        step_shares = step_weights(reward, self.asked)
        return Calibration(
            reward.aspects,
            weights,
            self._step(len(mine), step_shares),
            trip,
            normal=Sample.of(
                # Everybody's in everybody's units: a regular agent's tail is as long in its own units as others' are.
                np.concatenate([trip.standardise(mine), usual_trip.standardise(everybody)]),
                np.concatenate([np.ones(len(mine)), np.full(len(everybody), stand_in / len(everybody))]),
            ),
            trip_noise=float(reward.reference.noise / np.sqrt(1.0 + history) / trip.spread),
            step_weights=step_shares,
            least_segment=self.config.least_segment,
        )

    def _step(self, trips: int, shares: tuple[float, ...]) -> Location:
        """Centre and spread of the rewards of steps."""
        usual = _usual_step(self.reward, int(band_of(self.history)), shares)
        own = self.own.step
        if own is None:
            return usual
        share = trips / (trips + self.config.prior_trips)
        return Location(
            share * own.centre + (1.0 - share) * usual.centre, share * own.spread + (1.0 - share) * usual.spread
        )


own_scale = lru_cache(32)(OwnScale)
"""An :class:`OwnScale`; those of the last few agents are kept, for the next trip is mostly measured on the same one."""


@lru_cache(16)
def _usual_step(reward: Reward, band: int, shares: tuple[float, ...]) -> Location:
    """Centre and spread of the rewards of everybody's steps, in a band of history."""
    assert reward.reference is not None
    return locate(combined(reward.reference.steps[band][:, :, None], shares)[:, 0])


def own_weights(
    reward: Reward, weights: Sequence[float], own: OwnScores, history: float, config: ScaleConfig
) -> tuple[float, ...]:
    """How much the aspects count for an agent: one that finds its own past trips odd counts less.

    A reward of 0 says that a trip may as well be of the background. Where more than ``config.odd`` of the agent's own
    trips, held out of the memory, lie below it, the aspect is lifted until they do not, which is to say that its weight
    falls. Place keeps its weight: that an agent goes to new places shows on its own scale. How an agent goes is known
    only after some trips, so with few of them the other aspects count less. A reward that has learned from a pool's own
    trips knows which of them are odd: its weights stay as they are.
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
    """What an agent's remembered trips score; without the suspected ones, if any are to be suspected.

    Gives the featurizer without them, the scores of what the featurizer remembers, and their names.
    """
    ids, rows = past.trips.ids, featurizer.rows(past)
    found = suspected(ids, rows, featurizer, reward, config) if suspect else ()
    featurizer = featurizer.forget(found)
    number = featurizer.memory.number_of(ids)
    fresh = own_scores(rows, featurizer, number, reward, weights, config)
    return featurizer, OwnScores.unknown(len(featurizer.memory), len(reward.aspects)).with_scores(fresh, number), found


def suspected(
    ids: Sequence[TripId], rows: TripRows, featurizer: Featurizer, reward: Reward, config: ScaleConfig
) -> tuple[TripId, ...]:
    """The remembered trips that are somebody else's, as far as that can be told without taking the agent's own.

    Trips of one stranger speak for each other. So all trips are looked at without those that are rather somebody
    else's than not, until these stay the same.
    """
    # Who knows nobody else cannot tell somebody else's trip from an odd one of the agent's own.
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
    """The trips to suspect: the most probable ones, with at most ``mistaken`` of the agent's own expected among them.

    >>> most_suspect(np.array([0.1, 0.99, 0.9, 0.6, 0.55]), 0.5).tolist()
    [1, 2]
    """
    first = np.argsort(-probability, kind="stable")
    taken = (np.cumsum(1.0 - probability[first]) <= mistaken) & (probability[first] > 0.5)
    return np.sort(first[taken])


def somebody_elses(
    log_ratio: Array, usual: Location, prior_trips: float = ScaleConfig.prior_trips, iterations: int = 50
) -> NDArray[np.float64]:
    """How probable it is of each trip that somebody else made it, if an unknown share of them was made by others.

    ``log_ratio`` is what the reward of place estimates: log p(trip | own) - log p(trip | other), for an agent like
    those whose normal trips lie as ``usual`` says. This agent may be more regular than they, or less: how its own trips
    lie, ``prior_trips`` usual ones among them, is fitted together with the share, by expectation maximisation, both
    with long tails (Student's t).

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
        own = _weighed(values, 1.0 - probability, usual, prior_trips)
        odds = share / (1.0 - share) * np.exp(_log_t(values, usual) - values - _log_t(values, own))
        probability = odds / (1.0 + odds)
        share = float(np.clip(probability.mean(), 1e-6, 0.5))
    # A lower ratio never speaks less for somebody else, whatever the tails.
    order = np.argsort(-values, kind="stable")
    found[np.flatnonzero(known)[order]] = np.maximum.accumulate(probability[order])
    return found


def _weighed(values: Array, weights: Array, usual: Location, prior_trips: float) -> Location:
    """Centre and spread of weighed values, shrunk towards the usual ones."""
    total = weights.sum() + prior_trips
    centre = (weights @ values + prior_trips * usual.centre) / total
    square = weights @ np.square(values - centre) + prior_trips * usual.spread**2
    return Location(float(centre), float(np.sqrt(square / total)))


def _log_t(values: Array, where: Location) -> NDArray[np.float64]:
    """The log density, up to a constant, of Student's t with three degrees of freedom."""
    apart = (values - where.centre) / where.spread
    return np.asarray(-2.0 * np.log1p(np.square(apart) / 3.0) - np.log(where.spread))
