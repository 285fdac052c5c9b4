//! One API server for all tests, and trying objects on it without storing them.

use capmox::api::crd;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testbed::{Options, World};
use tokio::sync::OnceCell;

static WORLD: OnceCell<World> = OnceCell::const_new();

/// The shared API server, started when first asked for.
pub(crate) async fn world() -> &'static World {
    WORLD.get_or_init(start).await
}

/// A namespace of its own on the shared API server.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::set_in(world().await).await
    }

    /// On an API server of its own, for tests that change definitions.
    pub(crate) async fn set_in(world: &World) -> Self {
        let namespace = world.namespace("crds").await.unwrap();
        Self { client: world.client().await.unwrap(), namespace }
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(capmox::api::GROUP, capmox::api::VERSION, kind);
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Stores an object.
    pub(crate) async fn create(&self, kind: &str, name: &str, spec: &Value) -> DynamicObject {
        let object = object(kind, name, spec);
        self.api(kind).create(&PostParams::default(), &object).await.unwrap()
    }

    /// What the API server says to a spec, without storing it.
    pub(crate) async fn attempt(&self, kind: &str, spec: &Value) -> Result<(), String> {
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        match self.api(kind).create(&parameters, &object(kind, "tried", spec)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => panic!("{error}"),
        }
    }

    /// Tries all cases and fails with all that came out otherwise than expected.
    pub(crate) async fn hold(&self, kind: &str, cases: &[Case], wrap: impl Fn(&Value) -> Value) {
        let mut wrong = Vec::new();
        for case in cases {
            let said = self.attempt(kind, &wrap(&case.spec)).await;
            let as_expected = match (&case.refusal, &said) {
                (None, Ok(())) => true,
                (Some(texts), Err(said)) => texts.iter().all(|text| said.contains(text)),
                _ => false,
            };
            if !as_expected {
                wrong.push(format!("{}: wanted {:?}, was {said:?}", case.what, case.refusal));
            }
        }
        assert!(wrong.is_empty(), "{kind}:\n{}", wrong.join("\n"));
    }
}

async fn start() -> World {
    let world = World::start(Options { crds: false, ..Options::default() }).await.unwrap();
    let texts = crd::all().unwrap();
    let definitions = texts.iter().flat_map(|(_, text)| testbed::apply::documents(text).unwrap());
    let client = world.client().await.unwrap();
    testbed::crds::install(&client, definitions.collect()).await.unwrap();
    world
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": format!("{}/{}", capmox::api::GROUP, capmox::api::VERSION),
        "kind": kind,
        "metadata": { "name": name },
    });
    if !spec.is_null() {
        object["spec"] = spec.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// A spec, and what is said to it.
pub(crate) struct Case {
    pub(crate) what: &'static str,
    pub(crate) spec: Value,
    /// Texts that the refusal has; none when it is accepted.
    pub(crate) refusal: Option<&'static [&'static str]>,
}

/// A change to `base` that is accepted.
pub(crate) fn accepted(what: &'static str, base: &Value, change: &Value) -> Case {
    Case { what, spec: merged(base, change), refusal: None }
}

/// A change to `base` that is refused with `texts`.
pub(crate) fn refused(
    what: &'static str,
    base: &Value,
    change: &Value,
    texts: &'static [&'static str],
) -> Case {
    Case { what, spec: merged(base, change), refusal: Some(texts) }
}

/// `base` with `change` merged in; `null` takes a field away.
pub(crate) fn merged(base: &Value, change: &Value) -> Value {
    let (Some(old), Some(new)) = (base.as_object(), change.as_object()) else {
        return change.clone();
    };
    let mut all = old.clone();
    for (key, value) in new {
        if value.is_null() {
            all.remove(key);
        } else {
            let before = all.get(key).cloned().unwrap_or_default();
            all.insert(key.clone(), merged(&before, value));
        }
    }
    Value::Object(all)
}
