#!/bin/bash
# OpenVPN: a TLS server and its client (peer to peer) over UDP on the loopback interface, in user
# space. TUN, without offload. LAYER=tap for Ethernet.
. "$(dirname "$0")/private.sh"
for side in 1 2; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj "/CN=side$side" -keyout "key$side" -out "cert$side" 2>/dev/null
done
end() { # side, device, role
    local other=$((3 - $1)) print
    print=$(openssl x509 -in "cert$other" -noout -fingerprint -sha256 | cut -d= -f2)
    exec openvpn --dev "$2" --dev-type "${LAYER:-tun}" --proto udp --verb 1 \
        --local 127.0.0.1 --lport $((1194 + $1)) --remote 127.0.0.1 $((1194 + other)) \
        --"$3" --cert "cert$1" --key "key$1" --dh none --auth-nocache --mssfix 0 --tun-mtu 1500 \
        --peer-fingerprint "$print" \
        --ping 1 --ping-restart 60 --up-delay --disable-dco --script-security 0
}
end 1 "$1" tls-server &
end 2 "$2" tls-client &
wait -n
