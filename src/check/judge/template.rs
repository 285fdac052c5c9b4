//! Templates: whether they are there, and whether a machine can come of them.

use super::{gib, listed};
use crate::check::facts::{self, Facts, Tie, disks};
use crate::check::report::Finding;
use crate::check::wanted::{Named, Template, Wanted};
use crate::ids::NodeName;
use crate::placement::TemplateRef;
use crate::pve::{OptionString, VmConfig};
use crate::seen::Seen;

const CHECK: &str = "template";

/// The drive that bootstrap data is put into.
const SEED_DRIVE: &str = "ide0";

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    wanted.templates.iter().flat_map(|template| one(template, wanted, facts)).collect()
}

fn one(template: &Template, wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let subject = template.named.to_string();
    let guests = match &facts.guests {
        Seen::Present(guests) => guests.as_slice(),
        Seen::Absent => &[],
        Seen::Unknown(why) => return vec![Finding::unknown(CHECK, subject, why)],
    };
    let found = match facts::find(template, guests) {
        Ok(found) => found,
        Err(why) => return vec![not_found(template, subject, &why, facts)],
    };
    match facts.templates.get(&found.vmid) {
        Some(Seen::Present(config)) => {
            // The configuration says it on every server but one that only lists it.
            let listed = guests.iter().any(|guest| guest.vmid == found.vmid && guest.is_template);
            let is_template = listed || config.is_template();
            let mut troubles = troubles(template, &subject, &found, config, wanted, facts);
            if !is_template {
                let (vmid, node) = (found.vmid, &found.node);
                let text = format!("VM {vmid} on {node} is no template");
                let remedy = format!("on {node}: qm template {vmid}");
                troubles.insert(0, Finding::failed(CHECK, &subject, text).remedy(remedy));
            }
            if troubles.is_empty() {
                let text = description(template, &found, config, facts);
                let good = Finding::good(CHECK, subject, text);
                // No more than advice: that may be what is wanted.
                let tie = facts.tied(template, config);
                let tie = tie.filter(|_| is_spread(&found, wanted, facts));
                vec![match tie {
                    Some(tie) => good.remedy(format!("to have clones elsewhere: {}", tie.remedy)),
                    None => good,
                }]
            } else {
                troubles
            }
        }
        Some(Seen::Absent) => {
            let text = format!("has no configuration on {}", found.node);
            vec![Finding::failed(CHECK, subject, text)]
        }
        Some(Seen::Unknown(why)) => vec![Finding::unknown(CHECK, subject, why)],
        None => vec![Finding::unknown(CHECK, subject, "was not looked at")],
    }
}

/// A guest that is not listed may be one that the credentials do not see, or on a node that is down.
fn not_found(template: &Template, subject: String, why: &str, facts: &Facts) -> Finding {
    let Named::Id { vmid, node } = &template.named else {
        return Finding::failed(CHECK, subject, why);
    };
    let path = format!("/vms/{vmid}");
    let visible = facts.permissions.present().is_none_or(|held| held.holds(&path, "VM.Audit"));
    if !visible {
        let found = format!("cannot be seen without VM.Audit on {path}");
        return Finding::unknown(CHECK, subject, found);
    }
    let node = node.as_ref().and_then(|node| node.parse::<NodeName>().ok());
    match node.filter(|node| !facts.is_online(node)) {
        Some(node) => {
            Finding::unknown(CHECK, subject, format!("node {node} does not answer: {why}"))
        }
        None => Finding::failed(CHECK, subject, why),
    }
}

