//! Which template a machine is cloned from: by its tags, or by number and node.

use std::fmt;

use crate::fault::{Class, Fault};
use crate::ids::{NodeName, VmId};

/// Candidates listed in a message.
const IN_MESSAGE: usize = 10;

/// A VM or template as `GET /cluster/resources` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The node that holds it.
    pub node: NodeName,
    /// Its number.
    pub vmid: VmId,
    /// Whether it is marked as a template. The mark is missing for some seconds after a template
    /// appears, and while its node is offline.
    pub is_template: bool,
    /// Its tags, in any order.
    pub tags: Vec<String>,
}

/// The source of a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRef {
    /// The node that holds it; the clone is asked of this node.
    pub node: NodeName,
    /// Its number.
    pub vmid: VmId,
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.vmid, self.node)
    }
}

/// No template can be used now. Something to wait for: a template is made, tagged or removed.
///
/// `Display` is one message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTemplate {
    /// No template has exactly these tags.
    NoneTagged {
        /// The tags looked for, normalised.
        tags: Vec<String>,
        /// Templates that have these tags and others too.
        near: Vec<TemplateRef>,
    },
    /// More than one template has exactly these tags.
    SeveralTagged {
        /// The tags looked for, normalised.
        tags: Vec<String>,
        /// All of them, by VMID.
        found: Vec<TemplateRef>,
    },
    /// The Proxmox cluster has no guest of this number.
    NoSuchId {
        /// `spec.templateID`.
        vmid: VmId,
    },
    /// The guest is on another node than the one named.
    OnOtherNode {
        /// `spec.templateID`.
        vmid: VmId,
        /// `spec.sourceNode`.
        wanted: NodeName,
        /// Where it is.
        actual: NodeName,
    },
}

impl std::error::Error for NoTemplate {}

impl From<NoTemplate> for Fault {
    fn from(value: NoTemplate) -> Self {
        Self::new(Class::Blocked, value.to_string())
    }
}

impl fmt::Display for NoTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneTagged { tags, near } => {
                write!(
                    f,
                    "no VM template has exactly the tags {} of spec.templateSelector.matchTags",
                    tags.join(", ")
                )?;
                if !near.is_empty() {
                    write!(f, " ({} with further tags)", Listed(near))?;
                }
                f.write_str(". Tag one template with these and no other tags, or change matchTags")
            }
            Self::SeveralTagged { tags, found } => write!(
                f,
                "{} VM templates have exactly the tags {} of spec.templateSelector.matchTags: {}. \
                 Leave these tags on one of them, or name it by spec.templateID and spec.sourceNode",
                found.len(),
                tags.join(", "),
                Listed(found)
            ),
            Self::NoSuchId { vmid } => write!(
                f,
                "the Proxmox cluster has no VM {vmid} (spec.templateID), or the API token may not \
                 see it: correct spec.templateID or give the token the privileges VM.Audit and \
                 VM.Clone on /vms/{vmid}"
            ),
            Self::OnOtherNode { vmid, wanted, actual } => write!(
                f,
                "template {vmid} (spec.templateID) is on node {actual}, not on {wanted} \
                 (spec.sourceNode): set spec.sourceNode to {actual} or move the template back"
            ),
        }
    }
}

struct Listed<'a>(&'a [TemplateRef]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, template) in self.0.iter().take(IN_MESSAGE).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{template}")?;
        }
        match self.0.len().checked_sub(IN_MESSAGE) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

/// Tags as they are compared: lower case, sorted, without duplicates and blanks.
pub fn normalised_tags<I>(tags: I) -> Vec<String>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut tags: Vec<String> = tags
        .into_iter()
        .map(|tag| tag.as_ref().trim().to_lowercase())
        .filter(|tag| !tag.is_empty())
        .collect();
    tags.sort();
    tags.dedup();
    tags
}

/// The tags in a `tags` option of Proxmox: it writes `;` and also reads `,` and blanks.
pub fn split_tags(option: &str) -> Vec<String> {
    normalised_tags(option.split([';', ',', ' ', '\t', '\0']))
}

/// The one template whose tags are exactly `tags`, in any order and case. Of several whose tags differ
/// in case, as a datacenter may have them, the one that has lower-case `tags` as they are written.
///
/// # Errors
///
/// [`NoTemplate`] when none or several are found.
pub fn choose_template<I>(tags: I, candidates: &[Candidate]) -> Result<TemplateRef, NoTemplate>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let tags: Vec<I::Item> = tags.into_iter().collect();
    let is_lower = tags.iter().all(|tag| tag.as_ref() == tag.as_ref().to_lowercase());
    let tags = normalised_tags(tags);
    let mut exact = Vec::new();
    let mut as_written = Vec::new();
    let mut near = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.is_template) {
        let has = normalised_tags(&candidate.tags);
        let template = TemplateRef { node: candidate.node.clone(), vmid: candidate.vmid };
        if has.is_empty() {
            // An untagged template matches nothing, not even an empty selector.
        } else if has == tags {
            if is_lower && candidate.tags.iter().all(|tag| *tag == tag.to_lowercase()) {
                as_written.push(template.clone());
            }
            exact.push(template);
        } else if tags.iter().all(|tag| has.contains(tag)) {
            near.push(template);
        }
    }
    exact.sort_by_key(|template| template.vmid);
    near.sort_by_key(|template| template.vmid);
    match (exact.as_slice(), as_written.as_slice()) {
        ([one], _) | (_, [one]) => Ok(one.clone()),
        ([], _) => Err(NoTemplate::NoneTagged { tags, near }),
        _ => Err(NoTemplate::SeveralTagged { tags, found: exact }),
    }
}

