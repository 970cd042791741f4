from collections.abc import Callable, Sequence
from os import PathLike
from typing import final

__all__ = ["Grid", "Table", "coalesce", "merge", "name_of", "plan", "run", "segment", "work"]

_Path = str | PathLike[str]

@final
class Table:
    """Rows in Arrow's form: `pyarrow.table(t)`, `polars.DataFrame(t)`, `pandas.DataFrame.from_arrow(t)`,
    and DuckDB's `FROM t` read it. Each reader gets all rows."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

@final
class Grid:
    def __new__(
        cls,
        *,
        flows: Sequence[int] = ...,
        hold_us: Sequence[float] = ...,
        mode: Sequence[str] = ...,
        queues: Sequence[int] = ...,
        coalesce: Sequence[str | None] = ...,
        ack_limit: Sequence[int | None] = ...,
        headers_only: Sequence[bool | None] = ...,
    ) -> Grid: ...

def run(
    paths: Sequence[_Path],
    grid: Grid,
    trains: bool,
    dataset: str,
    progress: Callable[..., object] | None,
) -> tuple[list[str], Table | None, Table, Exception | None]: ...
def name_of(path: _Path) -> str: ...
def plan(
    paths: Sequence[_Path], grid: Grid, output: _Path, dataset: str, part_bytes: int | None
) -> list[tuple[int, list[int]]]: ...
def work(
    grid: Grid,
    output: _Path,
    dataset: str,
    part: int,
    indices: Sequence[int],
    threads: int,
    progress: Callable[..., object] | None = None,
) -> None: ...
def merge(grid: Grid, output: _Path, dataset: str) -> tuple[list[str], Table, str | None]: ...
def coalesce(packets: Sequence[bytes], link: str, grid: Grid) -> list[tuple[bytes, int]]: ...
def segment(packet: bytes, size: int, link: str) -> list[bytes]: ...
