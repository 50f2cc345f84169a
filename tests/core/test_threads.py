"""The same seed gives the same bytes for any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import torch
from threadpoolctl import threadpool_info, threadpool_limits

from astray.core.threads import one_thread
from fitted import QUICK

EVERYTHING = """
    import pathlib, sys
    import numpy as np
    from astray import Detector, Trajectories
    from astray.simulate import city

    quick, folder = eval(sys.argv[1]), pathlib.Path(sys.argv[2])
    own = {"iterations": 2, "config": {"updates": 4, "rollouts": 4, "imagined": 20, "clone_updates": 5}}
    trips = city(people=4, days=6, seed=0).trips
    mine, others = trips.agent("p00"), trips.without("p00")
    rng = np.random.default_rng(0)
    runs = [(rng.normal(size=(150, 4)).cumsum(axis=0), rng.normal(size=(150, 2))) for _ in range(10)]
    steps = Trajectories.from_steps(*zip(*runs))
    models = {
        "counted": (Detector().fit(mine[:-8]), mine),
        "shared": (Detector(**quick).fit(mine[:-8], population=others), mine),
        "own": (Detector(encoder="fourier", **own).fit(mine[:-8], population=others[:20]), mine),
        "steps": (Detector(**own).fit(steps[:-3]), steps),
        "fleet": (Detector(**quick, n_jobs=2).fit(trips), trips),
    }
    for name, (model, new) in models.items():
        model.save(folder / f"{name}.astray")
        (folder / f"{name}.trips").write_text(model.score(new).write_json())
        (folder / f"{name}.fixes").write_text(model.score_fixes(new).write_json())
        explained = model.explain(new, len(new) - 1)
        (folder / f"{name}.explained").write_text(f"{explained} {explained.normality.tolist()}")
    session = models["counted"][0].open("p00")
    for fix in zip(*(mine[-1:].columns[name].tolist() for name in ("time", "lat", "lon"))):
        session.update(fix)
    (folder / "live").write_text(repr(session.close()))
    np.save(folder / "simulated.npy", trips.columns["lat"])
"""


def test_models_scores_and_words_are_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    made = {}
    for threads in ("1", "4"):
        folder = tmp_path / threads
        folder.mkdir()
        several = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(EVERYTHING), repr(QUICK), str(folder)],
            env={**os.environ, **several},
            check=True,
        )
        made[threads] = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(made["1"]) == 22
    assert [name for name, data in made["1"].items() if made["4"][name] != data] == []


def test_libraries_have_one_thread_until_the_last_block_ends_and_then_their_old_number() -> None:
    def counts() -> tuple[set[int], int]:
        return {
            pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
        }, torch.get_num_threads()

    entered, leave, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        torch.set_num_threads(4)  # each thread has a number of its own
        with one_thread():
            entered.set()
            leave.wait()
            seen.append(counts())
        seen.append(counts())

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threadpool_limits(limits=2, user_api="blas"):
            thread = threading.Thread(target=other)
            with one_thread():
                assert counts() == ({1}, 1)
                thread.start()
                entered.wait()
            assert counts() == ({1}, 3)  # the other one is not done
            with one_thread(), one_thread():
                assert counts() == ({1}, 1)
            leave.set()
            thread.join()
            assert seen == [({1}, 1), ({2}, 4)]
            assert counts() == ({2}, 3)
    finally:
        leave.set()
        torch.set_num_threads(before)