/// Checks a source named by number and node against what the cluster shows.
///
/// Whether it is marked as a template is not asked: a VM may be cloned too, and the mark lags.
///
/// # Errors
///
/// [`NoTemplate`] when there is no such guest, or it is on another node.
pub fn verify_template(
    vmid: VmId,
    source_node: &NodeName,
    candidates: &[Candidate],
) -> Result<TemplateRef, NoTemplate> {
    match candidates.iter().find(|candidate| candidate.vmid == vmid) {
        None => Err(NoTemplate::NoSuchId { vmid }),
        Some(found) if found.node != *source_node => Err(NoTemplate::OnOtherNode {
            vmid,
            wanted: source_node.clone(),
            actual: found.node.clone(),
        }),
        Some(found) => Ok(TemplateRef { node: found.node.clone(), vmid }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn candidate(vmid: i64, node: &str, tags: &str) -> Candidate {
        Candidate {
            node: node.parse().unwrap(),
            vmid: VmId::try_from(vmid).unwrap(),
            is_template: true,
            tags: tags.split(';').map(str::to_owned).collect(),
        }
    }

    fn template(vmid: i64, node: &str) -> TemplateRef {
        TemplateRef { node: node.parse().unwrap(), vmid: VmId::try_from(vmid).unwrap() }
    }

    #[test]
    fn tags_match_as_a_set_in_any_order_and_case() {
        let all = [candidate(900, "pve1", "Ubuntu;k8s"), candidate(901, "pve2", "ubuntu")];
        for tags in [vec!["ubuntu", "k8s"], vec!["K8S", "Ubuntu", "ubuntu"]] {
            assert_eq!(choose_template(tags, &all), Ok(template(900, "pve1")));
        }
        assert_eq!(choose_template(["ubuntu"], &all), Ok(template(901, "pve2")));
    }

    #[test]
    fn of_tags_that_differ_in_case_lower_ones_are_meant_as_they_are_written() {
        let all = [candidate(900, "pve1", "Ubuntu;k8s"), candidate(901, "pve2", "k8s;ubuntu")];
        assert_eq!(choose_template(["ubuntu", "k8s"], &all), Ok(template(901, "pve2")));
        // capmox would take 901 for these too, which is not what they say.
        assert!(choose_template(["Ubuntu", "k8s"], &all).is_err());
        let three = [all[0].clone(), all[1].clone(), candidate(902, "pve1", "ubuntu;k8s")];
        assert!(choose_template(["ubuntu", "k8s"], &three).is_err());
    }

    #[test]
    fn only_templates_with_tags_count() {
        let vm = Candidate { is_template: false, ..candidate(1000, "pve1", "k8s") };
        let untagged = candidate(1001, "pve1", "");
        let none = NoTemplate::NoneTagged { tags: vec!["k8s".into()], near: vec![] };
        assert_eq!(choose_template(["k8s"], &[vm, untagged.clone()]), Err(none));
        assert!(choose_template(Vec::<String>::new(), &[untagged]).is_err());
    }

    #[test]
    fn none_names_the_near_ones_and_several_are_listed() {
        let near = choose_template(["k8s"], &[candidate(900, "pve1", "k8s;old")]).unwrap_err();
        assert!(near.to_string().contains("900 on pve1 with further tags"), "{near}");

        let two = [candidate(901, "pve2", "k8s"), candidate(900, "pve1", "k8s")];
        let several = choose_template(["k8s"], &two).unwrap_err();
        assert!(several.to_string().contains("2 VM templates"), "{several}");
        assert!(several.to_string().contains("900 on pve1, 901 on pve2"), "{several}");
        assert_eq!(Fault::from(several).class, Class::Blocked);
    }

    #[test]
    fn an_id_must_exist_on_the_node_that_is_named() {
        let all = [candidate(900, "pve1", "")];
        let (id, pve1) = (VmId::try_from(900).unwrap(), "pve1".parse().unwrap());
        assert_eq!(verify_template(id, &pve1, &all), Ok(template(900, "pve1")));

        let elsewhere = verify_template(id, &"pve2".parse().unwrap(), &all).unwrap_err();
        assert!(elsewhere.to_string().contains("set spec.sourceNode to pve1"), "{elsewhere}");

        let missing = verify_template(VmId::MAX, &pve1, &all).unwrap_err();
        assert!(missing.to_string().contains("spec.templateID"), "{missing}");
    }

    #[test]
    fn tags_of_proxmox_are_split_at_every_separator_it_reads() {
        assert_eq!(split_tags("b;A, c  a"), ["a", "b", "c"]);
        assert!(split_tags("").is_empty());
    }
}
