"""A cluster of real processes gives what this machine gives alone, also when some of its processes are killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from astray import Detector, Trajectories, load, read
from astray.core.errors import AstrayError
from astray.core.writers import fixes_and_trips, write_table
from astray.jobs.cluster import check_address, connected
from astray.simulate import city

pytest.importorskip("distributed")

RUN = Path(__file__).parents[1] / "a_run.py"
PATIENCE = 180.0  # seconds, on a machine with much else to do; nothing is asserted about time


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a model that knows three people a little, and a folder of Parquet files with all trips, shuffled."""
    home = tmp_path_factory.mktemp("cluster")
    trips = city(people=8, days=12, seed=6).trips
    few = Trajectories.concat([trips.agent(agent)[:6] for agent in trips.agents[:3]])
    Detector(iterations=1, seed=0).fit(few).save(home / "fleet.astray")
    mixed = trips[np.random.default_rng(0).permutation(len(trips))]
    (home / "trips").mkdir()
    for k in range(3):
        file = home / "trips" / f"{k}.parquet"
        write_table(fixes_and_trips(mixed[k * len(mixed) // 3 : (k + 1) * len(mixed) // 3], file), file)
    return home


COMMANDS = {
    "enroll": ("enroll", "fleet.astray", "trips", "-o", "larger.astray"),
    "score": ("score", "fleet.astray", "trips", "-o", "scores.parquet"),
}


@pytest.fixture(scope="module")
def expected(home: Path) -> dict[str, bytes]:
    """Returns what each command writes without a cluster, by one process."""
    found = {}
    for name, command in COMMANDS.items():
        subprocess.run(
            [sys.executable, RUN, *command, "-w", "1", "-q"], cwd=home, check=True, stdout=subprocess.DEVNULL
        )
        found[name] = (home / command[-1]).read_bytes()
        (home / command[-1]).unlink()
    return found


@contextmanager
def started(*command: object, until: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a process of Dask, waits until it prints ``until``, and kills it at the end."""
    said = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"},
    )
    try:
        assert said.stdout is not None
        lines = []
        for line in said.stdout:
            lines.append(line)
            if until in line:
                break
        else:
            pytest.fail(f"{command[0]} did not start: {''.join(lines)}")
        said.address = next((w for line in lines for w in line.split() if "://" in w), "")  # type: ignore[attr-defined]
        yield said
    finally:
        said.kill()
        said.communicate()


class Cluster:
    """A scheduler and two workers on loopback."""

    def __init__(self, stack: ExitStack, *flags: object) -> None:
        self._stack = stack
        scheduler = ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *flags)
        self.scheduler = stack.enter_context(started(*scheduler, until="Scheduler at:"))
        self.address = str(self.scheduler.address)  # type: ignore[attr-defined]
        self._worker = ("worker", self.address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny")
        self._worker += ("--no-dashboard", *flags)
        self.workers = [self._begin_worker() for _ in range(2)]

    def _begin_worker(self) -> subprocess.Popen[str]:
        return self._stack.enter_context(started(*self._worker, until="Registered to"))

    def replace_lost_workers(self) -> None:
        """Starts a worker for each that has ended."""
        self.workers = [worker if worker.poll() is None else self._begin_worker() for worker in self.workers]


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Returns the cluster that all tests share whose scheduler stays; both of its workers run."""
    shared_cluster.replace_lost_workers()
    return shared_cluster


@pytest.fixture
def mortal_cluster() -> Iterator[Cluster]:
    """Starts a cluster whose scheduler a test may kill."""
    with ExitStack() as stack:
        yield Cluster(stack)


def run(home: Path, name: str, cluster: Cluster, hold_after: int = 0) -> subprocess.Popen[str]:
    """Starts a command; after ``hold_after`` jobs it waits until its standard input is closed."""
    command = [sys.executable, str(RUN), *COMMANDS[name], "--cluster", cluster.address]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "HOLD_AFTER": str(hold_after)}
    return subprocess.Popen(command, cwd=home, text=True, env=env, **pipes)


def after_jobs(client: subprocess.Popen[str], n: int) -> None:
    """Waits until a run has done ``n`` jobs."""
    assert client.stdout is not None
    for _ in range(n):
        assert client.stdout.readline().startswith("done by"), client.communicate()


def finished(client: subprocess.Popen[str], code: int = 0) -> tuple[int, str]:
    """Waits for the end of a run; returns how many further jobs it did, and its standard error."""
    out, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == code, said
    return out.count("done by"), said


def result(home: Path, name: str) -> bytes:
    """Returns what a command wrote, removes it, and checks that nothing else was left behind."""
    file = home / COMMANDS[name][-1]
    found = file.read_bytes()
    file.unlink()
    assert sorted(path.name for path in home.iterdir()) == ["fleet.astray", "trips"]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_lost_worker_costs_its_job_and_not_the_run(
    name: str, home: Path, expected: dict[str, bytes], cluster: Cluster
):
    client = run(home, name, cluster)
    after_jobs(client, 2)
    cluster.workers[0].kill()
    cluster.workers[0].wait()
    finished(client)
    assert result(home, name) == expected[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rerun_after_a_killed_client_does_only_what_is_missing(
    name: str, home: Path, expected: dict[str, bytes], cluster: Cluster
):
    client = run(home, name, cluster)
    after_jobs(client, 9)
    client.send_signal(signal.SIGKILL)
    done_before = 9 + client.communicate()[0].count("done by")
    assert not (home / COMMANDS[name][-1]).exists()
    again, said = finished(run(home, name, cluster))
    assert result(home, name) == expected[name]
    if name == "score":
        whole, _ = finished(run(home, name, cluster))
        assert again <= whole - done_before + 1  # the last table may have been told of and not kept
        result(home, name)
    else:
        counted = re.search(r"([\d,]+) trips? counted", said)
        assert counted is not None, said
        assert (
            0 <= int(counted[1].replace(",", "")) < len(read(home / "trips")) - 18
        )  # those of the first slab are known


@pytest.mark.parametrize("name", COMMANDS)
def test_a_lost_scheduler_is_reported_and_a_rerun_continues(
    name: str, home: Path, expected: dict[str, bytes], cluster: Cluster, mortal_cluster: Cluster
):
    client = run(home, name, mortal_cluster, hold_after=3)  # more jobs are left than are under way
    after_jobs(client, 3)
    mortal_cluster.scheduler.kill()
    _, said = finished(client, code=1)
    assert "the scheduler was lost; start it again, and run the same command: what was finished is kept" in said
    finished(run(home, name, cluster))
    assert result(home, name) == expected[name]


def test_a_scheduler_that_is_lost_while_a_result_is_fetched_is_reported(mortal_cluster: Cluster, tmp_path: Path):
    cluster = mortal_cluster
    mark = tmp_path / "done"

    def large() -> bytes:  # in here, so that workers need not find this module
        mark.touch()
        return bytes(400_000_000)

    def fetch() -> None:
        with connected(cluster.address) as (n_workers, executor):
            assert n_workers == 2
            assert executor is not None
            under_way = executor.submit(large)
            while not mark.exists() and not under_way.done():
                time.sleep(0.01)
            time.sleep(0.3)
            cluster.scheduler.kill()
            under_way.result(timeout=PATIENCE)

    with pytest.raises(AstrayError, match="the scheduler was lost; start it again"):
        fetch()


def test_an_error_in_a_job_is_raised_as_it_is_and_not_as_a_lost_scheduler(cluster: Cluster, tmp_path: Path):
    with connected(cluster.address) as (_, executor):
        assert executor is not None
        assert executor.submit(int, "12").result(timeout=PATIENCE) == 12
        with pytest.raises(ValueError, match="invalid literal"):
            executor.submit(int, "a dozen").result(timeout=PATIENCE)
        with pytest.raises(FileNotFoundError):
            executor.submit(Path.read_bytes, tmp_path / "nothing").result(timeout=PATIENCE)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_a_cluster_with_certificates_gives_the_same_scores_and_refuses_a_client_without_one(
    home: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    flags = ("--protocol", "tls", "--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    with ExitStack() as stack:
        cluster = Cluster(stack, *flags)
        assert cluster.address.startswith("tls://127.0.0.1:")
        _, said = finished(run(home, "score", cluster), code=1)
        assert "no scheduler answers there" in said
        assert "name the certificates in Dask's configuration" in said
        tls = "DASK_DISTRIBUTED__COMM__TLS__"
        for name, file in (("CA_FILE", certificate), ("CLIENT__CERT", certificate), ("CLIENT__KEY", key)):
            monkeypatch.setenv(f"{tls}{name}", str(file))
        finished(run(home, "score", cluster))
    assert result(home, "score") == expected["score"]


def test_a_missing_scheduler_and_a_scheduler_without_workers_are_reported(home: Path):
    command = [sys.executable, str(RUN), *COMMANDS["score"], "--cluster"]
    nobody = subprocess.run([*command, "tcp://127.0.0.1:9"], cwd=home, capture_output=True, text=True, check=False)
    assert nobody.returncode == 1
    assert "tcp://127.0.0.1:9: no scheduler answers there" in nobody.stderr
    with started("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", until="Scheduler at:") as alone:
        address = str(alone.address)  # type: ignore[attr-defined]
        idle = subprocess.run([*command, address], cwd=home, capture_output=True, text=True, check=False)
    assert idle.returncode == 1
    assert "the scheduler has no workers; start some with `dask worker" in idle.stderr


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://10.1.2.3:8786", "neither on this machine nor encrypted"),
        ("tcp://0.0.0.0:8786", "neither on this machine nor encrypted"),
        ("tcp://localhost.example:8786", "neither on this machine nor encrypted"),
        ("ws://127.0.0.1:8786", "not the address of a scheduler"),
        ("127.0.0.1:8786", "not the address of a scheduler"),
        ("tls://host", "not the address of a scheduler"),
        ("tcp://127.0.0.1:99999", "not the address of a scheduler"),
        ("tcp://[::1", "not the address of a scheduler"),
    ],
)
def test_addresses_that_are_neither_loopback_nor_tls_are_refused(address: str, why: str):
    with pytest.raises(AstrayError, match=why) as refusal:
        check_address(address)
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "address", ["tls://host:8786", "tcp://127.0.0.1:1", "tcp://localhost:8786", "tcp://[::1]:8786"]
)
def test_loopback_and_tls_addresses_are_accepted(address: str):
    check_address(address)


def test_a_cluster_enrols_and_measures_every_agent(home: Path, cluster: Cluster):
    finished(run(home, "enroll", cluster))
    fleet = load(home / "larger.astray")
    assert len(fleet.memories_) == 8
    assert all(fleet.memories_.peek(agent).measured for agent in fleet.agents)  # type: ignore[union-attr]
    result(home, "enroll")
