"""Makes files and models, and damages them in many ways, for `bench/fuzz.py`."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from astray import Detector, Trajectories
from astray.core.writers import fixes_and_trips, write_table
from astray.model.array_bytes import pack_arrays, unpack_arrays
from astray.model.file import PAGE_BYTES, ModelFile, is_database
from astray.model.memory_bytes import MEMORY  # the arrays in an agent's row
from astray.model.packing import Contents, pack, unpack
from astray.model.pretrained import pretrained, write_reward
from astray.model.store import MODEL, PARTS, Tables
from astray.runtime import watch
from astray.simulate import city

DATA = Path(__file__).parent.parent / "tests" / "data"

# -------------------------------------------------------------------- intact files and models


def make_files(folder: Path) -> None:
    """Writes a small valid file of every format, each in a separate folder."""
    trips = city(people=2, days=2, seed=0).trips[:5]
    trips = Trajectories({name: trips.columns[name] for name in ("time", "lat", "lon")}, trips.offsets, *names(trips))
    short = trips[:3]
    for name in ("trips.csv", "trips.parquet", "trips.geojson", "trips.jsonl"):
        file = made(folder, name)
        write_table(fixes_and_trips(short, file), file, short)
    frame = short.to_frame()
    raw = frame.select("agent", "time", "lat", "lon")
    raw.write_csv(made(folder, "raw.csv"))
    raw.write_csv(made(folder, "raw.txt"), separator=";", decimal_comma=True)
    raw.write_ipc(made(folder, "raw.feather"))
    raw.write_csv(made(folder, "headless.csv"), include_header=False)
    made(folder, "latin.csv").write_bytes(frame.write_csv().replace("p00", "é").encode("latin-1"))
    made(folder, "wide.csv").write_bytes(frame.write_csv().encode("utf-16"))
    made(folder, "packed.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    with zipfile.ZipFile(made(folder, "packed.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ana/a.csv", frame.write_csv())
        archive.writestr("ana/b.csv", raw.write_csv())
    made(folder, "ride.gpx").write_text(gpx(short))
    made(folder, "ride.fit").write_bytes(fit(short))
    made(folder, "train.csv").write_text(porto(short))
    plt = folder / "geolife" / "Data" / "000" / "Trajectory" / "20081023025304.plt"
    plt.parent.mkdir(parents=True)
    plt.write_text(geolife(short[0]))
    for file in sorted(DATA.iterdir()):
        (shutil.copytree if file.is_dir() else shutil.copy)(file, made(folder, file.name))


def made(folder: Path, name: str) -> Path:
    """Makes the folder for a file of this name, and returns the file's path."""
    (folder / name).mkdir()
    return folder / name / name


def names(trips: Trajectories) -> tuple[list[str], list[str]]:
    return trips.agent_ids.tolist(), trips.trajectory_ids.tolist()


def gpx(trips: Trajectories) -> str:
    tracks = "".join(
        "<trk><name>{}</name><trkseg>{}</trkseg></trk>".format(
            trip.trajectory_ids[0],
            "".join(
                f'<trkpt lat="{lat}" lon="{lon}"><time>{moment}</time></trkpt>'
                for lat, lon, moment in fixes_and_trips(trip, None).select("lat", "lon", "time").iter_rows()
            ),
        )
        for trip in trips
    )
    return f'<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">{tracks}</gpx>'


def geolife(trip: Trajectories) -> str:
    rows = [
        f"{lat},{lon},0,-777,{time / 86_400 + 25_569:.10f},{moment:%Y-%m-%d},{moment:%H:%M:%S}"
        for lat, lon, time, moment in zip(
            *(trip.columns[name].tolist() for name in ("lat", "lon", "time")),
            fixes_and_trips(trip, None)["time"],
            strict=True,
        )
    ]
    return "\r\n".join(["Geolife trajectory", "WGS 84", "Altitude is in Feet", "Reserved 3", "0,2", "0", *rows, ""])


def porto(trips: Trajectories) -> str:
    lines = [
        '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"'
    ]
    for i, trip in enumerate(trips):
        way = np.column_stack([trip.columns["lon"], trip.columns["lat"]]).round(6).tolist()
        lines.append(f'"137263685862000058{i}","C","","","20000589","1372636858","A","False","{json.dumps(way)}"')
    return "\n".join([*lines, ""])


