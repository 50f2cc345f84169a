"""Fine-tuning: an agent's own reward, the same whoever computes it and however often they are interrupted."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pytest

import astray
from astray import FleetDetector, Trajectories
from astray.detectors.finetune import SUFFIX, Mixed
from astray.errors import DataError, ModelFileError, NotFittedError, TrainingError
from astray.modelfile import read, write
from astray.normality import step_normality
from astray.processes import spread
from astray.simulate import city

QUICK: dict[str, Any] = {
    "iterations": 3,
    "config": {"updates": 8, "batch_rows": 256, "imagined": 60},
    "sharing": {"demonstrations": 20, "short_demonstrations": 8, "others": 8},
    "tuning": {"iterations": 2, "imagined": 30, "others": 20, "least_trips": 20},
}
PEOPLE = ["p00", "p01", "p02", "p03"]
FEW = "p04"  # somebody of whom only ten trips are known


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    """Past trips: many of four people, ten of a fifth."""
    everybody = city(people=5, days=16, seed=3).split(0.3)[0]
    few = np.flatnonzero(everybody.agent_ids == FEW)[10:]
    return everybody[np.setdiff1d(np.arange(len(everybody)), few)]


@pytest.fixture(scope="module")
def future() -> Trajectories:
    return city(people=5, days=16, seed=3).split(0.3)[1]


@pytest.fixture(scope="module")
def shared(trips: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a fleet without any reward of an agent's own."""
    path = tmp_path_factory.mktemp("models") / "shared.astray"
    FleetDetector(**QUICK, seed=0).fit(trips).save(path)
    return path


