#!/bin/bash
# VTun: a server and its client over UDP on the loopback interface. TUN, without offload.
# LAYER=tap for Ethernet.
. "$(dirname "$0")/private.sh"
[ "$LAYER" = tap ] && type=ether || type=tun
# vtund resolves 127.0.0.1 only if the host has a further address.
ip address add 198.19.255.1/32 dev lo
for side in 1 2; do
    cat > "conf$side" <<CONF
options { port 5000; timeout 10; }
default { speed 0; }
scoreboard {
  password scoreboard; type $type; proto udp; device ${!side};
  compress no; encrypt no; keepalive yes; persist yes;
}
CONF
done
vtund -s -n -f conf1 &
sleep 0.3
vtund -n -f conf2 scoreboard 127.0.0.1 &
wait -n
