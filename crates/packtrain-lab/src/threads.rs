//! Threads of a scope.

use std::panic;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{LabError, START_THREAD};

/// Starts a thread of a scope.
///
/// Threads that already wait for this one have to end if it does not start: the caller makes
/// [`AtEnd`] before the first of them.
///
/// # Errors
/// [`LabError::Os`] at a limit on threads.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    f: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, LabError> {
    let thread = Builder::new().spawn_scoped(scope, f);
    thread.map_err(LabError::from_io(START_THREAD))
}

/// The result of a thread. Its panic becomes one of the caller.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|payload| panic::resume_unwind(payload))
}

/// Calls a function when it is dropped, also by an error or a panic: another thread that waits for
/// the end of this one is notified in any case.
pub(crate) struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn a_panic_of_a_thread_reaches_its_caller_after_the_end() {
        let ended = Cell::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _at_end = AtEnd(|| ended.set(true));
            thread::scope(|scope| join(scope.spawn(|| -> u8 { panic!("on purpose") })))
        }));
        let payload = caught.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
        assert!(ended.get());
    }
}
