//! Clients that mean no good, as one tenant could be: what others notice of them, and what they take.
//!
//! ```text
//! alice ── creates, one after the other ──> apiserver <── mallory: silent, slow, half, deaf, many, large
//!   └── p99 beside a quiet run                  └── memory at most
//! ```
//!
//! Bounded in number and time, over the loopback only, on a server of its own.

use crate::http::{Connection, Endpoint, request};
use crate::servers::Server;
use anyhow::{Context, Result, ensure};
use bench::{process, table};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all, try_join_all};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How much of everything.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Connections that say nothing.
    pub silent: usize,
    /// Connections of every other kind.
    pub connections: usize,
    /// Objects of half a megabyte.
    pub large_objects: usize,
    /// Lists of these at once.
    pub lists: usize,
    /// How long each attack lasts.
    pub window: Duration,
}

/// What `make bench` does.
pub const FULL: Scale =
    Scale { silent: 4000, connections: 400, large_objects: 40, lists: 40, window: Duration::from_secs(10) };
/// What `make bench QUICK=1` does.
pub const QUICK: Scale =
    Scale { silent: 500, connections: 100, large_objects: 10, lists: 10, window: Duration::from_secs(2) };

/// Connections on which others write.
const WRITERS: usize = 4;
/// Others do not write as fast as they can: what they notice is what is measured.
const PAUSE: Duration = Duration::from_millis(5);
const STREAMS: usize = 250;
const CONFIG_MAPS: &str = "/api/v1/namespaces/tenant/configmaps";
const OTHERS: &str = "/api/v1/namespaces/quiet/configmaps";
const YAML: &str = "application/yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Measures the server and prints a table.
pub async fn measure(program: &Path, scale: Scale) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let args = ["--bind-address", "127.0.0.1", "--secure-port", "0"];
    let server = Server::start(program, &args, scratch.path())?;
    let tenant = prepare(&server, scratch.path(), scale).await.context("prepare the tenant")?;
    let mut rows =
        vec![["", "others' p50 ms", "p99 ms", "p99/quiet", "writes", "memory at most MB"].map(str::to_owned)];
    let mut quiet_p99 = None;
    for attack in ATTACKS {
        eprintln!("{}", attack.name);
        let (mut times, peak) = run(&server, &tenant, attack, scale).await.context(attack.name)?;
        times.sort_unstable();
        let part =
            |of: usize| times.get(times.len() * of / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        let (p50, p99) = (part(50), part(99));
        let quiet = *quiet_p99.get_or_insert(p99);
        let [p50, p99, ratio] = [p50, p99, p99 / quiet].map(|figure| format!("{figure:.2}"));
        rows.push([
            attack.name.to_owned(),
            p50,
            p99,
            ratio,
            times.len().to_string(),
            format!("{:.0}", peak / 1e6),
        ]);
    }
    print!("{}", table::columns(&rows));
    Ok(())
}

/// One tenant, and others.
struct Tenant {
    mallory: Endpoint,
    /// The same over HTTP/2.
    mallory2: Endpoint,
    nobody: Endpoint,
    alice: Endpoint,
}

struct Attack {
    name: &'static str,
    begin: fn(Arc<Tenant>, Scale) -> BoxFuture<'static, Result<Held>>,
}

/// What an attack holds, until it is dropped.
#[derive(Default)]
struct Held {
    _sockets: Vec<TcpStream>,
    _connections: Vec<Connection>,
    _tasks: JoinSet<()>,
}

