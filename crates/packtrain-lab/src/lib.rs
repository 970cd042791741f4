//! The packtrain laboratory.
