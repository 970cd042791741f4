#!/bin/bash
# wireguard-go: two ends over UDP on the loopback interface. TUN. Versions of
# 2023 and later use offload.
# WIREGUARD is the program: wireguard-go (default), or the one that `go install` makes.
. "$(dirname "$0")/private.sh"
export LOG_LEVEL=error
for name in "$1" "$2"; do
    "${WIREGUARD:-wireguard-go}" -f "$name" &
done
. "$SCOREBOARD/wireguard-peers.sh"
