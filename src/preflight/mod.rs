//! What the provider has to be allowed on a Proxmox VE, before a call fails on it.
//!
//! Pure: [`needs`] says which privileges the work of a [`Scope`] takes on a release, [`missing`]
//! holds them against what `GET access/permissions` answered (see
//! [`Client::permissions`](crate::pve::Client::permissions)):
//!
//! ```
//! use capmox::preflight::{Scope, missing, needs};
//!
//! let held = serde_json::from_str(r#"{"/vms": {"VM.Audit": 1, "VM.Clone": 1}}"#)?;
//! for lack in missing(&held, &needs(9, &Scope::default())) {
//!     println!("{} on {}, needed for {}", lack.privilege, lack.path, lack.needed_for);
//! }
//! # Ok::<(), serde_json::Error>(())
//! ```

mod needs;

pub use needs::{Bridge, Scope, needs};

use crate::pve::Permissions;

/// Where a privilege counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this path.
    On(String),
    /// On all that comes to be below this path.
    Below(String),
    /// On this path or on any below it: which one it is to be is not known.
    Somewhere(String),
}

/// A privilege that the provider needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Any of these places will do. The first is the one to name; there is always one.
    pub places: Vec<Place>,
    /// The privilege to ask for.
    pub privilege: &'static str,
    /// Another that includes it, if there is one.
    pub or: Option<&'static str>,
    /// What fails without it, as the words after "needed to".
    pub needed_for: &'static str,
}

impl Need {
    /// The path to name when it is missing.
    pub fn path(&self) -> &str {
        match self.places.first() {
            Some(Place::On(path) | Place::Below(path) | Place::Somewhere(path)) => path,
            None => "/",
        }
    }

    /// Whether it is held.
    pub fn is_met(&self, held: &Permissions) -> bool {
        let holds = |place: &Place, privilege: &str| match place {
            Place::On(path) => held.holds(path, privilege),
            Place::Below(path) => held.holds_below(path, privilege),
            Place::Somewhere(path) => held.holds_somewhere(path, privilege),
        };
        self.places.iter().any(|place| {
            holds(place, self.privilege) || self.or.is_some_and(|other| holds(place, other))
        })
    }
}

/// A privilege that is needed and not held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack {
    /// Path of Proxmox's access rules, such as `/storage/local`.
    pub path: String,
    /// Such as `VM.Clone`.
    pub privilege: String,
    /// What fails without it, as the words after "needed to".
    pub needed_for: String,
}

impl std::fmt::Display for Lack {
    /// Such as `VM.Clone on /vms (to clone the template)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {} (to {})", self.privilege, self.path, self.needed_for)
    }
}

/// The needs that are not met, in their order.
pub fn missing(held: &Permissions, needs: &[Need]) -> Vec<Lack> {
    let unmet = needs.iter().filter(|need| !need.is_met(held));
    let lack = |need: &Need| Lack {
        path: need.path().to_owned(),
        privilege: need.privilege.to_owned(),
        needed_for: need.needed_for.to_owned(),
    };
    unmet.map(lack).collect()
}

#[cfg(test)]
mod tests;