def fit(trips: Trajectories) -> bytes:
    """Returns a FIT file by its protocol: a file_id message (number 0) and records (number 20), little-endian."""

    def definition(local: int, number: int, *fields: tuple[int, int, int]) -> bytes:
        return struct.pack("<BBBHB", 0x40 | local, 0, 0, number, len(fields)) + b"".join(map(bytes, fields))

    time = trips.columns["time"].astype(int) - 631_065_600
    places = (np.column_stack([trips.columns["lat"], trips.columns["lon"]]) * 2**31 / 180.0).astype(int)
    data = definition(0, 0, (0, 1, 0x00)) + struct.pack("<BB", 0, 4)
    data += definition(1, 20, (253, 4, 0x86), (0, 4, 0x85), (1, 4, 0x85))
    data += b"".join(struct.pack("<BIii", 1, int(t), *p) for t, p in zip(time, places.tolist(), strict=True))
    return with_crc(struct.pack("<BBHI4s", 14, 0x20, 2132, len(data), b".FIT"), data)


def with_crc(header: bytes, data: bytes) -> bytes:
    header += struct.pack("<H", crc(header))
    return header + data + struct.pack("<H", crc(header + data))


def crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xA001 if value & 1 else 0)
    return value


def make_models(folder: Path) -> None:
    """Writes a small model of every kind, a reward, and the state of a watch."""
    quick: dict[str, Any] = {
        "iterations": 1,
        "sharing": {"least_agents": 2, "memories": 1, "demonstrations": 4, "imagined": 2, "reference": 10},
    }
    own: dict[str, Any] = {"iterations": 1, "config": {"updates": 1, "rollouts": 2, "imagined": 10, "clone_updates": 1}}
    trips = city(people=3, days=5, seed=0).trips
    mine, others = trips.agent("p00"), trips.without("p00")
    rng = np.random.default_rng(0)
    steps = Trajectories.from_steps(rng.normal(size=(6, 30, 3)).cumsum(axis=1), rng.normal(size=(6, 30, 2)))
    waiting = Trajectories(others[:8].columns, others[:8].offsets, ["p00"] * 8, others[:8].trajectory_ids)
    agent = Detector(**quick).fit(mine, population=others)
    agent.observe(waiting)
    fleet = Detector(**quick).fit(trips)
    models: dict[str, Detector] = {
        "agent": agent,
        "fleet": fleet,
        "own": Detector(encoder="fourier", **own).fit(mine[:10], population=others[:10]),
        "steps": Detector(**own).fit(steps),
    }
    for name, model in models.items():
        model.save(folder / name)
    write_reward(folder / "reward", pretrained())
    lines = trips[:4].to_frame().select("agent", "time", "lat", "lon").write_ndjson().splitlines()
    watch(fleet, lines[:-3], folder / "events.jsonl", state=folder / "state")


# -------------------------------------------------------------------- damage to bytes

