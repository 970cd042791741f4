#!/bin/bash
# boringtun-cli: two ends over UDP on the loopback interface. TUN, without offload.
# BORINGTUN is the program. THREADS, 4 by default, is its number of threads.
. "$(dirname "$0")/private.sh"
mkdir -p wireguard
for name in "$1" "$2"; do
    "${BORINGTUN:-boringtun-cli}" --foreground --disable-drop-privileges \
        --threads "${THREADS:-4}" "$name" &
done
. "$SCOREBOARD/wireguard-peers.sh"