const ATTACKS: &[Attack] = &[
    Attack { name: "quiet", begin: |_, _| Box::pin(async { Ok(Held::default()) }) },
    Attack { name: "silent before TLS", begin: |tenant, scale| Box::pin(silent(tenant, scale)) },
    Attack { name: "silent after it", begin: |tenant, scale| Box::pin(secured(tenant, scale)) },
    Attack { name: "a header a byte at a time", begin: |tenant, scale| Box::pin(slow(tenant, scale)) },
    Attack { name: "half a body", begin: |tenant, scale| Box::pin(half_a_body(tenant, scale)) },
    Attack { name: "answers not read, HTTP/1", begin: |tenant, scale| Box::pin(not_read(tenant, scale)) },
    Attack {
        name: "many streams, none read",
        begin: |tenant, scale| Box::pin(streams(tenant, scale, CONFIG_MAPS)),
    },
    Attack {
        name: "many watches, none read",
        begin: |tenant, scale| {
            Box::pin(streams(tenant, scale, "/api/v1/namespaces/tenant/configmaps?watch=1"))
        },
    },
    Attack { name: "many labels, long selectors", begin: |tenant, scale| Box::pin(selectors(tenant, scale)) },
    Attack {
        name: "large lists, JSON",
        begin: |tenant, scale| Box::pin(lists(tenant, scale, "application/json", "identity")),
    },
    Attack {
        name: "large lists, gzip",
        begin: |tenant, scale| Box::pin(lists(tenant, scale, "application/json", "gzip")),
    },
    Attack {
        name: "large lists, YAML",
        begin: |tenant, scale| Box::pin(lists(tenant, scale, YAML, "identity")),
    },
    Attack {
        name: "large lists, Table",
        begin: |tenant, scale| Box::pin(lists(tenant, scale, TABLE, "identity")),
    },
    Attack {
        name: "large lists, metadata",
        begin: |tenant, scale| Box::pin(lists(tenant, scale, METADATA, "identity")),
    },
];

/// How long each write of others took during an attack, and the most memory that the server had.
async fn run(
    server: &Server,
    tenant: &Arc<Tenant>,
    attack: &Attack,
    scale: Scale,
) -> Result<(Vec<Duration>, f64)> {
    process::forget_peak(server.pid())?;
    let held = (attack.begin)(tenant.clone(), scale).await?;
    let over = Instant::now() + scale.window;
    let writers = (0..WRITERS).map(|writer| {
        let alice = tenant.alice.clone();
        tokio::spawn(async move {
            let (mut connection, mut times) = (alice.connect().await?, Vec::new());
            while Instant::now() < over {
                let name = format!("w{writer}");
                let create = request(
                    "POST",
                    OTHERS,
                    config_map(&name, json!({"key": "value"})).to_string().as_bytes(),
                );
                let began = Instant::now();
                connection.exchange(&create, None).await?.is_created()?;
                times.push(began.elapsed());
                connection.exchange(&request("DELETE", &format!("{OTHERS}/{name}"), &[]), None).await?;
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(times)
        })
    });
    let mut times = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        times.extend(writer.await??);
    }
    let (_, peak) = process::memory(server.pid())?;
    drop(held);
    // What was begun ends.
    tokio::time::sleep(scale.window / 4).await;
    Ok((times, peak))
}

/// Two namespaces whose owners know nothing of each other, and what the tenant's lists are made of.
async fn prepare(server: &Server, dir: &Path, scale: Scale) -> Result<Arc<Tenant>> {
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).with_context(|| format!("read {file}"));
    let (ca, key) = (read("ca.crt")?, read("ca.key")?);
    let authority = pki::Authority::load(&ca, &key)?;
    let address = server.endpoint.address();
    let user = |name: &str, protocol: &str| -> Result<Endpoint> {
        let identity = authority.client(name, &[], jiff::Timestamp::now())?;
        Endpoint::new(address, &ca, Some((&identity.certificate, &identity.key)), protocol)
    };
    let mut admin = server.endpoint.connect().await?;
    for (namespace, owner) in [("tenant", "mallory"), ("quiet", "alice")] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "owner"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner}],
        });
        post(&mut admin, "/api/v1/namespaces", &object).await?;
        let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        post(&mut admin, &bindings, &binding).await?;
    }
    let data: Map<String, Value> =
        (0..4000).map(|key| (format!("key-{key:05}"), Value::from("some text ".repeat(11)))).collect();
    for index in 0..scale.large_objects {
        let mut object = config_map(&format!("large{index:02}"), Value::Object(data.clone()));
        let labels = (0..1000).map(|label| (format!("label-{label}"), Value::from("value")));
        object["metadata"]["labels"] = Value::Object(labels.collect());
        post(&mut admin, CONFIG_MAPS, &object).await?;
    }
    Ok(Arc::new(Tenant {
        mallory: user("mallory", "http/1.1")?,
        mallory2: user("mallory", "h2")?,
        nobody: Endpoint::new(address, &ca, None, "http/1.1")?,
        alice: user("alice", "http/1.1")?,
    }))
}

