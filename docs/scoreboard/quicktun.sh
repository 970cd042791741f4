#!/bin/bash
# QuickTun: two ends over UDP on the loopback interface, its protocol "raw". TUN, without offload.
# LAYER=tap for Ethernet.
. "$(dirname "$0")/private.sh"
[ "$LAYER" = tap ] && mode=0 || mode=1
for side in 1 2; do
    other=$((3 - side))
    # Debian's build reads its settings from the variables of ifupdown.
    IFACE=${!side} IF_QT_TUN_MODE=$mode IF_QT_PROTOCOL=raw IF_QT_LOCAL_ADDRESS=127.0.0.1 \
        IF_QT_LOCAL_PORT=$((2998 + side)) IF_QT_REMOTE_ADDRESS=127.0.0.1 \
        IF_QT_REMOTE_PORT=$((2998 + other)) quicktun &
done
wait -n
