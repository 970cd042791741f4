"""Captures for tests: TCP and UDP of many flows, in bursts, the same for the same arguments."""

import random
import struct


def checksum(data: bytes) -> bytes:
    """The Internet checksum of RFC 1071, of an even number of bytes."""
    words = struct.unpack(f"!{len(data) // 2}H", data)
    return struct.pack("!H", 0xFFFF - sum(words) % 0xFFFF)


def packet(source: int, sport: int, dport: int, payload: bytes, tcp: tuple[int, int] | None) -> bytes:
    """An Ethernet frame: TCP with this sequence and acknowledgement number, or UDP."""
    addresses = struct.pack("!4B4B", 198, 18, source >> 8, source & 255, 198, 19, 0, 1)
    protocol, at = (6, 16) if tcp else (17, 6)
    if tcp:
        rest = struct.pack("!IIBBHHH", *tcp, 5 << 4, 0x10, 512, 0, 0)
    else:
        rest = struct.pack("!HH", 8 + len(payload), 0)
    data = struct.pack("!HH", sport, dport) + rest + payload
    pseudo = addresses + struct.pack("!HH", protocol, len(data))
    data = data[:at] + checksum(pseudo + data) + data[at + 2 :]
    ip = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(data), 0, 0x4000, 64, protocol)
    ip += checksum(ip + addresses) + addresses
    return bytes.fromhex("020000000002 020000000001 0800") + ip + data


def traffic(packets: int, seed: int = 1, flows: int = 40):
    """`(nanoseconds, frame)` of each packet: runs of one flow, pauses of a millisecond."""
    draw = random.Random(seed)
    sequence = [1] * flows
    now = 1_700_000_000_000_000_000
    flow = left = 0
    for index in range(packets):
        if left == 0:
            flow, left = draw.randrange(flows), draw.randrange(1, 12)
        left -= 1
        now += 1_000_000 if index % 150 == 149 else draw.randrange(200, 3000)
        if flow % 8 == 7:
            yield now, packet(flow, 5000 + flow, 443, bytes([index & 255]) * 300, None)
        elif flow % 8 == 6:
            sequence[flow] += 1000
            yield now, packet(flow, 443, 5000 + flow, b"", (1, sequence[flow]))
        else:
            yield now, packet(flow, 5000 + flow, 80, bytes([index & 255]) * 400, (sequence[flow], 1))
            sequence[flow] += 400


def pcap(packets) -> bytes:
    """A pcap file with times in nanoseconds."""
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 0xFFFF, 1)]
    for now, data in packets:
        seconds, nanoseconds = divmod(now, 1_000_000_000)
        out += [struct.pack("<IIII", seconds, nanoseconds, len(data), len(data)), data]
    return b"".join(out)


if __name__ == "__main__":
    import sys

    with open(sys.argv[1], "wb") as file:
        file.write(pcap(traffic(int(sys.argv[2]))))
