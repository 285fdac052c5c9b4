//! (see Cargo.toml)
