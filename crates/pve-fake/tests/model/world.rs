//! A cluster and a clock for tests.

use std::time::Duration;

use http::Method;
use pve_fake::model::{Credentials, Request, Response, Upload};
use pve_fake::{GuestKind, Millis, Model, Release, Seed, Timings};
use serde_json::Value;

pub(crate) const TOKEN: &str = "capmox@pve!capi=8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b11";
pub(crate) const ROOT: &str = "root@pam!t=r";

/// Parameters of a call.
pub(crate) type Sent = &'static [(&'static str, &'static str)];

pub(crate) struct World {
    pub model: Model,
    pub now: Millis,
    pub token: String,
}

/// Three nodes as release 9.
pub(crate) fn world() -> World {
    World::of(Seed::three_nodes(), Release::V9)
}

impl World {
    pub(crate) fn of(seed: Seed, release: Release) -> Self {
        let now = Millis(1_800_000_000_000);
        let seed = seed.with_token("root@pam!t", "r", false);
        let model = Model::new(&seed, release, Timings::default(), GuestKind::BuiltIn, now);
        Self { model, now, token: TOKEN.to_owned() }
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.model.advance(self.now);
    }

    fn request(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Request {
        let token = Some(self.token.clone());
        let credentials = Credentials { token, ..Credentials::default() };
        let request = Request::new(method, path, credentials);
        params.iter().fold(request, |request, (key, value)| request.with(key, value))
    }

    pub(crate) fn send(&mut self, method: Method, path: &str, params: &[(&str, &str)]) -> Response {
        let request = self.request(method, path, params);
        self.model.handle(&request, self.now)
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(Method::GET, path, &[])
    }

    pub(crate) fn post(&mut self, path: &str, params: &[(&str, &str)]) -> Response {
        self.send(Method::POST, path, params)
    }

    pub(crate) fn put(&mut self, path: &str, params: &[(&str, &str)]) -> Response {
        self.send(Method::PUT, path, params)
    }

    pub(crate) fn delete(&mut self, path: &str, params: &[(&str, &str)]) -> Response {
        self.send(Method::DELETE, path, params)
    }

    pub(crate) fn upload(&mut self, node: &str, storage: &str, name: &str, data: &str) -> Response {
        let path = format!("/nodes/{node}/storage/{storage}/upload");
        let params = [("content", "iso"), ("filename", name)];
        let mut request = self.request(Method::POST, &path, &params);
        let data = data.to_owned().into();
        request.upload = Some(Upload { file_name: name.to_owned(), data });
        self.model.handle(&request, self.now)
    }

    /// Data of a call that has to go well.
    pub(crate) fn data(&mut self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {:?}", response.reason);
        response.data().clone()
    }

    /// The exit text of the task a call has started, once it has ended.
    pub(crate) fn exit(&mut self, response: &Response) -> String {
        assert_eq!(response.status, 200, "{:?} {}", response.reason, response.body);
        let upid = response.data().as_str().expect("a UPID").to_owned();
        let node = upid.split(':').nth(1).unwrap().to_owned();
        for _ in 0..200 {
            let status = self.data(&format!("/nodes/{node}/tasks/{upid}/status"));
            if status["status"] == "stopped" {
                return status["exitstatus"].as_str().unwrap().to_owned();
            }
            self.pass(1);
        }
        panic!("{upid} does not end");
    }

    /// A linked clone of the template, finished.
    pub(crate) fn cloned(&mut self, newid: &str, name: &str) -> String {
        let path = "/nodes/pve1/qemu/9000/clone";
        let response = self.post(path, &[("newid", newid), ("name", name)]);
        assert_eq!(self.exit(&response), "OK");
        format!("/nodes/pve1/qemu/{newid}")
    }
}

/// Status and text.
pub(crate) fn refusal(response: &Response) -> (u16, &str) {
    (response.status, response.reason.as_deref().unwrap_or_default())
}

/// The text of a bad parameter.
pub(crate) fn error_of<'a>(response: &'a Response, param: &str) -> &'a str {
    response.body["errors"][param].as_str().unwrap_or_default()
}
