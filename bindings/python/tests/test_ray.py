"""Tasks of Ray, two at a time, one of which is killed: the result is that of one process."""

import json
import os
import signal
from pathlib import Path

import duckdb
import packtrain
import packtrain.ray
import pytest
import ray

from traffic import pcap, traffic

AUTO = {"flows": [4, 64], "hold_us": [20, 100], "queues": [4]}
EXACT = AUTO | {"mode": ["hash", "sorted"], "queues": [1, 4]}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Workers find the tests' own modules as this process does.
    path = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=path)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    paths = [tmp_path_factory.mktemp("captures") / f"{name}.pcap" for name in ("left", "right")]
    for seed, path in enumerate(paths):
        path.write_bytes(pcap(traffic(6000, seed=seed + 7)))
    return paths


def rows(folder):
    """All rows of both tables, in an order of their own."""
    tables = [duckdb.sql(f"FROM '{folder}/{name}/**/*.parquet'") for name in ("trains", "runs")]
    return [(table.columns, table.order("ALL").fetchall()) for table in tables]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def killed_once(marker):
    """`_work`, whose first call ends a part of its configurations and then its whole process."""
    work = packtrain.ray._work

    def dies(grid, folder, name, part, runs):
        if marker.exists():
            return work(grid, folder, name, part, runs)
        work(grid, folder, name, part, runs[::2])
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    return dies


@pytest.mark.parametrize("grid, kind", [(EXACT, "gap"), (AUTO, "queue")])
def test_parts_add_up_though_a_worker_is_killed(captures, grid, kind, tmp_path, monkeypatch):
    output, alone, settings = tmp_path / "ray", tmp_path / "alone", {"part_bytes": 400_000}
    monkeypatch.setattr(packtrain.ray, "_work", killed_once(tmp_path / "killed"))
    sums = packtrain.ray.replay(captures, grid, output, **settings, together=2)
    assert (tmp_path / "killed").exists()
    swept = {path.stem: packtrain.sweep(path, grid, output=alone).summaries for path in captures}
    assert sums["datasets"] == swept and rows(output) == rows(alone)
    count = len(swept["left"])
    assert sums["closed"] and sums["received"] == 2 * 6000 * count
    assert sums["received"] == sums["transmitted"] + sums["absorbed"]
    parts = [part for path in (output / "inputs").iterdir()
             for part in json.loads(path.read_text())["parts"]]
    assert len(parts) >= 6 and all(kind in part for part in parts)
    assert sums["tasks"] == len(parts) * count // 2
    # Again: nothing to do. One part fewer: that part only.
    before = times(output)
    again = packtrain.ray.replay(captures, grid, output, **settings)
    assert again == sums | {"tasks": 0} and times(output) == before
    lost = sorted((output / "reports").rglob("*.json"))[1]
    lost.unlink()
    trains = output / "trains" / lost.relative_to(output / "reports").with_suffix(".parquet")
    trains.unlink()
    assert packtrain.ray.replay(captures, grid, output, **settings)["tasks"] == 1
    changed = {path.name for path, time in times(output).items() if before.get(path) != time}
    assert changed == {lost.name, f"{lost.stem}.parquet"}


def test_a_small_capture_is_whole_and_a_cut_one_a_warning(captures, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(captures[0].read_bytes()[:-9])
    with pytest.warns(UserWarning, match="cut.pcap"):
        sums = packtrain.ray.replay([cut, captures[1]], {"mode": "auto"}, tmp_path / "out")
    assert (sums["tasks"], sums["received"], sums["closed"]) == (2, 11_999, True)


@pytest.mark.parametrize("names, grid, kind, words", [
    (["left", "left"], {}, ValueError, "would both be the data set left"),
    (["gone"], {}, FileNotFoundError, "gone.pcap: cannot open"),
    (["left"], {"flows": 0}, ValueError, "flows=0"),
])
def test_errors_of_tasks_arrive(captures, names, grid, kind, words, tmp_path):
    paths = [captures[0].with_name(f"{name}.pcap") for name in names]
    with pytest.raises(kind, match=words):
        packtrain.ray.replay(paths, grid, tmp_path / "out")


# A program whose worlds fail for seed 2, and which fails for seed 9.
STUB = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --seed) seed=$2;; --save) save=$2;; esac; shift; done
[ $seed = 9 ] && { echo no such option >&2; exit 2; }
[ $seed = 2 ] && { printf world > $save; failure='{"world":4,"line":"lost"}'; }
echo "{\\"seed\\":$seed,\\"worlds\\":5,\\"packets\\":1,\\"wire_packets\\":2,\\"reached\\":[],"
echo "\\"failure\\":${failure:-null}}"
[ $seed != 2 ]
"""


def test_worlds(program, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PACKTRAIN", program)
    found = packtrain.ray.fuzz(range(1, 5), worlds=2, together=2)
    assert found["worlds"] == 8 and found["wire_packets"] > 0 and found["failures"] == []
    assert sum(found["reached"].values()) > 0
    stub = tmp_path / "stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("PACKTRAIN", str(stub))
    found = packtrain.ray.fuzz(range(4), worlds=5, together=3)
    failure = {"seed": 2, "world": 4, "line": "lost", "file": b"world"}
    assert found["worlds"] == 20 and found["failures"] == [failure]
    assert "fuzz: 2 of 2 tasks, 20 worlds in all\n" in capsys.readouterr().err
    for name, seed, words in [(stub, 9, "seed 9: no such option"), ("gone", 1, "PACKTRAIN=gone: no such")]:
        monkeypatch.setenv("PACKTRAIN", str(name))
        with pytest.raises(RuntimeError, match=words):
            packtrain.ray.fuzz([seed], progress=False)
    monkeypatch.delenv("PACKTRAIN")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="cargo build --release -p packtrain-cli"):
        packtrain.ray._fuzz([1], 1, None)


def test_without_a_cluster(captures, tmp_path):
    """Last: it ends the connection that the other tests have."""
    ray.shutdown()
    with pytest.raises(ConnectionError, match="ray start --head"):
        packtrain.ray.replay(captures, {}, tmp_path / "out")
