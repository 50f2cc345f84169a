"""Runs cases in several processes; each finished case is a file, so a run can stop and continue at any point.

The results folder holds ``trips/``, ``fixes/``, ``prefixes/`` and ``streams/``, each with one Parquet file for a case
and method. The file in ``trips/`` is written last, whole or not at all, so a case that has it is finished. ``failed/``
holds the reasons why cases failed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from astray.core.atomic import replacing
from astray.core.errors import AstrayError, Terminated
from astray.core.processes import spread
from astray_benchmark.calibration import on_one_scale
from astray_benchmark.contenders import Contender, Fitted, Method, Seconds, StreamMethod
from astray_benchmark.protocols import PREFIXES, Case, Dataset, Setting, Trial, Value, prefixes, slug

TRIPS, FIXES, PARTS, STREAMS = "trips", "fixes", "prefixes", "streams"
FAILED = "failed"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class Job(NamedTuple):
    """A case and the name of a method."""

    case: Case
    method: str

    @property
    def path(self) -> str:
        """Returns the name of the job's file, the same in each of the folders."""
        return f"{self.case.name}/{slug(self.method)}.parquet"

    @property
    def key(self) -> dict[str, Value]:
        """Returns the columns that are the same in every row of the job's tables."""
        setting, subject, seed = self.case.setting, self.case.subject, self.case.seed
        named = {"subject": subject, "seed": seed, "family": setting.family, "method": self.method}
        return asdict(setting) | named


class Done(NamedTuple):
    """A finished job."""

    job: Job
    seconds: float  # elapsed time
    error: str = ""


class Progress(NamedTuple):
    """The progress of a run."""

    finished: int
    total: int
    left: float  # estimated seconds to the end
    last: Done


class Outcome(NamedTuple):
    """The result of a run."""

    ran: int
    skipped: int
    failed: tuple[Done, ...] = ()


