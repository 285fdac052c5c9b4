//! The management cluster in memory: objects by kind and name, merge patches, finalizers, and a log
//! of changes for those who watch.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The only namespace.
pub(super) const NAMESPACE: &str = "lab";

/// Plural and name.
pub(super) type Key = (String, String);

/// A change, as a watch tells it.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Written(String, Value),
    Removed(String, Value),
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<Key, Value>,
    version: u64,
    watcher: Option<mpsc::UnboundedSender<Change>>,
    /// Objects that went away since this was looked at.
    pub(super) gone: Vec<(String, Value)>,
}

/// Status code and body.
pub(super) type Answer = (u16, Value);

fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    (code, status)
}

/// The API server's own word for a status.
pub(super) fn refusal(code: u16) -> Answer {
    match code {
        409 => failure(code, "Conflict", "the object has been modified"),
        429 => failure(code, "TooManyRequests", "too many requests"),
        401 => failure(code, "Unauthorized", "Unauthorized"),
        403 => failure(500, "InternalError", "etcdserver: request timed out"),
        code => failure(code, "InternalError", "etcdserver: leader changed"),
    }
}

impl Store {
    /// The objects as they are, and what changes from now on.
    pub(super) fn watch(&mut self) -> (Vec<(Key, Value)>, mpsc::UnboundedReceiver<Change>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watcher = Some(sender);
        (self.objects.clone().into_iter().collect(), receiver)
    }

    fn tell(&self, change: Change) {
        if let Some(watcher) = &self.watcher {
            // Nobody watches while the process is down.
            let _ = watcher.send(change);
        }
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), name.to_owned()))
    }

    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let kind = kind.to_owned();
        let all = self.objects.iter().filter(move |((of, _), _)| *of == kind);
        all.map(|((_, name), object)| (name.as_str(), object))
    }

    /// Writes an object as it is given, with a new version.
    pub(super) fn put(&mut self, kind: &str, mut object: Value) -> Value {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        object["metadata"]["namespace"] = json!(NAMESPACE);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"].get("uid").is_none() {
            object["metadata"]["uid"] = json!(format!("u-{}-{name}", self.version));
        }
        self.objects.insert((kind.to_owned(), name), object.clone());
        self.tell(Change::Written(kind.to_owned(), object.clone()));
        object
    }

    /// Changes an object, if it is there.
    pub(super) fn edit(&mut self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(kind, name).cloned() {
            change(&mut object);
            self.put(kind, object);
        }
    }

    /// Deletes an object, or marks it while it has finalizers.
    pub(super) fn delete(&mut self, kind: &str, name: &str) {
        let Some(object) = self.get(kind, name) else { return };
        if has_finalizers(object) {
            if object["metadata"].get("deletionTimestamp").is_none() {
                self.edit(kind, name, |object| {
                    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
                });
            }
        } else {
            self.remove(kind, name);
        }
    }

    fn remove(&mut self, kind: &str, name: &str) {
        let Some(object) = self.objects.remove(&(kind.to_owned(), name.to_owned())) else { return };
        self.gone.push((kind.to_owned(), object.clone()));
        self.tell(Change::Removed(kind.to_owned(), object.clone()));
        // The garbage collector's part.
        let uid = object["metadata"]["uid"].clone();
        let owned = self.objects.iter().filter(|(_, other)| {
            let owners = other["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
        });
        for (kind, name) in owned.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.delete(&kind, &name);
        }
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = parts.as_slice() else {
            return failure(404, "NotFound", "no such path");
        };
        let rest = if let ["namespaces", _, rest @ ..] = rest { rest } else { rest };
        match (method, rest) {
            (_, ["events", ..]) => (200, body.clone()),
            ("GET", [kind, name]) => match self.get(kind, name) {
                Some(object) => (200, object.clone()),
                None => failure(404, "NotFound", "not found"),
            },
            ("POST", [kind]) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                if self.get(kind, name).is_some() {
                    return failure(409, "AlreadyExists", "it exists");
                }
                (201, self.put(kind, body.clone()))
            }
            ("PATCH", [kind, name]) => self.patch(kind, name, body, false),
            ("PATCH", [kind, name, "status"]) => self.patch(kind, name, body, true),
            ("DELETE", [kind, name]) => match self.get(kind, name).cloned() {
                Some(object) => {
                    self.delete(kind, name);
                    (200, object)
                }
                None => failure(404, "NotFound", "not found"),
            },
            _ => failure(404, "NotFound", "no such path"),
        }
    }

    fn patch(&mut self, kind: &str, name: &str, patch: &Value, status: bool) -> Answer {
        let Some(old) = self.get(kind, name).cloned() else {
            return failure(404, "NotFound", "not found");
        };
        let wanted = &patch["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != old["metadata"]["resourceVersion"] {
            return refusal(409);
        }
        let mut new = old.clone();
        if status {
            merge(&mut new["status"], &patch["status"]);
        } else {
            merge(&mut new, patch);
            new["status"] = old["status"].clone();
        }
        if new["status"].is_null()
            && let Some(new) = new.as_object_mut()
        {
            new.remove("status");
        }
        if new == old {
            return (200, old);
        }
        let new = self.put(kind, new);
        if new["metadata"].get("deletionTimestamp").is_some() && !has_finalizers(&new) {
            self.remove(kind, name);
        }
        (200, new)
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}
