//! Where a machine goes: the node it runs on, the number it gets and the template it is cloned from.
//!
//! Pure: every fact is an argument. Nothing here asks Proxmox, waits or remembers, and nothing is
//! guessed: a node, an amount of memory or a template that is not known is left out with a reason.

mod node;
mod template;
mod vmid;

pub use node::{NoNode, NodeFacts, NodeState, Refusal, Request, Why, choose_node};
pub use template::{
    Candidate, NoTemplate, TemplateRef, choose_template, normalised_tags, split_tags,
    verify_template,
};
pub use vmid::{NoVmId, VmIdRequest, choose_vmid};
