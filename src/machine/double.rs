//! Two machines that record one VM. Plain data.

/// A machine that records the VM of another one: written from a copy of it, or restored from a backup
/// beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Double {
    /// Its namespace.
    pub namespace: String,
    /// Its name, which is that of the VM it asked for.
    pub name: String,
    /// Whether it is being deleted.
    pub is_deleted: bool,
}
