//! packtrain: a user-space network interface framework for Linux.

pub mod capture;
