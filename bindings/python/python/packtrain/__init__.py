"""What GRO, LRO and interrupt moderation make of captures of any size, as Arrow tables."""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeVar

from . import _packtrain
from ._packtrain import Table

__all__ = ["Progress", "Result", "Sweep", "Table", "coalesce", "replay", "segment", "sweep"]

AnyPath = str | os.PathLike[str]
Mode = Literal["hash", "sorted", "auto"]
Coalesce = Literal["reversible", "stream"]
Link = Literal["ip", "ethernet"]


@dataclass(frozen=True)
class Progress:
    """How far a run is: bytes read before decompression, bytes to read if known, packets read, and
    seconds since the start."""

    bytes: int
    bytes_total: int | None
    packets: int
    seconds: float


class _Shown:
    """Text of at most ten lines, and a table in notebooks: what differs between configurations, and
    what became of their packets."""

    def _table(self) -> list[list[str]]:
        found = [self.summary] if isinstance(self, Result) else getattr(self, "summaries")
        settings = [one["settings"] for one in found]
        first = settings[0]
        names = [name for name in first if any(one[name] != first[name] for one in settings)]
        rows = [[*names, "packets", "emitted", "ratio"]]
        for one in found:
            total = one["total"]
            ratio = "-" if total["ratio"] is None else f"{total['ratio']:.3f}"
            cells = [str(one["settings"][name]) for name in names]
            rows.append([*cells, f"{total['packets']:,}", f"{total['emitted']:,}", ratio])
        return rows

    def __repr__(self) -> str:
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows)]
        shown = rows if len(rows) <= 9 else rows[:8]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in shown]
        if len(rows) > len(shown):
            lines.append(f"... {len(rows) - len(shown)} more: .runs and .summaries have all")
        return "\n".join([f"packtrain.{type(self).__name__}, configurations: {len(rows) - 1}", *lines])

    def _repr_html_(self) -> str:
        head, *rows = [[escape(cell) for cell in row] for row in self._table()]
        lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        names = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, repr=False)
class Result(_Shown):
    """What one configuration makes of captures: `summary` has the settings and figures of `packtrain
    replay --json` (https://github.com/packtrain/packtrain/blob/main/docs/json.md says what each key
    is), `trains` a row for each train in the order in which they end, unless
    `trains=False`, and `runs` a row for each interface: settings, counters, reasons."""

    summary: dict[str, Any]
    trains: Table | None
    runs: Table


@dataclass(frozen=True, repr=False)
class Sweep(_Shown):
    """What several configurations make of captures: `summaries` has the `Result.summary` of each (of
    `coalesce`, `mode`, `flows`, `hold_us`, `queues` and `ack_limit` the last one changes first),
    `trains` the trains of all if `trains=True`, `runs` a row for each configuration and interface."""

    summaries: list[dict[str, Any]]
    trains: Table | None
    runs: Table


Watch = Callable[[Progress], object]
Found = TypeVar("Found", Result, Sweep)


def replay(
    path: AnyPath | Sequence[AnyPath],
    *,
    flows: int = 1024,
    hold_us: float = 50.0,
    mode: Mode = "auto",
    queues: int = 1,
    headers_only: bool | None = None,
    coalesce: Coalesce | None = "reversible",
    ack_limit: int | None = None,
    trains: bool = True,
    dataset: str | None = None,
    progress: Watch | None = None,
) -> Result:
    """Replays a capture, or several as one, with one configuration.

    `flows` is the size of the flow table, `hold_us` how long packets are held at most in capture
    time, `queues` the receive queues of each interface (RSS), `ack_limit` the pure ACKs of a merged
    packet (with `coalesce="stream"`). Flows are found in the table with the mode "hash", by sorting
    each window with "sorted" (then the table has no size), and by the one that fits with "auto".
    `coalesce="reversible"` merges packets that can be restored byte for byte (GRO), "stream" also
    those that leave byte streams and acknowledgements as they were (LRO), and `None` nothing. Only
    the headers are used of packets that the capture does not have whole, and with
    `headers_only=True` of all: then all checksums are taken as correct. A warning counts the packets
    that are cut within their headers, and those longer than 1500 bytes (TSO or GRO before the
    capture). Several captures are read as one, in the order of time. Trains take about 40 bytes of
    memory each: `trains=False` leaves them out. `dataset` is the name in `runs`, by default that of the first file. `progress` is
    called ten times a second; an exception of it ends the run and is raised.

    Raises `OSError` if a file cannot be read, and `ValueError` for a file that is no capture. If one
    ends in the middle of a record, the exception's attribute `result` has what was before.
    """
    grid = _grid(
        dict(
            flows=flows, hold_us=hold_us, mode=mode, queues=queues, headers_only=headers_only,
            coalesce=coalesce, ack_limit=ack_limit,
        ),
        is_one=True,
    )
    paths = _paths(path)
    name = dataset or _packtrain.name_of(paths[0])
    [text], table, runs, broken = _packtrain.run(paths, grid, trains, name, _watch(progress))
    return _checked(Result(json.loads(text), table, runs), broken)


