//! Panics of a world, which are failures of that world.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// A panic of this thread is recorded, and not printed.
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `run`, or returns the message of its panic and where it was.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !RECORDS.get() {
                return others(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic");
            let place = info.location().map_or_else(String::new, |place| {
                format!("{}:{}: ", place.file(), place.line())
            });
            // One line; the first panic is the cause of others.
            let line = format!("{place}{}", message.replace('\n', " "));
            MESSAGE.with_borrow_mut(|first| {
                if first.is_empty() {
                    *first = line;
                }
            });
        }));
    });
    MESSAGE.with_borrow_mut(String::clear);
    let before = RECORDS.replace(true);
    // What a panic leaves behind is only taken down.
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    RECORDS.set(before);
    result.map_err(|_| MESSAGE.with_borrow(String::clone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_message() {
        assert_eq!(caught(|| 3), Ok(3));
        let message = caught(|| panic!("of a\ntest")).unwrap_err();
        assert!(message.ends_with(": of a test"), "{message}");
        assert!(message.contains("caught.rs:"), "{message}");
    }
}
