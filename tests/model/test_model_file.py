"""A model file: whole after a kill, refused when damaged, without a trace of agents that were forgotten."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time as clock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import astray
from astray import Detector, Trajectories
from astray.core import atomic
from astray.core.errors import InUseError, ModelFileError
from astray.features.memory import Forgetting, Memory
from astray.model import array_bytes, memories
from astray.model.agent_memory import AgentMemory
from astray.model.file import PAGE_BYTES, ModelFile, write_model
from astray.model.memory_bytes import MemoryCodec
from astray.model.packing import pack, write
from astray.model.store import MODEL
from astray.scoring.own_scale import OwnScores
from astray.simulate import city

NAMES = [f"p{i:02d}" for i in range(5)]


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    everything = city(people=5, days=10, seed=4).trips
    heard = (np.arange(everything.n_rows) - everything.offsets[:-1][everything.trajectory_of_row]) % 3 == 0
    lengths = np.bincount(everything.trajectory_of_row[heard], minlength=len(everything))
    columns = {name: values[heard] for name, values in everything.columns.items()}
    return Trajectories(columns, np.r_[0, np.cumsum(lengths)], everything.agent_ids, everything.trajectory_ids)


@pytest.fixture(scope="module")
def kept(trips: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a fleet that knows some trips of everybody but the last."""
    path = tmp_path_factory.mktemp("fleets") / "fleet.astray"
    Detector().fit(some(trips, NAMES[:-1], 12)).save(path)
    return path


@pytest.fixture
def path(kept: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copy(kept, tmp_path / "fleet.astray"))


def some(trips: Trajectories, names: list[str], n: int, first: int = 0) -> Trajectories:
    return Trajectories.concat([trips.agent(name)[first : first + n] for name in names])


def opened(path: Path) -> Detector:
    fleet = astray.load(path)
    assert isinstance(fleet, Detector)
    return fleet


def blob_of(path: Path, agent: str) -> bytes:
    found = ModelFile.open(path).read(agent)
    assert found is not None
    return found[0]


def beside(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir())