async fn post(connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
    let answer = connection.exchange(&request("POST", path, object.to_string().as_bytes()), None).await?;
    ensure!(answer.status == 201, "POST {path} was answered {}", answer.status);
    Ok(())
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

async fn silent(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let sockets = (0..scale.silent).map(|_| TcpStream::connect(tenant.nobody.address()));
    Ok(Held { _sockets: try_join_all(sockets).await?, ..Held::default() })
}

/// So many connections, of which some may not come to be: the server makes room for others.
async fn open(endpoint: &Endpoint, count: usize) -> Vec<Connection> {
    let mut opened = Vec::new();
    while opened.len() < count {
        let some = join_all((0..50).map(|_| endpoint.connect())).await;
        let before = opened.len();
        opened.extend(some.into_iter().flatten());
        if opened.len() == before {
            break;
        }
    }
    opened
}

async fn secured(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let mut connections = open(&tenant.nobody, scale.connections).await;
    connections.extend(open(&tenant.mallory, scale.connections).await);
    Ok(Held { _connections: connections, ..Held::default() })
}

async fn slow(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let mut tasks = JoinSet::new();
    for mut connection in open(&tenant.nobody, scale.connections).await {
        tasks.spawn(async move {
            let _ = connection.say(b"GET /livez HTTP/1.1\r\nx: ").await;
            while connection.say(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }
    Ok(Held { _tasks: tasks, ..Held::default() })
}

async fn half_a_body(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let mut connections = open(&tenant.mallory, scale.connections).await;
    let half = [
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: s\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n").as_bytes(),
        &vec![b' '; 500_000],
    ]
    .concat();
    let said = connections.iter_mut().map(|connection| {
        // Whoever is refused may not come to the end of it.
        tokio::time::timeout(Duration::from_secs(5), connection.say(&half))
    });
    join_all(said).await;
    Ok(Held { _connections: connections, ..Held::default() })
}

async fn not_read(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let mut connections = open(&tenant.mallory, scale.connections).await;
    for (connection, accept) in
        connections.iter_mut().zip([YAML, TABLE, METADATA, "application/json"].iter().cycle())
    {
        connection.say(&get(CONFIG_MAPS, accept, "identity")).await?;
    }
    Ok(Held { _connections: connections, ..Held::default() })
}

/// Many requests at once on each connection, of whose answers nothing is taken.
async fn streams(tenant: Arc<Tenant>, scale: Scale, path: &'static str) -> Result<Held> {
    let mut tasks = JoinSet::new();
    for _ in 0..(scale.connections / 20).max(1) {
        let io = TokioIo::new(tenant.mallory2.stream().await?);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1);
        let (sender, connection) = builder.handshake::<_, Empty<Bytes>>(io).await?;
        tasks.spawn(async move { drop(connection.await) });
        for _ in 0..STREAMS {
            let mut sender = sender.clone();
            let request =
                hyper::Request::builder().uri(format!("https://127.0.0.1{path}")).body(Empty::new())?;
            tasks.spawn(async move {
                if sender.ready().await.is_err() {
                    return;
                }
                // Held, not read.
                let _answer = sender.send_request(request).await;
                std::future::pending().await
            });
        }
    }
    Ok(Held { _tasks: tasks, ..Held::default() })
}

async fn selectors(tenant: Arc<Tenant>, scale: Scale) -> Result<Held> {
    let terms: Vec<String> = (0..500).map(|label| format!("label-{label}=value")).collect();
    let path =
        format!("{CONFIG_MAPS}?labelSelector={}%2Clabel-1%21%3Dvalue", terms.join("%2C").replace('=', "%3D"));
    repeat(&tenant.mallory, scale.lists, get(&path, "application/json", "identity")).await
}

async fn lists(
    tenant: Arc<Tenant>,
    scale: Scale,
    accept: &'static str,
    coding: &'static str,
) -> Result<Held> {
    repeat(&tenant.mallory, scale.lists, get(CONFIG_MAPS, accept, coding)).await
}

/// Asks the same over and over on so many connections, and reads what is answered.
async fn repeat(endpoint: &Endpoint, connections: usize, request: Vec<u8>) -> Result<Held> {
    let (request, mut tasks) = (Arc::new(request), JoinSet::new());
    for mut connection in open(endpoint, connections).await.into_iter().take(connections) {
        let request = request.clone();
        tasks.spawn(async move {
            loop {
                match connection.exchange(&request, None).await {
                    Ok(answer) if answer.status == 200 => {}
                    // Too many at once.
                    _ => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
    }
    Ok(Held { _tasks: tasks, ..Held::default() })
}

fn get(path: &str, accept: &str, coding: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: s\r\naccept: {accept}\r\naccept-encoding: {coding}\r\n\r\n")
        .into_bytes()
}
