#!/bin/bash
# tinc 1.0: two ends over UDP on the loopback interface, mode "switch". TAP, without offload.
. "$(dirname "$0")/private.sh"
for side in 1 2; do
    mkdir -p "side$side/hosts"
    cat > "side$side/tinc.conf" <<CONF
Name = side$side
Mode = switch
DeviceType = tap
Interface = ${!side}
BindToAddress = 127.0.0.1
Port = $((6550 + side))
AddressFamily = ipv4
PMTU = 1514
CONF
    printf 'Address = 127.0.0.1\nPort = %s\n' $((6550 + side)) > "side$side/hosts/side$side"
    tincd --config="$PWD/side$side" --generate-keys=2048 < /dev/null 2> /dev/null
done
echo 'ConnectTo = side1' >> side2/tinc.conf
cp side1/hosts/side1 side2/hosts/
cp side2/hosts/side2 side1/hosts/
for side in 1 2; do
    tincd --config="$PWD/side$side" --pidfile="$PWD/pid$side" --no-detach \
        --logfile="$PWD/log$side" &
done
wait -n