fn troubles(
    template: &Template,
    subject: &str,
    found: &TemplateRef,
    config: &VmConfig,
    wanted: &Wanted,
    facts: &Facts,
) -> Vec<Finding> {
    let TemplateRef { node, vmid } = found;
    let failed = |text: String| Finding::failed(CHECK, subject, text);
    let mut troubles = Vec::new();
    if template.agent && !has_agent(config) {
        troubles.push(
            failed("its option agent does not switch the guest agent on".to_owned()).remedy(
                format!(
                    "on {node}: qm set {vmid} --agent enabled=1, with qemu-guest-agent in the \
                     image; or spec.checks.skipQemuGuestAgent"
                ),
            ),
        );
    }
    if boot_disk(config).is_none() {
        let has = listed(disks(config).into_iter().map(|(name, _)| name));
        let has = if has.is_empty() { "no disk at all".to_owned() } else { has };
        troubles.push(
            failed(format!("boots from no disk that it has; it has {has}"))
                .remedy(format!("on {node}: qm set {vmid} --boot order=scsi0")),
        );
    }
    if let Some((disk, _)) = &template.boot_volume
        && config.drive(disk).is_none_or(|drive| drive.is_cdrom())
    {
        let has = listed(disks(config).into_iter().map(|(name, _)| name));
        troubles.push(
            failed(format!("has no disk {disk}; it has {has}"))
                .remedy("correct spec.disks.bootVolume.disk"),
        );
    }
    if config.drive(SEED_DRIVE).is_some_and(|drive| !drive.is_cdrom()) {
        troubles.push(
            failed(format!("has a disk at {SEED_DRIVE}, where cloud-init's data is put"))
                .remedy(format!("move the disk of {vmid} to scsi0")),
        );
    }
    if let Some(tie) = facts.tied(template, config) {
        troubles.extend(out_of_reach(subject, found, &tie, wanted));
    }
    troubles
}

/// A template that is tied to its node, while machines are allowed on others only.
fn out_of_reach(subject: &str, found: &TemplateRef, tie: &Tie, wanted: &Wanted) -> Option<Finding> {
    let node = &found.node;
    if wanted.nodes.is_empty() || wanted.nodes.contains(node.as_str()) {
        return None;
    }
    let Tie { why, remedy } = tie;
    let allowed = listed(&wanted.nodes);
    let text = format!("is cloned on {node} only, since {why}; allowed are {allowed}");
    Some(Finding::failed(CHECK, subject, text).remedy(format!("{remedy}, or allow {node}")))
}

/// Whether machines may be meant for other nodes than the template's.
fn is_spread(found: &TemplateRef, wanted: &Wanted, facts: &Facts) -> bool {
    if wanted.nodes.is_empty() {
        facts.nodes.present().is_some_and(|nodes| nodes.len() > 1)
    } else {
        wanted.nodes.iter().any(|node| *node != found.node.as_str())
    }
}

fn has_agent(config: &VmConfig) -> bool {
    let options = OptionString::parse(config.get("agent").unwrap_or_default());
    matches!(options.get("enabled").or_else(|| options.bare()), Some("1" | "on" | "yes" | "true"))
}

/// The disk that the firmware comes to. Without an order, Proxmox takes the first.
fn boot_disk(config: &VmConfig) -> Option<String> {
    let has: Vec<String> = disks(config).into_iter().map(|(name, _)| name).collect();
    let order = config.boot_order();
    if order.devices().is_empty() {
        return has.into_iter().next();
    }
    order.devices().iter().find(|device| has.contains(device)).cloned()
}

fn description(
    template: &Template,
    found: &TemplateRef,
    config: &VmConfig,
    facts: &Facts,
) -> String {
    let name = config.name().map(|name| format!("{name} ")).unwrap_or_default();
    let mut text = format!("{name}({}) on {}", found.vmid, found.node);
    if let Some(disk) = boot_disk(config) {
        let drive = config.drive(&disk);
        let size = drive.as_ref().and_then(crate::pve::Drive::size).map(gib);
        let at = drive.as_ref().and_then(|drive| drive.storage().map(str::to_owned));
        text.extend([", boots from ", &disk]);
        text.extend(size.map(|size| format!(" of {size}")));
        text.extend(at.map(|at| format!(" on {at}")));
    }
    text.push_str(if template.agent { ", agent on" } else { ", agent not asked" });
    if let Some(tie) = facts.tied(template, config) {
        text.extend(["; cloned there only, since ", &tie.why]);
    }
    text
}
