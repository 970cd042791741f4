# Sourced: gives the two devices keys, and makes each the peer of the other, for all addresses.
for side in 1 2; do
    wg genkey > "key$side"
    wg pubkey < "key$side" > "public$side"
done
until [ -S "wireguard/$1.sock" ] && [ -S "wireguard/$2.sock" ]; do sleep 0.05; done
for side in 1 2; do
    other=$((3 - side))
    wg set "${!side}" private-key "key$side" listen-port $((51820 + side)) \
        peer "$(cat public$other)" allowed-ips 0.0.0.0/0,::/0 \
        endpoint "127.0.0.1:$((51820 + other))" persistent-keepalive 1
done
wait -n
