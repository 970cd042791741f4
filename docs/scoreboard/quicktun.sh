#!/bin/bash
# QuickTun: two ends over UDP on the loopback interface, its protocol "raw". TUN, without offload.
# LAYER=tap for Ethernet.
. "$(dirname "$0")/private.sh"
[ "$LAYER" = tap ] && mode=0 || mode=1
for side in 1 2; do
    other=$((3 - side))
    INTERFACE=${!side} TUN_MODE=$mode PROTOCOL=raw LOCAL_ADDRESS=127.0.0.1 \
        LOCAL_PORT=$((2998 + side)) REMOTE_ADDRESS=127.0.0.1 REMOTE_PORT=$((2998 + other)) \
        quicktun &
done
wait -n
