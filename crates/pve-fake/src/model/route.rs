//! From a call to its endpoint: path, then caller, then rights, then the node, then parameters —
//! in Proxmox's order.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use super::access::Caller;
use super::request::{Params, Refusal, Reply, Request, Response, Upload};
use super::schema::{self, Kind, Schema};
use super::state::NodeState;
use super::{Model, TaskFate, endpoints};
use crate::clock::Millis;
use crate::config::Release;

/// Who may call.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// Anyone.
    World,
    /// Anyone who is known; the endpoint looks closer itself.
    Login,
    /// All of these on the path.
    All(&'static str, &'static [&'static str]),
    /// One of these on the path.
    Any(&'static str, &'static [&'static str]),
    /// The agent: `VM.Monitor` before 9.
    Agent(&'static [&'static str]),
    /// The endpoint's own rule, before validation all the same.
    Own(fn(&Model, &Call) -> Result<(), Refusal>),
}

pub(crate) type Handler = fn(&mut Model, &Call) -> Result<Reply, Refusal>;

/// One endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub method: &'static str,
    pub pattern: &'static str,
    pub need: Need,
    pub schema: Schema,
    pub run: Handler,
}

/// One call on its way to its endpoint.
pub(crate) struct Call {
    pub caller: Caller,
    pub path: BTreeMap<&'static str, String>,
    pub params: Params,
    pub upload: Option<Upload>,
    pub ticket_dice: u64,
}

impl Call {
    fn part(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    pub(crate) fn node(&self) -> &str {
        self.part("node")
    }

    pub(crate) fn storage(&self) -> &str {
        self.part("storage")
    }

    /// Zero if the path has none that is a number.
    pub(crate) fn vmid(&self) -> u32 {
        self.part("vmid").parse().unwrap_or(0)
    }

    pub(crate) fn named(&self, name: &str) -> &str {
        self.part(name)
    }

    /// A rule's path with the call's own names in it.
    fn fill(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for (name, value) in &self.path {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        for name in ["poolid", "newid"] {
            let value = self.params.text(name).unwrap_or_default();
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }
}

fn capture(pattern: &'static str, path: &str) -> Option<BTreeMap<&'static str, String>> {
    let mut captured = BTreeMap::new();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    for wanted in pattern.split('/').filter(|part| !part.is_empty()) {
        let name = wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        match name {
            // A volume's id takes the rest of the path.
            Some("volume") => {
                parts.peek()?;
                captured.insert("volume", parts.by_ref().collect::<Vec<_>>().join("/"));
            }
            Some(name) => {
                captured.insert(name, parts.next()?.to_owned());
            }
            None if parts.next() == Some(wanted) => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(captured)
}

/// Formats of what paths consist of.
const PARTS: &[(&str, Kind)] = &[
    ("node", Kind::Node),
    ("vmid", Kind::Vmid),
    ("storage", Kind::StorageId),
    ("snapname", Kind::ConfigId),
    ("poolid", Kind::PoolId),
];

fn numbers_to_text(value: &mut Value) {
    match value {
        Value::Number(number) => *value = Value::String(number.to_string()),
        Value::Array(items) => items.iter_mut().for_each(numbers_to_text),
        Value::Object(map) => map.values_mut().for_each(numbers_to_text),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn check_parts(call: &Call) -> Result<(), Refusal> {
    for (name, kind) in PARTS {
        if let Some(value) = call.path.get(name) {
            schema::check_text(*kind, value).map_err(|text| Refusal::param(name, text))?;
            if call.params.text(name).is_some_and(|other| other != value) {
                return Err(Refusal::param(
                    name,
                    "duplicate parameter (already defined in URI) with conflicting values!",
                ));
            }
        }
    }
    Ok(())
}

impl Model {
    /// Answers a call at `now`.
    pub fn handle(&mut self, request: &Request, now: Millis) -> Response {
        self.handle_fated(request, now, None)
    }

    /// Answers a call; the task it starts, if any, ends as `fate` says.
    pub fn handle_fated(
        &mut self,
        request: &Request,
        now: Millis,
        fate: Option<TaskFate>,
    ) -> Response {
        self.advance(now);
        self.fate = fate;
        let response = self.dispatch(request);
        self.fate = None;
        response
    }

    fn dispatch(&mut self, request: &Request) -> Response {
        let release = self.release;
        let method = request.method.as_str();
        if ![Method::GET, Method::POST, Method::PUT, Method::DELETE].contains(&request.method) {
            let refusal = Refusal::new(501, format!("method '{method}' not available"));
            return refusal.into_response("", release);
        }
        let found = endpoints::ROUTES.iter().copied().flatten().find_map(|route| {
            let same = route.method == method;
            same.then(|| capture(route.pattern, &request.path)).flatten().map(|path| (route, path))
        });
        let Some((route, path)) = found else {
            let text = format!("Method '{method} {}' not implemented", request.path);
            return Refusal::new(501, text).into_response("", release);
        };
        match self.answer(route, path, request) {
            Ok(mut reply) => {
                if self.text_numbers {
                    numbers_to_text(&mut reply.data);
                }
                reply.into_response(route.pattern)
            }
            Err(refusal) => refusal.into_response(route.pattern, release),
        }
    }

    fn answer(
        &mut self,
        route: &Route,
        path: BTreeMap<&'static str, String>,
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let writes = request.method != Method::GET && request.upload.is_none();
        let caller = match route.need {
            Need::World => Caller::default(),
            _ => self
                .access
                .authenticate(
                    &request.credentials,
                    writes,
                    self.now,
                    self.timings.ticket,
                    self.release,
                )
                .map_err(|refusal| refusal.after(self.timings.unauthorized))?,
        };
        let call = Call {
            caller,
            path,
            params: request.params.clone(),
            upload: request.upload.clone(),
            ticket_dice: self.roll(),
        };
        if call.path.contains_key("vmid") {
            self.check_vmid_of_path(&call, request);
        }
        self.permit(route.need, &call)?;
        self.reach(&call, route.pattern)?;
        check_parts(&call)?;
        schema::validate(route.schema, &call.params).map_err(Refusal::params)?;
        (route.run)(self, &call)
    }

    /// The node's own answer, or what the one that is talked to says in its stead.
    fn reach(&self, call: &Call, pattern: &str) -> Result<(), Refusal> {
        let name = call.node();
        if name.is_empty() {
            return Ok(());
        }
        let Some(node) = self.nodes.get(name) else {
            return Err(Refusal::die(format!(
                "hostname lookup '{name}' failed - failed to get address info for: {name}: \
                 Name or service not known"
            )));
        };
        // Uploads go to the node that is talked to, which copies on by itself.
        if pattern.ends_with("/upload") && node.state == NodeState::Online {
            return Ok(());
        }
        match node.state {
            NodeState::Online => Ok(()),
            NodeState::Offline => Err(Refusal::new(595, "No route to host")),
            NodeState::Silent => {
                Err(Refusal::new(596, "Connection timed out").after(self.timings.proxy))
            }
        }
    }

    fn permit(&self, need: Need, call: &Call) -> Result<(), Refusal> {
        match need {
            Need::World | Need::Login => Ok(()),
            Need::All(path, privileges) => {
                let path = call.fill(path);
                privileges.iter().try_for_each(|name| self.require(&call.caller, &path, &[name]))
            }
            Need::Any(path, privileges) => self.require(&call.caller, &call.fill(path), privileges),
            Need::Agent(privileges) => {
                let path = call.fill("/vms/{vmid}");
                if self.release < Release::V9 {
                    self.require(&call.caller, &path, &["VM.Monitor"])
                } else {
                    self.require(&call.caller, &path, privileges)
                }
            }
            Need::Own(rule) => rule(self, call),
        }
    }

    /// One of the privileges on the path, or the refusal that names them.
    pub(crate) fn require(
        &self,
        caller: &Caller,
        path: &str,
        privileges: &[&str],
    ) -> Result<(), Refusal> {
        if privileges.iter().any(|name| self.allows(caller, path, name)) {
            Ok(())
        } else {
            Err(Refusal::forbidden(&format!("{path}, {}", privileges.join("|"))))
        }
    }

    /// Rights on a VM come from its path or from a pool it is in.
    pub(crate) fn allows(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        if self.access.allows(caller, path, privilege) {
            return true;
        }
        let Some(vmid) = path.strip_prefix("/vms/").and_then(|id| id.parse::<u32>().ok()) else {
            return false;
        };
        let pools = self.pools.iter().filter(|(_, pool)| pool.vms.contains(&vmid));
        pools
            .into_iter()
            .any(|(name, _)| self.access.allows(caller, &format!("/pool/{name}"), privilege))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_takes_the_rest_of_the_path() {
        let pattern = "/nodes/{node}/storage/{storage}/content/{volume}";
        let parts = capture(pattern, "/nodes/a/storage/s/content/local:iso/x.iso");
        assert_eq!(
            parts.and_then(|parts| parts.get("volume").cloned()).as_deref(),
            Some("local:iso/x.iso")
        );
        assert_eq!(capture(pattern, "/nodes/a/storage/s/content"), None);
        assert_eq!(capture("/version", "/version/x"), None);
    }
}
