//! C libraries that are compiled when the bench, or a test, starts.
//!
//! So users of the library need no C compiler and no DPDK, and a bench or a test without them
//! leaves out what needs them.
#![allow(unsafe_code, reason = "C libraries are loaded")]

use libloading::Library;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles `source` for this CPU into `directory`, and loads it.
pub fn load(source: &Path, directory: &Path, flags: &[String]) -> Result<Library, String> {
    let file = directory.join(source.with_extension("so").file_name().unwrap_or_default());
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .arg(source)
        .args(flags)
        // After the flags: those of DPDK ask for a CPU of 2008.
        .args(["-O3", "-march=native", "-shared", "-fPIC", "-o"])
        .arg(&file)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("{compiler} does not start: {error}"))?;
    if !status.success() {
        return Err(format!("{compiler} cannot compile {}", source.display()));
    }
    // SAFETY: the initialisers are those of the C library and of DPDK, which set up their own
    // state only.
    let library = unsafe { Library::new(&file) };
    library.map_err(|error| format!("{}: {error}", file.display()))
}

/// What pkg-config says about `package`.
pub fn flags(package: &str) -> Result<Vec<String>, String> {
    let output = Command::new("pkg-config")
        .args(["--cflags", "--libs", package])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("pkg-config does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("pkg-config does not know {package}"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Declares the functions of a shim, and loads them all at once.
macro_rules! shim {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($function:ident: $symbol:literal, fn($($kind:ty),*) $(-> $result:ty)?;)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name {
            // SAFETY: to call one, see to what the shim says about its arguments.
            $($function: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
            /// Keeps the functions in memory.
            _library: Library,
        }

        impl $name {
            fn bind(library: Library) -> Result<Self, String> {
                $(
                    // SAFETY: the shim, compiled a moment ago, defines it with this type.
                    let $function = unsafe { library.get($symbol) };
                    let $function = *$function.map_err(|error| error.to_string())?;
                )*
                Ok(Self {
                    $($function,)*
                    _library: library,
                })
            }
        }
    };
}

pub(crate) use shim;
