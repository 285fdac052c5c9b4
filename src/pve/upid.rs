//! The id of a Proxmox task.

use std::fmt;
use std::str::FromStr;

use crate::ids::{NodeName, VmId};

/// Why a text is not a task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Proxmox task id: expected UPID:node:pid:pstart:starttime:type:id:user:")]
pub struct InvalidUpid(String);

/// `UPID:node:pid:pstart:starttime:type:id:user:`, printed exactly as it was given.
///
/// The node to ask is the one inside; for an upload that is the node of the endpoint, whatever node
/// the request named.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Upid {
    text: String,
    node: NodeName,
}

impl Upid {
    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The node that runs the task.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// What it does: `qmclone`, `qmconfig`, `imgcopy` …; empty if the text has no such part.
    pub fn kind(&self) -> &str {
        self.text.split(':').nth(5).unwrap_or_default()
    }

    /// What it is about: mostly a VMID; empty for an upload.
    pub fn id(&self) -> &str {
        self.text.split(':').nth(6).unwrap_or_default()
    }

    /// The VM it is about; for a clone that is the source.
    pub fn vmid(&self) -> Option<VmId> {
        self.id().parse().ok()
    }

    /// When it started, in seconds since 1970.
    pub fn started(&self) -> Option<u64> {
        self.text.split(':').nth(4).and_then(|hex| u64::from_str_radix(hex, 16).ok())
    }

    /// User or token that started it.
    pub fn user(&self) -> &str {
        self.text.split(':').nth(7).unwrap_or_default()
    }
}

impl FromStr for Upid {
    type Err = InvalidUpid;

    /// Only what is relied on is checked, so that ids of other implementations pass.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidUpid(text.chars().take(200).collect());
        let tame = text.bytes().all(|b| b.is_ascii_graphic() && !b"/?#%\\".contains(&b));
        let rest = text.strip_prefix("UPID:").filter(|_| tame).ok_or_else(invalid)?;
        let node = rest.split(':').next().and_then(|node| node.parse().ok());
        Ok(Self { node: node.ok_or_else(invalid)?, text: text.to_owned() })
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_is_taken_apart_and_printed_as_it_came() {
        let text = "UPID:pve-1:000ACD12:00BC614E:679A423B:qmclone:112:capmox@pve!capi:";
        let upid: Upid = text.parse().unwrap();
        assert_eq!(upid.to_string(), text);
        assert_eq!(upid.node().as_str(), "pve-1");
        assert_eq!((upid.kind(), upid.id(), upid.user()), ("qmclone", "112", "capmox@pve!capi"));
        assert_eq!(upid.vmid(), "112".parse().ok());
        assert_eq!(upid.started(), Some(0x679A_423B));
        let upload: Upid = "UPID:a:1:2:3:imgcopy::root@pam:".parse().unwrap();
        assert_eq!((upload.kind(), upload.id(), upload.vmid()), ("imgcopy", "", None));
        assert_eq!("UPID:a".parse::<Upid>().unwrap().kind(), "");
    }

    #[test]
    fn what_is_no_task_id_is_refused() {
        for bad in ["", "UPID:", "upid:a:1", "UPID:a/b:1:", "UPID:a:../..:", "UPID:a:1\n:", "OK"] {
            assert!(bad.parse::<Upid>().is_err(), "{bad:?}");
        }
    }
}
