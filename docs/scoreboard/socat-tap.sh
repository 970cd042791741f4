#!/bin/sh
# socat: two TAPs, without offload. socat sets no address and no MTU.
exec socat "TUN,tun-type=tap,tun-name=$1,iff-no-pi" "TUN,tun-type=tap,tun-name=$2,iff-no-pi"
