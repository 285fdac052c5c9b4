//! Placeholder; see the brief.

pub mod rbac;
