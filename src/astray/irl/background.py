"""The background: what the agent might have done instead. The reward detects only anomalies that resemble it.

It mixes four sources by weight: ``policy`` (the generator's rollouts, the paper's T_s), ``explore`` (counterfactuals of
the agent's own trips), ``population`` (other agents) and ``given`` (trajectories that the user made).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.irl.demonstrations import Rows
from astray.irl.proposals import DEMONSTRATED, LogDensity, Proposals

Array = NDArray[Any]

SOURCES = ("policy", "explore", "population", "given")


@dataclass(frozen=True)
class Batch:
    """Trajectories drawn for Eq. 3 of the paper: their rows, and the log-density of each trajectory."""

    features: NDArray[np.float32]
    path: NDArray[np.int64]
    log_q: NDArray[np.float64]


class Background:
    """Trajectories by source, T_s of Algorithm 1; a full source drops its oldest trajectories.

    Parameters
    ----------
    weights
        The share of each source in a draw; empty sources leave their share to the others.
    capacity
        The largest number of rows that a source keeps.
    proposals
        The densities of trajectories, for the importance weights of Eq. 3; None if only single rows are drawn.
    """

    def __init__(
        self, weights: Mapping[str, float], capacity: int = 100_000, proposals: Proposals | None = None
    ) -> None:
        unknown = set(weights) - set(SOURCES)
        if unknown or not any(w > 0 for w in weights.values()):
            raise DataError(
                f"background weights are {dict(weights)}",
                remedy=f"give weights for {', '.join(SOURCES)}, at least one of them above 0",
            )
        self.weights = dict(weights)
        self.capacity = capacity
        self.rows: dict[str, Rows] = {}
        self.proposals = proposals

    def append(self, source: str, rows: Rows, density: LogDensity | None = None) -> None:
        """Appends trajectories to a source, unless its weight is 0; ``density`` is the log-density of their actions."""
        if not len(rows) or self.weights.get(source, 0.0) <= 0:
            return
        rows = rows if self.proposals is None else rows.cut(self.proposals.horizon)
        merged = Rows.concat([self.rows[source], rows]) if source in self.rows else rows
        whole = True
        if len(merged) > self.capacity:
            last_to_go = merged.path[len(merged) - self.capacity - 1]
            # Drop whole trajectories; a single one longer than the capacity loses its start.
            kept = merged.path > last_to_go
            whole = bool(kept.any())
            merged = merged[kept if whole else np.arange(len(merged)) >= len(merged) - self.capacity]
        self.rows[source] = merged
        if self.proposals is not None:
            self.proposals.note(source, merged, rows if whole else merged, density)

    def refreshed(self, refresh: Callable[[Rows], Rows]) -> Background:
        """Returns the background with recomputed features and no counterfactuals, which the caller draws anew."""
        new = Background(self.weights, self.capacity, self.proposals)
        new.rows = {source: refresh(rows) for source, rows in self.rows.items() if source != "explore"}
        return new

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source; empty sources have none."""
        present = {s: self.weights.get(s, 0.0) for s in self.rows if self.weights.get(s, 0.0) > 0}
        total = sum(present.values())
        if total == 0:
            raise DataError("the background is empty", remedy="give a population or explorers, or set rollouts above 0")
        return {s: w / total for s, w in present.items()}

    def draw_rows(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draws the features of ``n`` steps, mixed by weight; within a source every trajectory is equally likely."""
        return self.draw_with_trips(n, rng)[0]

    def draw_with_trips(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Draws the features of ``n`` steps, and the demonstrations that they were made from; -1: from none."""
        shares = self.shares
        counts = rng.multinomial(n, list(shares.values()))
        chosen = [(self.rows[s], self.rows[s].draw(c, rng)) for s, c in zip(shares, counts, strict=True)]
        features, trips = ([getattr(rows, of)[which] for rows, which in chosen] for of in ("features", "trip"))
        return np.concatenate(features), np.concatenate(trips)

    def draw_paths(self, n: int, demonstrations: Rows, chosen: NDArray[np.int64], rng: np.random.Generator) -> Batch:
        """Draws ``n`` trajectories, mixed by weight, and adds the ``chosen`` demonstrations (Algorithm 2, lines 2, 4).

        The density q(tau) of each is that of the whole batch: the mixture of all sources and the demonstrations.
        """
        if self.proposals is None:
            raise DataError("this background knows no densities", remedy="make it with proposals")
        shares = self.shares
        counts = rng.multinomial(n, list(shares.values()))
        drawn = [rng.integers(self.rows[s].n_paths, size=c) for s, c in zip(shares, counts, strict=True)]
        sets = [*((s, self.rows[s]) for s in shares), (self.proposals.know(demonstrations), demonstrations)]
        mixture = {s: n * share for s, share in shares.items()} | {DEMONSTRATED: float(len(chosen))}
        features, lengths, log_q = [], [], []
        for (name, rows), paths in zip(sets, [*drawn, chosen], strict=True):
            index, length = rows.rows_of(paths)
            features.append(rows.features[index])
            lengths.append(length)
            log_q.append(self.proposals.log_q(name, paths, mixture))
        length = np.concatenate(lengths)
        return Batch(np.concatenate(features), np.repeat(np.arange(len(length)), length), np.concatenate(log_q))