@pytest.fixture(scope="module")
def tuned(shared: Path, trips: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the same fleet, fine-tuned in one go in this process."""
    path = tmp_path_factory.mktemp("models") / "tuned.astray"
    fleet = opened(shared)
    assert fleet.fine_tune(trips, n_jobs=1) == len(PEOPLE)
    fleet.save(path)
    return path


def opened(path: Path) -> FleetDetector:
    fleet = astray.load(path)
    assert isinstance(fleet, FleetDetector)
    return fleet


def saved(fleet: FleetDetector, path: Path) -> bytes:
    fleet.save(path)
    return path.read_bytes()


class TestOwnRewards:
    def test_who_has_one_is_scored_by_it_and_nobody_else_is_touched(
        self, shared: Path, tuned: Path, trips: Trajectories, future: Trajectories
    ) -> None:
        before, after = opened(shared), opened(shared)
        assert after.fine_tune(trips, ["p02", "p00"], n_jobs=1) == 2
        assert sorted(after.tuned_) == ["p00", "p02"]
        old, new = before.score_samples(future), after.score_samples(future)
        own = np.isin(future.agent_ids, ["p00", "p02"])
        assert (np.abs(old[own] - new[own]) > 1e-3).mean() > 0.9
        assert np.allclose(old[~own], new[~own], atol=1e-6)
        # What an agent comes to does not depend on who else was asked for.
        everybody = opened(tuned)
        layers = (f.tuned_["p02"].posterior.layers for f in (everybody, after))
        assert all(
            np.array_equal(a, b) for one, other in zip(*layers, strict=True) for a, b in zip(one, other, strict=True)
        )
        assert np.allclose(everybody.score_samples(future)[own], new[own], atol=1e-6)

    def test_through_the_lens_it_is_the_same(self, tuned: Path, future: Trajectories) -> None:
        fleet = opened(tuned)
        for agent in ("p01", FEW):
            trip = future.agent(agent)[0]
            view, scale, history = fleet.lens(agent)
            rewards = fleet.reward(agent)(view.look(trip).features)
            n = step_normality(rewards, scale.calibration).normality
            assert np.allclose(n, fleet.score_fixes(trip)["normality"].to_numpy(), atol=1e-4)
            assert fleet.score(trip)["history"].to_list() == [history]
        assert fleet.reward(FEW) is fleet.posterior_
        assert str(fleet.explain(future.agent("p01")))

    def test_scores_do_not_depend_on_the_company(self, tuned: Path, future: Trajectories) -> None:
        fleet = opened(tuned)
        alone = np.concatenate([fleet.score_samples(future[i]) for i in range(0, len(future), 5)])
        assert np.allclose(alone, fleet.score_samples(future)[::5], atol=1e-5)
        order = np.random.default_rng(0).permutation(len(future))
        assert np.allclose(fleet.score_samples(future[order]), fleet.score_samples(future)[order], atol=1e-5)

    def test_mixed_rewards_are_those_of_their_rows(self, tuned: Path) -> None:
        fleet = opened(tuned)
        features = np.random.default_rng(0).normal(size=(9, len(fleet.posterior_.mean))).astype(np.float32)
        own = fleet.tuned_["p03"].posterior
        trip = np.array([0, 0, 1, 1, 2, 3, 3, 3, 3])
        rewards = Mixed.of(fleet.posterior_, [(slice(1, 3), own)], trip)(features)
        assert np.array_equal(rewards[2:5], own(features[2:5]))
        assert np.array_equal(rewards[5:], fleet.posterior_(features)[5:])
        assert Mixed.of(fleet.posterior_, [], trip) is fleet.posterior_

    def test_further_trips_are_counted_and_the_reward_stays(self, tuned: Path, future: Trajectories) -> None:
        fleet = opened(tuned)
        reward, mine = fleet.reward("p01"), future.agent("p01")
        before = fleet.score(mine[1:3])["history"].to_list()
        assert fleet.observe(mine[:1]) == 1
        assert fleet.score(mine[1:3])["history"].to_list() == [h + 1 for h in before]
        assert fleet.reward("p01") is reward

    def test_forgetting_an_agent_forgets_its_reward(
        self, shared: Path, tuned: Path, trips: Trajectories, tmp_path: Path
    ) -> None:
        one, other = opened(tuned), opened(shared)
        one.forget("p02")
        other.fine_tune(trips.without("p02"), [a for a in PEOPLE if a != "p02"], n_jobs=1)
        assert "p02" not in one.tuned_
        assert b"p02" not in saved(one, tmp_path / "m")
        one.enroll(trips.agent("p02"))
        assert one.reward("p02") is one.posterior_

    def test_a_trip_known_as_anomalous_does_not_teach(self, shared: Path, trips: Trajectories, tmp_path: Path) -> None:
        fleet, clean = opened(shared), opened(shared)
        names = trips.agent("p00").trajectory_ids[:5].tolist()
        for f in (fleet, clean):
            f.forget_trips("p00", names, anomalous=True)
        fleet.fine_tune(trips, ["p00"], n_jobs=1)
        clean.fine_tune(trips[~np.isin(trips.trajectory_ids, names)], ["p00"], n_jobs=1)
        assert saved(fleet, tmp_path / "a") == saved(clean, tmp_path / "b")
        assert not set(fleet.members_["p00"].memory.trip_ids) & {f"p00/{n}" for n in names}

    def test_trips_that_are_not_remembered_are_counted_first(self, shared: Path, future: Trajectories) -> None:
        fleet = opened(shared)
        known = len(fleet.members_["p00"].memory)
        n = len(future.agent("p00"))
        fleet.set_params(tuning={**QUICK["tuning"], "least_trips": n}).fine_tune(future, ["p00"], n_jobs=1)
        assert len(fleet.members_["p00"].memory) == known + n
        with pytest.raises(DataError, match=f"{n} remembered trips of agent 'p00'"):
            fleet.set_params(tuning={"least_trips": n + 1}).fine_tune(future, ["p00"], n_jobs=1)

    def test_a_trip_that_the_memory_let_go_of_does_not_teach(self, trips: Trajectories) -> None:
        view = {"forgetting": {"max_trips": 12}}
        fleet = FleetDetector(**{**QUICK, "iterations": 1}, view=view).fit(trips[::4])
        with pytest.raises(DataError, match="12 remembered trips of agent 'p00' were given, 20 are needed"):
            fleet.fine_tune(trips, ["p00"], n_jobs=1)
        assert fleet.fine_tune(trips, n_jobs=1) == 0

    def test_refusals(self, shared: Path, trips: Trajectories, tmp_path: Path) -> None:
        with pytest.raises(NotFittedError):
            FleetDetector().fine_tune(trips)
        fleet = opened(shared)
        with pytest.raises(DataError, match="10 remembered trips of agent 'p04'"):
            fleet.fine_tune(trips, [FEW], n_jobs=1)
        with pytest.raises(DataError, match="0 remembered trips of agent 'nobody'"):
            fleet.fine_tune(trips, ["nobody"], n_jobs=1)
        (tmp_path / "file").touch()
        with pytest.raises(DataError, match="a file where a folder"):
            fleet.fine_tune(trips, n_jobs=1, folder=tmp_path / "file")
        assert saved(fleet, tmp_path / "m") == shared.read_bytes()

    def test_an_error_names_the_agent_and_changes_nothing(
        self, shared: Path, trips: Trajectories, tmp_path: Path
    ) -> None:
        fleet = opened(shared)
        fleet.set_params(tuning={**QUICK["tuning"], "learning_rate": float("inf")})
        with pytest.raises(TrainingError, match="'p00': "):
            fleet.fine_tune(trips, n_jobs=1)
        assert saved(fleet.set_params(tuning=QUICK["tuning"]), tmp_path / "m") == shared.read_bytes()

    def test_learning_anew_begins_without_them(self, tuned: Path, trips: Trajectories) -> None:
        fleet = opened(tuned).set_params(iterations=1)
        assert fleet.tuned_
        assert not fleet.fit(trips[::3]).tuned_


class TestFiles:
    def test_save_load_score_is_bit_identical(self, tuned: Path, future: Trajectories, tmp_path: Path) -> None:
        fleet = opened(tuned)
        assert list(fleet.tuned_) == PEOPLE
        assert saved(fleet, tmp_path / "again") == tuned.read_bytes()
        assert opened(tmp_path / "again").score(future).equals(fleet.score(future), null_equal=True)

    def test_forged_rewards_are_refused(self, tuned: Path, tmp_path: Path) -> None:
        model = read(tuned)
        arrays = {name: array for name, array in model.arrays.items() if name.startswith("tuned.")}
        for name, array in arrays.items():
            # There may be any number of left-out trips.
            shorter = () if name.endswith(".trips") else (array[:-1], array[: len(array) // 2])
            for forged in (*shorter, array.astype(np.float64 if array.dtype != np.float64 else np.float32)):
                write(tmp_path / "forged", model.kind, model.values, {**model.arrays, name: forged})
                with pytest.raises(ModelFileError):
                    astray.load(tmp_path / "forged")
        stranger = np.frombuffer(model.arrays["tuned.agents.utf8"].tobytes().replace(b"p03", b"p09"), np.uint8)
        write(tmp_path / "forged", model.kind, model.values, {**model.arrays, "tuned.agents.utf8": stranger})
        with pytest.raises(ModelFileError, match="not enrolled"):
            astray.load(tmp_path / "forged")

    def test_a_folder_is_gone_on_from(self, shared: Path, tuned: Path, trips: Trajectories, tmp_path: Path) -> None:
        said: list[tuple[int, int]] = []
        opened(shared).fine_tune(trips, PEOPLE[:2], n_jobs=1, folder=tmp_path / "rewards")
        written = {p: p.stat().st_mtime_ns for p in (tmp_path / "rewards").iterdir()}
        assert len(written) == 2
        fleet = opened(shared)
        fleet.fine_tune(trips, n_jobs=1, folder=tmp_path / "rewards", progress=lambda n, of, _: said.append((n, of)))
        assert said == [(3, 4), (4, 4)]
        assert all(p.stat().st_mtime_ns == t for p, t in written.items())
        assert saved(fleet, tmp_path / "m") == tuned.read_bytes()

    @pytest.mark.parametrize("other", ["trips", "seed", "tuning", "memory", "fleet"])
    def test_a_folder_of_something_else_is_refused(
        self, other: str, shared: Path, trips: Trajectories, future: Trajectories, tmp_path: Path
    ) -> None:
        opened(shared).fine_tune(trips, ["p00"], n_jobs=1, folder=tmp_path)
        fleet = opened(shared)
        match other:
            case "trips":
                trips = trips[:-1]
            case "seed":
                fleet.set_params(seed=1)
            case "tuning":
                fleet.set_params(tuning={**QUICK["tuning"], "others": 21})
            case "memory":
                fleet.observe(future[:1])
            case _:
                fleet.fit(trips, np.where(np.arange(len(trips)) == 0, -1, 1))
        with pytest.raises(DataError, match="from another fleet, or with other trips or settings; give an empty"):
            fleet.fine_tune(trips, ["p00"], n_jobs=1, folder=tmp_path)
        assert not fleet.tuned_

    def test_no_name_climbs_out_of_the_folder(self, trips: Trajectories, tmp_path: Path) -> None:
        agents = [{"p00": "../../p00", "p01": "a/b\\c" * 80}.get(a, a) for a in trips.agent_ids.tolist()]
        renamed = Trajectories(trips.columns, trips.offsets, agents, trips.trajectory_ids, trips.context)
        fleet = FleetDetector(**{**QUICK, "iterations": 1}).fit(renamed[::2])
        wanted = sorted({a for a in agents if "/" in a})
        fleet.fine_tune(renamed, wanted, n_jobs=1, folder=tmp_path / "deep" / "rewards")
        assert sorted(fleet.tuned_) == wanted
        assert [p.name for p in tmp_path.iterdir()] == ["deep"]
        assert len(list((tmp_path / "deep" / "rewards").iterdir())) == 2


class TestProcesses:
    """The work is the same, however many do it, and whoever is killed."""

    CODE = """
        import sys
        import polars as pl
        import astray
        if __name__ == "__main__":
            shared, trips, folder = sys.argv[1:]
            trips = astray.Trajectories.from_frame(pl.read_parquet(trips))
            astray.load(shared).fine_tune(trips, n_jobs=2, folder=folder)
        """

    @pytest.fixture
    def command(self, shared: Path, trips: Trajectories, tmp_path: Path) -> list[str]:
        (tmp_path / "script.py").write_text(textwrap.dedent(self.CODE))
        trips.to_frame().write_parquet(tmp_path / "trips.parquet")
        places = (tmp_path / "script.py", shared, tmp_path / "trips.parquet", tmp_path / "rewards")
        return [sys.executable, *map(str, places)]

    def test_killed_at_any_time_it_resumes_and_comes_to_the_same_model(
        self, command: list[str], shared: Path, tuned: Path, trips: Trajectories, tmp_path: Path
    ) -> None:
        folder = tmp_path / "rewards"
        process = subprocess.Popen(command)
        try:
            assert waited(lambda: folder.exists() and any(folder.glob(f"*{SUFFIX}")))
            workers = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        # Nobody is left to work for somebody who is gone.
        assert waited(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers))
        finished = {p: p.read_bytes() for p in folder.glob(f"*{SUFFIX}")}
        assert finished
        for path in finished:
            assert read(path).text("tuned.agents")
        # Two processes did these, and one does the rest; nobody can tell.
        fleet = opened(shared)
        read_back = Trajectories.from_frame(pl.read_parquet(tmp_path / "trips.parquet"))
        assert fleet.fine_tune(read_back, n_jobs=1, folder=folder) == len(PEOPLE)
        assert saved(fleet, tmp_path / "model") == tuned.read_bytes()
        assert all(path.read_bytes() == before for path, before in finished.items())

    def test_a_worker_that_dies_is_said(self) -> None:
        with pytest.raises(TrainingError, match=r"worked on 'bad' ended \(code -9\)"):
            list(spread(signal.raise_signal, [("bad", signal.SIGKILL), ("good", 0)], 2))

    def test_an_error_over_there_is_raised_here(self) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            list(spread(int, [("a", "1"), ("b", "x"), ("c", "3")], 2))

    def test_a_worker_is_deaf_to_interrupts_from_its_first_moment_and_its_giver_is_not(self) -> None:
        blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
        for _, over_there in spread(blocked, [("a", ()), ("b", ())], 2):
            assert signal.SIGINT in over_there
            assert signal.SIGINT not in blocked(())

    def test_nobody_is_waited_for_when_the_results_are_no_longer_wanted(self) -> None:
        def tasks() -> Iterator[tuple[str, float]]:
            yield "quick", 0.0
            yield "slow", 600.0

        began = time.monotonic()
        results = spread(time.sleep, tasks(), 2)
        assert next(results) == ("quick", None)
        results.close()
        assert time.monotonic() - began < 60.0
        assert not multiprocessing.active_children()


def waited(true: Any, seconds: float = 90.0) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
