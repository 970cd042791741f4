#!/bin/bash
# VpnCloud: two ends over UDP on the loopback interface, AES-128. TAP, without offload.
# VPNCLOUD is the program. It ends if a stop (SIGSTOP) interrupts its poll: the check needs
# --no-stop.
. "$(dirname "$0")/private.sh"
# VpnCloud looks up the source address of its default route, and ends without one.
ip route add local default dev lo
for side in 1 2; do
    other=$((3 - side))
    "${VPNCLOUD:-vpncloud}" --quiet --type tap --mode switch --device "${!side}" \
        --listen 127.0.0.1:$((3210 + side)) --peer 127.0.0.1:$((3210 + other)) \
        --password scoreboard --algorithm aes128 --no-port-forwarding --no-auto-claim &
done
wait -n
