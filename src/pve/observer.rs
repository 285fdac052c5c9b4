//! The seam for metrics: who wants to count calls is told of each.

use std::fmt;
use std::time::Duration;

/// One request that was answered or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `POST`, `PUT`, `DELETE`.
    pub method: &'static str,
    /// The path with its variables in braces, such as `nodes/{node}/qemu/{vmid}/config`.
    pub endpoint: &'static str,
    /// HTTP status; none if no answer came.
    pub status: Option<u16>,
    /// From sending to the end of the answer, without queueing.
    pub elapsed: Duration,
    /// 1, or more for a repetition.
    pub attempt: u32,
}

/// Is told of every request. Must return at once.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A request is over.
    fn called(&self, call: &Call);

    /// Who answers in the place of the network; nobody but in simulations.
    #[cfg(test)]
    fn line(&self) -> Option<std::sync::Arc<dyn super::Line>> {
        None
    }
}