TOKENS = (
    *(b'"', b"'", b"{", b"}", b"[", b"]", b"<", b">", b"&x;", b",", b";", b"\n", b"\r", b"\t", b"\0", b"\xff", b"\xfe"),
    *(b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"91", b"181", b"9" * 400, b"0x10", b"1_000", b"true"),
    *(b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"\x1b[31m", b"2024-02-30T25:61:61Z", b"1970-01-01", b"{}" * 50),
    *(b"[" * 3000, b"<a>" * 2000, b'{"a":' * 1500, b"=1+1", b"\xe2\x80\xae", b"lat,lon", b"\r\r\n"),
)


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Changes, removes, inserts, doubles or swaps some bytes, or cuts off the end."""
    content = bytearray(whole)
    for _ in range(chance.choice((1, 1, 2, 3, 6, 20))):
        content = content or bytearray(b"\n")
        at, other = chance.randrange(len(content)), chance.randrange(len(content))
        size = chance.choice((1, 2, 8, 40, 400))
        match chance.randrange(8):
            case 0:
                content[at] = chance.randrange(256)
            case 1:
                content[at] ^= 1 << chance.randrange(8)
            case 2:
                del content[at : at + size]
            case 3:
                content[at:at] = chance.choice(TOKENS)
            case 4:
                content[at : at + size] = chance.choice(TOKENS)
            case 5:
                content[at:at] = content[at : at + size] * chance.choice((1, 1, 3))
            case 6:
                one, two = content[at : at + size], content[other : other + size]
                content[at : at + size], content[other : other + size] = two, one
            case _:
                del content[max(at, 1) :]
    return bytes(content)


NUMBERS = b"0123456789.+-eE"


def renumbered(whole: bytes, chance: random.Random) -> bytes:
    """Replaces some numbers in a text by others, which keeps the form of the file."""
    content = bytearray(whole)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content))
        while at < len(content) and content[at] not in NUMBERS[:10]:
            at += 1
        end = at
        while end < len(content) and content[end] in NUMBERS:
            end += 1
        new = chance.choice(
            [
                *(
                    b"",
                    b"NaN",
                    b"inf",
                    b"1e308",
                    b"-1e308",
                    b"1e-320",
                    b"-0",
                    b"0",
                    b"90",
                    b"-90",
                    b"180",
                    b"360",
                    b"91",
                ),
                *(b"9" * 20, b"-" + b"9" * 20, b"253402300800", b"1e18", b"4102444800", b"20240131", b"1,5", b"--1"),
                str(chance.uniform(-1e3, 1e3)).encode(),
                str(chance.randint(-(2**70), 2**70)).encode(),
            ]
        )
        content[at:end] = new
    return bytes(content)


def rearranged(whole: bytes, chance: random.Random) -> bytes:
    """Reorders, repeats or removes lines of a text, changes their ends, or the encoding."""
    lines = whole.split(b"\n")
    match chance.randrange(7):
        case 0:
            chance.shuffle(lines)
        case 1:
            lines = [line for line in lines for _ in range(chance.choice((0, 1, 1, 2)))]
        case 2:
            return b"\r".join(lines)
        case 3:
            lines = [line + chance.choice((b"", b",", b",,,", b" ", b";x")) for line in lines]
        case 4:
            return whole.decode("latin-1").encode(chance.choice(("utf-16", "utf-8-sig", "utf-32", "utf-16-le")))
        case 5:
            lines = lines[:1] + [chance.choice(lines) for _ in range(chance.choice((0, 1, 500)))]
        case _:
            lines = lines[chance.randrange(len(lines)) :]
    return b"\n".join(lines)


def repacked(whole: bytes, chance: random.Random) -> bytes:
    """Damages the contents of a packed file, but not the packing."""
    if whole[:2] == b"\x1f\x8b":
        return gzip.compress(damaged(gzip.decompress(whole), chance))
    if whole[8:12] == b".FIT":
        data = damaged(whole[14:-2], chance)
        return with_crc(whole[:4] + struct.pack("<I", len(data)) + whole[8:12], data)
    return damaged(whole, chance)


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (damaged, damaged, renumbered, rearranged, repacked)


# -------------------------------------------------------------------- damage to models

STRANGE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        3,
        2**31,
        2**63,
        -(2**63),
        10**30,
        0.5,
        -2.5,
        1e308,
        1e-320,
        "",
        "x",
        "é" * 300,
        [],
        {},
    ),
    *([0], [[]], {"a": 1}, ["x"], [1.0, 2.0], "p00", "p00/x", [None], "\x00", "../x", "familiarity", "fourier"),
)


def revalued(values: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Replaces or removes one value of a header, at any depth, or adds one."""
    changed: dict[str, Any] = json.loads(json.dumps(values))
    at: Any = changed
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = chance.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and chance.random() < 0.8:
            at = at[key]
            continue
        match chance.randrange(6):
            case 0:
                del at[key]
            case 1 if isinstance(at, dict):
                at["further"] = chance.choice(STRANGE)
            case 1:
                at.append(chance.choice(STRANGE))
            case 2 if isinstance(at[key], (int, float)) and not isinstance(at[key], bool):
                at[key] = at[key] * chance.choice((-1, 0, 2, 1e6, 1e300))
            case _:
                at[key] = chance.choice(STRANGE)
        break
    return changed


