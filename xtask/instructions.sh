#!/usr/bin/env bash
# Counts the instructions of a forwarder between two devices with callgrind, in user space, and prints
# them and the packets that passed:
#
#   instructions.sh tap PACKETS COMMAND...     between two TAPs, which it makes: {a} and {b} in COMMAND
#   instructions.sh vhost SECONDS COMMAND...   between two sockets on which it listens, {a} and {b}, with
#                                              guests of testpmd. It ends after {n} seconds, or with its
#                                              input, and prints `received` in JSON or testpmd's counters
#
# `tap` needs root. UDP of 64 bytes. `tap`: from host A to host B, 64
# at a time while the forwarder is stopped, so that it reads as many on each machine.
set -euo pipefail
way=$1 amount=$2
shift 2
scratch=$(mktemp -d)
spaces=(instructions_p instructions_a instructions_b)
trap 'rm -rf "$scratch"; for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null || true; done' EXIT
count=(valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$scratch/count")

# Runs its arguments after another second, for 20 s at most.
until_there() {
    for _ in $(seq 200); do
        "$@" >/dev/null 2>&1 && break
        sleep 0.1
    done
    sleep 1
}

case $way in
tap)
    for space in "${spaces[@]}"; do ip netns add "$space"; done
    words=("${@//\{a\}/countA}")
    ip netns exec instructions_p "${count[@]}" "${words[@]//\{b\}/countB}" >"$scratch/out" 2>&1 &
    until_there ip -n instructions_p link show countB
    for side in a b; do
        link=count${side^^} space=instructions_$side
        ip -n instructions_p link set "$link" netns "$space"
        ip netns exec "$space" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
        ip -n "$space" addr add "198.18.4.$([[ $side == a ]] && echo 1 || echo 2)/24" dev "$link"
        ip -n "$space" link set "$link" up
    done
    sleep 1
    # shellcheck disable=SC2016 # the inner shell expands it
    ip netns exec instructions_a bash -c 'exec 3>/dev/udp/198.18.4.2/9
        for ((sent = 0; sent < $0; sent += 64)); do
            kill -STOP "$1"
            for _ in {1..64}; do printf "%022d" 0 >&3 2>/dev/null || true; done
            kill -CONT "$1"
            sleep 0.01
        done' "$amount" $!
    sleep 1
    passed=$(ip netns exec instructions_b cat /sys/class/net/countB/statistics/rx_packets)
    kill -TERM $!
    wait $! || true
    ;;
vhost)
    words=("${@//\{n\}/$amount}")
    words=("${words[@]//\{a\}/$scratch/a}")
    # testpmd ends with its input.
    sleep $((amount + 3)) | "${count[@]}" --fair-sched=yes "${words[@]//\{b\}/$scratch/b}" \
        >"$scratch/out" 2>&1 &
    until_there test -S "$scratch/b"
    guest() { echo "--vdev=net_virtio_user$1,path=$scratch/$2,queue_size=256,mrg_rxbuf=1"; }
    sleep $((amount + 20)) | timeout $((amount + 25)) dpdk-testpmd -l 0,1 --main-lcore 1 --no-pci --no-huge \
        --no-telemetry -m 256 --file-prefix="count$$" "$(guest 0 a)" "$(guest 1 b)" -- --nb-cores=1 \
        --total-num-mbufs=8192 --no-mlockall --forward-mode=flowgen --burst=64 --auto-start \
        >"$scratch/guests" 2>&1 &
    guests=$!
    wait %1 || true
    kill "$guests" 2>/dev/null || true
    passed=$(grep -oE '(RX-packets: |"received": ?)[0-9]+' "$scratch/out" | tail -n 1 | tr -dc 0-9)
    ;;
esac
counted=$(sed -n 's/.*Collected : //p' "$scratch/count")
if [[ -z $counted || -z $passed ]]; then
    cat "$scratch/out" "$scratch/count" >&2
    exit 1
fi
echo "$counted $passed"
