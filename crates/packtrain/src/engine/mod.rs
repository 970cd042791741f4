//! Runs ports: assembles workers from the plan, drives them on threads or in the caller's event
//! loop, and keeps the ledger.

mod assemble;
mod control;
mod descriptor;
mod egress;
mod error;
mod fan;
mod flows;
mod handle;
mod handler;
mod intake;
mod lane;
mod ledger;
#[cfg(packtrain_loom)]
mod models;
mod path;
mod priority;
mod producer;
mod session;
mod settings;
mod shared;
mod shell;
mod snapshot;
mod space;
mod stats;
mod sys;
mod thread;
mod tx_part;
mod worker;

#[cfg(all(test, not(packtrain_loom)))]
mod tests;

pub use assemble::arena_config;
pub use control::{Command, CommandError, Control, Queues};
pub use descriptor::WorkerFd;
pub use error::{RunError, StartError};
pub use flows::TxFlows;
pub use handle::{SendError, TrySendError, TxHandle};
pub use handler::{Forward, Handler, RxId};
pub use ledger::Ledger;
pub use session::{Builder, Deliver, Many, One, Ports, Report, Session, Two};
pub use settings::Settings;
pub use shared::Closed;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use shared::HalfSend;
pub use shell::Action;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use snapshot::Work;
pub use snapshot::{PortSnapshot, Snapshot, WorkerSnapshot};
pub use worker::{ThreadUsage, Worker};
