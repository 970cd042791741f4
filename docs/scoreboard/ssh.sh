#!/bin/bash
# OpenSSH: `ssh -w` to a server on the loopback interface, over TCP. TUN, without offload.
# LAYER=tap for Ethernet. The script needs root outside a user namespace: sshd changes to the user
# sshd. ssh chooses the names of its devices, and the script renames them.
. "$(dirname "$0")/private.sh"
[ "$LAYER" = tap ] && kind=ethernet prefix=tap || kind=point-to-point prefix=tun
mkdir -p sshd
chmod 755 . sshd
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$key"; done
cat > conf <<CONF
Port 2222
ListenAddress 127.0.0.1
HostKey /run/host
AuthorizedKeysFile /run/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PermitTunnel yes
CONF
/usr/sbin/sshd -D -e -f conf &
until ssh-keyscan -t ed25519 -p 2222 127.0.0.1 2>/dev/null | grep -q .; do sleep 0.1; done
ssh -N -F none -p 2222 -i user -o Tunnel=$kind -w 1:2 -o StrictHostKeyChecking=no \
    -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ExitOnForwardFailure=yes root@127.0.0.1 &
for pair in "${prefix}1 $1" "${prefix}2 $2"; do
    read -r old new <<< "$pair"
    until [ -e "/sys/class/net/$old" ] || ip link show "$old" > /dev/null 2>&1; do sleep 0.1; done
    ip link set "$old" down
    ip link set "$old" name "$new"
done
wait -n
