"""Tasks of Ray, two at a time, one of which is killed: the result is that of one process."""

import json
import os
import signal
from pathlib import Path

import duckdb
import packtrain
import packtrain.ray
import pyarrow
import pytest
import ray

from traffic import pcap, traffic

EXACT = {"flows": [4, 64], "hold_us": [20, 100], "mode": ["hash", "sorted"], "queues": [1, 4]}
AUTO = {"flows": [4, 64], "hold_us": [20, 100], "queues": [4]}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Workers find the tests' own modules as this process does.
    path = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=path)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    paths = [folder / "left.pcap", folder / "right.pcap"]
    for seed, path in enumerate(paths):
        path.write_bytes(pcap(traffic(6000, seed=seed + 7)))
    return paths


def rows(folder):
    """All rows of both tables, in an order of their own."""
    trains = duckdb.sql(f"FROM read_parquet('{folder}/trains/**/*.parquet', hive_partitioning=true)")
    runs = duckdb.sql(f"FROM read_parquet('{folder}/runs/**/*.parquet', hive_partitioning=true)")
    return (trains.columns, trains.order("ALL").fetchall(), runs.columns, runs.order("ALL").fetchall())


def alone(captures, grid, folder):
    for path in captures:
        packtrain.sweep(path, grid, output=folder)
    return rows(folder)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def killed_once(marker):
    """`_work`, whose first call ends a part of its configurations and then its whole process."""
    work = packtrain.ray._work

    def dies(path, grid, folder, name, part, runs):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return work(path, grid, folder, name, part, runs)
        done, left = runs[: len(runs) // 2], runs[len(runs) // 2 :]
        work(path, grid, folder, name, part, done)
        # As a writer leaves it that is killed.
        ids = pyarrow.table(packtrain.sweep(path, grid).runs)["configuration"].to_pylist()
        path = f"trains+dataset={name}+configuration={ids[left[0]]}+part-{part:04}.parquet"
        (folder / "unfinished" / f"{path}.tmp-1-1-1").write_bytes(b"PAR1")
        os.kill(os.getpid(), signal.SIGKILL)

    return dies


@pytest.mark.parametrize("grid, kind", [(EXACT, "gap"), (AUTO, "queue")])
def test_parts_add_up_though_a_worker_is_killed(captures, grid, kind, tmp_path, monkeypatch):
    marker, output = tmp_path / "killed", tmp_path / "ray"
    monkeypatch.setattr(packtrain.ray, "_work", killed_once(marker))
    sums = packtrain.ray.replay(captures, grid, output, part_bytes=400_000, together=2)
    assert marker.exists()
    count = len(packtrain.sweep(captures[0], grid).summaries)
    assert sums["closed"] and sums["received"] == 2 * 6000 * count
    assert sums["received"] == sums["transmitted"] + sums["absorbed"]
    parts = [part for name in ("left", "right")
             for part in json.loads((output / "inputs" / f"{name}.json").read_text())["parts"]]
    assert len(parts) >= 6 and {part.split()[0] for part in parts} == {kind}
    assert sums["tasks"] == len(parts) * count // 2
    assert rows(output) == alone(captures, grid, tmp_path / "alone")
    for name, summaries in sums["datasets"].items():
        [path] = [path for path in captures if path.stem == name]
        assert summaries == packtrain.sweep(path, grid).summaries
    # Again: nothing to do. One part fewer: that part only.
    before = times(output)
    again = packtrain.ray.replay(captures, grid, output, part_bytes=400_000, together=2)
    assert again == sums | {"tasks": 0} and times(output) == before
    lost = sorted((output / "parts").rglob("*.json"))[1]
    lost.unlink()
    assert packtrain.ray.replay(captures, grid, output, part_bytes=400_000)["tasks"] == 1
    changed = {path for path, time in times(output).items() if before.get(path) != time}
    assert {path.name for path in changed} == {lost.name, f"{lost.stem}.parquet"}
    assert not list((output / "unfinished").iterdir())


def test_a_small_capture_is_whole_and_a_cut_one_a_warning(captures, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(captures[0].read_bytes()[:-9])
    with pytest.warns(UserWarning, match="cut.pcap"):
        sums = packtrain.ray.replay([cut, captures[1]], {"mode": "auto"}, tmp_path / "out")
    assert (sums["tasks"], sums["received"], sums["closed"]) == (2, 11_999, True)


def test_errors_of_tasks_arrive(captures, tmp_path):
    same = tmp_path / captures[0].name
    same.write_bytes(captures[0].read_bytes())
    with pytest.raises(ValueError, match="would both be the data set left"):
        packtrain.ray.replay([captures[0], same], {}, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="gone.pcap: cannot open"):
        packtrain.ray.replay(tmp_path / "gone.pcap", {}, tmp_path / "out")
    with pytest.raises(ValueError, match="flows=0"):
        packtrain.ray.replay(captures, {"flows": 0}, tmp_path / "out")


def test_worlds(program, monkeypatch, tmp_path):
    monkeypatch.setenv("PACKTRAIN", program)
    found = packtrain.ray.fuzz(range(1, 5), worlds=2, together=2)
    assert found["worlds"] == 8 and found["wire_packets"] > 0 and found["failures"] == []
    assert sum(found["reached"].values()) > 0
    # A program whose worlds fail for one seed.
    stub = tmp_path / "stub"
    stub.write_text(
        "#!/bin/sh\n"
        "while [ $# -gt 0 ]; do case $1 in --seed) seed=$2;; --save) save=$2;; esac; shift; done\n"
        "failure=null; status=0\n"
        "[ $seed = 2 ] && { printf world > $save; status=1;\n"
        "    failure='{\"world\":4,\"wrong\":\"ledger\",\"line\":\"lost\",\"file\":null,\"bytes\":5}'; }\n"
        "[ $seed = 9 ] && { echo no such option >&2; exit 2; }\n"
        "echo \"{\\\"seed\\\":$seed,\\\"worlds\\\":5,\\\"packets\\\":1,\\\"wire_packets\\\":2,\"\n"
        "echo \"\\\"reached\\\":[],\\\"failure\\\":$failure}\"\n"
        "exit $status\n"
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PACKTRAIN", str(stub))
    found = packtrain.ray.fuzz(range(4), worlds=5, together=3)
    [failure] = found["failures"]
    assert (failure["seed"], failure["world"], failure["line"]) == (2, 4, "lost")
    assert failure["file"] == b"world" and found["worlds"] == 20
    with pytest.raises(RuntimeError, match="seed 9: no such option"):
        packtrain.ray.fuzz([9])


def test_without_a_cluster(captures, tmp_path):
    """Last: it ends the connection that the other tests have."""
    ray.shutdown()
    with pytest.raises(ConnectionError, match="ray start --head"):
        packtrain.ray.replay(captures, {}, tmp_path / "out")