def run(
    dataset: Dataset,
    methods: Sequence[Contender],
    cases: Sequence[Case],
    out: Path,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Runs every method on every case that has no file yet; methods for streams run on streams.

    If a case fails, the run writes the reason to ``failed/`` for the report and continues; the next run tries it again.
    The results do not depend on the number of workers.
    """
    jobs = jobs_of(methods, cases)
    waiting = [job for job in jobs if not (out / TRIPS / job.path).exists()]
    rest = Counter(job.method for job in waiting)
    failed: list[Done] = []
    took: dict[str, list[float]] = {}
    for finished, done in enumerate(_performed(dataset, methods, waiting, out, workers), 1):
        took.setdefault(done.job.method, []).append(done.seconds)
        rest[done.job.method] -= 1
        if done.error:
            failed.append(done)
        if progress is not None:
            left = time_left(took, rest, workers)
            progress(Progress(len(jobs) - len(waiting) + finished, len(jobs), left, done))
    return Outcome(len(waiting) - len(failed), len(jobs) - len(waiting), tuple(failed))


def jobs_of(methods: Sequence[Contender], cases: Sequence[Case]) -> list[Job]:
    """Lists every method on every case that it can run with."""
    return [Job(case, method.name) for case in cases for method in methods if able(method, case.setting)]


def able(method: Contender, setting: Setting) -> bool:
    """Returns True if a method can run with this setting: on a stream, or on anything else."""
    return isinstance(method, StreamMethod if setting.family == "stream" else Method)


def time_left(took: Mapping[str, list[float]], rest: Mapping[str, int], workers: int) -> float:
    """Estimates the seconds until the rest is done, by the mean of each method, because methods differ a hundredfold.

    For a method without a finished job, it uses the mean of the others.

    >>> time_left({"lof": [2.0], "astray": [10.0, 14.0]}, {"lof": 3, "astray": 1, "new": 1}, workers=2)
    12.5
    """
    mean = {name: float(np.mean(seconds)) for name, seconds in took.items()}
    usual = float(np.mean(list(mean.values())))
    return sum(n * mean.get(name, usual) for name, n in rest.items()) / workers


# -------------------------------------------------------------------- one case


def score(trial: Trial, case: Case, method: Contender) -> dict[str, pl.DataFrame]:
    """Fits a method on a trial and scores it; returns tables of trips, and of fixes and prefixes or of a stream.

    Times are processor seconds, on which other programs have little influence.
    """
    if isinstance(method, StreamMethod) and case.setting.family == "stream":
        return _streamed(trial, case, method)
    assert isinstance(method, Method)
    lessons, tested = zip(*trial.parts(), strict=True)
    models = on_one_scale([method.fit(lesson, case.seed) for lesson in lessons])
    began = time.process_time()
    scored = [
        fitted.trips(trial.test[at]).with_columns(pl.Series("at", at))
        for fitted, at in zip(models, tested, strict=True)
    ]
    scoring = time.process_time() - began
    rows = pl.concat(scored).sort("at").drop("at")
    seconds = Seconds(*map(sum, zip(*(fitted.seconds for fitted in models), strict=True)))
    key = _key(case, method)
    tables = {TRIPS: _trips(trial, key, rows, seconds, scoring)}
    if trial.truth is not None:
        test, row = trial.test, trial.test.trajectory_of_row
        since = test.columns["time"] - test.columns["time"][test.offsets[:-1]][row]
        (fitted,) = models
        tables[FIXES] = pl.DataFrame(
            {
                "trip": row.astype(np.int32),
                "kind": trial.kind[row],
                "seconds": since,
                "truth": trial.truth,
                "normality": fitted.fixes(test).astype(np.float32),
            }
        ).with_columns(*key)
        tables[PARTS] = _prefixes(trial, trial.truth, fitted).with_columns(*key)
    return tables


def _key(case: Case, method: Contender) -> list[pl.Expr]:
    """Returns the columns that are the same in every row of a case's tables."""
    return [pl.lit(value).alias(name) for name, value in Job(case, method.name).key.items()]


def _trips(trial: Trial, key: list[pl.Expr], scored: pl.DataFrame, took: Seconds, scoring: float) -> pl.DataFrame:
    """Makes the table of trips: their scores, kinds, sources and ranks in time, and the seconds of the method."""
    in_time = np.argsort(np.argsort(trial.test.columns["time"][trial.test.offsets[:-1]], kind="stable"))
    return scored.with_columns(
        *key,
        pl.Series("trip", np.arange(len(trial.test), dtype=np.int32)),
        pl.Series("source", trial.source),
        pl.Series("kind", trial.kind),
        pl.Series("nth", in_time, dtype=pl.Int32),
        pl.lit(took.fit).alias("fit_seconds"),
        pl.lit(took.calibrate).alias("calibrate_seconds"),
        pl.lit(took.shared).alias("shared_seconds"),
        pl.lit(scoring).alias("score_seconds"),
        pl.lit(len(trial.lesson.train)).alias("n_train"),
    )


def _streamed(trial: Trial, case: Case, method: StreamMethod) -> dict[str, pl.DataFrame]:
    """Runs a method on a stream: it scores and decides each trip before learning from it.

    The table of the stream holds, for each trip, the decision, and the number of questions asked after it.
    """
    follower = method.begin(trial.lesson, case.seed)
    foreign = dict(zip(trial.test.ids, (trial.kind != "").tolist(), strict=True))
    began = time.process_time()
    rows, answers = [], []
    for i in range(len(trial.test)):
        trip = trial.test[i : i + 1]
        rows.append(follower.score(trip))
        answers.append(follower.learn(trip, lambda names: bool(np.mean([foreign[n] for n in names]) < 0.5)))
    seconds = time.process_time() - began
    scored, key = pl.concat(rows), _key(case, method)
    stream = scored.select("score", "flagged").with_columns(
        *key,
        pl.Series("trip", np.arange(len(scored), dtype=np.int32)),
        pl.Series("kind", trial.kind),
        pl.Series("answers", answers, dtype=pl.Int32),
    )
    return {TRIPS: _trips(trial, key, scored.drop("flagged"), follower.seconds, seconds), STREAMS: stream}


def _prefixes(trial: Trial, truth: np.ndarray, fitted: Fitted) -> pl.DataFrame:
    """Scores the first tenth, two tenths, ... of each trip, with a column that is True if its anomaly has begun."""
    test = trial.test
    marked = test.with_columns({"truth": truth})  # methods must not see this column
    parts = []
    for ratio in PREFIXES:
        seen, known = prefixes(test, ratio), prefixes(marked, ratio)
        whole = ratio == PREFIXES[-1]
        columns = {
            "score": fitted.trips(seen)["score"] if whole else pl.Series(fitted.begun(seen)).fill_nan(None),
            "trip": np.arange(len(test), dtype=np.int32),
            "kind": trial.kind,
            "ratio": np.full(len(test), ratio),
            "begun": np.logical_or.reduceat(known.columns["truth"], known.offsets[:-1]),
        }
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)


