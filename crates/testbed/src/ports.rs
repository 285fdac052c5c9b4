//! Free TCP ports of 127.0.0.1 for children that cannot report the port they took.
//!
//! The ports lie below the range from which the kernel takes ports for outgoing connections, so
//! that no connection can take one between the choice and the child's `bind`; and a process never
//! hands out one port twice.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};

const FIRST: u32 = 25_000;
const COUNT: u32 = 7_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that nobody listens on.
///
/// # Errors
/// If none is free.
pub fn free() -> Result<u16> {
    // Processes that run side by side start at different places.
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + start.wrapping_add(step) % COUNT)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 between {FIRST} and {}", FIRST + COUNT)
}

/// An address of the loopback network, other than 127.0.0.1, on which nobody listens at `port`: for
/// servers whose port is not free to choose.
///
/// # Errors
/// If none is free.
pub fn free_address(port: u16) -> Result<Ipv4Addr> {
    let start = std::process::id().wrapping_mul(97);
    let addresses = (0..COUNT).map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let [_, b, c, d] = start.wrapping_add(step).to_be_bytes();
        // Neither the network's own address nor its last one.
        Ipv4Addr::new(127, b | 64, c, d.clamp(1, 254))
    });
    let free = addresses.into_iter().find(|ip| TcpListener::bind((*ip, port)).is_ok());
    free.with_context(|| format!("no loopback address has port {port} free"))
}
