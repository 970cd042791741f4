"""`replay` and `sweep`: equal to the program, readable by each library, and interrupted at once."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time

import duckdb
import packtrain
import pandas
import polars
import pyarrow
import pytest

from traffic import pcap, traffic

GRID = {"flows": [4, 64], "hold_us": [20, 100], "mode": ["hash", "sorted"], "queues": [1, 4]}


def of_program(program, path, words):
    command = [program, "replay", "--json", *words.split(), str(path)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def assert_equal(mine, theirs, settings):
    """The program says all of `mine`; it has settings that are not here."""
    assert mine["settings"].items() <= settings.items()
    assert theirs == theirs | mine | {"settings": theirs["settings"]}


@pytest.mark.parametrize("settings, words", [
    ({}, ""),
    ({"flows": 4, "hold_us": 20}, "--flows 4 --hold 20us"),
    ({"flows": 8, "hold_us": 1000, "mode": "sorted"}, "--flows 8 --hold 1ms --mode sorted"),
    ({"flows": 2, "mode": "hash", "coalesce": "stream"}, "--flows 2 --mode hash --coalesce stream"),
    ({"hold_us": 10_000.5, "coalesce": "stream", "ack_limit": 3},
     "--hold 10000500ns --coalesce stream --ack-limit 3"),
    ({"coalesce": None, "queues": 8}, "--coalesce off --queues 8"),
    ({"headers_only": True, "queues": 3}, "--headers-only --queues 3"),
])
def test_the_summary_is_that_of_the_program(program, capture, settings, words):
    theirs = of_program(program, capture, words)
    found = packtrain.replay(capture, **settings, trains=False)
    mine = found.summary
    assert found.trains is None
    assert_equal(mine, theirs, theirs["settings"])
    host = {"schema", "command", "version", "commit", "host", "parquet", "stopped"}
    assert theirs.keys() - mine.keys() <= host and mine["conservation"]["closed"]


def test_each_library_reads_the_tables(capture):
    found = packtrain.replay(capture, dataset="mine")
    trains, row = found.trains, found.summary["rows"][0]
    frame, table = polars.DataFrame(trains), pyarrow.table(trains)
    assert len(trains) == frame.height == table.num_rows == row["emitted"] > 1000
    assert frame["packets"].to_list() == table["packets"].to_pylist()
    assert frame["time"].dtype == polars.Datetime("ns", "UTC")
    assert pandas.DataFrame.from_arrow(trains)["packets"].to_list() == frame["packets"].to_list()
    assert pyarrow.schema(trains).names == table.column_names
    assert f"{len(trains)} rows" in repr(trains)
    sums = duckdb.sql("SELECT sum(packets), sum(bytes) FROM trains").fetchall()
    assert sums == [(6000, row["record_bytes"])]
    ends = duckdb.sql('SELECT "end", count(*) FROM trains WHERE was_held GROUP BY ALL').fetchall()
    assert dict(ends) == {name: count for name, count in row["gro_flush"].items() if count}
    [run] = polars.DataFrame(found.runs).to_dicts()
    assert run["dataset"] == "mine" and run["ratio"] == row["ratio"]


def test_a_sweep_is_its_runs_one_by_one(program, capture, tmp_path):
    words = "--flows 4,64 --hold 20us,100us --mode hash,sorted --queues 1,4"
    theirs = of_program(program, capture, words)
    swept = packtrain.sweep(capture, GRID, trains=True)
    frame, ids = polars.DataFrame(swept.trains), polars.DataFrame(swept.runs)["configuration"]
    for id, mine, run in zip(ids, swept.summaries, theirs["runs"], strict=True):
        settings = theirs["settings"] | run["settings"]
        assert_equal({key: mine[key] for key in run}, run, settings)
        values = {key: settings[key] for key in ("flows", "mode", "queues")}
        alone = packtrain.replay(capture, hold_us=settings["hold_ns"] / 1000, **values)
        assert alone.summary == mine
        assert frame.filter(polars.col("configuration") == id).equals(polars.DataFrame(alone.trains))
    # As a data set, and with more values: what is there is not written again.
    output = tmp_path / "out"
    written = packtrain.sweep(capture, GRID, output=output)
    assert written.trains is None and written.summaries == swept.summaries
    stored = f"SELECT sum(packets) FROM read_parquet('{output}/trains/**/*.parquet')"
    assert duckdb.sql(stored).fetchall() == [(16 * 6000,)]
    times = {path: path.stat().st_mtime_ns for path in output.rglob("*.*")}
    assert len(times) == 1 + 3 * 16
    more = packtrain.sweep(capture, GRID | {"flows": [4, 64, 1024]}, output=output)
    assert more.summaries[:4] == swept.summaries[:4] and len(more.summaries) == 24
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_rotated_files_are_one_capture(capture, tmp_path):
    packets, paths = list(traffic(6000)), [tmp_path / f"{index}.pcap" for index in range(3)]
    for index, path in enumerate(paths):
        path.write_bytes(pcap(packets[index * 2000 : (index + 1) * 2000]))
    found = packtrain.replay(tuple(map(str, paths)))
    assert found.summary == packtrain.replay(capture).summary
    assert found.summary == packtrain.replay(paths[::-1]).summary
    assert polars.DataFrame(found.runs)["dataset"].to_list() == ["0"]


def test_errors_have_the_words_of_the_program(program, capture, tmp_path):
    bad, packed, cut = (tmp_path / name for name in ("bad.pcap", "packed.pcap.gz", "cut.pcap"))
    bad.write_bytes(b"no capture at all, of any kind")
    packed.write_bytes(gzip.compress(capture.read_bytes())[:-9] + b"\0" * 9)
    cut.write_bytes(capture.read_bytes()[:-7])
    for path in (bad, packed, cut):
        with pytest.raises(ValueError) as raised:
            packtrain.replay(path)
        ended = subprocess.run([program, "replay", str(path)], capture_output=True, text=True)
        assert str(raised.value) in ended.stderr and ended.returncode
    assert raised.value.result.summary["conservation"]["received"] == 5999
    # As a data set, also if all of it has run.
    for _ in range(2):
        with pytest.raises(ValueError, match="cut.pcap: ") as raised:
            packtrain.sweep(cut, {}, output=tmp_path / "out")
        assert raised.value.result.summaries[0]["conservation"]["received"] == 5999
    with pytest.raises(ValueError, match="the data set cut was made from other captures"):
        packtrain.sweep(capture, {}, output=tmp_path / "out", dataset="cut")


@pytest.mark.parametrize("kind, words, call", [
    (FileNotFoundError, "gone.pcap: cannot open: No such file",
     lambda path: packtrain.replay(path.with_name("gone.pcap"))),
    (IsADirectoryError, "Is a directory", lambda path: packtrain.replay(path.parent)),
    (NotADirectoryError, "cannot", lambda path: packtrain.sweep(path, {}, output=path / "below")),
    (ValueError, "not empty", lambda path: packtrain.sweep(path, {}, output=path.parent)),
    (ValueError, "trains=True", lambda path: packtrain.sweep(path, {}, trains=True, output="out")),
    (ValueError, "no path", lambda path: packtrain.replay([])),
])
def test_errors_of_files(capture, kind, words, call):
    with pytest.raises(kind, match=words):
        call(capture)


@pytest.mark.parametrize("grid, kind, words", [
    ({"flows": 0}, ValueError, "flows=0: write 1 to 524288"),
    ({"flows": []}, ValueError, "flows=.*at least one value"),
    ({"queues": [129]}, ValueError, "queues=129: write 1 to 128"),
    ({"hold_us": [-1]}, ValueError, "hold_us=-1"),
    ({"hold_us": [float("nan")]}, ValueError, "hold_us=NaN"),
    ({"mode": "fast"}, ValueError, 'mode="fast"'),
    ({"coalesce": ["all"]}, ValueError, 'coalesce="all"'),
    ({"ack_limit": [4]}, ValueError, "stream"),
    ({"ack_limit": [-4], "coalesce": "stream"}, ValueError, "ack_limit=-4: write 1 to 65535"),
    ({"headers_only": [True, False]}, ValueError, "headers_only: write one value"),
    ({"hold": [4]}, ValueError, "hold: no such setting"),
    ({"flows": ["many"]}, TypeError, "flows"),
])
def test_settings_are_checked(capture, grid, kind, words):
    with pytest.raises(kind, match=words):
        packtrain.sweep(capture, grid)


def test_progress_is_called_and_may_raise(capture, tmp_path):
    data, seen, output = capture.read_bytes(), [], tmp_path / "out"

    def slow(name):
        """A FIFO that gets a capture in two halves, 0.3 s apart, so that progress is due between."""
        def write():
            with contextlib.suppress(BrokenPipeError), open(tmp_path / name, "wb", buffering=0) as file:
                file.write(data[: len(data) // 2])
                time.sleep(0.3)
                file.write(data[len(data) // 2 :])

        os.mkfifo(tmp_path / name)
        threading.Thread(target=write, daemon=True).start()
        return tmp_path / name

    packtrain.replay(slow("first"), progress=seen.append)
    assert seen[-1].bytes_total is None and seen[-1].seconds > 0.1
    assert 0 < seen[-1].packets <= 6000 and 0 < seen[-1].bytes <= len(data)
    for name, to in [("second", None), ("third", output)]:
        with pytest.raises(ZeroDivisionError):
            packtrain.sweep(slow(name), GRID, output=to, progress=lambda now: 1 / 0)
    assert not list(output.rglob("*.parquet"))


def test_other_threads_run_and_ctrl_c_ends_a_replay(capture, tmp_path):
    endless, data = tmp_path / "endless.pcap", capture.read_bytes()
    os.mkfifo(endless)
    script = (
        "import packtrain, sys, threading\n"
        "def other(): print('runs', sys.stdin.readline(), flush=True)\n"
        "threading.Thread(target=other, daemon=True).start()\n"
        "try: packtrain.replay(sys.argv[1], trains=False)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    command, pipe = [sys.executable, "-c", script, str(endless)], subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child,
        contextlib.suppress(BrokenPipeError),
        open(endless, "wb", buffering=0) as file,
    ):
        file.write(data)
        # The replay waits for more, and has left the lock to the other thread.
        child.stdin.write("now\n")
        assert child.stdout.readline() == "runs now\n"
        child.send_signal(signal.SIGINT)
        child.wait(timeout=120)
    assert child.returncode == 130


def test_a_sweep_is_a_short_text_and_a_table(capture):
    found = packtrain.sweep(capture, {"flows": range(1, 41)})
    lines = repr(found).splitlines()
    assert len(lines) == 10 and lines[0] == "packtrain.Sweep, configurations: 40"
    assert lines[1].split() == ["flows", "packets", "emitted", "ratio"] and "33 more" in lines[-1]
    ratio = polars.DataFrame(found.runs)["ratio"][0]
    assert lines[2].split()[::3] == ["1", f"{ratio:.3f}"] and lines[2].split()[1] == "6,000"
    html = found._repr_html_()
    assert html.startswith("<table>") and html.count("<tr>") == 41 and html.count("<td>") == 160
    one = packtrain.replay(capture, trains=False)
    assert repr(one).splitlines()[0] == "packtrain.Result, configurations: 1" and "6,000" in repr(one)
    table = packtrain.replay(capture).trains
    assert len(pandas.DataFrame.from_arrow(table)) == len(table)