def sweep(
    paths: AnyPath | Sequence[AnyPath],
    grid: Mapping[str, Any],
    *,
    trains: bool = False,
    output: AnyPath | None = None,
    dataset: str | None = None,
    progress: Watch | None = None,
) -> Sweep:
    """Replays captures as one, with each combination of settings, in one pass.

    `grid` has a list of values, or one value, for any of `flows`, `hold_us`, `mode`, `queues`,
    `coalesce` and `ack_limit`, and one value of `headers_only`. With `output` trains and runs
    become a folder of Parquet files, with partitions by data set (`dataset`) and configuration, each
    of which has an open file; memory does not depend on the captures then. Exceptions and warnings
    are those of `replay`.
    """
    settings, paths, watch = _grid(grid), _paths(paths), _watch(progress)
    name = dataset or _packtrain.name_of(paths[0])
    broken: Exception | None
    if output is None:
        texts, table, runs, broken = _packtrain.run(paths, settings, trains, name, watch)
    elif trains:
        line = "trains=True keeps the trains in memory, and output= writes them: leave one out"
        raise ValueError(line)
    else:
        for part, left in _packtrain.plan(paths, settings, output, name, None):
            _packtrain.work(settings, output, name, part, left, 0, watch)
        texts, runs, fault = _packtrain.merge(settings, output, name)
        table, broken = None, ValueError(fault) if fault else None
    return _checked(Sweep([json.loads(text) for text in texts], table, runs), broken)


def coalesce(
    packets: Sequence[bytes],
    *,
    link: Link = "ip",
    coalesce: Coalesce | None = "reversible",
    mode: Mode = "hash",
    flows: int = 1024,
    ack_limit: int | None = None,
) -> list[tuple[bytes, int]]:
    """Merges packets that arrive in one window; they begin with the IP header, or with that of
    `link="ethernet"`. Returns each packet that leaves, with complete
    checksums, and how many packets are in it. What cannot be merged, or has a wrong checksum,
    leaves as it is."""
    settings = dict(coalesce=coalesce, mode=mode, flows=flows, ack_limit=ack_limit)
    return _packtrain.coalesce(packets, link, _grid(settings, is_one=True))


def segment(packet: bytes, size: int, *, link: Link = "ip") -> list[bytes]:
    """Cuts a TCP or UDP packet into packets of `size` bytes of payload, as TSO and USO do: fresh
    lengths, sequence numbers, identifications, flags and checksums. The checksum of `packet` is not
    read. Raises `ValueError` for other packets."""
    return _packtrain.segment(packet, size, link)


def _paths(paths: AnyPath | Sequence[AnyPath]) -> list[AnyPath]:
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not paths:
        raise ValueError("no path: name at least one capture")
    return paths


_SETTINGS = ["flows", "hold_us", "mode", "queues", "coalesce", "ack_limit", "headers_only"]


def _grid(grid: Mapping[str, Any], is_one: bool = False) -> _packtrain.Grid:
    def is_list(value: Any) -> bool:
        return not is_one and isinstance(value, Iterable) and not isinstance(value, str)

    for key in grid:
        if key not in _SETTINGS:
            raise ValueError(f"{key}: no such setting; there are {', '.join(_SETTINGS)}")
    lists = {key: list(value) if is_list(value) else [value] for key, value in grid.items()}
    return _packtrain.Grid(**lists)


def _watch(progress: Watch | None) -> Callable[..., object] | None:
    return progress and (lambda *now: progress(Progress(*now)))


def _checked(found: Found, broken: Exception | None) -> Found:
    rows = (found.summary if isinstance(found, Result) else found.summaries[0])["rows"]
    packets = sum(row["packets"] for row in rows)
    for count, why in (
        (sum(row["passed"]["cut_short"] for row in rows), "are cut within their headers: not merged"),
        (sum(row["large"] for row in rows), "are longer than 1500 bytes, as after TSO or GRO"),
    ):
        if count:
            warnings.warn(f"{count} of {packets} packets {why}", stacklevel=3)
    if broken:
        broken.result = found  # type: ignore[attr-defined]
        raise broken
    return found
