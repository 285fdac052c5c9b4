//! A stateful simulator of the Proxmox VE HTTP API: nodes, storages, VMs, tasks that take time,
//! locks, rights, the guest agent. It answers with Proxmox's own codes and texts, keeps a journal,
//! can be made to fail at any call, and watches rules that no sane client breaks.
//!
//! [`model::Model`] is pure: it is stepped with calls and with time. [`Fake`] puts an HTTP(S)
//! server in front of it. Facts are restated from public documentation; no text of Proxmox's
//! sources is in here. Must not know Kubernetes.

#![warn(missing_docs)]

pub mod clock;
pub mod config;
pub mod fault;
pub mod guest;
pub mod hook;
pub mod journal;
pub mod model;
pub mod peer;
pub mod seed;
mod server;

pub use clock::Millis;
pub use config::{Release, Timings};
pub use fault::{Action, FaultRule, Faults};
pub use guest::{Guest, GuestHandle};
pub use hook::{Hook, HookCall, When};
pub use journal::{Entry, Journal};
pub use model::{
    Boot, BootCdrom, BootNic, Change, CloudInit, Exec, GuestKind, Interface, Model, NodeState,
    Report, Rule, TaskFate, TaskView, Violation, VmView,
};
pub use seed::{NodeSeed, Seed, StorageSeed, VmSeed};
pub use server::{Config, Fake, Token};
