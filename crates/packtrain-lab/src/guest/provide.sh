#!/bin/sh
# Puts what a guest boots into a folder: Debian's kernel (`vmlinuz`), some of its modules and a
# static BusyBox. Downloads about 70 MB with apt-get and installs nothing: provide.sh FOLDER
set -eu
folder=$1
for program in apt-get apt-cache dpkg-deb; do
    if ! command -v "$program" >/dev/null; then
        echo "no $program here: fill $folder by hand, with vmlinuz and *.ko of Debian and busybox" >&2
        exit 1
    fi
done
kernel=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
if [ -z "$kernel" ]; then
    echo "apt knows no package linux-image-amd64: run apt-get update" >&2
    exit 1
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/packtrain-guest.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
# As this user: one of its own could not write here, and no other user may, since root reads it.
apt-get -o APT::Sandbox::User=root download -qq "$kernel" busybox-static
for package in *.deb; do
    dpkg-deb -x "$package" root
done
# Modules of another kernel need others of theirs.
rm -f "$folder"/vmlinuz "$folder"/*.ko "$folder"/*.ko.xz
# The cards and VFIO, the serial port of the agent, and what tests of networks need. Newer kernels
# have fewer of them, or compress them.
for module in \
    virtio virtio_ring virtio_pci virtio_pci_legacy_dev virtio_pci_modern_dev virtio_console \
    virtio_net failover net_failover e1000e vmxnet3 \
    irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci iommufd \
    tun veth 8021q garp mrp stp llc bridge pktgen sch_ingress cls_matchall act_mirred; do
    find root -type f \( -name "$module.ko" -o -name "$module.ko.xz" \) -exec cp {} "$folder/" \;
done
for module in "$folder"/*.ko.xz; do
    if [ -e "$module" ]; then
        xz --decompress --force "$module"
    fi
done
find root -path "*/bin/busybox" -exec cp {} "$folder/" \;
# Last: it says that all is there.
cp root/boot/vmlinuz-* "$folder/vmlinuz"
