"""Measures what the spread over the K reward functions is worth: against errors known exactly, and for decisions.

    python bench/heads.py line [--ensembles NAME ...] [--draws 5] [--same-data]   (1 to 3 minutes for each ensemble)
    python bench/heads.py people [--users 6] [--preset kdd19] [--ensembles NAME]  (10 to 25 s for each person)
    python bench/heads.py geolife FOLDER [--users 004 140 ...] [--preset kdd19] [--cache FILE]

``line``: the expert of tests/irl/known_mdps.py, whose reward is known. The ensemble learns from several draws of 300
demonstrations. Its claim is the standard deviation over its members in one fit. Against it stand two errors of its
mean: the standard deviation between fits on different draws, and the distance from the true reward.

A reward is identified only up to a shaping term, which does not change the policy (Ng et al. 1999), so the distance
from the true reward overstates the error. Therefore the same is measured for log pi(a | s) of the soft-optimal policy
of each reward, averaged over the horizon, which has no such freedom.

``people`` and ``geolife``: decisions on a person's own trips and on strangers', by rules that use the spread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray import Detector, Trajectories
from astray.core.errors import UnknownAgentWarning
from astray.core.threads import one_thread
from astray.irl.kdd19 import EPSILON, GAMMA, KDD19, mean_reward, normality_score
from astray.irl.learn_config import LearnConfig
from astray.irl.step_demonstrator import StepDemonstrator
from astray.irl.trainer import learn_agent_reward
from astray.scoring.windows import Runs
from astray.simulate import city
from astray_benchmark.injectors import WEEK
from astray_benchmark.metrics import roc_curve
from astray_benchmark.people_data import GeoLife, halves, split
from astray_benchmark.trial_parts import claim, in_time, submitted

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from irl.known_mdps import KnownMDP, Line

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Ensemble(NamedTuple):
    """The number of heads and networks, and whether every iteration updates all of them."""

    heads: int
    networks: int
    all_heads: bool = False

    def config(self) -> LearnConfig:
        """Returns the paper's settings with this ensemble."""
        reward = replace(KDD19.reward, heads=self.heads, networks=self.networks)
        return replace(KDD19, reward=reward, all_heads=self.all_heads)

    @property
    def updates(self) -> float:
        """The mean number of gradient steps that each member takes on its own loss."""
        members = 1 if self.all_heads else self.heads * self.networks
        return KDD19.iterations * KDD19.updates / members


ENSEMBLES = {
    "heads-10": Ensemble(10, 1),
    "networks-5": Ensemble(1, 5),
    "networks-10": Ensemble(1, 10),
    "heads-10-all": Ensemble(10, 1, all_heads=True),
    "networks-10-all": Ensemble(1, 10, all_heads=True),
}

# -------------------------------------------------------------------- against a reward that is known

DEMONSTRATIONS = 300
TRIPS = 300  # of the expert, and of another agent, to score as a whole
REGIONS = {"90 % of the expert's steps": (0.0, 0.9), "the next 9 %": (0.9, 0.99), "where 1 in 1000 goes": (0.999, 1.01)}
SIGMAS = (0, 2, 4, 6, 10, 20)  # distances of actions from the expert's mean, in standard deviations


