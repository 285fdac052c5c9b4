//! meta-data: who the guest is, and the variables that user-data may name.
//!
//! Knows cloud-init's instance data, not where it came from.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, context};
use serde_yaml::Value;

use crate::fault::{Fault, Stage};

/// The parsed meta-data.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaData {
    values: BTreeMap<String, Value>,
}

impl MetaData {
    /// Parses the file.
    ///
    /// # Errors
    /// [`Fault`] when it is no YAML mapping.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let values = serde_yaml::from_str(text)
            .map_err(|error| Fault::new(Stage::MetaData, format!("is no YAML mapping: {error}")))?;
        Ok(Self { values })
    }

    /// Identity of the instance; cloud-init's own default when there is none.
    pub fn instance_id(&self) -> &str {
        self.text("instance-id").unwrap_or("nocloud")
    }

    /// The host name that the guest takes.
    pub fn hostname(&self) -> Option<&str> {
        self.text("local-hostname")
    }

    /// The Kubernetes version that the provider passed on, such as `v1.34.4`.
    pub fn kubernetes_version(&self) -> Option<&str> {
        self.text("kubernetes-version")
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Renders a jinja template as cloud-init does, except that a variable which does not exist is
    /// a fault: cloud-init would put a placeholder in its place and carry on with a broken node.
    ///
    /// # Errors
    /// [`Fault`] when the template is broken or names what is not there.
    pub fn render(&self, template: &str) -> Result<String, Fault> {
        let mut meta_data = self.values.clone();
        // A key with hyphens also goes by underscores, since jinja cannot spell it otherwise.
        for (key, value) in &self.values {
            meta_data.insert(key.replace('-', "_"), value.clone());
        }
        let v1 = BTreeMap::from([
            ("instance_id", self.instance_id()),
            ("local_hostname", self.hostname().unwrap_or_default()),
            ("cloud_name", "nocloud"),
            ("platform", "nocloud"),
        ]);
        let fault = |error: minijinja::Error| Fault::new(Stage::UserData, format!("{error:#}"));
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let syntax = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build();
        environment.set_syntax(syntax.map_err(fault)?);
        let v1 = minijinja::Value::from(Serde(v1));
        let ds = context! { meta_data => minijinja::Value::from(Serde(meta_data)) };
        environment.render_str(template, context! { ds, v1 => &v1, ..v1 }).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> MetaData {
        MetaData::parse("instance-id: 9a8b\nlocal-hostname: lab-cp-0\nhostname: lab-cp-0\n")
            .unwrap()
    }

    #[test]
    fn keys_are_known_by_hyphen_and_underscore() {
        let rendered = lab().render("a: {{ ds.meta_data.instance_id }}\nb: {{ ds['meta_data']['local-hostname'] }}\nc: {{ v1.local_hostname }} {{ instance_id }}\n");
        assert_eq!(rendered.unwrap(), "a: 9a8b\nb: lab-cp-0\nc: lab-cp-0 9a8b\n");
    }

    #[test]
    fn what_is_not_there_is_a_fault() {
        let fault = lab().render("{{ ds.meta_data.provider_id }}").unwrap_err();
        assert_eq!(fault.stage, Stage::UserData);
        assert!(fault.text.contains("undefined"), "{fault}");
        assert!(MetaData::parse("- a list").is_err());
    }
}
