"""Packed contents are whole or refused, written whole or not at all, and hold nothing that could run."""

from __future__ import annotations

import ast
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time as clock
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import astray
from astray import load
from astray.core.errors import DataError, ModelFileError
from astray.features.context import ContextSpec
from astray.features.featurizer import FeaturizerConfig
from astray.features.memory import Forgetting
from astray.irl.kdd19 import KDD19
from astray.irl.learn_config import LearnConfig
from astray.model.packing import VERSION, Contents, pack, read, unpack, write
from astray.model.plain_values import configured, pack_text, plain, restore
from astray.scoring.normality import Location

VALUES: dict[str, Any] = {"zeta": [1, 2.5, None], "alpha": {"b": True, "a": "ü"}}
ARRAYS: dict[str, Any] = {
    "keys": np.array([1, 2**64 - 1], np.uint64),
    "weights": np.arange(6, dtype=np.float32).reshape(1, 2, 3),
    "nothing": np.zeros((0, 2)),
    "marks": np.array([1, -1], np.int8),
    **pack_text("names", ["", "ana", "日本"]),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.astray"
    write(path, "toy", VALUES, ARRAYS)
    return path


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


class TestWhatIsWrittenIsRead:
    def test_values_arrays_and_their_order(self, file: Path) -> None:
        model = read(file)
        assert model.kind == "toy"
        assert json.dumps(model.values) == json.dumps(VALUES)
        assert set(model.arrays) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert model.arrays[name].dtype == array.dtype
            assert np.array_equal(model.arrays[name], array)
        assert model.text("names", 3) == ["", "ana", "日本"]

    def test_any_reader_of_safetensors_finds_the_same_arrays(self, file: Path) -> None:
        tensors = safetensors.numpy.load_file(file)
        assert all(np.array_equal(tensors[name], array) for name, array in ARRAYS.items())

    def test_strided_and_big_endian_arrays_keep_their_numbers(self, tmp_path: Path) -> None:
        table = np.arange(12.0).reshape(3, 4)
        write(tmp_path / "m", "toy", {}, {"strided": table.T[::2], "foreign": table.astype(">f8")})
        model = read(tmp_path / "m")
        assert np.array_equal(model.arrays["strided"], table.T[::2])
        assert np.array_equal(model.arrays["foreign"], table)

    def test_a_value_that_is_no_number_is_refused_before_anything_is_written(self, file: Path) -> None:
        before = file.read_bytes()
        with pytest.raises(ModelFileError, match="cannot be saved"):
            write(file, "toy", {"f": print}, {})
        with pytest.raises(ModelFileError, match="not finite"):
            write(file, "toy", {"f": float("nan")}, {})
        assert file.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="here a process cannot be asked for its own peak")
