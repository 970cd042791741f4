//! Tests of the virtio-net header.
