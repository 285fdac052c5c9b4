//! Cluster API infrastructure provider for Proxmox VE.
//!
//! Modules, lowest layer first; a module uses only what stands above it in this list:
//!
//! * vocabulary: [`ids`], [`seen`], [`fault`], [`api`]
//! * pure libraries: [`bootstrap`], [`placement`], [`ipam`]
//! * Proxmox: [`pve`] and [`hypervisor`], which know nothing of Kubernetes
//! * [`preflight`], what the provider may have to be allowed
//! * [`connections`], from credentials to endpoints; [`events`], what people read of a controller
//! * controllers, each observe → decide → act → report: [`cluster`], [`machine`],
//!   [`connection`], [`embedded_ipam`]
//! * [`check`], the preflight: whether a Proxmox is as the provider needs it
//! * admission: [`webhook`]
//! * process: [`runtime`], [`cli`]

pub mod api;
pub mod bootstrap;
pub mod changes;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod connection;
pub mod connections;
pub mod embedded_ipam;
pub mod events;
pub mod fault;
pub mod hypervisor;
pub mod ids;
pub mod ipam;
pub mod machine;
pub mod placement;
pub mod preflight;
pub mod pve;
pub mod runtime;
pub mod seen;
pub mod webhook;
