"""Every block of `docs/scale.md` runs, in order, and gives what the page says."""

import re
from pathlib import Path

import duckdb
import matplotlib
import polars
import pytest
import ray

from traffic import pcap, traffic

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_runs(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("svg")
    for seed, name in enumerate(["monday", "tuesday"]):
        Path(f"{name}.pcap").write_bytes(pcap(traffic(8000, seed=seed)))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    names, tables, base = {}, [], duckdb.connect()
    try:
        for kind, text in blocks:
            if kind == "python":
                exec(compile(text, str(PAGE), "exec"), names)
            elif kind == "sql":
                table = base.sql(text)
                tables += [table.pl()] if table else []
    finally:
        ray.shutdown()
    ratio, delay, ends, shares, skew, spread = tables
    assert ratio["max_flows"].to_list() == [8, 64, 1024] and ratio["ratio"].is_sorted()
    assert ratio["ratio"][0] > 1.5
    assert delay["hold_us"].to_list() == [20, 50, 200] and delay["p99_us"].is_sorted()
    # Within 1 %, since delays are counted in a histogram.
    assert (delay["p99_us"] <= delay["hold_us"] * 1.01).all()
    assert {"evict", "timeout", "payload"} == set(ends["end"])
    assert ends.filter(polars.col("end") == "payload")["packets_per_train"].unique().to_list() == [1.0]
    assert shares["dataset"].to_list() == ["monday", "tuesday"]
    assert (shares["quic"] > 0.05).all() and (shares["acks"] > 0.05).all()
    assert skew["queues"].to_list() == [8, 8] and skew["skew"].is_between(1, 8).all()
    assert spread.height == 18 and (spread["datasets"] == 2).all()
    assert (spread["least"] <= spread["middle"]).all() and (spread["middle"] <= spread["most"]).all()
    assert Path("ratio.svg").read_text().count("µs") + Path("ratio.svg").read_text().count("<path") > 3
    # The cluster has the same rows.
    both = [f"FROM read_parquet('{folder}/runs/**/*.parquet', hive_partitioning=true) ORDER BY ALL"
            for folder in ("out", "cluster")]
    assert base.sql(both[0]).fetchall() == base.sql(both[1]).fetchall()
