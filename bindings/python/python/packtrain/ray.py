"""Replays and worlds as tasks of Ray, on the cluster that this process is connected to.

Paths travel, not bytes: every machine has the captures and the output folder under the same paths. A
task writes a part of a data set under another name and renames it when it is whole, so a task that
dies is tried again, and what exists is not done again.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

try:
    import ray
except ImportError as error:
    raise ImportError("Ray is not installed: pip install packtrain[ray]") from error

from . import AnyPath, _grid, _packtrain, _paths

__all__ = ["fuzz", "replay"]


def replay(
    paths: AnyPath | Sequence[AnyPath],
    grid: Mapping[str, Any],
    output: AnyPath,
    *,
    part_bytes: int = 256 << 20,
    together: int = 8,
    max_retries: int = 3,
) -> dict[str, Any]:
    """Replays each capture with each configuration of a grid, as `packtrain.sweep` with `output`.

    Each path is a data set of its own, with the name of the file. A capture of more than
    `part_bytes` bytes is divided if the parts add up exactly: where nothing arrives for longer than
    the hold time (modes `hash` and `sorted`), or else by queue if all configurations have the same
    number, more than 1. A task runs at most `together` configurations on a part, in one pass.

    Returns the sums over all data sets and configurations: `received + expanded = transmitted +
    absorbed + held + dropped`, the number of `tasks` that were run, and the summaries of each data
    set. A capture that ends in the middle of a record is a warning. Raises `ValueError` if two paths
    have one name, and the exception of a task that fails. A task whose worker dies is tried again,
    `max_retries` times.
    """
    _connect()
    grid, folder = dict(grid), Path(output).absolute()
    named: dict[str, Path] = {}
    for path in map(Path, _paths(paths)):
        name = _packtrain.name_of(path)
        if name in named:
            raise ValueError(
                f"{named[name]} and {path} would both be the data set {name}: rename one, or use "
                "another output folder"
            )
        named[name] = path.absolute()
    # Each task reads and runs on one thread.
    task = ray.remote(max_retries=max_retries, num_cpus=1)
    plan, work, merge = task(_plan), task(_work), task(_merge)
    plans = [plan.remote(path, grid, folder, name, part_bytes) for name, path in named.items()]
    tasks = [
        work.remote(grid, folder, name, part, left[at : at + together])
        for name, parts in zip(named, ray.get(plans))
        for part, left in parts
        for at in range(0, len(left), together)
    ]
    ray.get(tasks)
    merged = ray.get([merge.remote(grid, folder, name) for name in named])
    for fault in filter(None, (fault for _, fault in merged)):
        warnings.warn(fault, stacklevel=2)
    datasets = dict(zip(named, (summaries for summaries, _ in merged)))
    ledgers = [summary["conservation"] for summaries in datasets.values() for summary in summaries]
    names = ["received", "expanded", "transmitted", "absorbed", "held", "dropped"]
    sums = {name: sum(ledger[name] for ledger in ledgers) for name in names}
    closed = all(ledger["closed"] for ledger in ledgers)
    return sums | {"closed": closed, "datasets": datasets, "tasks": len(tasks)}


def _connect() -> None:
    if ray.is_initialized():
        return
    try:
        ray.init(address="auto")
    except ConnectionError as error:
        raise ConnectionError(
            "no Ray cluster found: start one with `ray start --head`, or call ray.init() first"
        ) from error


def _plan(
    path: Path, grid: dict[str, Any], folder: Path, name: str, part_bytes: int
) -> list[tuple[int, list[int]]]:
    return _packtrain.plan([path], _grid(grid), folder, name, part_bytes)


def _work(grid: dict[str, Any], folder: Path, name: str, part: int, runs: list[int]) -> None:
    _packtrain.work(_grid(grid), folder, name, part, runs, 1)


def _merge(
    grid: dict[str, Any], folder: Path, name: str
) -> tuple[list[dict[str, Any]], str | None]:
    texts, _, fault = _packtrain.merge(_grid(grid), folder, name)
    return [json.loads(text) for text in texts], fault


def fuzz(
    seeds: Iterable[int],
    *,
    worlds: int = 100,
    together: int = 16,
    max_retries: int = 3,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the worlds of `packtrain sim fuzz` for each seed. A seed is `worlds` worlds, 100 by
    default: `range(10)` is a thousand. A task runs `together` seeds.

    The program is that of the environment variable `PACKTRAIN`, or `packtrain` on the PATH of each
    worker: `cargo build --release -p packtrain-cli` makes `target/release/packtrain`. If `progress`
    is true, each task that ends is a line on standard error. Returns the sums `worlds`, `packets`
    and `wire_packets`, how often each fault, drop and
    state of a ring was `reached`, and the `failures`: `seed`, `world`, what was `wrong`, the `line`
    that says so, and `file`, the content of the file that repeats it with `packtrain sim FILE`.
    Raises `RuntimeError` if the program cannot run.
    """
    _connect()
    seeds = list(seeds)
    run = ray.remote(_fuzz).options(max_retries=max_retries, num_cpus=1)
    program = os.environ.get("PACKTRAIN")
    groups = [seeds[at : at + together] for at in range(0, len(seeds), together)]
    tasks = [run.remote(group, worlds, program) for group in groups]
    left = tasks
    while left and progress:
        _, left = ray.wait(left)
        done = len(tasks) - len(left)
        total = len(seeds) * worlds
        print(f"fuzz: {done} of {len(tasks)} tasks, {total:,} worlds in all", file=sys.stderr)
    documents = ray.get(tasks)
    sums, reached = Counter(worlds=0, packets=0, wire_packets=0), Counter[str]()
    failures = []
    for document in chain(*documents):
        sums.update({key: document[key] for key in sums})
        reached.update({f"{row['kind']}.{row['name']}": row["times"] for row in document["reached"]})
        if document["failure"]:
            failures.append({"seed": document["seed"]} | document["failure"])
    return {**sums, "reached": dict(reached), "failures": failures}


def _fuzz(seeds: list[int], worlds: int, program: str | None) -> list[dict[str, Any]]:
    program = program or shutil.which("packtrain")
    if not program:
        raise RuntimeError(
            "no program `packtrain` on the PATH of this worker: build it in a clone with `cargo build "
            "--release -p packtrain-cli`, and set PACKTRAIN to the path of target/release/packtrain"
        )
    if not shutil.which(program):
        raise RuntimeError(f"PACKTRAIN={program}: no such program on this worker, or it is not executable")
    documents = []
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "world"
        for seed in seeds:
            command = [program, "sim", "fuzz", "--json", "--quiet", "--seed", str(seed)]
            command += ["--runs", str(worlds), "--save", str(saved)]
            # Else a run that is short would fail for what it does not reach.
            environment = {key: value for key, value in os.environ.items() if key != "PACKTRAIN_FULL"}
            ended = subprocess.run(command, capture_output=True, text=True, env=environment)
            document = json.loads(ended.stdout) if ended.stdout else {}
            if ended.returncode and not document.get("failure"):
                raise RuntimeError(f"seed {seed}: {ended.stderr.strip()}")
            if document["failure"]:
                document["failure"]["file"] = saved.read_bytes()
                saved.unlink()
            documents.append(document)
    return documents
