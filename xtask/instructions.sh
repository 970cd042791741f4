#!/usr/bin/env bash
# Counts the instructions of a forwarder between two devices with callgrind, in user space. Prints them
# and the 64-byte packets that the forwarder transmitted:
#
#   instructions.sh tap PACKETS COMMAND...     between two TAPs that the forwarder makes: {a} and {b} in
#                                              COMMAND. Needs root
#   instructions.sh veth SECONDS COMMAND...    between the near ends of two veth pairs, {a} and {b}.
#                                              Needs root. Behind {a}, testpmd sends without end
#   instructions.sh vhost SECONDS COMMAND...   between two sockets on which it listens, {a} and {b}. Its
#                                              guests are two devices of testpmd that send without end
#
# `tap`: host A sends 64 packets to host B while the forwarder is stopped, so that it reads them
# together. Otherwise the forwarder ends after {n} seconds, or with its standard input three seconds later.
# `vhost`: it prints JSON of packtrain or the counters of testpmd.
set -euo pipefail
way=$1 amount=$2
shift 2
scratch=$(mktemp -d)
spaces=() started=()

end() {
    local status=$?
    set +e
    for process in "${started[@]}"; do
        kill -CONT "$process"
        kill "$process"
        wait "$process"
    done 2>/dev/null
    for space in "${spaces[@]}"; do ip netns del "$space"; done
    if [[ $status != 0 ]]; then
        cat "$scratch"/*.log >&2
    fi
    rm -rf "$scratch"
}
trap end EXIT

# Repeats a command until it succeeds, for about 20 s, and waits another second.
until_succeeds() {
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then
            sleep 1
            return
        fi
        sleep 0.1
    done
    return 1
}

# Makes the namespaces of the forwarder and of two hosts, without IPv6, which sends by itself.
make_namespaces() {
    local space setting
    for space in forwarder a b; do
        ip netns add "count$$-$space"
        spaces+=("count$$-$space")
        for setting in all default; do
            ip netns exec "count$$-$space" sysctl -qw "net.ipv6.conf.$setting.disable_ipv6=1"
        done
    done
}

# Starts testpmd by a command that may be empty: testpmd COMMAND MODE DEVICE... It would end with its
# input. It forwards on the first CPU, and its peer on the second one.
testpmd() {
    local by=$1 mode=$2
    shift 2
    mkfifo "$scratch/input"
    # shellcheck disable=SC2086 # words
    $by dpdk-testpmd -l 0,1 --main-lcore 1 --no-pci --no-huge --no-telemetry \
        -m 256 --file-prefix="count$$" "$@" -- --nb-cores=1 --total-num-mbufs=8192 --no-mlockall \
        "--forward-mode=$mode" --burst=64 --auto-start \
        <>"$scratch/input" >"$scratch/testpmd.log" 2>&1 &
    started+=("$!")
}

count=(valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file=/dev/null
    --log-file="$scratch/count.log")
case $way in
tap)
    make_namespaces
    words=("${@//\{a\}/count-a}")
    ip netns exec "count$$-forwarder" "${count[@]}" "${words[@]//\{b\}/count-b}" \
        >"$scratch/out.log" 2>&1 &
    forwarder=$!
    started+=("$forwarder")
    until_succeeds ip -n "count$$-forwarder" link show count-b
    address=198.18.4.1
    for host in a b; do
        space=count$$-$host link=count-$host
        ip -n "count$$-forwarder" link set "$link" netns "$space"
        ip -n "$space" addr add "$address/24" dev "$link"
        ip -n "$space" link set "$link" up
        address=198.18.4.2
    done
    sleep 1
    # shellcheck disable=SC2016 # expanded by the inner shell
    ip netns exec "count$$-a" bash -c 'exec 3>/dev/udp/198.18.4.2/9
        for ((sent = 0; sent < $0; sent += 64)); do
            kill -STOP "$1"
            for _ in {1..64}; do printf "%022d" 0 >&3 2>/dev/null || true; done
            kill -CONT "$1"
            sleep 0.01
        done' "$amount" "$forwarder"
    sleep 1
    passed=$(ip netns exec "count$$-b" cat /sys/class/net/count-b/statistics/rx_packets)
    kill "$forwarder"
    wait "$forwarder" || true
    ;;
veth)
    make_namespaces
    for host in a b; do
        ip -n "count$$-forwarder" link add "near-$host" type veth \
            peer name "far-$host" netns "count$$-$host"
        ip -n "count$$-forwarder" link set "near-$host" up
        ip -n "count$$-$host" link set "far-$host" up
    done
    words=("${@//\{n\}/$amount}")
    words=("${words[@]//\{a\}/near-a}")
    sleep $((amount + 3)) 2>/dev/null | ip netns exec "count$$-forwarder" \
        "${count[@]}" "${words[@]//\{b\}/near-b}" >"$scratch/out.log" 2>&1 &
    forwarder=$!
    started+=("$forwarder")
    testpmd "ip netns exec count$$-a" txonly --vdev=net_af_packet0,iface=far-a
    wait "$forwarder"
    kill -0 "${started[1]}"
    passed=$(ip netns exec "count$$-b" cat /sys/class/net/far-b/statistics/rx_packets)
    ;;
vhost)
    words=("${@//\{n\}/$amount}")
    words=("${words[@]//\{a\}/$scratch/a}")
    sleep $((amount + 3)) 2>/dev/null |
        "${count[@]}" "${words[@]//\{b\}/$scratch/b}" >"$scratch/out.log" 2>&1 &
    forwarder=$!
    started+=("$forwarder")
    until_succeeds test -S "$scratch/b"
    guest() { echo "--vdev=net_virtio_user$1,path=$scratch/$2,queue_size=256,mrg_rxbuf=1"; }
    testpmd "" flowgen "$(guest 0 a)" "$(guest 1 b)"
    wait "$forwarder" || true
    passed=$(grep -oE '(TX-packets: |"transmitted": ?)[0-9]+' "$scratch/out.log" | tail -n 1 |
        tr -dc 0-9) || true
    ;;
esac
counted=$(sed -n 's/.*Collected : //p' "$scratch/count.log")
[[ -n $counted && -n $passed ]] && ((passed > 0))
echo "$counted $passed"
