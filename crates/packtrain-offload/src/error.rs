//! What every error type of the crate implements.

/// Implements [`core::error::Error`] for a type, and with the feature `std` the conversion into a
/// `std::io::Error` of this kind, so that `?` works in functions that do I/O. The error is kept
/// inside: `io::Error::downcast` gives it back.
macro_rules! error {
    ($name:ident, $kind:ident) => {
        impl core::error::Error for $name {}

        #[cfg(feature = "std")]
        impl From<$name> for std::io::Error {
            fn from(error: $name) -> Self {
                Self::new(std::io::ErrorKind::$kind, error)
            }
        }
    };
}

pub(crate) use error;

#[cfg(all(test, feature = "std"))]
mod tests {
    use crate::tun::TooShort;
    use crate::virtio_net::VnetError;
    use std::io::{self, ErrorKind};
    use std::string::ToString;

    fn read() -> io::Result<()> {
        Err(VnetError::GsoUfo)?
    }

    #[test]
    fn question_mark_makes_an_io_error_that_keeps_the_cause() {
        let error = read().expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(VnetError::GsoUfo.reason()));
        assert_eq!(error.downcast::<VnetError>().ok(), Some(VnetError::GsoUfo));
        let short = TooShort { has: 1, needs: 2 };
        let error = io::Error::from(short);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.downcast::<TooShort>().ok(), Some(short));
    }
}
