//! System calls of the ports, and most of the unsafe code of the framework.

pub(crate) mod event;
