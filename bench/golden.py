"""Freezes the golden results of fit, score, observe, watch, serve and explain, with which tests/golden compares.

The frozen results are those of version 0.2 (commit cc5d529), made on Linux with Python 3.11 by

    git worktree add ../v02 cc5d529
    PYTHONPATH=../v02/src python bench/golden.py --inputs      (once: the inputs, by `astray simulate` of 0.2)
    PYTHONPATH=../v02/src ASTRAY_PORTO=... ASTRAY_GEOLIFE=... python bench/golden.py

The cases of GPS trips were frozen anew when each past trip came to be scored by what came before it.

`tests/golden/golden_cases.py` holds the cases. Its adapter calls the Python interface of the code under test: to run it
with version 0.2, take the adapter as it was when this file was first committed. A case without its data stays as it is.

    python bench/golden.py --words      freezes the prose alone, after sentences were rewritten on purpose; refuses if a
                                        number, name, decision or event differs from the frozen ones
    python bench/golden.py --only CASE  freezes one case anew, after a bug was fixed; say which in CHANGELOG.md
    python bench/golden.py --check      compares, freezes nothing, and prints the number of values and the time
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import gzip
import resource
import sys
import tempfile
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "golden"))

from golden_cases import CASES, NEEDS, NEW, NEWCOMER, PAST, Desk
from golden_results import (
    count,
    read_words,
    score_differences,
    scores_file,
    without_prose,
    word_differences,
    write_scores,
    write_words,
)

SIMULATED = ("--people", "6", "--days", "10", "--seed", "3", "--inject", "all", "--rate", "0.25", "--new-share", "0.3")
SIMULATED += ("--fixes-every", "10", "25")
STRANGER = "p05"


def main() -> int:
    """Freezes or compares the cases that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", action="store_true", help="write the inputs of the simulated city instead")
    parser.add_argument("--words", action="store_true", help="freeze the prose alone")
    parser.add_argument("--check", action="store_true", help="compare, and freeze nothing")
    parser.add_argument("--only", action="append", choices=list(CASES), help="only this case; may be repeated")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        if given.inputs:
            write_inputs(desk)
            return 0
        return sum(freeze(desk, case, given.words, given.check) for case in given.only or CASES)


def write_inputs(desk: Desk) -> None:
    """Simulates a city and writes its trips, with times to a millisecond and places to a tenth of a metre."""
    past, new = desk.file(".csv"), desk.file(".csv")
    desk.run("simulate", "-o", past, "--new", new, *SIMULATED)
    for file, target, who in (
        (past, PAST, pl.col("agent") != STRANGER),
        (past, NEWCOMER, pl.col("agent") == STRANGER),
        (new, NEW, pl.lit(True)),
    ):
        trips = pl.read_csv(file, schema_overrides={"time": pl.String}).filter(who)
        time = pl.col("time").str.to_datetime(time_zone="UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
        rounded = trips.select("agent", "trajectory", time, pl.col("lat", "lon").round(6))
        target.write_bytes(gzip.compress(rounded.write_csv().encode(), 9, mtime=0))
        print(f"{target.name}: {rounded['trajectory'].n_unique()} trips, {rounded.height} fixes")


def freeze(desk: Desk, case: str, words_only: bool, check: bool) -> int:
    """Freezes or compares one case; returns 1 if it differs where it must not."""
    if case in NEEDS and NEEDS[case] not in os.environ:
        print(f"{case}: left as it is, {NEEDS[case]} does not point to the data")
        return 0
    before = seconds()
    scores, words = without_prose(desk.result(case))
    print(f"{case}: {count(scores)} values, {len(words)} texts, {seconds() - before:.1f} s of processor time")
    if check or words_only:
        different = score_differences(case, scores)
        different += word_differences(case, words) if check else []
        print("".join(f"  {one}\n" for one in different[:20]), end="")
        if check or different:
            return int(bool(different))
    else:
        write_scores(case, scores)
        print(f"  {scores_file(case).stat().st_size} bytes")
    write_words(read_words() | {case: words})
    return 0


def seconds() -> float:
    """Returns the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    sys.exit(main())