def test_reading_takes_memory_for_the_file_and_its_arrays_and_no_more(tmp_path: Path) -> None:
    size = 64 << 20
    write(tmp_path / "m", "toy", {}, {"a": np.zeros(size // 16), "b": np.ones(size // 8, np.float32)})
    child = run(
        """
        import sys
        from astray.model.packing import read
        peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
        before = peak()
        model = read(sys.argv[1])
        print(peak() - before)
        """,
        tmp_path / "m",
    )
    grown = 1024 * int(child.communicate()[0])
    assert 0.9 * size < grown < 2.2 * size


class TestWhatIsNotWholeIsRefused:
    def test_every_flipped_bit(self, file: Path) -> None:
        whole = file.read_bytes()
        for i in range(len(whole)):
            bent = bytearray(whole)
            bent[i] ^= 1 << (i % 8)
            file.write_bytes(bent)
            with pytest.raises(ModelFileError):
                read(file)

    def test_every_length_but_the_whole_one(self, file: Path) -> None:
        whole = file.read_bytes()
        for n in [*range(0, len(whole), 7), len(whole) - 1]:
            file.write_bytes(whole[:n])
            with pytest.raises(ModelFileError, match="not a whole model file"):
                read(file)
        file.write_bytes(whole + b"\0")
        with pytest.raises(ModelFileError):
            read(file)

    def test_a_pickle_is_not_opened_let_alone_run(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "sprung",))

        disguised = tmp_path / "model.astray"
        disguised.write_bytes(pickle.dumps(Trap()) * 20)
        with pytest.raises(ModelFileError):
            load(disguised)
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize("lie", ["header", "array"])
    def test_a_header_that_claims_a_terabyte_takes_no_memory(self, lie: str, file: Path) -> None:
        whole = file.read_bytes()
        if lie == "header":
            file.write_bytes((10**12).to_bytes(8, "little") + whole[8:])
        else:
            header = json.dumps({"x": {"dtype": "U8", "shape": [10**12], "data_offsets": [0, 10**12]}}).encode()
            file.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 100)
        tracemalloc.start()
        try:
            with pytest.raises(ModelFileError):
                read(file)
            assert tracemalloc.get_traced_memory()[1] < 10 * len(whole) + 1_000_000
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(
        "changed",
        [
            {"data_offsets": [0, 8]},  # what another array has
            {"data_offsets": [40, 48]},  # a hole
            {"data_offsets": [24, 16]},
            {"data_offsets": ["0", 8]},
            {"data_offsets": None},
            {"dtype": "BF16"},
            {"dtype": ["U8"]},
            {"shape": [2]},
            {"shape": [-1, -8]},
            {"shape": [0, 10**30]},
            {"shape": [True] * 8},
            {"shape": "8"},
        ],
    )
    def test_an_array_that_is_not_what_or_where_it_should_be(self, changed: dict[str, Any], file: Path) -> None:
        write(file, "toy", {}, {"a": np.zeros(2), "b": np.ones(8, np.uint8)})
        whole = file.read_bytes()
        size = 8 + int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8:size])
        forged = json.dumps(header | {"b": header["b"] | changed}).encode()
        file.write_bytes(len(forged).to_bytes(8, "little") + forged + whole[size:])
        with pytest.raises(ModelFileError, match="not a whole model file"):
            read(file)

    @pytest.mark.parametrize(
        "header", [b"[]", b'{"__metadata__": []}', b'{"__metadata__": {"astray": 1}}', b"[" * 9999]
    )
    def test_an_invalid_header(self, header: bytes, file: Path) -> None:
        file.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ModelFileError, match="not a whole model file"):
            read(file)

    @pytest.mark.parametrize(
        "header", [b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": {"b": -Infinity}}', b'{"a": 1e400}']
    )
    def test_a_header_with_a_name_twice_or_no_number(self, header: bytes, file: Path) -> None:
        file.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ModelFileError, match="its header h"):
            read(file)

    def test_a_newer_version_says_what_to_do(self, file: Path) -> None:
        newer = file.read_bytes().replace(f'\\"version\\":{VERSION}'.encode(), b'\\"version\\":9')
        file.write_bytes(newer)
        with pytest.raises(ModelFileError, match=r"version 9 .* upgrade astray"):
            read(file)

    def test_files_of_others_folders_and_nothing(self, tmp_path: Path) -> None:
        safetensors.numpy.save_file({"a": np.zeros(3)}, tmp_path / "foreign")
        with pytest.raises(ModelFileError, match="not a model of astray"):
            read(tmp_path / "foreign")
        with pytest.raises(ModelFileError, match="folder"):
            read(tmp_path)
        with pytest.raises(ModelFileError, match="no such file"):
            read(tmp_path / "missing")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names on Windows")
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        child = run(
            """
            import sys
            from astray.core.errors import ModelFileError
            from astray import load
            try:
                load(sys.argv[1])
            except ModelFileError as error:
                print(error)
            """,
            tmp_path / "pipe",
        )
        try:
            assert (
                "a pipe or a device, which cannot be read twice; write it to a file" in child.communicate(timeout=60)[0]
            )
        finally:
            child.kill()

    def test_every_access_to_values_and_arrays_is_checked(self, file: Path) -> None:
        model = read(file)
        assert model.array("weights", np.float32, 1, None, 3).shape == (1, 2, 3)
        for wrong in ((np.float64, 1, 2, 3), (np.float32, 1, 2), (np.float32, 2, 2, 3)):
            with pytest.raises(ModelFileError, match="weights"):
                model.array("weights", *wrong)  # type: ignore[arg-type]
        with pytest.raises(ModelFileError, match="missing"):
            model.array("absent", np.float32)
        with pytest.raises(ModelFileError, match="missing"):
            model.value("absent", int)
        with pytest.raises(ModelFileError, match="alpha"):
            model.value("alpha", int)
        with pytest.raises(ModelFileError, match="do not cut 5 rows"):
            model.offsets("names.ends", 5)
        bent = replace(model, arrays=model.arrays | {"names.utf8": np.full(9, 0xFF, np.uint8)})
        with pytest.raises(ModelFileError, match="not text"):
            bent.text("names")


