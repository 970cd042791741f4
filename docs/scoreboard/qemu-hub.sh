#!/bin/sh
# QEMU: two tap back ends on a hub, without a guest. TAP, without offload: a hub has none.
exec qemu-system-x86_64 -machine none -nodefaults -display none -monitor none \
    -netdev "tap,id=a,ifname=$1,script=no,downscript=no" -netdev hubport,hubid=0,id=ha,netdev=a \
    -netdev "tap,id=b,ifname=$2,script=no,downscript=no" -netdev hubport,hubid=0,id=hb,netdev=b
