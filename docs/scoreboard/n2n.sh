#!/bin/bash
# n2n 1.3: a supernode and two edges over UDP on the loopback interface. TAP, without offload.
# `edge` gives its device an address. The kernel removes it when the check moves the device.
. "$(dirname "$0")/private.sh"
supernode -l 7654 &
sleep 0.2
for side in 1 2; do
    edge -d "${!side}" -a 10.99.0.$side -c scoreboard -k key -l 127.0.0.1:7654 \
        -p $((7654 + side)) -r -M 1500 &
done
wait -n
