//! One list of the methods of each trait of the contract: the trait itself. From it also come the
//! implementations that pass every method on, so that a method is added in one place.

/// Defines a trait as it is written, and beside it the macro `$pass_on`, which implements its
/// methods by passing each on:
///
/// - `$pass_on! { inner }` calls it on `self.inner()` or `self.inner_mut()`;
/// - `$pass_on! { as Trait }` calls the method of that name of `Trait`;
/// - `$pass_on! { variants A B }` calls it on the value in the variant of the enum.
macro_rules! contract {
    (
        ($d:tt $pass_on:ident)
        $(#[$doc:meta])*
        pub trait $name:ident: Send { $($item:tt)* }
    ) => {
        $(#[$doc])*
        #[allow(unused_variables, reason = "a default may ignore its parameters")]
        pub trait $name: Send { $($item)* }

        macro_rules! $pass_on {
            ($d($d to:tt)*) => {
                $crate::driver::contract::pass_on! { [$name $d($d to)*] $($item)* }
            };
        }
        pub(crate) use $pass_on;
    };
}
pub(crate) use contract;

/// Implements the methods of a trait's text. Those that need more than a call are left to the
/// implementation: associated types, `attach` (it wraps the queues), and `encap_batch` (a wrapper
/// with an `encap` of its own keeps the loop).
macro_rules! pass_on {
    ($to:tt) => {};
    ($to:tt $(#[$doc:meta])* type $name:ident: $bound:ident; $($rest:tt)*) => {
        $crate::driver::contract::pass_on! { $to $($rest)* }
    };
    ($to:tt $(#[$doc:meta])* fn attach $args:tt -> $out:ty; $($rest:tt)*) => {
        $crate::driver::contract::pass_on! { $to $($rest)* }
    };
    (
        $to:tt $(#[$doc:meta])*
        fn encap_batch $args:tt -> $out:ty where Self: Sized, $body:block $($rest:tt)*
    ) => {
        $crate::driver::contract::pass_on! { $to $($rest)* }
    };
    ($to:tt $(#[$doc:meta])* fn $name:ident $args:tt $(-> $out:ty)?; $($rest:tt)*) => {
        $crate::driver::contract::pass_on! { @$to $name $args [$($out)?] }
        $crate::driver::contract::pass_on! { $to $($rest)* }
    };
    ($to:tt $(#[$doc:meta])* fn $name:ident $args:tt $(-> $out:ty)? $body:block $($rest:tt)*) => {
        $crate::driver::contract::pass_on! { @$to $name $args [$($out)?] }
        $crate::driver::contract::pass_on! { $to $($rest)* }
    };
    (@$to:tt $name:ident (&self $(, $arg:ident: $of:ty)* $(,)?) [$($out:ty)?]) => {
        fn $name(&self $(, $arg: $of)*) $(-> $out)? {
            $crate::driver::contract::call! { $to inner self $name ($($arg),*) }
        }
    };
    (@$to:tt $name:ident (&mut self $(, $arg:ident: $of:ty)* $(,)?) [$($out:ty)?]) => {
        fn $name(&mut self $(, $arg: $of)*) $(-> $out)? {
            $crate::driver::contract::call! { $to inner_mut self $name ($($arg),*) }
        }
    };
}
pub(crate) use pass_on;

/// The call that passes a method on.
macro_rules! call {
    ([$trait:ident inner] $inner:ident $this:ident $name:ident ($($arg:ident),*)) => {
        $trait::$name($this.$inner() $(, $arg)*)
    };
    ([$of:ident as $trait:ident] $inner:ident $this:ident $name:ident ($($arg:ident),*)) => {
        $trait::$name($this $(, $arg)*)
    };
    ([$trait:ident variants $($variant:ident)*] $inner:ident $this:ident $name:ident $args:tt) => {
        match $this {
            $(Self::$variant(held) => {
                $crate::driver::contract::call! { [$trait as $trait] $inner held $name $args }
            })*
        }
    };
}
pub(crate) use call;