def rearrayed(arrays: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Gives one array other numbers, another type or shape, or fewer rows; or removes or renames it."""
    changed = dict(arrays)
    name = chance.choice(sorted(changed))
    array = changed[name].copy()
    flat = array.reshape(-1)
    some = [chance.randrange(flat.size) for _ in range(chance.choice((1, 3)))] if flat.size else []
    match chance.randrange(9):
        case 0:
            extreme = (np.nan, np.inf, -np.inf, 1e300, -1.0) if array.dtype.kind == "f" else (0, 1, 127, 255, 2**62)
            with np.errstate(all="ignore"):
                flat[some] = np.array(chance.choice(extreme)).astype(array.dtype)
        case 1:
            flat[some] = np.frombuffer(chance.randbytes(8), array.dtype)[:1]
        case 2:
            array = array[: chance.randrange(len(array) + 1)] if array.ndim else array
        case 3:
            array = np.concatenate([array, array]) if array.ndim else array
        case 4:
            array = array.reshape(-1) if array.ndim > 1 else array[:, None] if array.ndim else array
        case 5:
            with np.errstate(all="ignore"):
                array = array.astype(chance.choice([np.float64, np.float32, np.int64, np.uint8, np.int32]))
        case 6:
            array = array[np.array(chance.sample(range(len(array)), len(array)), int)] if array.ndim else array
        case 7:
            array = np.zeros_like(array)
        case _:
            del changed[name]
            if chance.random() < 0.5:
                changed[f"{name}x"] = array
            return changed
    return changed | {name: array}


def reheaded(whole: bytes, chance: random.Random) -> bytes:
    """Gives a header a duplicate name, text instead of a number, or wrong places and sizes of arrays."""
    size = int.from_bytes(whole[:8], "little")
    text, data = whole[8 : 8 + size].decode(), whole[8 + size :]
    header = json.loads(text)
    name = chance.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    match chance.randrange(8):
        case 0:
            text = text.replace("{", f'{{"{name}":{json.dumps(entry)},', 1)
        case 1:
            text = text.replace(chance.choice(("0", "1", "4")), chance.choice(("NaN", "Infinity", "1e400", "-1")), 1)
        case 2:
            header[name] = entry | {"shape": [chance.choice((10**12, 2**63, -1, 0)), *entry["shape"]]}
            text = json.dumps(header)
        case 3:
            header[name] = entry | {"data_offsets": [chance.choice((0, 8, -8, 2**64)), chance.choice((8, 2**40))]}
            text = json.dumps(header)
        case 4:
            header[name] = entry | {"dtype": chance.choice(("F64", "U8", "I32", "BF16", "", "F16"))}
            text = json.dumps(header)
        case 5:
            header[name] = chance.choice(STRANGE)
            text = json.dumps(header)
        case 6:
            header["__metadata__"] = chance.choice((*STRANGE, {"astray": "{}"}, {"astray": "[" * 5000}))
            text = json.dumps(header)
        case _:
            size = chance.choice((0, 1, 2**63, 2**64 - 1, size - 1, size + 1))
            return size.to_bytes(8, "little") + whole[8:]
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


PAGE = PAGE_BYTES


def damaged_pages(whole: bytes, chance: random.Random) -> bytes:
    """Removes, doubles, swaps or empties a page of a database, or changes the first bytes, which say what it holds."""
    pages = [bytearray(whole[at : at + PAGE]) for at in range(0, len(whole), PAGE)]
    for _ in range(chance.choice((1, 1, 2))):
        one, two = chance.randrange(len(pages)), chance.randrange(len(pages))
        match chance.randrange(6):
            case 0:
                del pages[one]
            case 1:
                pages.insert(one, bytearray(pages[two]))
            case 2:
                pages[one], pages[two] = pages[two], pages[one]
            case 3:
                pages[one] = bytearray(len(pages[one]))
            case 4:
                pages[one][chance.randrange(12)] = chance.randrange(256)
            case _:
                pages[0][chance.randrange(100)] ^= 1 << chance.randrange(8)
    return b"".join(pages)


def damaged_rows(path: Path, chance: random.Random) -> None:
    """Changes, removes, doubles or exchanges some rows of a database by SQL."""
    connection = sqlite3.connect(path, isolation_level=None)
    table, key = chance.choice((("models", "part"), ("memories", "agent")))
    numbers = [n for (n,) in connection.execute(f"SELECT {key} FROM {table}")]
    one, two = chance.choice(numbers), chance.choice(numbers)
    (data,) = connection.execute(f"SELECT data FROM {table} WHERE {key} = ?", (one,)).fetchone()
    match chance.randrange(6):
        case 0:
            connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (one,))
        case 1:
            moved = str(chance.randrange(10**6, 10**7))
            connection.execute(f"UPDATE {table} SET {key} = ? WHERE {key} = ?", (moved, one))
        case 2:
            connection.execute(f"UPDATE {table} SET data = ? WHERE {key} = ?", (data, two))
        case 3:
            connection.execute(f"UPDATE {table} SET data = ? WHERE {key} = ?", (damaged(data, chance), one))
        case 4:
            connection.execute("PRAGMA user_version=" + str(chance.choice((0, 1, 5, 6, 8, 2**31 - 1))))
        case _:
            connection.execute(chance.choice(FURTHER))
    connection.close()


FURTHER = (
    "CREATE TRIGGER t AFTER UPDATE ON memories BEGIN DELETE FROM memories; END",
    "CREATE VIEW v AS SELECT * FROM memories",
    "CREATE TABLE further (a)",
    "CREATE INDEX i ON shards (agents)",
    "DELETE FROM shards",
    "UPDATE shards SET agents = agents + 1",
    "UPDATE memories SET trips = trips + 1",
    "PRAGMA application_id=0",
    "PRAGMA journal_mode=WAL",
    "VACUUM",
    "DROP TABLE memories",
)


def forged_rows(path: Path, chance: random.Random) -> None:
    """Changes one blob of a database, and corrects all checksums."""
    file = ModelFile.open(path)
    with file.changing() as change:
        if chance.random() < 0.3:
            part = chance.choice(PARTS)
            change.share(part, damaged(file.shared(part), chance))
        else:
            agent, entry = chance.choice(sorted(file.entries()))
            change.put(agent, entry.row(forged_memory(_read(file, agent), chance)), entry.checksum)
    file.close()


def _read(file: Tables, agent: str) -> bytes:
    found = file.read(agent)
    assert found is not None
    return found[0]


def forged_memory(blob: bytes, chance: random.Random) -> bytes:
    """Changes numbers or bytes in the memory of an agent."""
    if chance.random() >= 0.8:
        return damaged(blob, chance)
    arrays = dict(enumerate(unpack_arrays(blob, MEMORY)))
    changed = rearrayed({str(i): array for i, array in arrays.items()}, chance)
    kept = [changed.get(str(i), array) for i, array in arrays.items()]
    return pack_arrays([a.reshape(-1).astype(arrays[i].dtype) for i, a in enumerate(kept)])


def damaged_fleet(whole: Path, target: Path, chance: random.Random) -> bool:
    """Writes a damaged copy of a fleet's file; returns True if the checksums are corrected."""
    how = chance.random()
    if how < 0.3:
        target.write_bytes(damaged(whole.read_bytes(), chance))
    elif how < 0.5:
        target.write_bytes(damaged_pages(whole.read_bytes(), chance))
    else:
        shutil.copy(whole, target)
        (damaged_rows if how < 0.7 else forged_rows)(target, chance)
    return how >= 0.7


def damaged_model(whole: Path, target: Path, chance: random.Random) -> None:
    """Writes a damaged copy of a model; if the damage is inside, the checksum is corrected."""
    how = chance.random()
    if how < 0.15:
        target.write_bytes(damaged(whole.read_bytes(), chance))
        return
    if how < 0.35:
        put_bytes(whole, target, reheaded(packed_bytes(whole), chance))
        return
    model: Contents = unpack(packed_bytes(whole), whole)
    values, arrays, kind = dict(model.values), dict(model.arrays), model.kind
    if how < 0.65:
        values = revalued(values, chance)
        values = json.loads(json.dumps(values).replace("Infinity", "1e308"))  # which a file cannot hold
    elif how < 0.97:
        arrays = rearrayed(arrays, chance)
    else:
        kind = chance.choice(("detector", "fleet", "watch", "reward", "", "x"))
    put_bytes(whole, target, pack(kind, values, arrays))


def packed_bytes(model: Path) -> bytes:
    """Returns the packed values and arrays of a model, a reward or a state."""
    if not is_database(model):
        return model.read_bytes()
    file = ModelFile.open(model)
    found = file.shared(MODEL)
    file.close()
    return found


def put_bytes(whole: Path, target: Path, data: bytes) -> None:
    """Writes packed values and arrays to a file like ``whole``, with the other parts and rows of that."""
    if is_database(whole):
        shutil.copy(whole, target)
        file = ModelFile.open(target)
        with file.changing() as change:
            change.share(MODEL, data)
        file.close()
    else:
        target.write_bytes(data)