@dataclass(frozen=True)
class Places:
    """The places at which rewards are compared, drawn once for all fits."""

    mdp: KnownMDP
    regions: Mapping[str, Flags]  # of the tabulated states and actions, by the expert's density
    trips: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]  # states and actions of whole trips
    far: tuple[NDArray[Any], NDArray[Any]]  # (SIGMAS x n) states of the expert with actions ever farther away

    @classmethod
    def of(cls, mdp: KnownMDP, another: KnownMDP) -> Places:
        """Draws the places from the expert, and trips from another agent too."""
        rng = np.random.default_rng(12345)
        visited, actions = mdp.sample(mdp.expert, 20_000, rng)
        number = mdp.number(visited)
        density = np.zeros((len(mdp.states), len(mdp.actions)))
        for t in range(mdp.horizon):
            share = np.bincount(number[:, t], minlength=len(mdp.states)) / len(number)
            density += share[:, None] * np.exp(mdp.expert[t]) * mdp.cell / mdp.horizon
        order = np.argsort(-density, axis=None)
        above = np.empty(density.size)
        above[order] = np.cumsum(density.ravel()[order]) - density.ravel()[order]
        above = above.reshape(density.shape) / density.sum()
        regions = {name: (above >= low) & (above < high) for name, (low, high) in REGIONS.items()}
        trips = {
            "expert's trips": mdp.sample(mdp.expert, TRIPS, rng),
            "another's trips": another.sample(another.expert, TRIPS, rng),
        }
        states = visited[:100, mdp.horizon // 2]
        away = [np.full((len(states), 1), actions.mean() + k * actions.std()) for k in SIGMAS]
        return cls(mdp, regions, trips, (np.tile(states, (len(SIGMAS), 1)), np.concatenate(away)))


class Found(NamedTuple):
    """The normality of one fit, of each member, in the last axis: of the table, of trips, and far away."""

    table: Floats  # (states, actions, K)
    trips: dict[str, Floats]  # (trips, K)
    far: Floats  # (SIGMAS, K)
    policy: Floats  # log pi(a | s) of each member, and of their mean reward: (states, actions, K + 1)
    offset: Floats  # the mean of n over the expert's own steps, of each member; their mean is 0


def normality_of(rewards: Floats, own: Floats) -> Floats:
    """Returns n of rewards (..., K), on the scale of the mean reward of the expert's own steps (n, K)."""
    mean = mean_reward(own)
    return normality_score(rewards, float(mean.mean()), float(mean.std()))


def log_policy(mdp: KnownMDP, reward: Floats) -> Floats:
    """Returns log pi(a | s) of the soft-optimal policy of a tabulated reward, averaged over the horizon."""
    return np.asarray(mdp.soft_optimal(reward).mean(axis=0))


def fit(places: Places, ensemble: Ensemble, draw: int, seed: int) -> Found:
    """Learns from one draw of demonstrations; ``seed`` is of everything else that is random."""
    mdp = places.mdp
    demonstrations = mdp.demonstrations(DEMONSTRATIONS, np.random.default_rng([draw, 1]))
    rng = np.random.default_rng([seed, 2])
    agent = StepDemonstrator.of(demonstrations, mdp, rng, waves=0)
    posterior = learn_agent_reward(agent, ensemble.config(), rng).posterior

    def rewards(states: NDArray[Any], actions: NDArray[Any]) -> Floats:
        flat = agent.encode(states.reshape(-1, states.shape[-1]), actions.reshape(-1, actions.shape[-1]))
        return posterior(flat)[:, 0].astype(np.float64).reshape(*states.shape[:-1], -1)

    own = rewards(demonstrations.columns["state"], demonstrations.columns["action"])
    s, a = len(mdp.states), len(mdp.actions)
    table = rewards(np.repeat(mdp.states, a, axis=0), np.tile(mdp.actions, (s, 1))).reshape(s, a, -1)
    members = [table[..., k] for k in range(table.shape[2])] + [mean_reward(table)]
    return Found(
        table=normality_of(table, own),
        trips={name: normality_of(rewards(*run), own).mean(axis=1) for name, run in places.trips.items()},
        far=normality_of(rewards(*places.far), own).reshape(len(SIGMAS), -1, table.shape[2]).mean(axis=1),
        policy=np.stack([log_policy(mdp, member) for member in members], axis=-1),
        offset=normality_of(own, own).mean(axis=0),
    )


def rms(values: Floats) -> float:
    """Returns the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def compare(claims: Sequence[Floats], means: Sequence[Floats], truth: Floats | None) -> str:
    """Returns a line: claimed spread, spread between fits with its ratio and standard error, error from the truth."""

    def seen(some: Sequence[Floats]) -> float:
        return rms(np.std(some, axis=0, ddof=1))

    claimed = float(np.sqrt(np.mean([rms(claim) ** 2 for claim in claims])))
    between, n = seen(means), len(means)
    without = [seen([m for j, m in enumerate(means) if j != i]) for i in range(n)]  # jackknife
    error = float(np.sqrt((n - 1) * np.var(without))) if n > 2 else np.nan
    line = f"{claimed:8.3f}{between:8.3f}{between / claimed:8.2f} +-{error / claimed:5.2f}"
    if truth is None:
        return line
    off = float(np.sqrt(np.mean([rms(mean - truth) ** 2 for mean in means])))
    return f"{line}{off:8.3f}{off / claimed:8.2f}"


def report_line(name: str, places: Places, fits: Sequence[Found]) -> None:
    """Prints claimed and seen spreads of an ensemble, near to the expert's steps and far from them."""
    mdp = places.mdp
    truth = mdp.true_reward()
    steps = [mdp.number(states) for states, _ in places.trips.values()]
    chosen = [np.abs(mdp.actions[:, 0] - actions).argmin(axis=-1) for _, actions in places.trips.values()]
    own = truth[steps[0], chosen[0]].ravel()[:, None]
    n_true, policy_true = normality_of(truth, own), log_policy(mdp, truth)
    ways = (("", [np.zeros_like(f.offset) for f in fits]), (" centred", [f.offset for f in fits]))
    print(f"\n{name}\n{'':<50} claimed    seen   ratio          truth   ratio")
    for region, inside in places.regions.items():
        means, n = [f.table.mean(axis=-1)[inside] for f in fits], n_true[inside]
        for what, offsets in ways:
            claims = [(f.table - offset).std(axis=-1)[inside] for f, offset in zip(fits, offsets, strict=True)]
            print(f"  {f'n{what}, {region}':<48}{compare(claims, means, n)}")
        claims = [f.policy[..., :-1].std(axis=-1)[inside] for f in fits]
        means = [f.policy[..., -1][inside] for f in fits]
        print(f"  {f'log pi, {region}':<48}{compare(claims, means, policy_true[inside])}")
    for (kind, _), at, action in zip(places.trips.items(), steps, chosen, strict=True):
        means, n = [f.trips[kind].mean(axis=-1) for f in fits], n_true[at, action].mean(axis=1)
        for what, offsets in ways:
            claims = [(f.trips[kind] - offset).std(axis=-1) for f, offset in zip(fits, offsets, strict=True)]
            print(f"  {f'N{what}, {kind}':<48}{compare(claims, means, n)}")
    print(f"  {'actions at so many sd':<48}{'n':>8} claimed  centred    seen  (-2 - n)/claimed  centred")
    for i, k in enumerate(SIGMAS):
        claimed, centred = (
            rms(np.array([(f.far[i] - offset).std() for f, offset in zip(fits, offsets, strict=True)]))
            for _, offsets in ways
        )
        mean = np.array([f.far[i].mean() for f in fits])
        margins = [(EPSILON - mean.mean()) / spread for spread in (claimed, centred)]
        print(f"  {k:<48}{mean.mean():8.2f}{claimed:8.3f}{centred:9.3f}{mean.std(ddof=1):8.3f}", end="")
        print("{:10.1f}{:17.1f}".format(*margins))
    sys.stdout.flush()


def line(given: argparse.Namespace) -> None:
    """Runs ``line``."""
    places = Places.of(Line(), Line(hill=-2.0))
    for name in given.ensembles:
        ensemble = ENSEMBLES[name]
        draws = [(0, seed) if given.same_data else (seed, seed) for seed in range(given.draws)]
        fits = [fit(places, ensemble, draw, seed) for draw, seed in draws]
        same = "the same demonstrations, other seeds" if given.same_data else f"{given.draws} draws of demonstrations"
        report_line(f"{name}: {same}, {ensemble.updates:.0f} updates of each member", places, fits)


# -------------------------------------------------------------------- decisions on people's trips

RATE = 0.05  # the share of strangers' trips in a test set, to which they are weighed
STRANGERS = 100
GAMMAS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, GAMMA)
OUTSIDE = ("004", "140", "030", "014", "039", "084")  # users of GeoLife who are not among the benchmark's ten


