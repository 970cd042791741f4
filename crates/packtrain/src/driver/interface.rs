//! The interface of the kernel that a port is.

use crate::name::Name;

/// An interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: Name,
    /// Its number in its network namespace, which it keeps when it is renamed; `None` if it is not
    /// known.
    pub index: Option<u32>,
    /// Device and inode number of its network namespace.
    pub namespace: Option<(u64, u64)>,
}

impl Interface {
    /// Whether both are one interface: by the numbers, else by the names. Where the kernel does not
    /// report the network namespace, those alone decide.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let same = match (self.index, other.index) {
            (Some(index), Some(other)) => index == other,
            _ => self.name == other.name,
        };
        same && self.namespace == other.namespace
    }
}
