//! A server that says exactly the bytes it is told to, and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is said to one request: these bytes; the connection stays open. When the script is at its
/// end, the connection closes without a word.
#[derive(Debug, Clone)]
pub(crate) struct Reaction(pub(crate) String);

/// An answer with a JSON body.
pub(crate) fn json(status: &str, body: &str) -> Reaction {
    let length = body.len();
    Reaction(format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// Plays its script, one reaction a request, whatever the connection.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Script {
    pub(crate) async fn play(reactions: impl IntoIterator<Item = Reaction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script: Arc<Mutex<VecDeque<Reaction>>> =
            Arc::new(Mutex::new(reactions.into_iter().collect()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&kept)));
            }
        });
        Self { url, seen, task }
    }

    /// Requests so far, each with its body.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Mutex<VecDeque<Reaction>>>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    while let Some(request) = read(&mut stream).await {
        seen.lock().unwrap().push(request);
        let reaction = script.lock().unwrap().pop_front();
        match reaction {
            Some(Reaction(text)) => stream.write_all(text.as_bytes()).await.unwrap(),
            None => return,
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