class TestTheSameTripsMakeTheSameFile:
    """The same trips make the same file, to the last byte, in whatever order and batches they come."""

    @pytest.fixture(scope="class")
    def further(self, trips: Trajectories) -> Trajectories:
        """New trips of two who are known, and everything of one who is not; somebody moves to another place."""
        new = Trajectories.concat([some(trips, NAMES[2:4], 8, 12), trips.agent("p04")[:10]])
        far = (np.arange(len(new)) % 5 == 3)[new.trajectory_of_row]
        return new.with_columns({"lat": new.columns["lat"] + 0.8 * far})

    @pytest.fixture(scope="class")
    def whole(self, kept: Path, further: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> bytes:
        path = tmp_path_factory.mktemp("whole") / "fleet.astray"
        fleet = opened(kept)
        fleet.enroll(further)
        fleet.save(path)
        return path.read_bytes()

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(order=st.randoms(use_true_random=False), cuts=st.sets(st.integers(1, 25), max_size=4), saves=st.booleans())
    def test_the_same_trips_in_any_order_and_batches_make_the_same_bytes(
        self, kept: Path, further: Trajectories, whole: bytes, tmp_path: Path, order: Any, cuts: set[int], saves: bool
    ) -> None:
        at = list(range(len(further)))
        order.shuffle(at)
        path = Path(shutil.copy(kept, tmp_path / "fleet.astray"))
        fleet = opened(path)
        for batch in np.split(np.array(at), sorted(cuts)):
            assert fleet.enroll(further[batch]) == len(batch)
            if saves:  # in between, as two commands on two days would
                fleet.save(path)
                fleet = opened(path)
        fleet.save(tmp_path / "again.astray")
        assert (tmp_path / "again.astray").read_bytes() == whole

    def test_the_bytes_do_not_depend_on_how_much_is_held_in_memory_or_counted_at_a_time(
        self, kept: Path, further: Trajectories, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memories, "HELD_BYTES", 1)
        monkeypatch.setattr(memories, "READY_BYTES", 1)
        monkeypatch.setattr("astray.model.many_agents.ENROL_FIXES", 300)
        fleet = opened(kept)
        for i in range(0, len(further), 4):
            fleet.enroll(further[i : i + 4])
        assert len(fleet.memories_) == 5
        assert fleet.agents == NAMES
        fleet.save(tmp_path / "again.astray")
        assert (tmp_path / "again.astray").read_bytes() == whole

    def test_listing_known_and_waiting_trips_measures_nobody(
        self, kept: Path, further: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet = opened(kept)
        waiting, known, home = fleet.waiting_, fleet.known_trips_, fleet.memories_.zone(NAMES[0])

        def measure(agent: str, member: Any) -> Any:
            raise AssertionError(f"{agent} was measured")

        monkeypatch.setattr(memories, "HELD_BYTES", 1)
        monkeypatch.setattr(fleet.memories_, "measure", measure)
        fleet.enroll(further)
        assert fleet.waiting_ == waiting
        assert fleet.known_trips_ == known | set(further.ids)
        assert [fleet.memories_.zone(name) for name in NAMES] == [home] * len(NAMES)
        assert [row.trips for _, row in fleet.memories_.rows()] == [
            len([t for t in fleet.known_trips_ if t.agent == name and t not in waiting]) for name in NAMES
        ]

    @pytest.mark.parametrize("n", [1, 3, 7, 40])
    def test_scores_are_the_same_to_the_last_bit_however_trips_are_cut(
        self, kept: Path, trips: Trajectories, n: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet, new = opened(kept), trips[np.arange(len(trips)) % 5 == 0]
        order = np.random.default_rng(n).permutation(len(new))
        expected = fleet.score(new)[order]
        monkeypatch.setattr("astray.detector.CHUNK_FIXES", 200)
        parts = [fleet.score(new[order[i : i + n]]) for i in range(0, len(new), n)]
        assert pl_concat(parts).equals(expected, null_equal=True)
        monkeypatch.setattr(fleet, "n_jobs", 2)
        assert fleet.score(new[order]).equals(expected, null_equal=True)

    def test_trips_observed_day_by_day_teach_what_they_teach_at_once(
        self, kept: Path, trips: Trajectories, tmp_path: Path
    ) -> None:
        new = some(trips, NAMES[:2], 10, 12)
        starts = new.columns["time"][new.offsets[:-1]]
        days = [new[starts // 86_400 == day] for day in np.unique(starts // 86_400)]
        at_once, daily = opened(kept), opened(kept)
        whole = at_once.observe(new).table
        parts = pl_concat([daily.observe(day).table for day in days])
        assert parts.sort("agent", "trajectory").equals(whole.sort("agent", "trajectory"))
        for fleet, name in ((at_once, "a"), (daily, "b")):
            fleet.save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def pl_concat(tables: list[Any]) -> Any:
    import polars as pl

    return pl.concat(tables)


class TestRows:
    def test_scoring_reads_only_the_agents_of_the_trips_and_saving_writes_only_changed_agents(
        self, path: Path, trips: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[str] = []
        unpack = MemoryCodec.unpack

        def noted(self: MemoryCodec, data: bytes) -> AgentMemory:
            memory = unpack(self, data)
            read.extend(trip.agent for trip in memory.counts.trip_ids)
            return memory

        monkeypatch.setattr(MemoryCodec, "unpack", noted)
        before = {name: blob_of(path, name) for name in NAMES[:-1]}
        fleet = opened(path)
        fleet.score(trips.agent("p01")[12:14])
        fleet.enroll(trips.agent("p01")[12:14])
        fleet.save(path)
        assert set(read) == {"p01"}
        after = {name: blob_of(path, name) for name in NAMES[:-1]}
        assert {name for name in after if after[name] != before[name]} == {"p01"}

    def test_a_saved_change_is_seen_by_every_model_that_has_the_file_open(
        self, path: Path, trips: Trajectories
    ) -> None:
        reader, writer = opened(path), opened(path)
        assert set(reader.score(trips.agent("p00")[20:22])["history"]) == {12.0}
        writer.enroll(trips.agent("p00")[12:15])
        writer.forget("p01")
        writer.save(path)
        assert set(reader.score(trips.agent("p00")[20:22])["history"]) == {15.0}
        assert reader.agents == ["p00", "p02", "p03"]

    def test_a_forgotten_agent_leaves_no_byte_in_the_file(self, path: Path, trips: Trajectories) -> None:
        fleet = opened(path)
        # Some changes first, so that pages are used again.
        fleet.enroll(some(trips, NAMES, 5, 12))
        fleet.forget_trips("p02", [str(trips.agent("p02").trajectory_ids[3])], anomalous=True)
        fleet.save(path)
        blob = blob_of(path, "p02")
        assert all(piece in path.read_bytes() for piece in pieces(blob[:80]))
        assert b"p02" in path.read_bytes()
        # Regular patterns of packed numbers, which everybody's row has, are no sign of anybody.
        others = b"".join(blob_of(path, name) for name in ("p00", "p01", "p03"))
        fleet.forget("p02")
        fleet.save(path)
        assert beside(path) == ["fleet.astray"]  # no journal
        raw = path.read_bytes()
        own = [piece for piece in pieces(blob) if piece not in others]
        assert len(own) > 100
        assert not [piece for piece in own if piece in raw]
        assert b"p02" not in raw
        # Nor do the counts of others know where it went.
        cells = fleet.world_.popularity.agents
        fresh = Detector().fit(some(trips, ["p00", "p01", "p03"], 12)).world_.popularity.agents
        assert len(cells) == len(fresh) == 3

    def test_a_forgotten_trip_leaves_no_byte_in_the_file(self, path: Path, trips: Trajectories) -> None:
        fleet = opened(path)
        keys = fleet.memories_["p01"].counts
        gone = keys.keys[keys.trips == 3]
        only = gone[~np.isin(gone, keys.keys[keys.trips != 3])]
        old = blob_of(path, "p01")
        fleet.forget_trips("p01", [keys.trip_ids[3].trajectory])
        fleet.save(path)
        assert len(only)
        assert not np.isin(only, opened(path).memories_["p01"].counts.keys).any()
        new = set(pieces(blob_of(path, "p01"), 1))
        assert not [piece for piece in pieces(old) if piece not in new and piece in path.read_bytes()]

    def test_a_link_stays_a_link_and_the_mode_stays(self, path: Path, trips: Trajectories) -> None:
        path.chmod(0o600)
        link = path.with_name("link.astray")
        link.symlink_to(path)
        fleet = opened(link)
        fleet.forget("p01")
        fleet.save(link)
        assert link.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o600
        assert "p01" not in opened(path).agents

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_file_that_may_only_be_read_is_read(self, path: Path, trips: Trajectories) -> None:
        path.chmod(0o400)
        path.parent.chmod(0o500)
        try:
            fleet = opened(path)
            fleet.score(trips.agent("p00")[:2])
            fleet.forget("p00")
            with pytest.raises(ModelFileError, match="may not be written"):
                fleet.save(path)
        finally:
            path.parent.chmod(0o700)

    def test_a_memory_of_trips_with_a_context_keeps_the_context(self, path: Path) -> None:
        codec = MemoryCodec(Forgetting(), 4, (("load",), ("driver",)))
        trips = Trajectories.from_fixes(
            time=[0, 10, 100, 110], lat=[45.0] * 4, lon=[7.0] * 4, agent="a", trajectory=[*"xxyy"]
        )
        trips = Trajectories(
            trips.columns,
            trips.offsets,
            trips.agent_ids,
            trips.trajectory_ids,
            {"load": [1.5, 2.0], "driver": ["é", ""]},
        )
        counts = Memory().add({t: np.arange(3, dtype=np.uint64) for t in trips.ids}, dict.fromkeys(trips.ids, 1.0))
        back = codec.unpack(codec.pack(AgentMemory(counts, trips, OwnScores.unknown(2, 4))))
        assert back.kept is not None
        assert back.kept.context["load"].tolist() == [1.5, 2.0]
        assert back.kept.context["driver"].tolist() == ["é", ""]


def pieces(blob: bytes, step: int = 16) -> list[bytes]:
    """What a blob is made of, so long that it cannot be anywhere else by chance; runs of one byte are no sign."""
    found = (blob[i : i + 16] for i in range(0, len(blob) - 15, step))
    return [piece for piece in found if len(set(piece)) > 8]


class TestWriters:
    def test_changes_of_different_agents_by_two_writers_are_both_kept(self, path: Path, trips: Trajectories) -> None:
        first, second = opened(path), opened(path)
        first.enroll(trips.agent("p00")[12:14])
        second.enroll(trips.agent("p01")[12:15])
        second.enroll(trips.agent("p04")[:2])
        second.forget_trips("p01", [str(trips.agent("p01").trajectory_ids[0])], anomalous=True)
        first.forget_trips("p00", [str(trips.agent("p00").trajectory_ids[0])], anomalous=True)
        second.forget("p02")
        for fleet in (first, second):
            fleet.save(path)
        both = opened(path)
        assert both.agents == ["p00", "p01", "p03", "p04"]
        assert [len(both.memories_[a].counts) for a in both.agents] == [13, 14, 12, 2]
        assert {trip.agent for trip in both.anomalous_} == {"p00", "p01"}
        assert len(both.world_.popularity.agents) == 3

    def test_the_later_of_two_changes_of_one_agent_is_refused(self, path: Path, trips: Trajectories) -> None:
        first, second, third = opened(path), opened(path), opened(path)
        first.enroll(trips.agent("p00")[12:14])
        second.enroll(trips.agent("p00")[14:16])
        third.forget("p00")
        first.save(path)
        for late in (second, third):
            before = path.read_bytes()
            with pytest.raises(InUseError, match="another process has changed what is known of 'p00'"):
                late.save(path)
            assert path.read_bytes() == before
        assert len(opened(path).memories_["p00"].counts) == 14
        # So it is for somebody new.
        first, second = opened(path), opened(path)
        for fleet in (first, second):
            fleet.enroll(trips.agent("p04")[:2])
        first.save(path)
        with pytest.raises(InUseError, match="'p04'"):
            second.save(path)

    def test_a_trip_that_two_processes_add_at_once_is_counted_once(
        self, path: Path, trips: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second, new = opened(path), opened(path), trips.agent("p00")[12:14]
        new_of = second.world_._new

        def slowly(given: Trajectories) -> Trajectories:
            found = new_of(given)
            first.enroll(new)
            first.save(path)
            return found

        monkeypatch.setattr(second.world_, "_new", slowly)
        second.enroll(new)
        second.save(path)
        assert len(opened(path).memories_["p00"].counts) == 14

    def test_settings_that_were_changed_meanwhile_are_not_lost(self, path: Path) -> None:
        first, second = opened(path), opened(path)
        first.set_params(min_history=7).save(path)
        with pytest.raises(InUseError, match="settings"):
            second.set_params(min_history=9).save(path)
        assert opened(path).min_history == 7

    def test_a_file_that_was_put_in_its_place_is_not_overwritten(self, path: Path, trips: Trajectories) -> None:
        fleet, other = opened(path), opened(path)
        other.forget("p00")
        other.save(path.with_name("other"))
        path.with_name("other").rename(path)
        fleet.enroll(trips.agent("p00")[12:14])
        with pytest.raises(InUseError, match="another file in its place"):
            fleet.save(path)
        fleet.save(path.with_name("mine"))
        assert len(opened(path.with_name("mine")).memories_["p00"].counts) == 14

    def test_a_second_writer_waits_and_is_refused_in_the_end(
        self, path: Path, trips: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet = opened(path)
        fleet.enroll(trips.agent("p00")[12:14])
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(atomic, "PATIENCE", 0.2)
        with pytest.raises(InUseError, match="another process is changing it; try again"):
            fleet.save(path)
        # Who reads need not wait.
        assert opened(path).agents == NAMES[:-1]
        holder.execute("ROLLBACK")
        fleet.save(path)
        assert len(opened(path).memories_["p00"].counts) == 14

    def test_a_full_disk_changes_nothing(self, path: Path, trips: Trajectories) -> None:
        code = """
            import resource, sys, astray, polars as pl
            fleet = astray.load(sys.argv[1])
            fleet.enroll(astray.Trajectories.from_frame(pl.read_parquet(sys.argv[2])))
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
            import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            try:
                fleet.save(sys.argv[1])
            except astray.core.errors.ModelFileError as error:
                print(error)
            """
        trips.agent("p04").to_frame().write_parquet(path.with_name("new.parquet"))
        before = opened(path).score(trips[::9])
        said = script(code, path, path.with_name("new.parquet"), path.stat().st_size)
        assert "was not saved" in said
        assert opened(path).score(trips[::9]).equals(before, null_equal=True)


def script(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class TestKills:
    def test_a_kill_at_any_moment_leaves_a_whole_file_with_every_change_that_was_reported(
        self, path: Path, trips: Trajectories
    ) -> None:
        """A few of the fifty kills of bench/kills.py."""
        trips.to_frame().write_parquet(path.with_name("trips.parquet"))
        code = """
            import sys, astray, polars as pl
            trips = astray.Trajectories.from_frame(pl.read_parquet(sys.argv[2]))
            fleet = astray.load(sys.argv[1])
            print("begun", flush=True)
            for i in range(12, 40):
                for agent in ("p00", "p04"):
                    fleet.enroll(trips.agent(agent)[i : i + 1])
                if "p03" in fleet.agents:
                    fleet.forget("p03")
                else:
                    fleet.enroll(trips.agent("p03")[:5])
                fleet.save(sys.argv[1])
                print(i, flush=True)
            """
        rng = np.random.default_rng(0)
        for _ in range(6):
            fresh = Path(shutil.copy(path, path.with_name("killed.astray")))
            command = [sys.executable, "-c", textwrap.dedent(code), str(fresh), str(path.with_name("trips.parquet"))]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                child.stdout.readline()
                clock.sleep(rng.uniform(0.0, 0.5))
                child.send_signal(signal.SIGKILL)
                done = [int(line) for line in child.stdout.read().split()]
            fleet = opened(fresh)
            n = len(fleet.memories_["p00"].counts)
            assert n - 12 >= len(done)
            assert n == 12 + (len(fleet.memories_["p04"].counts) if "p04" in fleet.agents else 0)
            assert ("p03" in fleet.agents) == ((n - 12) % 2 == 0)
            fleet.score(trips[::9])
            fleet.enroll(trips.agent("p01")[12:13])
            fleet.save(fresh)
            assert not [name for name in beside(fresh) if "journal" in name]

    def test_a_journal_of_a_killed_process_does_not_damage_a_new_file(self, path: Path, kept: Path) -> None:
        journal = path.with_name("fleet.astray-journal")
        journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))
        whole = opened(kept)
        whole.save(path.with_name("aside"))
        fleet = opened(kept)
        fleet.forget("p00")
        fleet.save(path)
        assert not journal.exists()
        assert opened(path).agents == NAMES[1:-1]


class TestDamage:
    def scores(self, path: Path, trips: Trajectories) -> Any:
        try:
            fleet = opened(path)
            return fleet.score(trips), fleet.agents, fleet.anomalous_
        except ModelFileError:
            return None

    def test_a_flipped_bit_or_a_cut_is_refused_or_changes_nothing(
        self, path: Path, trips: Trajectories, tmp_path: Path
    ) -> None:
        asked, whole = trips[::12], path.read_bytes()
        expected = self.scores(path, asked)
        damaged = tmp_path / "damaged.astray"
        rng = np.random.default_rng(1)
        pages = len(whole) // 2048
        # Every kind of page where it begins, and anywhere.
        begins = [2048 * p + k for p in range(0, pages, 6) for k in (0, 3, 5, 9)]
        at = [*range(0, 100, 2), *begins, *rng.integers(0, len(whole), 40)]
        refused = 0
        for place in at:
            changed = bytearray(whole)
            changed[place] ^= 1 << int(rng.integers(8))
            damaged.write_bytes(bytes(changed))
            found = self.scores(damaged, asked)
            refused += found is None
            assert found is None or (found[0].equals(expected[0], null_equal=True) and found[1:] == expected[1:]), place
        assert refused > len(at) // 3
        for size in (0, 1, 99, 100, 2048, len(whole) // 2, len(whole) - 1):
            damaged.write_bytes(whole[:size])
            assert self.scores(damaged, asked) is None

    @pytest.mark.parametrize(
        "forge",
        [
            "CREATE TRIGGER t AFTER INSERT ON memories BEGIN DELETE FROM memories; END",
            "CREATE VIEW v AS SELECT * FROM memories",
            "CREATE INDEX i ON memories (data)",
            "CREATE TABLE further (a)",
            "ALTER TABLE memories ADD COLUMN further INTEGER",
            "DROP INDEX memories_of_shard",
            "PRAGMA application_id=7",
            "PRAGMA journal_mode=WAL",
            "DELETE FROM models WHERE part = 'model'",
            "DELETE FROM models WHERE part = 'popularity'",
            "UPDATE models SET part = 'popularity2' WHERE part = 'anomalous'",
            "UPDATE models SET data = (SELECT data FROM models m WHERE m.part = 'model') WHERE part = 'anomalous'",
            "DELETE FROM shards",
            "DELETE FROM memories",
            "DELETE FROM memories WHERE agent = 'p00'",
            "UPDATE memories SET agent = agent || 'x'",
            "UPDATE memories SET data = zeroblob(100)",
            "UPDATE memories SET data = (SELECT data FROM memories m WHERE m.agent <> memories.agent)",
            "UPDATE memories SET checksum = (SELECT checksum FROM memories m WHERE m.agent <> memories.agent)",
            "UPDATE memories SET trips = trips + 1",
            "UPDATE memories SET waiting = 1 - waiting",
            "UPDATE memories SET zone = 'Asia/Tokyo'",
            "UPDATE memories SET first = first + 1",
            "UPDATE memories SET version = 2",
            "UPDATE memories SET version = -1",
            "UPDATE shards SET shard = shard + 1000",
            "UPDATE shards SET agents = 2, checksum = zeroblob(16)",
        ],
    )
    def test_a_database_that_astray_would_not_make_is_refused(
        self, path: Path, trips: Trajectories, forge: str
    ) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute(forge)
        other.close()

        def look() -> None:
            fleet = opened(path)
            fleet.score(trips[::12])
            assert fleet.agents

        with pytest.raises(ModelFileError, match=r"damaged|not written by astray"):
            look()

    def test_a_newer_version_is_refused(self, path: Path) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA user_version=8")
        other.close()
        with pytest.raises(ModelFileError, match="upgrade astray"):
            opened(path)

    def test_a_model_of_astray_0_2_is_refused_with_a_remedy(self, path: Path) -> None:
        way_out = r"written by astray 0\.2 or earlier, whose models this version cannot read; fit .* with astray fit$"
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA user_version=6")
        other.close()
        with pytest.raises(ModelFileError, match=way_out):
            astray.load(path)
        for kind in ("detector", "fleet"):
            write(path, kind, {}, {"a": np.zeros(3)})
            with pytest.raises(ModelFileError, match=way_out):
                astray.load(path)

    def test_load_says_what_a_file_is_that_is_not_a_model(self, tmp_path: Path) -> None:
        write(tmp_path / "reward", "reward", {}, {})
        with pytest.raises(ModelFileError, match="a reward, not a model; give a file that astray fit"):
            astray.load(tmp_path / "reward")
        write_model(tmp_path / "toy", {MODEL: pack("toy", {}, {})})
        with pytest.raises(ModelFileError, match="unknown kind 'toy'"):
            astray.load(tmp_path / "toy")
        with pytest.raises(ModelFileError, match="no such file"):
            astray.load(tmp_path / "missing")
        with pytest.raises(ModelFileError, match="a folder where a model file was expected"):
            astray.load(tmp_path)

    def test_another_database_is_refused(self, tmp_path: Path) -> None:
        other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
        other.execute("CREATE TABLE people (name)")
        other.close()
        with pytest.raises(ModelFileError, match="not a model of astray"):
            astray.load(tmp_path / "other.db")

    @pytest.mark.parametrize("index", ["sqlite_autoindex_memories_1", "memories_of_shard"])
    def test_an_agent_that_a_damaged_index_hides_is_not_taken_for_a_stranger(
        self, path: Path, trips: Trajectories, index: str
    ) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        (page,) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        other.close()
        raw = bytearray(path.read_bytes())
        begin = PAGE_BYTES * (page - 1)
        at = raw.index(b"p03", begin, begin + PAGE_BYTES)
        raw[at : at + 3] = b"p99"
        path.write_bytes(bytes(raw))

        def go_on() -> None:
            fleet = opened(path)
            fleet.score(trips.agent("p03")[:2])
            fleet.enroll(trips.agent("p03")[12:14])
            fleet.save(path)

        with pytest.raises(ModelFileError, match="does not match its checksum"):
            go_on()


def test_a_forked_process_opens_its_own_connection(path: Path) -> None:
    file = ModelFile.open(path)
    entry = file.entry("p01")
    assert entry is not None
    child = os.fork()
    if not child:  # without polars and its threads, which do not outlive a fork
        try:
            with file.changing() as change:
                change.put("p01", None, entry.checksum)
            os._exit(0 if file.entry("p01") is None else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert file.entry("p01") is None
    assert sorted(agent for agent, _ in file.entries()) == ["p00", "p02", "p03"]


def test_threads_that_score_at_once_get_the_scores_of_one(path: Path, trips: Trajectories) -> None:
    fleet, asked = opened(path), [trips.agent(name)[12:14] for name in NAMES] * 4
    expected = [opened(path).score(some) for some in asked]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(fleet.score, asked))
    assert all(a.equals(b, null_equal=True) for a, b in zip(found, expected, strict=True))


class TestCompact:
    @given(
        st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 40)), max_size=60),
        st.lists(st.text(max_size=5), max_size=9),
    )
    def test_packed_arrays_are_read_back_unchanged(self, pairs: list[tuple[int, int]], words: list[str]) -> None:
        unique = sorted(set(pairs))
        keys: NDArray[np.uint64] = np.array([k for k, _ in unique], np.uint64)
        numbers: NDArray[np.int32] = np.array([t for _, t in unique], np.int32)
        blob = array_bytes.pack_arrays([*array_bytes.postings(keys, numbers), *array_bytes.texts(words)])
        found = array_bytes.unpack_arrays(blob, (*array_bytes.POSTINGS, *array_bytes.TEXTS))
        back = array_bytes.as_postings(found[:3], 41)
        assert np.array_equal(back[0], keys)
        assert np.array_equal(back[1], numbers)
        assert array_bytes.as_texts(found[3:]) == words

    @given(st.binary(max_size=80))
    def test_random_bytes_are_refused_or_read_as_arrays(self, blob: bytes) -> None:
        try:
            array_bytes.unpack_arrays(blob, array_bytes.POSTINGS)
        except ValueError:
            return

    def test_a_blob_cannot_claim_to_be_of_any_size(self) -> None:
        blob = bytearray(array_bytes.pack_arrays([np.zeros(10)]))
        blob[:4] = (2**31).to_bytes(4, "little")
        with pytest.raises(ValueError, match="claims"):
            array_bytes.unpack_arrays(bytes(blob), [np.float64])

    def test_postings_take_a_fraction_of_their_size(self, kept: Path) -> None:
        memory = opened(kept).memories_["p00"].counts
        packed = array_bytes.pack_arrays(array_bytes.postings(memory.keys, memory.trips))
        assert len(packed) < 0.6 * 12 * len(memory.keys)
