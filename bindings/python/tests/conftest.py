"""What tests share: the program, and a capture."""

import os
from pathlib import Path

import pytest

from traffic import pcap, traffic

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def program():
    """The program that the package is compared with."""
    path = Path(os.environ.get("PACKTRAIN", ROOT / "target/debug/packtrain"))
    assert path.is_file(), "no program: run `cargo build -p packtrain-cli`, or set PACKTRAIN"
    return str(path)


@pytest.fixture(scope="session")
def capture(tmp_path_factory):
    """The path of a capture of 6,000 packets."""
    path = tmp_path_factory.mktemp("captures") / "one.pcap"
    path.write_bytes(pcap(traffic(6000)))
    return path