class Trips(NamedTuple):
    """A person's past trips, and test trips with labels: True for a stranger's."""

    train: Trajectories
    test: Trajectories
    label: Flags


class Judged(NamedTuple):
    """The normality N of test trips under each head, (trips, K), and the labels."""

    heads: Floats
    label: Flags
    offset: Floats  # the mean normality of the person's past steps under each head, less their mean

    def centred(self) -> Judged:
        """Returns the same with every head shifted by a constant, so that all give past steps the same mean."""
        return Judged(self.heads - self.offset, self.label, np.zeros_like(self.offset))

    @property
    def n(self) -> Floats:
        """N(tau) by the mean reward, which is the mean over the heads."""
        return np.asarray(self.heads.mean(axis=1))

    @property
    def spread(self) -> Floats:
        """The standard deviation of N(tau) over the heads."""
        return np.asarray(self.heads.std(axis=1))

    @property
    def weight(self) -> Floats:
        """The weights of trips, with which strangers are RATE of all."""
        each = RATE / self.label.sum(), (1.0 - RATE) / (~self.label).sum()
        return np.array(each)[1 - self.label.astype(np.int64)]


def rules(judged: Judged) -> dict[str, Flags]:
    """Returns the trips that each rule calls anomalies."""
    low, spread = judged.n <= EPSILON, judged.spread
    margin, share = (EPSILON - judged.n) / spread, (judged.heads <= EPSILON).mean(axis=1)
    found = {"IRL-AD: N <= -2": low, f"IRL-ADU: and spread <= {GAMMA}": low & (spread <= GAMMA)}
    found |= {f"IRL-ADU with gamma {g}": low & (spread <= g) for g in (0.5, 0.2)}
    found |= {f"margin (-2 - N) / spread >= {k}": margin >= k for k in (0.5, 1.0, 2.0)}
    return found | {f"share of heads below -2 >= {s}": share >= s for s in (0.5, 0.8, 1.0)}


