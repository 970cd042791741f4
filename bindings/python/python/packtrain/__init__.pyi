from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, final

Path = str | PathLike[str]
Mode = Literal["hash", "sorted", "auto"]
Coalesce = Literal["reversible", "stream"]
Link = Literal["ip", "ethernet"]
Grid = Mapping[str, Any]

@final
class Progress:
    """How far a run is."""

    @property
    def bytes(self) -> int:
        """Bytes read, before decompression."""
    @property
    def bytes_total(self) -> int | None:
        """Bytes to read, if known."""
    @property
    def packets(self) -> int:
        """Packets read."""
    @property
    def seconds(self) -> float:
        """Seconds since the start."""

@final
class Table:
    """Rows in Arrow's form: `pyarrow.table(t)`, `polars.DataFrame(t)`, `pandas.DataFrame.from_arrow(t)`,
    and DuckDB's `FROM t` read it. Each reader gets all rows."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

@final
class Result:
    """What one configuration makes of captures."""

    @property
    def summary(self) -> dict[str, Any]:
        """The keys of `packtrain replay --json` with one configuration (docs/json.md)."""
    @property
    def trains(self) -> Table | None:
        """A row for each train, in the order in which they end; `None` with `trains=False`."""
    @property
    def runs(self) -> Table:
        """A row for each interface: settings, counters, reasons."""

@final
class Sweep:
    """What several configurations make of captures."""

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """`Result.summary` of each configuration: the last key of the grid changes first."""
    @property
    def trains(self) -> Table | None:
        """As `Result.trains`, with a column `configuration`; `None` unless `trains=True`."""
    @property
    def runs(self) -> Table:
        """A row for each configuration and interface."""

def replay(
    path: Path | Sequence[Path],
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
    progress: Callable[[Progress], object] | None = None,
) -> Result:
    """Replays a capture, or several as one, with one configuration.

    `flows` is the size of the flow table, `hold_us` how long packets are held at most in capture
    time, `queues` the receive queues of each interface (RSS), `ack_limit` the pure ACKs of a merged
    packet (with `coalesce="stream"`). `coalesce=None` merges nothing. Only the headers are used of
    packets that the capture does not have whole, and with `headers_only=True` of all: then all
    checksums are taken for right. Trains take about 40 bytes of memory each: `trains=False` leaves
    them out. `dataset` is the name in `runs`, by default that of the first file. `progress` is
    called ten times a second; an exception of it ends the run and is raised.

    Raises `OSError` if a file cannot be read, and `ValueError` for a file that is no capture. If one
    ends in the middle of a record, the exception's attribute `result` has what was before.
    """

def sweep(
    paths: Path | Sequence[Path],
    grid: Grid,
    *,
    trains: bool = False,
    output: Path | None = None,
    dataset: str | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Sweep:
    """Replays captures as one, with each combination of settings, in one pass.

    `grid` has a list of values, or one value, for any of `flows`, `hold_us`, `mode`, `queues`,
    `coalesce` and `ack_limit`, and one value of `headers_only`. With `output` trains and runs
    become a folder of Parquet files, with partitions by data set and configuration; memory does not
    depend on the captures then. Exceptions are those of `replay`.
    """

def coalesce(
    packets: Sequence[bytes],
    *,
    link: Link = "ip",
    coalesce: Coalesce | None = "reversible",
    mode: Literal["hash", "sorted", "auto"] = "hash",
    flows: int = 1024,
    ack_limit: int | None = None,
) -> list[tuple[bytes, int]]:
    """Merges packets that arrive in one window. Returns each packet that leaves, with complete
    checksums, and how many packets are in it. What cannot be merged, or has a wrong checksum,
    leaves as it is."""

def segment(packet: bytes, size: int, *, link: Link = "ip") -> list[bytes]:
    """Cuts a TCP or UDP packet into packets of `size` bytes of payload, as TSO and USO do: fresh
    lengths, sequence numbers, identifications, flags and checksums. The checksum of `packet` is not
    read. Raises `ValueError` for other packets."""
