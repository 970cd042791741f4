#!/bin/sh
# The program in the folder tun-rs: two TUNs with offload.
# TUN_RS is the program, which this makes:
# cargo build --release --manifest-path docs/scoreboard/tun-rs/Cargo.toml
exec "${TUN_RS:-scoreboard-tun-rs}" "$1" "$2"
