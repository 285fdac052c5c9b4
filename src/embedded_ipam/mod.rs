//! Placeholder; see the brief.