class TestAFileIsTheOldOneOrTheNewOne:
    def test_a_full_disk_is_reported_and_nothing_is_lost(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = file.read_bytes()

        def disk_full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", disk_full)
        with pytest.raises(ModelFileError, match=r"No space left on device.*untouched"):
            write(file, "toy", {}, {"big": np.zeros(1000)})
        assert file.read_bytes() == before
        assert list(file.parent.iterdir()) == [file]

    def test_a_disk_that_fills_up_while_writing_is_reported_and_nothing_is_lost(self, file: Path) -> None:
        before = file.read_bytes()
        child = run(
            """
            import resource, signal, sys
            import numpy as np
            from astray.core.errors import ModelFileError
            from astray.model.packing import write
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            try:
                write(sys.argv[1], "toy", {}, {"big": np.zeros(1_000_000)})
            except ModelFileError as error:
                print(error)
            """,
            file,
        )
        assert "was not saved (File too large)" in child.communicate()[0]
        assert file.read_bytes() == before
        assert list(file.parent.iterdir()) == [file]

    def test_a_folder_is_not_overwritten(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="folder"):
            write(tmp_path, "toy", {}, {})
        with pytest.raises(ModelFileError, match="not saved"):
            write(tmp_path / "no such folder" / "m", "toy", {}, {})

    def test_kill_9_at_any_moment_of_a_save(self, tmp_path: Path) -> None:
        path = tmp_path / "model.astray"
        write(path, "toy", {"k": -1}, {"a": np.full(500_000, -1.0)})
        rng = np.random.default_rng(0)
        seen = set()
        for _ in range(4):
            child = run(
                """
                import itertools, sys
                import numpy as np
                from astray.model.packing import write
                for k in itertools.count():
                    write(sys.argv[1], "toy", {"k": k}, {"a": np.full(500_000, float(k))})
                    print("saved", flush=True)
                """,
                path,
            )
            assert child.stdout is not None
            child.stdout.readline()
            clock.sleep(rng.uniform(0.0, 0.1))
            child.send_signal(signal.SIGKILL)
            child.communicate()
            model = read(path)
            assert (model.arrays["a"] == model.values["k"]).all()
            seen.add(model.values["k"])
        assert -1 not in seen


class TestPlainValues:
    @pytest.mark.parametrize(
        "config", [LearnConfig(), KDD19, FeaturizerConfig(), FeaturizerConfig(context=ContextSpec(True))]
    )
    def test_a_configuration_comes_back_equal(self, config: Any) -> None:
        assert restore(type(config), json.loads(json.dumps(plain(config)))) == config

    @given(
        st.builds(
            Forgetting,
            st.none() | st.integers(min_value=1),
            st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False),
            st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        )
    )
    def test_any_configuration_comes_back_equal(self, config: Forgetting) -> None:
        assert restore(Forgetting, json.loads(json.dumps(plain(config)))) == config

    @pytest.mark.parametrize(
        ("hint", "value"),
        [
            (int, True),
            (int, 1.5),
            (bool, 1),
            (str, 3),
            (float, "1"),
            (tuple[int, ...], "12"),
            (float | None, []),
            (Forgetting, {"max_trips": "many"}),
            (Forgetting, {"unheard": 1}),
            (Forgetting, 3),
        ],
    )
    def test_what_does_not_fit_its_type_is_refused(self, hint: Any, value: Any) -> None:
        with pytest.raises(TypeError):
            restore(hint, value)

    def test_a_mapping_changes_the_fields_that_it_names(self) -> None:
        changed = configured(LearnConfig(), {"reward": {"heads": 3}, "iterations": 7})
        assert changed == replace(LearnConfig(), reward=replace(LearnConfig().reward, heads=3), iterations=7)
        assert configured(LearnConfig(), KDD19) is KDD19
        with pytest.raises(DataError, match="LearnConfig has no field named 'iteration'"):
            configured(LearnConfig(), {"iteration": 7})


