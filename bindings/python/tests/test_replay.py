"""`replay` and `sweep`: equal to the program, readable by each library, and interrupted at once."""

import ast
import gzip
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import packtrain
import polars
import pyarrow
import pyarrow.parquet
import pytest

from traffic import pcap, traffic

GRID = {"flows": [4, 64], "hold_us": [20, 100], "mode": ["hash", "sorted"], "queues": [1, 4]}


def of_program(program, path, *arguments):
    command = [program, "replay", "--json", *arguments, str(path)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("settings", [
    {},
    {"flows": 4, "hold_us": 20},
    {"flows": 8, "hold_us": 1000, "mode": "sorted"},
    {"flows": 2, "mode": "hash", "coalesce": "stream"},
    {"hold_us": 10_000.5, "coalesce": "stream", "ack_limit": 3},
    {"coalesce": None, "queues": 8},
    {"headers_only": True, "queues": 3},
])
def test_summary_is_that_of_the_program(program, capture, settings):
    words = dict(settings)
    if "hold_us" in words:
        words["hold"] = f"{words.pop('hold_us')}us"
    words["coalesce"] = words.get("coalesce", "reversible") or "off"
    arguments = ["--headers-only"] if words.pop("headers_only", False) else []
    arguments += [part for key, value in words.items()
                  for part in (f"--{key.replace('_', '-')}", str(value))]
    document = of_program(program, capture, *arguments)
    # Of the program alone: its host, and what it wrote.
    for key in ("schema", "command", "version", "commit", "host", "parquet"):
        del document[key]
    found = packtrain.replay(capture, **settings)
    # Those of the program are more: it has settings that are not here.
    mine, theirs = found.summary["settings"], document.pop("settings")
    assert mine.items() <= theirs.items()
    assert found.summary == document | {"settings": mine}
    assert found.summary["conservation"]["closed"]
    # The tables say the same.
    trains = duckdb.from_arrow(found.trains)
    row = found.summary["rows"][0]
    [(count, packets, size)] = trains.aggregate("count(*), sum(packets), sum(bytes)").fetchall()
    assert (count, packets) == (row["emitted"], row["packets"])
    assert size == row["record_bytes"]
    [run] = polars.DataFrame(found.runs).to_dicts()
    assert (run["packets"], run["emitted"], run["quic"]) == (6000, row["emitted"], row["quic"])
    ends = dict(trains.filter("was_held").aggregate('"end", count(*)').fetchall())
    assert ends == {name: count for name, count in row["gro_flush"].items() if count}


def test_each_library_reads_the_tables(capture):
    trains = packtrain.replay(capture).trains
    frame, table = polars.DataFrame(trains), pyarrow.table(trains)
    assert len(trains) == frame.height == table.num_rows > 1000
    assert frame["packets"].to_list() == table["packets"].to_pylist()
    assert duckdb.sql("SELECT sum(packets) FROM trains").fetchall() == [(6000,)]
    assert frame["time"].dtype == polars.Datetime("ns", "UTC")
    assert pyarrow.schema(trains).names == table.column_names
    assert f"{len(trains)} rows" in repr(trains)


def test_a_sweep_is_its_runs_one_by_one(capture, tmp_path):
    swept = packtrain.sweep(capture, GRID, trains=True)
    assert len(swept.summaries) == 16
    frame = polars.DataFrame(swept.trains)
    ids = polars.DataFrame(swept.runs)["configuration"].to_list()
    for id, summary in zip(ids, swept.summaries):
        settings = summary["settings"]
        alone = packtrain.replay(
            capture, flows=settings["flows"], hold_us=settings["hold_ns"] / 1000,
            mode=settings["mode"], queues=settings["queues"],
        )
        assert alone.summary == summary
        mine = frame.filter(polars.col("configuration") == id).drop("configuration")
        assert mine.equals(polars.DataFrame(alone.trains))
    # As a data set, and again: nothing is written twice.
    output = tmp_path / "out"
    written = packtrain.sweep(capture, GRID, output=output)
    assert written.trains is None and written.summaries == swept.summaries
    stored = pyarrow.parquet.read_table(output / "trains", columns=["packets"]).to_pydict()
    assert sum(stored["packets"]) == 16 * 6000
    times = {path: path.stat().st_mtime_ns for path in output.rglob("*.*")}
    again = packtrain.sweep(capture, GRID, output=output)
    assert again.summaries == swept.summaries
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.*")} == times
    more = packtrain.sweep(capture, GRID | {"flows": [4, 64, 1024]}, output=output)
    assert len(more.summaries) == 24
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_rotated_files_are_one_capture(capture, tmp_path):
    packets = list(traffic(6000))
    parts = [tmp_path / f"{index}.pcap" for index in range(3)]
    for index, path in enumerate(parts):
        path.write_bytes(pcap(packets[index * 2000 : (index + 1) * 2000]))
    whole = packtrain.replay(capture)
    assert packtrain.replay(parts[::-1]).summary == whole.summary
    assert packtrain.replay(tuple(map(str, parts))).summary == whole.summary
    names = polars.DataFrame(packtrain.replay(parts).runs)["dataset"].to_list()
    assert names == ["0"]


def test_headers_only_takes_checksums_for_right(tmp_path):
    packets = [(now, data[:-1] + bytes([data[-1] ^ 1])) for now, data in traffic(500)]
    path = tmp_path / "replaced.pcap"
    path.write_bytes(pcap(packets))
    plain, headers = packtrain.replay(path), packtrain.replay(path, headers_only=True)
    assert plain.summary["rows"][0]["bad_checksums"] > 300
    assert headers.summary["rows"][0]["bad_checksums"] == 0
    assert headers.summary["rows"][0]["by_headers"] == 500


def test_errors_have_the_words_of_the_program(program, capture, tmp_path):
    gone, bad, cut = (tmp_path / name for name in ("gone.pcap", "bad.pcap", "cut.pcap"))
    with pytest.raises(FileNotFoundError, match=f"{gone}: cannot open: No such file"):
        packtrain.replay(gone)
    bad.write_bytes(b"no capture at all, of any kind")
    cut.write_bytes(capture.read_bytes()[:-7])
    for path in (bad, cut):
        with pytest.raises(ValueError) as raised:
            packtrain.replay(path)
        ended = subprocess.run([program, "replay", str(path)], capture_output=True, text=True)
        assert str(raised.value) in ended.stderr and ended.returncode
    # What was before the cut is there.
    assert raised.value.result.summary["conservation"]["received"] == 5999
    with pytest.raises(IsADirectoryError):
        packtrain.replay(tmp_path)
    # One that gzip does not give whole, too, also in files.
    packed = tmp_path / "packed.pcap.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes())[:-9] + b"\0" * 9)
    with pytest.raises(ValueError, match="packed.pcap.gz: .*gzip") as raised:
        packtrain.sweep(packed, {}, output=tmp_path / "out")
    assert raised.value.result.summaries[0]["conservation"]["received"] > 5000
    with pytest.raises(OSError, match="Not a directory|cannot"):
        packtrain.sweep(capture, {}, output=capture / "below")
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        packtrain.sweep(capture, {}, output=other)


@pytest.mark.parametrize("grid, words", [
    ({"flows": [0]}, "flows=0: write 1 to 524288"),
    ({"flows": []}, "at least one value"),
    ({"queues": [129]}, "queues=129: write 1 to 128"),
    ({"hold_us": [-1]}, "hold_us=-1"),
    ({"hold_us": [float("nan")]}, "hold_us=NaN"),
    ({"mode": ["fast"]}, "mode=\"fast\""),
    ({"ack_limit": [4]}, "stream"),
    ({"headers_only": [True, False]}, "one value"),
    ({"hold": [4]}, "no such setting"),
])
def test_settings_are_checked(capture, grid, words):
    with pytest.raises(ValueError, match=words):
        packtrain.sweep(capture, grid)
    with pytest.raises(TypeError):
        packtrain.sweep(capture, {"flows": ["many"]})
    with pytest.raises(ValueError, match="no path"):
        packtrain.replay([])


class Slow:
    """A FIFO that gets a capture in two halves, 0.3 s apart, so that progress is due between."""

    def __init__(self, path, data):
        os.mkfifo(path)
        self.path, self.data = path, data
        self.thread = threading.Thread(target=self.write)

    def write(self):
        with open(self.path, "wb", buffering=0) as file:
            half = len(self.data) // 2
            try:
                file.write(self.data[:half])
                time.sleep(0.3)
                file.write(self.data[half:])
            except BrokenPipeError:
                pass

    def __enter__(self):
        self.thread.start()
        return self.path

    def __exit__(self, *_):
        self.thread.join()


def test_progress_is_called_and_may_raise(capture, tmp_path):
    data, seen = capture.read_bytes(), []
    with Slow(tmp_path / "first", data) as path:
        packtrain.replay(path, progress=seen.append)
    assert seen and seen[-1].bytes_total is None and seen[-1].seconds > 0.1
    assert 0 < seen[-1].packets <= 6000 and 0 < seen[-1].bytes <= len(data)

    def stop(_):
        raise LookupError("enough")

    with Slow(tmp_path / "second", data) as path, pytest.raises(LookupError, match="enough"):
        packtrain.sweep(path, GRID, progress=stop)


def test_other_threads_run_and_ctrl_c_ends_a_replay(capture, tmp_path):
    endless = tmp_path / "endless.pcap"
    os.mkfifo(endless)
    script = (
        "import packtrain, sys, threading\n"
        "def other(): print('runs', sys.stdin.readline(), flush=True)\n"
        "threading.Thread(target=other, daemon=True).start()\n"
        "try: packtrain.replay(sys.argv[1], trains=False)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    command = [sys.executable, "-c", script, str(endless)]
    data = capture.read_bytes()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, bufsize=1) as child:
        with open(endless, "wb", buffering=0) as file:
            file.write(data)
            # The replay waits for more, and has left the lock to the other thread.
            child.stdin.write("now\n")
            assert child.stdout.readline() == "runs now\n"
            child.send_signal(signal.SIGINT)
            try:
                for _ in range(4000):
                    file.write(data[24:])
                child.kill()
            except BrokenPipeError:
                pass
    assert child.returncode == 130


def test_the_types_are_those_of_the_module():
    stub = ast.parse(Path(packtrain.__file__).with_name("__init__.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert functions.keys() | classes.keys() == set(packtrain.__all__)
    for name, node in functions.items():
        parameters = inspect.signature(getattr(packtrain, name)).parameters
        args = node.args
        names = [arg.arg for arg in args.args + args.kwonlyargs]
        assert names == list(parameters)
        keywords = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
        assert keywords == [arg.arg for arg in args.kwonlyargs]
        for arg, default in zip(args.kwonlyargs, args.kw_defaults):
            assert ast.literal_eval(default) == parameters[arg.arg].default
    for name, node in classes.items():
        described = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        inherited = {"__module__", *dir(object)}
        assert described == {item for item in dir(getattr(packtrain, name)) if item not in inherited}
