"""How often a fix goes through each stage on its way into a model, and what that costs.

    python bench/path_of_a_fix.py                        (half a minute)
    python bench/path_of_a_fix.py --against OTHER/src    (the same by another checkout, taking turns)

A fix is projected and cleaned (`paths_of`), becomes part of steps (`steps_of`) and of keys (`keys_of`). Counted are the
fixes, steps and keyed rows of each stage while a model is fitted, without those of imagined trips, for every fix that
was given; and the processor seconds of all of these stages together, beside those of the whole fit. Steps are also made
of points that lie more densely than fixes (what is remembered of a trip) or less (what the reward sees), so that their
ratios are no whole numbers. Every checkout runs in a process of its own; the shortest of some turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

STAGES = ("paths_of", "steps_of", "keys_of")
HERE = Path(__file__).resolve().parent.parent / "src"


class Counter:
    """Counts what goes through the stages, wherever they are called from."""

    def __init__(self) -> None:
        self.rows = dict.fromkeys(STAGES, 0)
        self.seconds = 0.0
        self._inside = 0  # stages, or what is not to be counted

    def watch(self) -> None:
        """Put the counter before every stage, in every module that holds it."""
        from astray.features import familiarity, paths, steps
        from astray.irl.trip_demonstrator import TripDemonstrator

        for module, name in zip((paths, steps, familiarity), STAGES, strict=True):
            stage = getattr(module, name)
            counted = self._counted(stage, name)
            for loaded in list(sys.modules.values()):
                if getattr(loaded, name, None) is stage:
                    setattr(loaded, name, counted)
        imagine = TripDemonstrator.imagine

        def uncounted(*args: Any) -> Any:
            self._inside += 1
            try:
                return imagine(*args)
            finally:
                self._inside -= 1

        TripDemonstrator.imagine = uncounted  # type: ignore[method-assign]

    def _counted(self, stage: Callable[..., Any], name: str) -> Callable[..., Any]:
        def through(given: Any, *args: Any, **named: Any) -> Any:
            if self._inside:
                return stage(given, *args, **named)
            self.rows[name] += given.n_rows if hasattr(given, "n_rows") else len(given)
            self._inside += 1
            began = time.process_time()
            try:
                return stage(given, *args, **named)
            finally:
                self._inside -= 1
                self.seconds += time.process_time() - began

        return through


def measure() -> dict[str, dict[str, float]]:
    """What each kind of fit does."""
    warnings.simplefilter("ignore")
    from astray import Detector
    from astray.simulate import city

    trips = city(people=25, days=42, seed=3).trips
    mine, rest = trips.agent("p00"), trips.without("p00")
    counter = Counter()
    counter.watch()
    cases: dict[str, tuple[int, Callable[[], Any]]] = {
        "one agent": (mine.n_rows, lambda: Detector(seed=0).fit(mine)),
        "one agent with a population": (
            trips.n_rows,
            lambda: Detector(seed=0, iterations=1).fit(mine, population=rest),
        ),
        "a fleet": (trips.n_rows, lambda: Detector(seed=0, iterations=1).fit(trips)),
    }
    found = {}
    for case, (fixes, fit) in cases.items():
        counter.rows, counter.seconds = dict.fromkeys(STAGES, 0), 0.0
        began = time.process_time()
        fit()
        whole = time.process_time() - began
        found[case] = {name: rows / fixes for name, rows in counter.rows.items()}
        found[case] |= {"stages": counter.seconds, "fit": whole}
    return found


def turn(source: Path) -> dict[str, dict[str, float]]:
    """One turn of a checkout, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, __file__, "--measure"], env=environment, check=True, capture_output=True, text=True
    )
    return dict(json.loads(told.stdout))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure()))
        return
    sources = {"here": HERE} | ({} if given.against is None else {"against": given.against.resolve()})
    turns = {name: [] for name in sources}  # type: dict[str, list[dict[str, dict[str, float]]]]
    for _ in range(given.turns):
        for name, source in sources.items():
            turns[name].append(turn(source))
    print(f"{'':28} {'checkout':9}" + "".join(f"{name:>10}" for name in (*STAGES, "stages s", "fit s")))
    for case in turns["here"][0]:
        for name in sources:
            least = {key: min(one[case][key] for one in turns[name]) for key in turns[name][0][case]}
            print(f"{case:28} {name:9}" + "".join(f"{value:10.2f}" for value in least.values()))


if __name__ == "__main__":
    main()
