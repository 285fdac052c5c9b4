//! The quirks of Proxmox's values in one place: numbers as texts, texts as numbers, booleans as
//! 0/1/""/"1"/missing, and option strings such as `virtio=MAC,bridge=vmbr0`.
//!
//! Reading is lenient: what is not understood counts as missing, because versions differ and other
//! implementations differ more. Writing is exact: what is not changed stays as it was read.

mod lenient;
mod option_string;
mod tags;

pub(super) use lenient::{
    boolean, boolean_of, flag, number, option_list, signed, text, text_list, text_of, value_list,
};
pub use option_string::{BootOrder, Drive, NetDevice, OptionString, parse_size};
pub use tags::Tags;

#[cfg(test)]
mod tests;