def lowest(judged: Judged, flagged: Flags) -> Flags:
    """Returns as many trips as are flagged, those with the lowest N: IRL-AD with another threshold."""
    order = np.argsort(judged.n, kind="stable")[: int(flagged.sum())]
    return np.isin(np.arange(len(judged.n)), order)


def hits_and_flagged(judged: Judged, flagged: Flags) -> tuple[float, float]:
    """Returns the weight of flagged strangers' trips, and of all flagged trips, with strangers weighed to RATE."""
    weight = judged.weight
    return float(weight[flagged & judged.label].sum()), float(weight[flagged].sum())


def f1(judged: Judged, flagged: Flags) -> float:
    """Returns F1, with strangers weighed to RATE."""
    hits, total = hits_and_flagged(judged, flagged)
    return 2.0 * hits / (total + RATE)


def ranked(judged: Judged, score: Floats) -> float:
    """Returns the average precision of a score that is low for anomalies, with strangers weighed to RATE."""
    curve = roc_curve(score, judged.label)
    hits, misses = RATE * curve.y[1:], (1.0 - RATE) * curve.x[1:]
    return float(np.diff(curve.y) @ (hits / (hits + misses)))


def judge(trips: Trips, preset: str, ensemble: Ensemble, seed: int) -> Judged:
    """Fits one person with an ensemble, and returns the normality of the test trips under each of its members."""
    detector = Detector(
        preset=preset,
        pooled=True,
        seed=seed,
        heads=ensemble.heads,
        networks=ensemble.networks,
        config={"all_heads": ensemble.all_heads},
    ).fit(trips.train)
    past, chunk = (detector.fitted.featurize(some) for some in (trips.train, trips.test))
    before, n = (detector.calibration_.step.standardise(detector.posterior_(c.features)[:, 0]) for c in (past, chunk))
    runs, level = Runs.of(chunk.trip, len(trips.test)), before.mean(axis=0)
    judged = Judged(runs.means(n.T, runs.shares(chunk.weight)).T, trips.label, level - level.mean())
    scores = detector.score(trips.test)
    np.testing.assert_allclose(judged.n, scores["normality"].to_numpy(), atol=1e-4)
    np.testing.assert_allclose(judged.spread, scores["uncertainty"].to_numpy(), atol=1e-4)
    return judged


def report_people(name: str, found: Sequence[Judged]) -> None:
    """Prints precision and recall of all people together, mean F1, and which decisions each gamma changes."""
    print(f"\n{name}: {len(found)} people\n{'':<36}precision  recall      F1  as many lowest: F1  F1 up, down (people)")
    base = np.array([f1(j, j.n <= EPSILON) for j in found])
    for rule in rules(found[0]):
        flagged = [rules(j)[rule] for j in found]
        hits, total = np.array([hits_and_flagged(j, f) for j, f in zip(found, flagged, strict=True)]).mean(axis=0)
        each = np.array([f1(j, f) for j, f in zip(found, flagged, strict=True)])
        same = np.mean([f1(j, lowest(j, f)) for j, f in zip(found, flagged, strict=True)])
        up, down = (each > base + 1e-9).sum(), (each < base - 1e-9).sum()
        precision = hits / total if total else np.nan
        print(f"  {rule:<34}{precision:9.3f}{hits / RATE:8.3f}{each.mean():8.3f}{same:15.3f}{up:14d}, {down}")
    scores = {
        "N": [j.n for j in found],
        "N + spread": [j.n + j.spread for j in found],
        "(N + 2) / spread": [(j.n - EPSILON) / j.spread for j in found],
    }
    ap = {what: np.mean([ranked(j, s) for j, s in zip(found, each, strict=True)]) for what, each in scores.items()}
    print("  average precision by " + ", by ".join(f"{what} {value:.3f}" for what, value in ap.items()))
    low = [j.n <= EPSILON for j in found]
    own, strange = (
        np.concatenate([j.spread[f & (j.label == who)] for j, f in zip(found, low, strict=True)])
        for who in (False, True)
    )
    marks = np.quantile(np.r_[own, strange], (0.0, 0.25, 0.5, 0.75, 1.0))
    print(f"  flagged: {len(own)} own trips, {len(strange)} strangers'; quartiles of their spread {marks.round(3)}")
    dropped = [f"{g}: {np.mean(own > g):.0%}, {np.mean(strange > g):.0%}" for g in GAMMAS]
    print("  gamma: flagged own trips dropped, strangers' dropped: " + "; ".join(dropped))
    both = [(j, f) for j, f in zip(found, low, strict=True) if (f & j.label).any() and (f & ~j.label).any()]
    surer = np.mean([_above(j.spread[f & ~j.label], j.spread[f & j.label]) for j, f in both])
    follows = np.mean([np.corrcoef(j.n[f], j.spread[f])[0, 1] for j, f in both])
    print(f"  P(a flagged own trip has more spread than a flagged stranger's) {surer:.2f}")
    print(f"  correlation of spread and N among the flagged {follows:.2f}")
    sys.stdout.flush()


