"""Every block of `docs/scale.md` runs, in order, and gives what the page says."""

import re
from pathlib import Path

import duckdb
import matplotlib
import ray

from traffic import pcap, traffic

PAGE = Path(__file__).parents[3] / "docs/scale.md"


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("svg")
    for seed, name in enumerate(["monday", "tuesday"]):
        Path(f"{name}.pcap").write_bytes(pcap(traffic(8000, seed=seed)))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    names, tables, base = {}, [], duckdb.connect()
    try:
        for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.M | re.S):
            if kind == "python":
                exec(compile(text, str(PAGE), "exec"), names)
            elif kind == "sql" and (table := base.sql(text)):
                tables.append(table.pl())
    finally:
        ray.shutdown()
    ratio, delay, ends, shares, skew, spread = tables
    assert ratio["max_flows"].to_list() == [8, 64, 1024]
    assert ratio["ratio"].is_sorted() and ratio["ratio"][0] > 1.5
    # Within 1 %, since delays are counted in a histogram.
    assert delay["hold_us"].to_list() == [20, 50, 200] and delay["p99_us"].is_sorted()
    assert (delay["p99_us"] <= delay["hold_us"] * 1.01).all()
    assert {"evict", "timeout", "payload"} == set(ends["end"])
    assert (shares["quic"] > 0.05).all() and (shares["acks"] > 0.05).all()
    assert skew["queues"].to_list() == [8, 8] and skew["skew"].is_between(1, 8).all()
    assert spread.height == 18 and (spread["datasets"] == 2).all()
    assert Path("ratio.svg").read_text().count("<path") > 3
    # The cluster has the same rows.
    out, cluster = (base.sql(f"FROM '{folder}/runs/**/*.parquet' ORDER BY ALL").fetchall()
                    for folder in ("out", "cluster"))
    assert out == cluster
