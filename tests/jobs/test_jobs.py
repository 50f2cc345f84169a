"""Jobs: the same result from any executor, and from any number of runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import astray
from astray import Detector, Trajectories
from astray.cli import main
from astray.core.processes import Drain, spread
from astray.core.settings import Settings
from astray.jobs import slabs
from astray.jobs.enrolment import Enroller, Enrolling, enrolled
from astray.jobs.scoring import Scorer, scored
from astray.jobs.slabs import Batch, in_part, sampled
from astray.jobs.work import Step, Workers, unfinished_work
from astray.simulate import city

RUN = Path(__file__).parents[1] / "a_run.py"


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    found = city(people=6, days=10, seed=4).trips
    return found[np.random.default_rng(1).permutation(len(found))]


@pytest.fixture(scope="module")
def kept(trips: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saves a fleet that knows a few trips of three people."""
    path = tmp_path_factory.mktemp("jobs") / "fleet.astray"
    few = Trajectories.concat([trips.agent(agent)[:5] for agent in ("p00", "p01", "p02")])
    Detector(iterations=1).fit(few).save(path)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes jobs and slabs small, so that there are many."""
    monkeypatch.setattr(slabs, "AT_A_TIME", 2_000)
    monkeypatch.setattr(slabs, "SLAB_FIXES", 15_000)


def batches(trips: Trajectories, n: int = 9) -> Iterator[Batch]:
    for k in range(n):
        yield trips[k * len(trips) // n : (k + 1) * len(trips) // n], (k + 1) / n


def copied(kept: Path, folder: Path, name: str) -> Path:
    (folder / name).write_bytes(kept.read_bytes())
    return folder / name


def whole(model: Path) -> bytes:
    """Returns the bytes of a fleet that is written anew: equal fleets have equal bytes."""
    astray.load(model).save(model.with_suffix(".anew"))
    return model.with_suffix(".anew").read_bytes()


@pytest.mark.usefixtures("small")
def test_any_executor_enrols_the_same_as_one_call_of_enroll(trips: Trajectories, kept: Path, tmp_path: Path):
    plain = copied(kept, tmp_path, "plain.astray")
    fleet = astray.load(plain)
    assert isinstance(fleet, Detector)
    n = fleet.enroll(trips)
    fleet.save(plain)
    with ThreadPoolExecutor(2) as threads:
        executors: list[Workers] = [Workers(), Workers(2), Workers(2, threads)]
        for k, workers in enumerate(executors):
            model, steps = copied(kept, tmp_path, f"{k}.astray"), list[Step]()
            assert enrolled(model, batches(trips), workers, steps.append) == n
            assert whole(model) == whole(plain)
            assert sum(step.fixes for step in steps) == trips.n_rows
            assert {agent for step in steps for agent in step.agents} == set(trips.agents)
            assert steps[-1].share == 1.0
            assert len(steps) > 10
            assert enrolled(model, batches(trips), Workers()) == 0  # again: nothing is missing


@pytest.mark.usefixtures("small")
def test_any_executor_scores_in_the_order_of_the_trips(trips: Trajectories, kept: Path, tmp_path: Path):
    expected = astray.load(kept).score(trips)
    executor: Executor | None
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            found = scored(Scorer(kept, Settings()), batches(trips), Workers(2 if executor else 1, executor))
            assert pl.concat([table for table, _ in found]).equals(expected, null_equal=True)


@pytest.mark.usefixtures("small")
def test_a_rerun_does_not_repeat_finished_jobs(trips: Trajectories, kept: Path, tmp_path: Path):
    class Refusing(Scorer):
        def __call__(self, trips: Trajectories) -> pl.DataFrame:
            raise AssertionError("scored again")

    folder = tmp_path / "unfinished"
    begun = scored(Scorer(kept, Settings()), batches(trips), unfinished=folder)
    tables = [table for table, _ in begun]
    again = scored(Refusing(kept, Settings()), batches(trips), unfinished=folder)
    assert pl.concat([table for table, _ in again]).equals(pl.concat(tables), null_equal=True)
    changed = trips[np.arange(len(trips)) != 3]
    with pytest.raises(AssertionError, match="scored again"):
        list(scored(Refusing(kept, Settings()), batches(changed), unfinished=folder))


def test_an_enrolling_job_does_not_change_the_file_and_returns_the_agents_it_has_not_measured(
    trips: Trajectories, kept: Path
):
    before, job = kept.read_bytes(), Enroller(kept)
    mine = trips.agent("p04")
    counted = job(Enrolling(mine.agents, mine, measure=False))
    assert (counted.counted, counted.unmeasured) == (len(mine), ["p04"])
    measured = job(Enrolling(mine.agents, mine))
    assert (measured.counted, measured.unmeasured) == (len(mine), [])
    (one,), (two,) = counted.rows, measured.rows
    assert one[0] == two[0] == "p04"
    assert one[1] is not None
    assert two[1] is not None
    assert one[1].data != two[1].data
    assert kept.read_bytes() == before


def test_a_sample_of_agents_does_not_depend_on_the_order_of_trips_and_is_the_same_over_parts(trips: Trajectories):
    sizes = {agent: trips.agent(agent).n_rows for agent in trips.agents}
    for most in (1, max(sizes.values()), trips.n_rows // 2, trips.n_rows):
        some, is_whole = sampled(batches(trips), 7, most)
        chosen = set(some.agents)
        assert is_whole == (chosen == set(sizes))
        assert len(chosen) == 1 or some.n_rows <= most
        assert {agent: some.agent(agent).n_rows for agent in chosen} == {agent: sizes[agent] for agent in chosen}
        mixed = trips[np.random.default_rng(2).permutation(len(trips))]
        assert set(sampled(batches(mixed, 3), 7, most)[0].agents) == chosen
        parts = [sampled(in_part(batches(trips), (i, 2)), 7, most)[0] for i in (1, 2)]
        assert set(sampled(((part, 1.0) for part in parts), 7, most)[0].agents) == chosen
    others = {tuple(sampled(batches(trips), seed, trips.n_rows // 2)[0].agents) for seed in range(8)}
    assert len(others) > 1


def test_tasks_after_a_drain_wait_until_all_earlier_results_are_taken():
    looked: list[int] = []

    def tasks() -> Iterator[int | Drain]:
        yield from (1, 2, 3)
        yield Drain()
        assert looked == [1, 2, 3]
        yield 4

    with ThreadPoolExecutor(2) as threads:
        results = spread(abs, tasks(), 2, executor=threads)
        looked.extend(results)  # one after the other
    assert looked == [1, 2, 3, 4]


def test_unfinished_work_is_found_again_only_from_the_same_inputs(tmp_path: Path):
    data, output = tmp_path / "a.csv", tmp_path / "out.parquet"
    data.write_text("a")

    class Killed(Exception):
        pass

    def left(*of: object) -> Path:
        with suppress(Killed), unfinished_work(output, [data], *of) as here:
            here.mkdir(exist_ok=True)
            raise Killed
        return here

    first = left("eps")
    assert left("eps") == first
    assert first.exists()
    other = left("gamma")
    assert other.exists()
    assert not first.exists()
    data.write_text("ab")
    with unfinished_work(output, [data], "gamma") as here:
        assert here != other
        assert not other.exists()
        here.mkdir()
    assert not here.exists()


@pytest.fixture
def folder(trips: Trajectories, tmp_path: Path) -> Path:
    """Writes the trips as Parquet files."""
    (tmp_path / "trips").mkdir()
    for k in range(3):
        trips[k::3].to_frame().write_parquet(tmp_path / "trips" / f"{k}.parquet")
    return tmp_path / "trips"


def run(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_fleet_larger_than_memory_is_learned_from_a_sample_and_a_killed_fit_continues(
    folder: Path, trips: Trajectories
):
    home = folder.parent
    flags = ("--iterations", "1", "-w", "1", "--verbose")
    whole = run("fit", folder, "-o", home / "whole.astray", *flags)
    _, said = whole.communicate()
    assert whole.returncode == 0, said
    assert f"a fleet of {len(trips.agents)} agents" in said
    assert "fixes, " in said  # what each worker has done
    killed = run("fit", folder, "-o", home / "again.astray", *flags)
    assert killed.stdout is not None
    for _ in range(8):
        killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (home / "again.astray").exists()
    again = run("fit", folder, "-o", home / "again.astray", *flags)
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert "learning from" not in said
    assert (home / "again.astray").read_bytes() == (home / "whole.astray").read_bytes()
    assert sorted(path.name for path in home.iterdir()) == ["again.astray", "trips", "whole.astray"]


def test_parts_of_a_fit_have_one_reward_and_their_own_agents(folder: Path, trips: Trajectories):
    home = folder.parent
    for i in (1, 2):
        assert (
            main(["fit", str(folder), "-o", str(home / f"{i}.astray"), "--part", f"{i}/2", "--iterations", "1", "-q"])
            == 0
        )
    one, two = (astray.load(home / f"{i}.astray") for i in (1, 2))
    assert isinstance(one, Detector)
    assert isinstance(two, Detector)
    assert sorted([*one.agents, *two.agents]) == sorted(trips.agents)
    assert one.shared_parts == two.shared_parts