def _above(a: Floats, b: Floats) -> float:
    return float((a[:, None] > b).mean() + 0.5 * (a[:, None] == b).mean())


def simulated(users: int, days: int, seed: int) -> Iterator[Trips]:
    """Yields simulated people with 60 % of their trips to learn from, the others and strangers' trips to test."""
    trips = city(people=3 * users, days=days, seed=seed).trips
    for person in trips.agents[:users]:
        rng = np.random.default_rng([seed, crc32(person.encode())])
        own = rng.permutation(np.flatnonzero(trips.agent_ids == person))
        strangers = rng.permutation(np.flatnonzero(np.isin(trips.agent_ids, trips.agents[users:])))[:STRANGERS]
        learned, normal = np.sort(own[: int(0.6 * len(own))]), own[int(0.6 * len(own)) :]
        label = np.r_[np.zeros(len(normal), np.bool_), np.ones(len(strangers), np.bool_)]
        yield Trips(trips[learned], trips[np.r_[normal, strangers]], label)


def real(folder: str, users: Sequence[str], seed: int, cache: str | None) -> Iterator[Trips]:
    """Yields users of GeoLife, prepared as for P1, but with 60 % of the trips to learn from and 100 strangers'."""
    data = GeoLife(folder, cache=cache).data
    trips = data.trips
    for user in users:
        rng = np.random.default_rng([seed, 2, crc32(user.encode())])
        own = np.flatnonzero(trips.agent_ids == user)
        train, normal = split(trips, own, int(0.4 * len(own)), "random", rng)
        foreign = np.setdiff1d(halves(trips, seed, data.together)[0], np.r_[own, data.companions([user])])
        foreign, places = rng.permutation(foreign)[:STRANGERS], rng.choice(normal, STRANGERS)
        test = Trajectories.concat([trips[normal], submitted(trips, foreign, places, WEEK)])
        order = rng.permutation(len(test))
        label = np.r_[np.zeros(len(normal), np.bool_), np.ones(STRANGERS, np.bool_)][order]
        yield Trips(claim(in_time(trips[train]), user, "trip"), claim(test[order], user, "test"), label)


def decisions(given: argparse.Namespace, what: str, cases: Sequence[Trips]) -> None:
    """Runs ``people`` or ``geolife``."""
    for name in given.ensembles:
        found = [judge(case, given.preset, ENSEMBLES[name], given.seed) for case in cases]
        title = f"{what}, {given.preset}, {name}"
        report_people(title, found)
        report_people(f"{title}, centred", [j.centred() for j in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    known, people, geolife = (commands.add_parser(name) for name in ("line", "people", "geolife"))
    known.add_argument("--draws", type=int, default=5)
    known.add_argument("--same-data", action="store_true", help="the same demonstrations for all fits")
    known.add_argument("--ensembles", nargs="+", choices=ENSEMBLES, default=list(ENSEMBLES))
    people.add_argument("--users", type=int, default=6)
    people.add_argument("--days", type=int, default=40)
    geolife.add_argument("folder")
    geolife.add_argument("--users", nargs="+", default=OUTSIDE)
    geolife.add_argument("--cache", help="a Parquet file for the parsed trips")
    for command in (people, geolife):
        command.add_argument("--preset", choices=("kdd19", "kdd19-fourier"), default="kdd19")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--ensembles", nargs="+", choices=ENSEMBLES, default=["heads-10"])
    given = parser.parse_args()
    warnings.simplefilter("ignore", UnknownAgentWarning)  # simulated strangers keep their names
    with one_thread():
        if given.command == "line":
            line(given)
        elif given.command == "people":
            decisions(given, "simulated people", list(simulated(given.users, given.days, given.seed)))
        else:
            decisions(given, "GeoLife", list(real(given.folder, given.users, given.seed, given.cache)))


if __name__ == "__main__":
    main()
