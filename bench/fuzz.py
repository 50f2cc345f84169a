"""Reads thousands of damaged files and models: each must be read, or refused with an AstrayError.

    python bench/fuzz.py                     (10,000 cases, some ten minutes on one core)
    python bench/fuzz.py --model fleet --cases 2000        (a fleet's file alone)
    python bench/fuzz.py --only 1234         (one case again, with its traceback; the file stays in --folder)

It makes a small file of every format and a small model of every kind, and damages them: flips bits; removes, inserts,
doubles, swaps or cuts off bytes; changes numbers, lines and encodings; writes headers with a duplicate name, NaN or a
terabyte; changes values and arrays and corrects the checksum. The number of a case determines its damage. Each file is
read in a process with limits on memory and processor time: first as it is, then with ``skip_bad``, then as a stream. A
model that loads must also score and explain a trip. A damaged fleet that loads, and whose checksums were not corrected,
must give the same scores as the intact one.

The results are: read; read in part, with ``skip_bad``; refused, with place and remedy. Everything else is a fault:
another exception, a warning, a crash, too much time or memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import astray
from astray.core.errors import AstrayError, ModelFileError, UnknownAgentWarning
from astray.model.pretrained import read_reward
from astray.readers import Report, iter_read, read
from astray.runtime.state import State, fingerprint
from astray.simulate import city
from mutations import BYTES, damaged_fleet, damaged_model, make_files, make_models

OUTCOMES = ("read", "in part", "refused")  # in part: bad rows were left out

FORGED = ", with corrected checksums"
MODELS = 0.4  # the share of cases that are models
SECONDS = 30  # processor time of a case
ADDRESSES = 6 << 30  # bytes of address space of a process
GROWTH = 300 << 20  # bytes that a case may add to the peak of memory


class Outcome(NamedTuple):
    """The result of a case."""

    number: int
    source: str
    what: str  # one of OUTCOMES, or the fault
    where: str = ""


# -------------------------------------------------------------------- one case


class Cases:
    """Keeps intact files and models in a folder, and damages copies of them."""

    def __init__(self, folder: Path, only: str | None = None) -> None:
        self.folder, self.only = folder, only
        self.files = sorted(p for p in (folder / "files").rglob("*") if p.is_file())
        self.models = sorted(p for p in (folder / "models").iterdir() if p.suffix == "")
        self.trips = city(people=3, days=5, seed=0).trips[:3]
        fleet = astray.load(folder / "models" / "fleet")
        self.fleet, self.expected = fingerprint(fleet), fleet.score(self.trips)

    def make(self, number: int, target: Path) -> tuple[str, Path]:
        """Writes the damaged file of a case to an empty folder; returns the name of the intact one, and the file."""
        chance = random.Random(number)
        if chance.random() < MODELS or self.only is not None:
            whole = chance.choice(self.models if self.only is None else [m for m in self.models if m.name == self.only])
            if whole.name == "fleet":
                forged = damaged_fleet(whole, target / whole.name, chance)
                return "model: fleet" + (FORGED if forged else ""), target / whole.name
            damaged_model(whole, target / whole.name, chance)
            return f"model: {whole.name}", target / whole.name
        whole = chance.choice(self.files)
        top = whole.relative_to(self.folder / "files").parts[0]
        shutil.copytree(self.folder / "files" / top, target / top)
        file = target / whole.relative_to(self.folder / "files")
        file.write_bytes(chance.choice(BYTES)(whole.read_bytes(), chance))
        return top, target / top if top in ("geolife", "takeout") else file

    def take(self, source: str, file: Path) -> str:
        """Reads a file, or opens a model and uses it; returns one of OUTCOMES."""
        if source.startswith("model: "):
            return "read" if self.open(source.removeprefix("model: "), file) else "refused"
        whole, in_part = (self.read(file, skip_bad) for skip_bad in (False, True))
        with refused():
            for _ in iter_read(file, 50, skip_bad=True, report=Report()):
                pass
        return "read" if whole else "in part" if in_part else "refused"

    @staticmethod
    def read(file: Path, skip_bad: bool) -> bool:
        """Returns True if a file can be read."""
        with refused() as refusal:
            read(file, skip_bad=skip_bad, report=Report())
        return not refusal

    def open(self, kind: str, file: Path) -> bool:
        """Returns True if a model can be opened, used and saved."""
        with refused() as refusal:
            if kind == "reward":
                read_reward(file)
            elif kind == "state":
                State.load(file, self.fleet)
            else:
                model = astray.load(file)
                if kind != "steps":
                    scores = model.score(self.trips)
                    if kind == "fleet" and not scores.equals(self.expected, null_equal=True):
                        raise RuntimeError("a damaged fleet gives other scores without an error")
                    model.explain(self.trips, 0)
                model.save(file.with_name("again"))
        return not refusal


@contextmanager
def refused() -> Iterator[list[AstrayError]]:
    """Collects a refusal, and checks its form."""
    refusal: list[AstrayError] = []
    try:
        yield refusal
    except AstrayError as error:
        refusal.append(error)
        if not isinstance(error, ModelFileError) and not (error.place and error.remedy):
            raise RuntimeError(f"a refusal without place or remedy: {error!r:.200}") from error
        if not str(error).replace("\n", "").isprintable():
            raise RuntimeError(f"a refusal that is not a plain line: {str(error)[-200:]!r}") from error


def outcome(cases: Cases, number: int) -> Outcome:
    """Runs one case; names a fault by its exception and the last line of astray in the traceback."""
    with tempfile.TemporaryDirectory(dir=cases.folder) as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnknownAgentWarning)
        source, file = cases.make(number, Path(folder))
        try:
            return Outcome(number, source, cases.take(source, file))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "astray" in f.filename]
            return Outcome(number, source, f"{type(error).__name__}: {error!s:.100}", ours[-1] if ours else "")


# -------------------------------------------------------------------- in a separate process


def peak() -> int:
    """Returns the peak resident size of this process since the last call, in bytes."""
    found = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    Path("/proc/self/clear_refs").write_text("5")
    return found


def work(folder: Path, only: str | None, asked: Connection) -> None:
    """Runs one case after the other; the process that asks notices if this one is killed."""
    cases = Cases(folder, only)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    peak()
    while (number := asked.recv()) is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds + SECONDS, resource.RLIM_INFINITY))
        before = peak()
        found = outcome(cases, number)
        grown = peak() - before
        if grown > GROWTH:
            found = found._replace(what=f"memory: {grown >> 20} MB")
        asked.send(found)


class Worker:
    """A process, and the case that it runs."""

    def __init__(self, folder: Path, only: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.asking, asked = context.Pipe()
        self.process = context.Process(target=work, args=(folder, only, asked))
        self.process.start()
        asked.close()
        self.number = -1

    def give(self, number: int) -> None:
        """Gives the process a case."""
        self.number = number
        self.asking.send(number)

    def taken(self) -> Outcome:
        """Returns the result of the case, or that the process has ended."""
        try:
            found: Outcome = self.asking.recv()
        except EOFError:
            self.process.join()
            return Outcome(self.number, "?", f"the process ended: {self.process.exitcode}")
        return found


def outcomes(folder: Path, numbers: range, n_workers: int, only: str | None) -> Iterator[Outcome]:
    """Yields the results of all cases, run by several processes; replaces a process that dies."""
    left = iter(numbers)
    at_work: dict[Connection, Worker] = {}

    def begin(worker: Worker) -> None:
        number = next(left, None)
        if number is None:
            worker.asking.send(None)
            worker.process.join()
        else:
            worker.give(number)
            at_work[worker.asking] = worker

    for _ in range(n_workers):
        begin(Worker(folder, only))
    while at_work:
        for ready in wait(list(at_work)):
            worker = at_work.pop(ready)  # type: ignore[call-overload]
            yield worker.taken()
            begin(worker if worker.process.is_alive() else Worker(folder, only))


# -------------------------------------------------------------------- what was found


def told(found: list[Outcome]) -> str:
    """Returns a table of the counts, then every distinct fault with one of its cases."""
    rows: dict[str, Counter[str]] = {}
    faults: dict[tuple[str, str, str], list[int]] = {}
    for number, source, what, where in found:
        kind = what if what in OUTCOMES else "fault"
        rows.setdefault(source, Counter())[kind] += 1
        if kind == "fault":
            faults.setdefault((source, what.split(":")[0], where), []).append(number)
    lines = ["| damaged | cases | read | read in part | refused | anything else |", "|---|---|---|---|---|---|"]
    for source, counts in [*sorted(rows.items()), ("**all**", sum(rows.values(), Counter[str]()))]:
        cells = (counts.total(), *(counts[kind] for kind in (*OUTCOMES, "fault")))
        lines.append(f"| {source} | " + " | ".join(f"{n:,}" for n in cells) + " |")
    by_number = {o.number: o for o in found}
    for (source, _, where), numbers in sorted(faults.items(), key=lambda fault: -len(fault[1])):
        lines.append(f"{len(numbers)} x {source} {where}: case {numbers[0]}: {by_number[numbers[0]].what}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--only", type=int, help="one case, here, with its traceback")
    parser.add_argument("--model", help="damage this model alone, such as fleet")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where whole files are kept, to be used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "models").exists():
            (folder / "files").mkdir(parents=True)
            (folder / "models").mkdir()
            make_files(folder / "files")
            make_models(folder / "models")
        if options.only is not None:
            cases, target = Cases(folder, options.model), folder / f"case-{options.only}"
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            source, file = cases.make(options.only, target)
            print(source, file, file=sys.stderr)
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UnknownAgentWarning)
            print(cases.take(source, file))
            return
        found = []
        numbers = range(options.first, options.first + options.cases)
        for done in outcomes(folder, numbers, options.workers, options.model):
            found.append(done)
            if done.what not in OUTCOMES:
                print(*done, file=sys.stderr, flush=True)
        print(f"cases {numbers.start} to {numbers.stop - 1}\n{told(found)}")


if __name__ == "__main__":
    main()
