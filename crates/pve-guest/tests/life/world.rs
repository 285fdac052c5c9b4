//! A simulator with VMs, their guests, and the workload-cluster program.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use pve_fake::{Config, Fake, Seed as Inventory, VmSeed};
use pve_guest::{Config as GuestConfig, Guests, Progress, Workload, WorkloadProcess};
use reqwest::multipart::{Form, Part};
use reqwest::{Certificate, Identity, Method, RequestBuilder};
use serde_json::{Value, json};
use testbed::Binaries;

use crate::seeds::{Cluster, Seed, TOKEN, mac};

pub(crate) struct World {
    pub(crate) fake: Fake,
    pub(crate) guests: Guests,
    http: reqwest::Client,
    program: Option<WorkloadProcess>,
}

/// VMs that the simulator has.
pub(crate) const VMS: RangeInclusive<u32> = 101..=112;

impl World {
    /// VMs in a simulator; no clusters.
    pub(crate) async fn alone() -> Self {
        Self::with(GuestConfig::default(), None).await
    }

    /// With the program.
    pub(crate) async fn clustered() -> Self {
        Self::joining_within(Duration::from_mins(1)).await
    }

    /// With the program and guests that give up that early.
    pub(crate) async fn joining_within(join_deadline: Duration) -> Self {
        let path =
            tokio::task::spawn_blocking(|| Binaries::new().path("workload-cluster").unwrap());
        let path = path.await.unwrap();
        let program = WorkloadProcess::start(&path).await.unwrap();
        let workload = Some(program.client());
        let config = GuestConfig {
            workload,
            join_deadline,
            retry: Duration::from_millis(50),
            ..GuestConfig::default()
        };
        Self::with(config, Some(program)).await
    }

    async fn with(config: GuestConfig, program: Option<WorkloadProcess>) -> Self {
        let quick = GuestConfig {
            boot: Duration::from_millis(10),
            kubeadm: Duration::from_millis(20),
            ..config
        };
        let guests = Guests::new(quick);
        let mut inventory = Inventory::three_nodes();
        for vmid in VMS {
            let vm = VmSeed::new(vmid, "pve1", &format!("node-{vmid}"), "shared");
            let net = format!("virtio={},bridge=vmbr0", mac(vmid));
            let smbios = format!("uuid=00000000-0000-4000-8000-000000000{vmid}");
            let vm = vm.with("net0", &net).with("agent", "1").with("smbios1", &smbios);
            inventory = inventory.with_vm(vm);
        }
        let config = Config::default().with_seed(inventory).with_guest(guests.as_guest());
        let fake = Fake::start(config).await.unwrap();
        // Whoever comes second finds the same provider in place.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { fake, guests, http, program }
    }

    pub(crate) fn workload(&self) -> Workload {
        self.program.as_ref().unwrap().client()
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let token = self.fake.token();
        let url = format!("{}/api2/json/nodes/pve1{path}", self.fake.url());
        let header = format!("PVEAPIToken={}={}", token.id, token.secret);
        self.http.request(method, url).header("Authorization", header)
    }

    async fn data(&self, request: RequestBuilder) -> Value {
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response.json::<Value>().await.unwrap()["data"].clone()
    }

    async fn task(&self, request: RequestBuilder) {
        let upid = self.data(request).await;
        let upid = upid.as_str().unwrap();
        let path = format!("/tasks/{upid}/status");
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.data(self.request(Method::GET, &path)).await;
            if let Some(exit) = status["exitstatus"].as_str() {
                assert_eq!(exit, "OK", "{upid}");
                return;
            }
            assert!(Instant::now() < deadline, "{upid} does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn power(&self, vmid: u32, action: &str) {
        self.task(self.request(Method::POST, &format!("/qemu/{vmid}/status/{action}"))).await;
    }

    pub(crate) async fn destroy(&self, vmid: u32) {
        self.task(self.request(Method::DELETE, &format!("/qemu/{vmid}"))).await;
    }

    /// Puts an image into the VM's drive and starts it.
    pub(crate) async fn start_with(&self, vmid: u32, image: Vec<u8>) {
        let name = format!("seed-{vmid}.iso");
        let part = Part::bytes(image).file_name(name.clone());
        let form = Form::new().text("content", "iso").part("filename", part);
        self.task(self.request(Method::POST, "/storage/local/upload").multipart(form)).await;
        let drive = [("ide0", format!("local:iso/{name},media=cdrom"))];
        self.task(self.request(Method::POST, &format!("/qemu/{vmid}/config")).form(&drive)).await;
        self.power(vmid, "start").await;
    }

    /// Boots a VM from a seed and waits until its guest is through, well or not.
    pub(crate) async fn boot(&self, vmid: u32, seed: &Seed) -> Progress {
        self.start_with(vmid, seed.image()).await;
        self.settled(vmid).await
    }

    pub(crate) async fn settled(&self, vmid: u32) -> Progress {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.guests.record(vmid).map(|record| record.progress) {
                Some(progress @ (Progress::Up(_) | Progress::Failed(_))) => return progress,
                other => assert!(Instant::now() < deadline, "VM {vmid} is still {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What a command says through the agent.
    pub(crate) async fn exec(&self, vmid: u32, command: &[&str]) -> (i64, String) {
        let agent = format!("/qemu/{vmid}/agent");
        let words: Vec<_> = command.iter().map(|word| ("command", *word)).collect();
        let exec = self.request(Method::POST, &format!("{agent}/exec")).form(&words);
        let pid = self.data(exec).await["pid"].clone();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let path = format!("{agent}/exec-status?pid={pid}");
            let status = self.data(self.request(Method::GET, &path)).await;
            if status["exited"] == json!(1) {
                let out = status["out-data"].as_str().unwrap_or_default().to_owned();
                return (status["exitcode"].as_i64().unwrap(), out);
            }
            assert!(Instant::now() < deadline, "{command:?} does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn interfaces(&self, vmid: u32) -> Value {
        let path = format!("/qemu/{vmid}/agent/network-get-interfaces");
        self.data(self.request(Method::GET, &path)).await["result"].clone()
    }

    /// The API server of a cluster, as its administrator.
    pub(crate) async fn kubernetes(
        &self,
        cluster: &Cluster,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let identity = Identity::from_pem(cluster.ca.client().as_bytes()).unwrap();
        let root = Certificate::from_pem(cluster.ca.cert.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().identity(identity);
        let client = client.tls_certs_only([root]).build().unwrap();
        let mut request = client.request(method, format!("https://{}{path}", cluster.endpoint));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    /// What the bootstrap provider does before a join.
    pub(crate) async fn create_token(&self, cluster: &Cluster) {
        let (id, secret) = TOKEN.split_once('.').unwrap();
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
        });
        let path = "/api/v1/namespaces/kube-system/secrets";
        let (status, answer) = self.kubernetes(cluster, Method::POST, path, Some(body)).await;
        assert_eq!(status, 200, "{answer}");
    }
}
