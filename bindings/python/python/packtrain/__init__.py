"""What GRO, LRO and interrupt moderation make of captures of any size, as Arrow tables."""

from ._packtrain import (
    Progress,
    Result,
    Sweep,
    Table,
    coalesce,
    replay,
    segment,
    sweep,
)

__all__ = ["Progress", "Result", "Sweep", "Table", "coalesce", "replay", "segment", "sweep"]
