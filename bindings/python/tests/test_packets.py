"""`segment` and `coalesce`, with scapy as the judge."""

import packtrain
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw, raw

PAYLOAD = bytes(range(256)) * 20


def ip(version):
    if version == 4:
        return IP(src="198.18.0.1", dst="198.19.0.1", flags="DF", id=7, ttl=64)
    return IPv6(src="fd00::1", dst="fd00::2", hlim=64)


def tcp(**more):
    options = [("NOP", None), ("NOP", None), ("Timestamp", (11, 22))]
    return TCP(**{"sport": 5000, "dport": 80, "seq": 2**32 - 1500, "ack": 9, "flags": "A"} | more
               | {"options": options})


def by_scapy(data, link, version):
    """The packet with lengths and checksums computed by scapy, which does not read those there."""
    parsed = Ether(data) if link == "ethernet" else (IP if version == 4 else IPv6)(data)
    for layer, fields in [(IP, ("len", "chksum")), (IPv6, ("plen",)), (TCP, ("chksum",)),
                          (UDP, ("len", "chksum"))]:
        if layer in parsed:
            for field in fields:
                delattr(parsed[layer], field)
    return raw(parsed)


def packet(version, link, transport, payload=PAYLOAD):
    whole = ip(version) / transport / Raw(payload)
    return raw(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / whole
               if link == "ethernet" else whole)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("link", ["ip", "ethernet"])
@pytest.mark.parametrize("transport", [tcp(), tcp(flags="PA"), tcp(flags="FA"),
                                       UDP(sport=4000, dport=443)], ids=["A", "PA", "FA", "udp"])
@pytest.mark.parametrize("size", [100, 1000, 1448, 5119])
def test_segments_are_those_of_scapy(version, link, transport, size):
    whole = packet(version, link, transport)
    pieces = packtrain.segment(whole, size, link=link)
    assert len(pieces) == -(-len(PAYLOAD) // size)
    layer = (IP if version == 4 else IPv6, type(transport))
    payload = b""
    for index, piece in enumerate(pieces):
        assert by_scapy(piece, link, version) == piece
        parsed = Ether(piece) if link == "ethernet" else layer[0](piece)
        if version == 4:
            assert parsed[IP].id == 7 + index
        if layer[1] is TCP:
            assert parsed[TCP].seq == (transport.seq + index * size) % 2**32
            flags = str(transport.flags) if index == len(pieces) - 1 else "A"
            assert set(str(parsed[TCP].flags)) == set(flags)
            assert parsed[TCP].options == transport.options
        payload += bytes(parsed[layer[1]].payload)
    assert payload == PAYLOAD
    # Merging undoes it.
    assert packtrain.coalesce(pieces, link=link) == [(whole, len(pieces))]
    assert packtrain.coalesce(pieces, link=link, mode="sorted") == [(whole, len(pieces))]
    if layer[1] is TCP and "F" not in str(transport.flags):
        [(stream, count)] = packtrain.coalesce(pieces, link=link, coalesce="stream")
        assert (by_scapy(stream, link, version), count) == (stream, len(pieces))
        assert bytes((Ether(stream) if link == "ethernet" else layer[0](stream))[TCP].payload) == PAYLOAD


def test_what_is_not_merged_passes():
    good = packtrain.segment(packet(4, "ip", tcp()), 1000)
    bad = bytearray(good[1])
    bad[-1] ^= 1
    packets = [good[0], bytes(bad), good[1], b"no packet", b"E" * 100_000, good[2]]
    out = packtrain.coalesce(packets)
    assert sum(count for _, count in out) == len(packets)
    assert (bytes(bad), 1) in out and (b"no packet", 1) in out
    assert packtrain.coalesce(packets, coalesce=None) == [(packet, 1) for packet in packets]
    assert packtrain.coalesce([]) == []
    # A table of one flow: each packet of another flow evicts the one before.
    other = packtrain.segment(packet(4, "ip", tcp(sport=6000)), 1000)
    alternating = [packet for pair in zip(good, other) for packet in pair]
    assert len(packtrain.coalesce(alternating, flows=1)) == len(alternating)
    assert len(packtrain.coalesce(alternating, flows=1, mode="sorted")) == 2


def test_pure_acks_merge_as_a_stream_only():
    acks = [raw(ip(4) / TCP(sport=5000, dport=80, seq=1, ack=1000 * n, flags="A")) for n in range(1, 6)]
    assert [count for _, count in packtrain.coalesce(acks)] == [1] * 5
    [(last, count)] = packtrain.coalesce(acks, coalesce="stream")
    assert (IP(last)[TCP].ack, count) == (5000, 5)
    limited = packtrain.coalesce(acks, coalesce="stream", ack_limit=2)
    assert max(count for _, count in limited) <= 3 and sum(count for _, count in limited) == 5


@pytest.mark.parametrize("call, words", [
    (lambda: packtrain.segment(b"\x45", 100), "truncated|short"),
    (lambda: packtrain.segment(packet(4, "ip", tcp()), 0), "size"),
    (lambda: packtrain.segment(packet(4, "ip", tcp(flags="SA")), 100), "tcp_flags"),
    (lambda: packtrain.segment(raw(ip(4) / Raw(b"x" * 100)), 100), "neither TCP nor UDP"),
    (lambda: packtrain.segment(packet(4, "ip", tcp()), 100, link="token ring"), "link="),
    (lambda: packtrain.coalesce([], flows=0), "flows=0"),
    (lambda: packtrain.coalesce([], coalesce="all"), "coalesce="),
    (lambda: packtrain.coalesce([], ack_limit=2), "stream"),
])
def test_errors_say_what_to_write(call, words):
    with pytest.raises(ValueError, match=words):
        call()
