//! Drivers around drivers: what a wrapper does not define is passed on to the wrapped driver.

use super::*;

/// A driver around another one. It is a [`Driver`] of which each method calls the wrapped driver's,
/// unless it is defined here. [`WrapRx`] and [`WrapTx`] are the same for the halves of a queue.
///
/// ```
/// use packtrain::driver::{Capabilities, Driver, Features, QueuePair, WrapDriver};
/// use packtrain::packet::Arena;
///
/// /// A device without its checksum and segmentation offloads. Around one whose offloads change
/// /// while it runs, its halves would leave them out of [`TxDescriptors::changed`], too.
/// struct Plain<D>(D);
///
/// impl<D: Driver> WrapDriver for Plain<D> {
///     type Inner = D;
///     type Rx = D::Rx;
///     type Tx = D::Tx;
///
///     fn inner(&self) -> &D {
///         &self.0
///     }
///
///     fn inner_mut(&mut self) -> &mut D {
///         &mut self.0
///     }
///
///     fn wrap(&mut self, _: usize, queue: QueuePair<D>, _: &Arena) -> QueuePair<D> {
///         queue
///     }
///
///     fn capabilities(&self) -> Capabilities {
///         Capabilities {
///             tx: Features::NONE,
///             ..self.0.capabilities()
///         }
///     }
/// }
///
/// let plain = Plain(packtrain::port::open("sim:").expect("in memory").driver);
/// assert_eq!(Driver::name(&plain), "sim0");
/// assert!(Driver::capabilities(&plain).tx.is_empty());
/// ```
#[allow(
    missing_docs,
    reason = "each method without a text is the driver's of its name"
)]
pub trait WrapDriver: Send {
    /// The wrapped driver.
    type Inner: Driver;
    /// The receiving half of a queue.
    type Rx: RxDescriptors;
    /// The transmitting half of a queue.
    type Tx: TxDescriptors;

    /// The wrapped driver.
    fn inner(&self) -> &Self::Inner;

    /// The wrapped driver.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// Wraps the halves of queue number `queue`, which the wrapped driver has opened.
    fn wrap(
        &mut self,
        queue: usize,
        halves: QueuePair<Self::Inner>,
        arena: &Arena,
    ) -> (Self::Rx, Self::Tx);

    /// Adds to the wrapper's own seed, before its queues are wrapped
    /// ([`Attach::seed`](super::Attach::seed)).
    fn add_seed(&mut self, _seed: u64) {}

    pass_on_driver! { inner }
}

impl<W: WrapDriver> Driver for W {
    type Rx = W::Rx;
    type Tx = W::Tx;

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let queues = self.inner_mut().attach(how, arena)?.into_iter().enumerate();
        self.add_seed(how.seed);
        Ok(queues
            .map(|(queue, halves)| self.wrap(queue, halves, arena))
            .collect())
    }

    pass_on_driver! { as WrapDriver }
}

/// The receiving half of a queue around another one, as [`WrapDriver`].
#[allow(
    missing_docs,
    reason = "each method without a text is the half's of its name"
)]
pub trait WrapRx: Send {
    /// The wrapped half.
    type Inner: RxDescriptors;

    /// The wrapped half.
    fn inner(&self) -> &Self::Inner;

    /// The wrapped half.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    pass_on_rx! { inner }
}

impl<W: WrapRx> RxDescriptors for W {
    pass_on_rx! { as WrapRx }
}

/// The transmitting half of a queue around another one, as [`WrapDriver`].
#[allow(
    missing_docs,
    reason = "each method without a text is the half's of its name"
)]
pub trait WrapTx: Send {
    /// The wrapped half.
    type Inner: TxDescriptors;

    /// The wrapped half.
    fn inner(&self) -> &Self::Inner;

    /// The wrapped half.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// Not passed on: each packet goes through the wrapper's `encap`.
    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused>
    where
        Self: Sized,
    {
        batch.each(|packet, token| self.encap(packet, token))
    }

    pass_on_tx! { inner }
}

impl<W: WrapTx> TxDescriptors for W {
    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
        WrapTx::encap_batch(self, batch)
    }

    pass_on_tx! { as WrapTx }
}

/// `Inner`, `inner` and `inner_mut` of a wrapper, from the type and the place of what it wraps:
/// `wraps! { D, self => self.inner }`.
macro_rules! wraps {
    ($inner:ty, $this:ident => $($place:tt)+) => {
        type Inner = $inner;

        fn inner(&$this) -> &$inner {
            &$($place)+
        }

        fn inner_mut(&mut $this) -> &mut $inner {
            &mut $($place)+
        }
    };
}
pub(crate) use wraps;

/// A boxed driver has boxed queues: for wrapping drivers inside of a closed set of drivers.
impl<D: Driver> WrapDriver for Box<D> {
    type Rx = Box<D::Rx>;
    type Tx = Box<D::Tx>;
    wraps! { D, self => **self }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<D>, _: &Arena) -> (Self::Rx, Self::Tx) {
        (Box::new(rx), Box::new(tx))
    }
}

impl<R: RxDescriptors> WrapRx for Box<R> {
    wraps! { R, self => **self }
}

impl<T: TxDescriptors> WrapTx for Box<T> {
    wraps! { T, self => **self }

    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
        (**self).encap_batch(batch)
    }
}
