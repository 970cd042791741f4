//! The tools, each a load and its measurement: [`Tool`](crate::tool::Tool).

pub mod bad_frames;
pub mod blast;
pub(crate) mod frame;
pub mod ping;
pub mod rfc2544;
pub mod sort;
pub mod stream;

use crate::options::default_options;
use crate::testbed::TestbedOptions;

macro_rules! defaults {
    ($($of:ty),*) => {$(
        impl Default for $of {
            fn default() -> Self {
                default_options()
            }
        }
    )*};
}
defaults! { TestbedOptions, blast::Blast, ping::Ping, rfc2544::Rfc2544, stream::Stream }
