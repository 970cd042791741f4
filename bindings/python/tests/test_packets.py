"""`segment` and `coalesce`, with scapy as the judge."""

import packtrain
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw, raw

PAYLOAD = bytes(range(256)) * 20
NETWORKS = [IP(src="198.18.0.1", dst="198.19.0.1", flags="DF", id=7), IPv6(src="fd00::1", dst="fd00::2")]
COMPUTED = [(IP, "len"), (IP, "chksum"), (IPv6, "plen"), (TCP, "chksum"), (UDP, "len"), (UDP, "chksum")]


def tcp(flags="A", sport=5000):
    options = [("NOP", None), ("NOP", None), ("Timestamp", (11, 22))]
    return TCP(sport=sport, dport=80, seq=2**32 - 1500, ack=9, flags=flags, options=options)


def packet(transport=tcp()):
    return raw(NETWORKS[0] / transport / Raw(PAYLOAD))


@pytest.mark.parametrize("network", NETWORKS, ids=["v4", "v6"])
@pytest.mark.parametrize("link", ["ip", "ethernet"])
@pytest.mark.parametrize("transport", [tcp(), tcp("PA"), tcp("FA"), UDP(sport=4000, dport=443)],
                         ids=["A", "PA", "FA", "udp"])
@pytest.mark.parametrize("size", [100, 1000, 1448, 5119])
def test_segments_are_those_of_scapy(network, link, transport, size):
    parse, kind = Ether if link == "ethernet" else type(network), type(transport)

    def by_scapy(data):
        """With lengths and checksums computed by scapy, which does not read those there."""
        parsed = parse(data)
        for layer, field in COMPUTED:
            if layer in parsed:
                delattr(parsed[layer], field)
        return raw(parsed)

    whole = network / transport / Raw(PAYLOAD)
    whole = raw(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / whole if parse is Ether else whole)
    pieces = packtrain.segment(whole, size, link=link)
    parsed = [parse(piece) for piece in pieces]
    assert [by_scapy(piece) for piece in pieces] == pieces
    payloads = [bytes(piece[kind].payload) for piece in parsed]
    assert b"".join(payloads) == PAYLOAD and {len(payload) for payload in payloads[:-1]} == {size}
    for index, piece in enumerate(parsed):
        if IP in piece:
            assert piece[IP].id == 7 + index
        if kind is TCP:
            assert piece[TCP].seq == (transport.seq + index * size) % 2**32
            is_last = index == len(pieces) - 1
            assert set(str(piece[TCP].flags)) == set(str(transport.flags) if is_last else "A")
            assert piece[TCP].options == transport.options
    # Merging undoes it.
    assert packtrain.coalesce(pieces, link=link) == [(whole, len(pieces))]
    if kind is TCP and "F" not in str(transport.flags):
        [(stream, count)] = packtrain.coalesce(pieces, link=link, coalesce="stream")
        assert (by_scapy(stream), count) == (stream, len(pieces))
        assert bytes(parse(stream)[TCP].payload) == PAYLOAD


def test_what_is_not_merged_passes():
    good = packtrain.segment(packet(), 1000)
    bad = good[1][:-1] + bytes([good[1][-1] ^ 1])
    packets = [good[0], bad, good[1], b"no packet", b"E" * 100_000, good[2]]
    out = packtrain.coalesce(packets)
    assert sum(count for _, count in out) == len(packets)
    assert (bad, 1) in out and (b"no packet", 1) in out
    assert packtrain.coalesce(packets, coalesce=None) == [(packet, 1) for packet in packets]
    assert packtrain.coalesce([]) == []
    # A table of one flow: each packet of another flow evicts the one before.
    other = packtrain.segment(packet(tcp(sport=6000)), 1000)
    alternating = [packet for pair in zip(good, other) for packet in pair]
    assert len(packtrain.coalesce(alternating, flows=1)) == len(alternating)
    assert len(packtrain.coalesce(alternating, flows=1, mode="sorted")) == 2


def test_pure_acks_merge_as_a_stream_only():
    acks = [raw(NETWORKS[0] / TCP(dport=80, seq=1, ack=1000 * n, flags="A")) for n in range(1, 6)]
    assert [count for _, count in packtrain.coalesce(acks)] == [1] * 5
    [(last, count)] = packtrain.coalesce(acks, coalesce="stream")
    assert (IP(last)[TCP].ack, count) == (5000, 5)
    limited = packtrain.coalesce(acks, coalesce="stream", ack_limit=2)
    assert max(count for _, count in limited) <= 3 and sum(count for _, count in limited) == 5


@pytest.mark.parametrize("arguments, words", [
    ((b"\x45", 100), "truncated|short"),
    ((packet(), 0), "size"),
    ((packet(tcp("SA")), 100), "tcp_flags"),
    ((raw(NETWORKS[0] / Raw(b"x" * 100)), 100), "neither TCP nor UDP"),
    ((packet(), 100, "token ring"), "link="),
])
def test_errors_say_what_to_write(arguments, words):
    with pytest.raises(ValueError, match=words):
        packet, size, *link = arguments
        packtrain.segment(packet, size, link=(link or ["ip"])[0])