def write(out: Path, job: Job, tables: dict[str, pl.DataFrame]) -> None:
    """Writes a case's tables, that of the trips last."""
    for name in sorted(tables, key=lambda name: name == TRIPS):
        path = out / name / job.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            tables[name].write_parquet(file)
    (out / FAILED / job.path).unlink(missing_ok=True)


def fail(out: Path, job: Job, why: str) -> None:
    """Writes down why a case failed; a later success removes the file."""
    path = out / FAILED / job.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        pl.DataFrame({"method": [job.method], "case": [job.case.name], "why": [why]}).write_parquet(file)


def reason(error: Exception | SystemExit) -> str:
    """Describes an error in a line; for an error that is not astray's, adds its last place outside other packages.

    >>> reason(AstrayError("no trips"))
    'AstrayError: no trips'
    """
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, AstrayError):
        return " ".join(said.split())
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "site-packages" not in Path(f.filename).parts), frames[-1])
    return " ".join(f"{said} ({Path(place.filename).name}, line {place.lineno})".split())


def results(out: Path, table: str = TRIPS) -> pl.LazyFrame | None:
    """Returns all finished results of a folder as one lazy table; None if there are none."""
    if not any((out / table).glob("**/*.parquet")):
        return None
    return pl.scan_parquet(out / table / "**/*.parquet", glob=True)


# -------------------------------------------------------------------- processes


@dataclass
class Worker:
    """Runs jobs in a process, and keeps the last trial for the next job."""

    dataset: Dataset
    methods: Sequence[Contender]
    out: Path
    _last: tuple[Case, Trial] | None = field(default=None, init=False)

    def __call__(self, job: Job) -> Done:
        """Runs one job and writes its files."""
        began, why = time.perf_counter(), ""
        try:
            if self._last is None or self._last[0] != job.case:
                self._last = job.case, self.dataset.trial(job.case)
            method = next(m for m in self.methods if m.name == job.method)
            write(self.out, job, score(self._last[1], job.case, method))
        except Terminated:
            raise  # somebody ends the run; the case is not finished
        except (Exception, SystemExit) as error:  # the run reports any error of a method, and continues
            why = reason(error)
            fail(self.out, job, why)
        return Done(job, time.perf_counter() - began, why)


def _performed(
    dataset: Dataset, methods: Sequence[Contender], jobs: Sequence[Job], out: Path, workers: int
) -> Iterator[Done]:
    """Runs the jobs, in this process or in others, and yields each one that is done.

    Every case has one thread: more are slower, and would make times incomparable.
    """
    worker = Worker(dataset, methods, out)
    os.environ.update({name: os.environ.get(name, "1") for name in _THREADS})  # new processes read them as they start
    if "torch" in sys.modules:  # if it is loaded later, it reads the environment
        sys.modules["torch"].set_num_threads(1)
    # Closing the generator stops the workers after an error or an interrupt.
    with closing(spread(worker, jobs, min(workers, len(jobs)), ahead=len(jobs))) as done:
        yield from done
