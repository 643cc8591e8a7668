//! Answers the load balancers that ask which nodes have endpoints of a service: one port per service whose clients
//! outside the cluster are served by the node that they come to only.

use crate::metrics::Status;
use crate::node::This;
use crate::objects::Objects;
use crate::record::Slice;
use client::Key;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Who asks, asks at once, and briefly.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_QUESTION: usize = 8 * 1024;

/// What is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    port: u16,
    local: usize,
}

/// All of them.
#[derive(Default)]
pub struct HealthChecks {
    checks: Arc<Mutex<HashMap<Key, Check>>>,
    changed: Notify,
}

impl HealthChecks {
    /// Looks at services that have changed.
    pub fn update(&self, objects: &Objects, this: &This, keys: &HashSet<Key>) {
        let mut checks = self.checks.lock();
        for key in keys {
            let port = objects.services.get(key).and_then(|service| service.more.as_ref()?.health_check_port);
            match port {
                Some(port) => {
                    let local = local_endpoints(&objects.slices_of(key), &this.here.node);
                    checks.insert(key.clone(), Check { port, local });
                }
                None => {
                    checks.remove(key);
                }
            }
        }
        self.changed.notify_one();
    }

    /// Listens where it has to, until shutdown.
    pub async fn serve(&self, status: &Status, shutdown: &CancellationToken) {
        let tasks = TaskTracker::new();
        let mut listening: HashMap<(Key, u16), DropGuard> = HashMap::new();
        loop {
            let wanted: HashSet<(Key, u16)> =
                self.checks.lock().iter().map(|(key, check)| (key.clone(), check.port)).collect();
            listening.retain(|place, _| wanted.contains(place));
            for place in wanted {
                listening.entry(place).or_insert_with_key(|place| {
                    let stop = shutdown.child_token();
                    tasks.spawn(answer(self.checks.clone(), place.clone(), status.clone(), stop.clone()));
                    stop.drop_guard()
                });
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.changed.notified() => {}
            }
        }
        drop(listening);
        tasks.close();
        tasks.wait().await;
    }
}

/// How many of the endpoints that take connections are on this node.
fn local_endpoints(slices: &[Arc<Slice>], node: &str) -> usize {
    let places = slices.iter().flat_map(|slice| &slice.endpoints);
    let local = places.filter(|place| place.ready && place.node.as_deref() == Some(node));
    local.map(|place| place.address).collect::<BTreeSet<IpAddr>>().len()
}

async fn answer(
    checks: Arc<Mutex<HashMap<Key, Check>>>,
    (key, port): (Key, u16),
    status: Status,
    stop: CancellationToken,
) {
    let Some(listener) = listen(port, &key, &stop).await else { return };
    while let Some(stream) = daemon::accept(&listener, &stop).await {
        let local = checks.lock().get(&key).map_or(0, |check| check.local);
        let text = page(&key, local, status.livez().0);
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::time::timeout(PATIENCE, talk(stream, text)) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// The port may still be somebody else's: it is tried until it is free.
async fn listen(port: u16, key: &Key, stop: &CancellationToken) -> Option<TcpListener> {
    loop {
        let mut bound = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await;
        if bound.is_err() {
            bound = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await;
        }
        match bound {
            Ok(listener) => return Some(listener),
            Err(error) => {
                tracing::warn!(%error, service = %key, port, "the health check node port cannot be served yet")
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(super::RETRY) => {}
        }
    }
}

/// Reads a question to its end, whatever it is, and gives the answer.
async fn talk(mut stream: TcpStream, text: String) -> std::io::Result<()> {
    let mut question = Vec::new();
    let mut buffer = [0; 1024];
    while !question.windows(4).any(|window| window == b"\r\n\r\n") && question.len() < LONGEST_QUESTION {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        question.extend_from_slice(&buffer[..read]);
    }
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn page(key: &Key, local: usize, healthy: bool) -> String {
    let code = if local > 0 && healthy { "200 OK" } else { "503 Service Unavailable" };
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{}\",\n\t\t\"name\": \"{}\"\n\t}},\n\t\"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": {healthy}\n}}",
        key.namespace, key.name
    );
    format!(
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {local}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn ready_endpoints_of_this_node_count_once() {
        let slice: Slice =
            serde_json::from_value(json!({"metadata": {}, "addressType": "IPv4", "endpoints": [
            {"addresses": ["10.1.1.1"], "nodeName": "n1"}, {"addresses": ["10.1.1.1"], "nodeName": "n1"},
            {"addresses": ["10.1.1.2"], "nodeName": "n1", "conditions": {"ready": false}},
            {"addresses": ["10.1.2.1"], "nodeName": "n2"}]}))
            .unwrap();
        assert_eq!(local_endpoints(&[Arc::new(slice)], "n1"), 1);
        let key = Key::new("default", "web");
        assert!(page(&key, 1, true).starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(page(&key, 0, true).starts_with("HTTP/1.1 503 "));
        assert!(page(&key, 1, false).contains("\"serviceProxyHealthy\": false"));
        let page = page(&key, 1, true);
        let body: Value = serde_json::from_str(page.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["service"], json!({"namespace": "default", "name": "web"}));
    }
}
