//! The root of a guest: an archive that the kernel unpacks into memory (initramfs).

use std::fmt::Write as _;

/// The type of a directory and of a file, with their permissions.
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// A root of files, written as the kernel reads it: `cpio`, form `newc`
/// (`Documentation/driver-api/early-userspace/buffer-format.rst`). All files are executable and
/// belong to root.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An empty root.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory, whose parent was added before; `path` has no slash in front.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file, whose directory was added before; `path` has no slash in front.
    ///
    /// # Panics
    /// For a file of 4 GiB, which the form cannot hold.
    pub fn file(&mut self, path: &str, bytes: &[u8]) {
        self.entry(path, FILE, bytes);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("a file below 4 GiB");
        let name_length = name.len() as u32 + 1;
        // With equal inode numbers the kernel takes entries for links of one file.
        self.entries += 1;
        let (inode, links) = (self.entries, 1);
        let mut header = "070701".to_owned();
        for field in [
            inode,
            mode,
            0,
            0,
            links,
            0,
            length,
            0,
            0,
            0,
            0,
            name_length,
            0,
        ] {
            write!(header, "{field:08x}").expect("a string");
        }
        self.bytes.extend(header.into_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn an_archive_has_the_bytes_of_the_form() {
        let mut archive = Archive::new();
        archive.directory("bin");
        archive.file("bin/x", b"hello");
        let expected = [
            "070701\
             00000001000041ed00000000000000000000000100000000\
             00000000000000000000000000000000000000000000000400000000\
             bin\0\0\0",
            "070701\
             00000002000081ed00000000000000000000000100000000\
             00000005000000000000000000000000000000000000000600000000\
             bin/x\0hello\0\0\0",
            "070701\
             00000003000000000000000000000000000000010000000000000000\
             000000000000000000000000000000000000000b00000000\
             TRAILER!!!\0\0\0\0",
        ];
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.contains("bin/x\0"), "{text:?}");
        assert_eq!(text, expected.concat());
    }
}
