#!/bin/bash
# VDE: a switch with two TAPs. TAP, without offload.
. "$(dirname "$0")/private.sh"
sleep infinity | vde_switch -sock switch -tap "$1" -tap "$2" &  # It ends with its standard input.
wait -n
