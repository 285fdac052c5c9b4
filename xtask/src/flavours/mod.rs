//! The cluster templates and ClusterClasses, put together from `templates/parts`.
//!
//! What a flavour consists of is said in the parts; here are their names and what each is for.

mod schema;

use anyhow::{Context as _, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};

/// The parts, as they were when this program was built.
const PARTS: &[(&str, &str)] = &[
    ("cluster-class.jinja", include_str!("../../../templates/parts/cluster-class.jinja")),
    ("cluster-template.jinja", include_str!("../../../templates/parts/cluster-template.jinja")),
    ("metallb.jinja", include_str!("../../../templates/parts/metallb.jinja")),
    ("nodes.jinja", include_str!("../../../templates/parts/nodes.jinja")),
];

/// The flavours, by clusterctl's name for them; and each one's heading.
const FLAVOURS: &[(&str, &str)] = &[
    ("", "A cluster on one IPv4 network, without a CNI."),
    ("auto-image", "As the default flavour, with the template found by its tags."),
    ("calico", "As the default flavour, with Calico by a ClusterResourceSet."),
    (
        "cilium",
        "As the default flavour, with Cilium by a ClusterResourceSet and with health checks.\n\
         Processors, memory and disk are the template's.",
    ),
    (
        "cilium-load-balancer",
        "A dual-stack cluster with Cilium, health checks, and machines that carry MetalLB, which\n\
         speaks BGP from a VRF of its own.",
    ),
    ("dual-stack", "As the default flavour, with IPv4 and IPv6."),
    ("external-creds", "As the default flavour, with a credentials Secret of the cluster's own."),
    ("flatcar", "As the default flavour, for Flatcar Container Linux (Ignition)."),
    ("multiple-vlans", "As the default flavour, with a second network on every machine."),
    (
        "proxmox-labels",
        "As the default flavour, with the Proxmox node and zone as labels of the worker Nodes.",
    ),
];

/// The ClusterClasses, by their CNI; and each one's heading.
const CLASSES: &[(&str, &str)] = &[
    ("", "A ClusterClass without a CNI. examples/cluster.yaml is a Cluster of this class."),
    (
        "calico",
        "A ClusterClass with Calico by a ClusterResourceSet and with health checks.\n\
         examples/cluster-calico.yaml is a Cluster of this class.",
    ),
    (
        "cilium",
        "A ClusterClass with Cilium by a ClusterResourceSet and with health checks.\n\
         examples/cluster-cilium.yaml is a Cluster of this class.",
    ),
];

/// Every template: the name of its file in `templates`, and its text.
///
/// # Errors
/// If a part is no template.
pub(crate) fn all() -> Result<Vec<(String, String)>> {
    let parts = parts()?;
    let mut files = Vec::new();
    let render = |part: &str, values: minijinja::Value| -> Result<String> {
        let text = parts.get_template(part)?.render(values);
        let text = text.with_context(|| format!("templates/parts/{part}"))?;
        // The statements before the heading leave their line breaks.
        Ok(text.trim_start().to_owned())
    };
    for &(flavour, summary) in FLAVOURS {
        let text = render("cluster-template.jinja", context! { flavour, summary })?;
        files.push((file("cluster-template", flavour), text));
    }
    let machine_spec = &schema::machine_spec()?;
    for &(cni, summary) in CLASSES {
        let text = render("cluster-class.jinja", context! { cni, summary, machine_spec })?;
        files.push((file("cluster-class", cni), text));
    }
    Ok(files)
}

fn file(kind: &str, name: &str) -> String {
    if name.is_empty() { format!("{kind}.yaml") } else { format!("{kind}-{name}.yaml") }
}

fn parts() -> Result<Environment<'static>> {
    let mut parts = Environment::new();
    parts.set_undefined_behavior(UndefinedBehavior::Strict);
    parts.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder()
        .block_delimiters("[%", "%]")
        .variable_delimiters("[[", "]]")
        .comment_delimiters("[#", "#]")
        .line_statement_prefix("%%")
        .line_comment_prefix("%#")
        .keep_trailing_newline(true)
        .build()?;
    parts.set_syntax(syntax);
    for &(name, text) in PARTS {
        parts.add_template(name, text)?;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_parts_language_is_left_and_no_line_ends_in_blanks() -> Result<()> {
        for (name, text) in all()? {
            assert!(text.starts_with("# ") && text.ends_with('\n'), "{name}");
            assert!(!text.ends_with("\n\n"), "{name}");
            for line in text.lines() {
                let is_left = ["[[", "]]", "%%", "%#"].iter().any(|mark| line.contains(mark));
                assert!(!is_left && line.trim_end() == line, "{name}: {line}");
            }
        }
        Ok(())
    }

    #[test]
    fn every_part_is_known_here() -> Result<()> {
        let folder = testbed::root().join("templates/parts");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jinja") {
                found.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        found.sort();
        let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, known);
        Ok(())
    }
}