def test_nothing_in_the_package_unpickles() -> None:
    unsafe = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
    for path in Path(astray.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not unsafe & {a.name.split(".")[0] for a in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in unsafe, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "torch.save", "np.load"), path


@dataclass(frozen=True, eq=False)
class Nested:
    """All that a dataclass in a file may hold: arrays in tuples, a table, texts, a named tuple, and nothing."""

    layers: tuple[tuple[NDArray[np.float32], NDArray[np.uint64]], ...]
    table: pl.DataFrame
    names: NDArray[np.str_]
    place: Location
    missing: Location | None = None


class TestDataclasses:
    layers = (
        (np.ones((2, 3), np.float32), np.array([7], np.uint64)),
        (np.zeros(1, np.float32), np.zeros(0, np.uint64)),
    )
    table = pl.DataFrame({"loss": [1.0, float("nan")], "seconds": [0.5, float("inf")]})
    nested = Nested(layers, table, np.array(["", "日本"]), Location(1.0, 2.0))

    def contents(self, nested: Nested) -> Contents:
        return unpack(pack("toy", {"inside": {"nested": nested}}), "m").within("inside")

    def test_a_dataclass_with_arrays_and_tables_comes_back_equal(self) -> None:
        found: Nested = self.contents(self.nested).value("nested", Nested)
        for one, other in zip(found.layers, self.layers, strict=True):
            assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))
        assert found.table.equals(self.table, null_equal=True)
        assert found.names.tolist() == ["", "日本"]
        assert (found.place, found.missing) == (Location(1.0, 2.0), None)

    def test_an_array_that_is_missing_not_finite_or_of_another_type_is_refused(self) -> None:
        contents, name = self.contents(self.nested), "inside.nested.layers.0.0"
        assert name in contents.arrays
        for wrong in (np.full(2, np.nan, np.float32), np.zeros(2), None):
            arrays = {key: array for key, array in contents.arrays.items() if key != name}
            arrays |= {} if wrong is None else {name: wrong}
            with pytest.raises(ModelFileError, match=f"nested: the array {name}"):
                replace(contents, arrays=arrays).value("nested", Nested)

    def test_a_value_in_the_place_of_an_array_is_refused(self) -> None:
        contents = self.contents(self.nested)
        forged = {**contents.values["nested"], "names": ["a", "b"]}
        with pytest.raises(ModelFileError, match="is not a value of"):
            replace(contents, values={"nested": forged}).value("nested", Nested)


def test_contents_are_plain_data() -> None:
    model = Contents("m", "toy", VALUES, ARRAYS)
    assert model.within("alpha").value("a", str) == "ü"
