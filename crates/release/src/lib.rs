//! What a release consists of, made from the working tree: the components that `clusterctl` and
//! `kubectl` install, the package for the Cluster API operator as a ConfigMap and as a Helm chart,
//! the image, and checksums of all of it; and the same package of capmox's own release.
//!
//! Equal input gives equal bytes, on any machine: nothing here asks for the time, the user or the
//! locale, folders are read in order of names, and archives carry none of the file system's data.

#![warn(missing_docs)]

mod archive;
pub mod components;
mod files;
pub mod image;
mod kustomize;
pub mod package;
pub mod sbom;
pub mod vendored;

pub use archive::chart;
pub use files::{Files, SUMS, sha256};
