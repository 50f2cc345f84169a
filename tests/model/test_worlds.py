"""A further world needs one entry in the registry of worlds, and no change anywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import astray
from astray import Detector, Explanation, Trajectories, TripId
from astray.core.errors import DataError, ModelFileError, UnknownAgentWarning
from astray.core.zones import Zone
from astray.explain import explain_segments
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import Reward
from astray.model import worlds
from astray.model.memory_bytes import unpack_anomalous
from astray.model.packing import Contents
from astray.model.parameters import Parameters
from astray.model.parts import unpack_calibration, unpack_reward
from astray.model.store import Store
from astray.model.trip_selection import sort_out
from astray.model.worlds import World
from astray.scoring.decisions import Bounds
from astray.scoring.normality import Calibration, calibrate
from astray.scoring.scores import Chunk, Scores

HEADS = np.array([0.9, 1.0, 1.1], np.float32)


@dataclass(eq=False)
class Symbols(World):
    """A toy: trajectories are sequences of symbols, and a symbol is the more normal the more often it was counted."""

    kind: ClassVar[str] = "symbols"
    sees: ClassVar[str] = "symbols"

    parameters: Parameters
    counts: dict[str, int]
    learned: tuple[TripId, ...]
    reward: Reward
    calibration: Calibration
    anomalous: frozenset[TripId] = frozenset()
    updates: int = 0
    weights: tuple[float, ...] = (1.0,)

    @classmethod
    def takes(cls, trips: Trajectories) -> bool:
        return trips.holds("symbol")

    @classmethod
    def fit(
        cls, parameters: Parameters, trips: Trajectories, anomalous: Trajectories, population: Trajectories | None
    ) -> Symbols:
        symbols, often = np.unique(trips.columns["symbol"], return_counts=True)
        counts = dict(zip(symbols.tolist(), often.tolist(), strict=True))
        layer = (HEADS[None, None], np.zeros((1, 1, len(HEADS)), np.float32))
        reward = Reward(RewardPosterior(np.zeros(1, np.float32), np.ones(1, np.float32), (layer,)))
        chunk = Chunk.of_steps(trips, familiarity(trips, counts), np.zeros(len(trips)))
        scale = calibrate(reward.step(chunk.features), chunk.trip, chunk.time, chunk.weight)
        return cls(parameters, counts, tuple(trips.ids), reward, scale, frozenset(anomalous.ids))

    def update(
        self, trips: Trajectories | None, y: Any, anomalous: Iterable[TripId | str], population: Trajectories | None
    ) -> None:
        new, learned, refused = sort_out(trips, y, anomalous, self.known_trips, self.anomalous)
        if new is not None:
            for symbol in new.columns["symbol"].tolist():
                self.counts[symbol] = self.counts.get(symbol, 0) + 1
        self.learned += tuple(learned)
        self.anomalous |= refused
        self.updates += 1

    def forget(self, agent: str) -> None:
        raise DataError("symbols have no names", remedy="fit the model again")

    @property
    def agents(self) -> list[str]:
        return list(dict.fromkeys(trip.agent for trip in self.learned))

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        return [agent for agent in trips.agents if agent not in self.agents]

    @property
    def n_trips(self) -> int:
        return len(self.learned)

    @property
    def known_trips(self) -> set[TripId]:
        return {*self.learned, *self.anomalous}

    def learned_of(self, agents: Iterable[str]) -> set[TripId]:
        return {trip for trip in self.learned if trip.agent in set(agents)}

    @property
    def n_others(self) -> int:
        return 0

    @property
    def starts(self) -> list[float]:
        return []

    def home(self, agent: str) -> Zone | None:
        return None

    @property
    def is_one(self) -> bool:
        return True

    def check(self, trips: Trajectories) -> Trajectories:
        if not self.takes(trips):
            raise DataError(f"these trajectories hold {', '.join(trips.columns)}", remedy="give symbols")
        return trips

    def featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        past = np.where(np.isin(trips.agent_ids, self.agents), float(self.n_trips), 0.0)
        return Chunk.of_steps(trips, familiarity(self.check(trips), self.counts), past)

    def calibrations(self, trips: Trajectories | None) -> Sequence[Calibration]:
        return [self.calibration]

    def explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        segments = scores.segments(bounds.levels)
        symbols = trip.columns["symbol"]
        words: list[tuple[str, dict[str, float]]] = [
            (f"{symbols[segment.start]} is rare", {"before": float(self.counts.get(str(symbols[segment.start]), 0))})
            for segment in segments
        ]
        return explain_segments(scores, bounds, segments, words)

    def pack(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "learned": self.learned,
            "updates": self.updates,
            "reward": self.reward,
            "scale": self.calibration,
        }

    @classmethod
    def unpack(cls, parameters: Parameters, model: Contents, store: Store) -> Self:
        return cls(
            parameters,
            model.value("counts", dict[str, int]),
            model.value("learned", tuple[TripId, ...]),
            unpack_reward(model, "reward"),
            unpack_calibration(model, "scale"),
            unpack_anomalous(store),
            model.value("updates", int),
        )


def familiarity(trips: Trajectories, counts: dict[str, int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    often = [counts.get(symbol, 0) for symbol in trips.columns["symbol"].tolist()]
    return np.log1p(np.array(often, np.float32))[:, None]


def texts(*words: str, agent: str = "ann", first: int = 0) -> Trajectories:
    """Returns a trajectory of letters for each word."""
    letters = np.array([*"".join(words)])
    offsets = np.cumsum([0, *map(len, words)])
    names = [f"w{first + i}" for i in range(len(words))]
    return Trajectories({"symbol": letters}, offsets, [agent] * len(words), names)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(worlds.WORLDS, "symbols", f"{__name__}:Symbols")


@pytest.fixture
def detector() -> Detector:
    words = ["aabab", "ababb", "bbaaa", "aabbc", "babab"] * 8
    return Detector(false_alarm_rate=0.05, min_history=5).fit(texts(*words))


def test_a_world_is_found_by_its_entry_in_the_registry(detector: Detector) -> None:
    assert isinstance(detector.world_, Symbols)
    assert detector.agents == ["ann"]
    assert detector.n_trips_ == 40
    assert detector.training_history_.is_empty()


def test_trajectories_of_the_world_are_scored_and_decided(detector: Detector) -> None:
    table = detector.score(texts("ababa", "xyzxy", first=90))
    assert table["decision"].to_list() == ["normal", "anomaly"]
    assert table["history"].to_list() == [40.0, 40.0]
    assert "start" not in table.columns
    assert detector.predict(texts("ababa", "xyzxy", first=90)).tolist() == [1, -1]
    steps = detector.score_fixes(texts("abx", first=90))
    assert steps["step"].to_list() == [0, 1, 2]
    assert steps["normality"].arg_min() == 2


def test_an_unknown_agent_is_for_review(detector: Detector) -> None:
    with pytest.warns(UnknownAgentWarning, match="bob"):
        assert detector.decide(texts("xyzxy", agent="bob")).tolist() == ["review"]


def test_a_trajectory_of_the_world_is_explained(detector: Detector) -> None:
    explanation = detector.explain(texts("ababxxxba", first=90))
    (segment,) = [s for s in explanation.segments if s.start <= 4 < s.stop]
    assert segment.counts == {"before": 0.0}
    assert "x is rare" in str(explanation)
    assert explanation.time.tolist() == list(range(9))


def test_a_model_of_the_world_is_saved_and_loaded_with_the_same_scores(detector: Detector, tmp_path: Path) -> None:
    asked = texts("ababa", "xyzxy", "cccab", first=90)
    detector.partial_fit(texts("cab", first=50), anomalous=[])
    detector.partial_fit(texts("xxx", first=51), y=[-1])
    detector.save(tmp_path / "symbols.astray")
    loaded = astray.load(tmp_path / "symbols.astray")
    assert loaded.score(asked).equals(detector.score(asked), null_equal=True)
    assert loaded.anomalous_ == {TripId("ann", "w51")}
    assert loaded.n_trips_ == 41
    loaded.partial_fit(texts("abc", first=60))
    loaded.save(tmp_path / "symbols.astray")
    assert astray.load(tmp_path / "symbols.astray").n_trips_ == 42


def test_what_the_world_cannot_do_is_refused_with_a_remedy(detector: Detector) -> None:
    with pytest.raises(DataError, match="cannot enrol agents; call partial_fit"):
        detector.enroll(texts("ab", first=90))
    with pytest.raises(DataError, match="fitted on symbols, which have no place on the earth"):
        detector.agent_model("ann")
    with pytest.raises(DataError, match="hold state, action; give symbols"):
        detector.score(Trajectories.from_steps([np.zeros((3, 2))], [np.zeros((3, 1))]))


def test_a_model_of_a_world_that_is_not_registered_is_refused(
    detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector.save(tmp_path / "symbols.astray")
    monkeypatch.delitem(worlds.WORLDS, "symbols")
    with pytest.raises(ModelFileError, match="a model of the unknown kind 'symbols'"):
        astray.load(tmp_path / "symbols.astray")
    with pytest.raises(DataError, match="hold symbol, which no kind of model is about"):
        Detector().fit(texts("abc"))
