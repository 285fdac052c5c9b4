//! Bytes on the wire: what is sent, and what odd answers are taken for.

use std::collections::BTreeMap;
use std::time::Duration;

use capmox::fault::Class;
use capmox::pve::{
    Client, CloneOptions, ConfigUpdate, DestroyOptions, ErrorKind, Limits, Tls, token,
};
use futures::future::join_all;
use tokio::time::{interval, timeout};

use crate::peer::{client, node};
use crate::script::{Reaction, Script, json};

const UPID: &str = r#"{"data":"UPID:pve1:1:2:3:qmstart:100:a@pve!t:"}"#;

fn to(script: &Script) -> Client {
    let auth = token("a@pve!t", "0123-secret").unwrap();
    client(&script.url, auth, Tls::System, Limits::default())
}

#[tokio::test]
async fn the_text_of_an_error_is_found_wherever_the_server_puts_it() {
    let gone = "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist";
    let message = format!(r#"{{"data":null,"message":"{gone}\n"}}"#);
    let plain = format!(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: {}\r\n\r\n{gone}",
        gone.len()
    );
    for answer in [
        json(&format!("500 {gone}"), r#"{"data":null}"#),
        json(&format!("500 {gone}"), ""),
        json("500 Internal Server Error", &message),
        json("500 ", &message),
        Reaction(plain),
    ] {
        let script = Script::play([answer.clone()]).await;
        let id = "100".parse().unwrap();
        let error = to(&script).vm_config(&node("pve1"), id).await.unwrap_err();
        assert_eq!(error.message(), gone, "{answer:?}");
        assert!(error.is_vm_missing(), "{answer:?}");
    }
}

#[tokio::test]
async fn a_taken_vmid_is_understood_without_a_reason_phrase() {
    let body = r#"{"data":null,"errors":{"vmid":"VM 100 already exists"}}"#;
    let script = Script::play([json("400 Bad Request", body), json("200 OK", "{}")]).await;
    let client = to(&script);
    assert!(!client.vmid_is_free("100".parse().unwrap()).await.unwrap());
    assert!(client.vmid_is_free("101".parse().unwrap()).await.unwrap());
    assert!(script.seen()[1].starts_with("GET /api2/json/cluster/nextid?vmid=101 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn null_is_an_empty_list_and_no_task() {
    let null = || json("200 OK", r#"{"data":null}"#);
    let script = Script::play([null(), null(), null(), null(), null()]).await;
    let (client, pve1, id) = (to(&script), node("pve1"), "100".parse().unwrap());
    assert!(client.cluster_resources().await.unwrap().is_empty());
    assert!(client.permissions(None).await.unwrap().by_path().is_empty());
    assert_eq!(client.resize_disk(&pve1, id, "scsi0", "9G").await.unwrap(), None);
    let error = client.next_id().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (&ErrorKind::Decode, false));
    assert_eq!(client.start_vm(&pve1, id).await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_that_is_no_proxmox_says_so() {
    let page = "<html>Welcome to nginx</html>";
    for (answer, telling) in [
        (json("200 OK", page), "does the URL lead to a Proxmox API"),
        (json("200 OK", "[1]"), "does the URL lead to a Proxmox API"),
        (json("301 Moved Permanently", ""), "redirects"),
    ] {
        let script = Script::play([answer]).await;
        let error = to(&script).version().await.unwrap_err();
        assert_eq!((error.kind(), error.class()), (&ErrorKind::Decode, Class::Transient));
        assert!(error.to_string().contains(telling), "{error}");
    }
    let script = Script::play([json("404 Not Found", page)]).await;
    let error = to(&script).vm_config(&node("pve1"), "100".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotImplemented, "a proxy's 404 is no missing VM");
}

#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is_not_asked_again_before_its_time() {
    for status in ["503 Service Unavailable", "429 Too Many Requests"] {
        let rest = json(&format!("{status}\r\nRetry-After: 1"), r#"{"data":null}"#);
        let version = r#"{"data":{"version":"9.0.3","release":"9.0","repoid":"x"}}"#;
        let script = Script::play([rest, json("200 OK", version)]).await;
        let client = to(&script);
        let error = client.version().await.unwrap_err();
        assert_eq!(error.status(), Some(status[..3].parse().unwrap()), "{error}");
        // Neither by whoever asked nor by anybody else, whatever is asked.
        let error = client.version().await.unwrap_err();
        assert!(error.to_string().contains("left alone for a while (Retry-After)"), "{error}");
        assert_eq!(error.class(), Class::Transient);
        let start = client.start_vm(&node("pve1"), "100".parse().unwrap()).await.unwrap_err();
        assert!(!start.outcome_unknown(), "nothing was sent: {start}");
        assert_eq!(script.seen().len(), 1);
        let mut pace = interval(Duration::from_millis(50));
        let asking = async {
            while client.version().await.is_err() {
                assert_eq!(script.seen().len(), 1, "left alone");
                pace.tick().await;
            }
        };
        timeout(Duration::from_secs(30), asking).await.expect("its time ends");
        assert_eq!(script.seen().len(), 2);
    }
}

#[tokio::test]
async fn who_waits_for_a_slot_does_not_ask_a_server_that_asked_to_be_left_alone_meanwhile() {
    let rest = json("429 Too Many Requests\r\nRetry-After: 60", r#"{"data":null}"#);
    let script = Script::play([rest]).await;
    let auth = token("a@pve!t", "0123-secret").unwrap();
    let limits = Limits { per_endpoint: 1, ..Limits::default() };
    let client = client(&script.url, auth, Tls::System, limits);
    let all = join_all((0..5).map(|_| client.version())).await;
    assert!(all.iter().all(Result::is_err), "{all:?}");
    assert_eq!(script.seen().len(), 1);
    let text = |number: usize| all[number].as_ref().unwrap_err().to_string();
    assert!(text(1).contains("left alone"), "{}", text(1));
    assert_eq!(text(1), text(4), "what is told does not change with every question");
}

#[tokio::test]
async fn requests_have_the_form_that_every_release_takes() {
    let script = Script::play((0..6).map(|_| json("200 OK", UPID))).await;
    let (client, pve1, id) = (to(&script), node("pve1"), "100".parse().unwrap());
    client.start_vm(&pve1, id).await.unwrap();
    let set = [("boot", "order=scsi0;ide0"), ("cores", "4"), ("name", "12")];
    let set = set.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let update = ConfigUpdate {
        set: BTreeMap::from(set),
        delete: vec!["net1".to_owned(), "net2".to_owned()],
        digest: Some("abc".to_owned()),
    };
    client.update_vm_config(&pve1, id, &update).await.unwrap();
    let options = CloneOptions { full: true, ..CloneOptions::new("101".parse().unwrap()) };
    client.clone_vm(&pve1, id, &options).await.unwrap();
    let purge = DestroyOptions { purge: true, destroy_unreferenced_disks: false };
    client.destroy_vm(&pve1, id, purge).await.unwrap();
    let local = "local".parse().unwrap();
    client.upload_iso(&pve1, &local, "a.iso", b"image"[..].into()).await.unwrap();
    client.delete_volume(&pve1, &local, "local:iso/a.iso").await.unwrap();

    let seen = script.seen();
    for request in &seen {
        let head = request.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        assert!(head.contains("authorization: pveapitoken=a@pve!t=0123-secret"), "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
    let body = |request: &str| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert!(seen[0].starts_with("POST /api2/json/nodes/pve1/qemu/100/status/start HTTP/1.1"));
    assert!(seen[0].to_ascii_lowercase().contains("content-length: 0\r\n"), "{}", seen[0]);
    assert_eq!(seen[0].to_ascii_lowercase().matches("content-length").count(), 1);
    assert_eq!(
        body(&seen[1]),
        r#"{"boot":"order=scsi0;ide0","cores":4,"delete":"net1,net2","digest":"abc","name":"12"}"#
    );
    assert_eq!(body(&seen[2]), r#"{"full":1,"newid":101}"#);
    assert!(seen[3].starts_with("DELETE /api2/json/nodes/pve1/qemu/100?purge=1 HTTP/1.1"));
    assert_eq!(body(&seen[3]), "");
    uploaded_as_proxmox_reads_it(&seen[4]);
    let path = "/api2/json/nodes/pve1/storage/local/content/local:iso/a.iso";
    assert!(seen[5].starts_with(&format!("DELETE {path} HTTP/1.1\r\n")), "{}", seen[5]);
}

/// Content first, the file last, its disposition the first header of its part.
fn uploaded_as_proxmox_reads_it(request: &str) {
    assert!(request.to_ascii_lowercase().contains("\r\ncontent-length: "), "{request}");
    let content = request.find("name=\"content\"\r\n\r\niso\r\n").unwrap();
    let file = request
        .find("\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"a.iso\"\r\n")
        .unwrap();
    assert!(content < file, "{request}");
    assert!(request.contains("\r\n\r\nimage\r\n--"), "{request}");
}

#[tokio::test]
async fn a_release_that_takes_no_list_is_given_the_command_as_one_text() {
    let refusal = r#"{"data":null,"errors":{"command":"type check ('string') failed"}}"#;
    let script = Script::play([
        json("400 Parameter verification failed.", refusal),
        json("200 OK", r#"{"data":{"pid":"7"}}"#),
        json("400 Parameter verification failed.", refusal),
    ])
    .await;
    let (client, pve1, id) = (to(&script), node("pve1"), "100".parse().unwrap());
    assert_eq!(client.agent_exec(&pve1, id, &["cloud-init", "status"]).await.unwrap(), 7);
    let error = client.agent_exec(&pve1, id, &["sh", "-c", "a b"]).await.unwrap_err();
    assert_eq!(error.status(), Some(400));
    let seen = script.seen();
    assert!(seen[0].ends_with(r#"{"command":["cloud-init","status"],"input-data":""}"#));
    assert!(seen[1].ends_with(r#"{"command":"cloud-init status","input-data":""}"#));
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn nobody_at_the_address_is_told_as_such() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let auth = token("a@pve!t", "0123-secret").unwrap();
    let client = client(&url, auth, Tls::System, Limits::default());
    let error = client.stop_vm(&node("pve1"), "100".parse().unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (&ErrorKind::Connect, false));
    assert!(error.to_string().contains("no connection to http://127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn a_task_without_a_recorded_end_is_looked_at_twice() {
    let stopped = |exit: &str| {
        json("200 OK", &format!(r#"{{"data":{{"status":"stopped","exitstatus":"{exit}"}}}}"#))
    };
    let script = Script::play([stopped("unexpected status"), stopped("OK")]).await;
    let upid = "UPID:pve1:1:2:3:qmstart:100:a@pve!t:".parse().unwrap();
    let status = to(&script).task_status(&upid).await.unwrap();
    let exit = capmox::pve::TaskExit::Ok;
    assert_eq!(status, capmox::pve::TaskStatus::Stopped { exit });
    let path = "/api2/json/nodes/pve1/tasks/UPID:pve1:1:2:3:qmstart:100:a@pve!t:/status";
    assert!(script.seen()[0].starts_with(&format!("GET {path} HTTP/1.1\r\n")));
}

#[tokio::test]
async fn an_answer_that_names_no_task_is_no_error() {
    for data in ["null", "\"\"", "\"OK\"", "1", "{}", "\"UPID:\"", "\"UPID:../x:1:\""] {
        let answer = format!(r#"{{"data":{data}}}"#);
        let script = Script::play((0..7).map(|_| json("200 OK", &answer))).await;
        let (client, pve1, id) = (to(&script), node("pve1"), "100".parse().unwrap());
        let options = CloneOptions::new("101".parse().unwrap());
        let purge = DestroyOptions { purge: true, destroy_unreferenced_disks: false };
        let local = "local".parse().unwrap();
        assert_eq!(client.clone_vm(&pve1, id, &options).await.unwrap(), None, "{data}");
        assert_eq!(client.start_vm(&pve1, id).await.unwrap(), None, "{data}");
        assert_eq!(client.resume_vm(&pve1, id).await.unwrap(), None, "{data}");
        assert_eq!(client.stop_vm(&pve1, id).await.unwrap(), None, "{data}");
        assert_eq!(client.destroy_vm(&pve1, id, purge).await.unwrap(), None, "{data}");
        let image = b"image"[..].into();
        assert_eq!(client.upload_iso(&pve1, &local, "a.iso", image).await.unwrap(), None, "{data}");
        let gone = client.delete_volume(&pve1, &local, "local:iso/a.iso").await.unwrap();
        assert_eq!(gone, None, "{data}");
    }
}

#[tokio::test]
async fn what_an_answer_lacks_is_named_with_its_endpoint() {
    let script = Script::play(
        ["null", "\"x\"", "{}"].map(|data| json("200 OK", &format!(r#"{{"data":{data}}}"#))),
    )
    .await;
    let (client, pve1, id) = (to(&script), node("pve1"), "100".parse().unwrap());
    let error = client.vm_config(&pve1, id).await.unwrap_err();
    assert!(error.to_string().contains("GET /nodes/pve1/qemu/100/config"), "{error}");
    let error = client.next_id().await.unwrap_err();
    assert!(
        error.to_string().contains("/cluster/nextid") && error.to_string().contains("VMID"),
        "{error}"
    );
    let error = client.agent_exec(&pve1, id, &["true"]).await.unwrap_err();
    assert!(
        error.to_string().contains("agent/exec: ") && error.to_string().contains("pid"),
        "{error}"
    );
}
