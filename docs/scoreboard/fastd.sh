#!/bin/bash
# fastd: two ends over UDP on the loopback interface, method "null" (no encryption). TUN, without
# offload. LAYER=tap for Ethernet.
. "$(dirname "$0")/private.sh"
for side in 1 2; do
    fastd --generate-key --machine-readable > "key$side" 2>/dev/null
    fastd --machine-readable --show-key --config - > "public$side" 2>/dev/null <<CONF
secret "$(cat key$side)";
CONF
done
for side in 1 2; do
    other=$((3 - side))
    cat > "conf$side" <<CONF
mode ${LAYER:-tun}; interface "${!side}"; mtu 1500; method "${METHOD:-null}"; log level warn;
bind 127.0.0.1:$((10000 + side)); secret "$(cat key$side)";
peer "other" { key "$(cat public$other)"; remote 127.0.0.1:$((10000 + other)); }
CONF
    fastd --config "conf$side" &
done
wait -n
