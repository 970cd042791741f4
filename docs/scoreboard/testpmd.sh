#!/bin/bash
# DPDK's testpmd: mode "io" between two net_tap devices. TAP. LAYER=tun for net_tun.
. "$(dirname "$0")/private.sh"
mkdir -p dpdk
driver=net_${LAYER:-tap}
dpdk-testpmd -l 0,1 --no-huge --no-pci --no-telemetry -m 256 --file-prefix scoreboard \
    --vdev "${driver}0,iface=$1" --vdev "${driver}1,iface=$2" \
    -- --forward-mode=io --no-mlockall --total-num-mbufs=8192 --stats-period=3600 > log &
wait -n
