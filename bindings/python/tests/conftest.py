"""What tests share: the program, and captures."""

import os
from pathlib import Path

import pytest

from traffic import pcap, traffic

FOLDER = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def program():
    """The program that the package is compared with."""
    named = os.environ.get("PACKTRAIN")
    built = [FOLDER / f"../../target/{name}/packtrain" for name in ("release", "ci", "debug")]
    found = [path for path in ([Path(named)] if named else built) if path.is_file()]
    if not found:
        pytest.fail("no program: run `cargo build -p packtrain-cli`, or set PACKTRAIN to its path")
    return str(found[0].resolve())


@pytest.fixture(scope="session")
def capture(tmp_path_factory):
    """The path of a capture of 6,000 packets."""
    path = tmp_path_factory.mktemp("captures") / "one.pcap"
    path.write_bytes(pcap(traffic(6000)))
    return path
