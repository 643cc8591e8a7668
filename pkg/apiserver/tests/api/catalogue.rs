//! What upstream learnt the hard way, asked of this server: `docs/security.md` says which test is about what.

use crate::webhooks::secured as tls_of;
use crate::{CONFIG_MAPS, config_map, pod, secured};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testing::{Http, TestServer, eventually, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "/apis/elsewhere.example.com/v1";

/// Somebody whom the API server trusts to answer, and who sends it elsewhere; and that elsewhere, where nobody must come.
struct Elsewhere {
    port: u16,
    bundle: String,
    /// The paths that it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    visitors: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Elsewhere {
    async fn start() -> Elsewhere {
        let (acceptor, bundle) = tls_of(&["localhost", "elsewhere.default.svc"], None);
        let (listener, target) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let port = listener.local_addr().unwrap().port();
        let to = format!("http://{}/stolen", target.local_addr().unwrap());
        let (asked, visitors) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let own = visitors.clone();
        tasks.spawn(async move {
            while target.accept().await.is_ok() {
                own.fetch_add(1, Ordering::Relaxed);
            }
        });
        let own = asked.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, to, asked) = (acceptor.clone(), to.clone(), own.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(|request: Request<Incoming>| {
                        asked.lock().push(request.uri().path().to_owned());
                        let answer = answer(request.uri().path(), &to);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
        Elsewhere { port, bundle, asked, visitors, _tasks: tasks }
    }

    /// It answers for a group of its own.
    async fn register(&self, http: &Http) {
        let spec = json!({"type": "ExternalName", "externalName": "localhost"});
        let service = json!({"metadata": {"name": "elsewhere"}, "spec": spec});
        http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
        let api = json!({"metadata": {"name": "v1.elsewhere.example.com"}, "spec": {"group": "elsewhere.example.com",
            "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200, "caBundle": self.bundle,
            "service": {"namespace": "default", "name": "elsewhere", "port": self.port}}});
        http.post("/apis/apiregistration.k8s.io/v1/apiservices", &api).await.expect(201);
        eventually("it answers", async || (http.get(GROUP).await.code == 200).then_some(())).await;
    }
}

/// What it serves is known; everything else is elsewhere, and to some it has nothing to say.
fn answer(path: &str, to: &str) -> Response<Full<Bytes>> {
    let text = |code: u16, text: String| {
        Response::builder().status(code).body(Full::new(Bytes::from(text))).unwrap()
    };
    match path {
        GROUP => text(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "elsewhere.example.com/v1",
            "resources": []})
            .to_string(),
        ),
        path if path.ends_with("/refused") => text(403, "no".to_owned()),
        _ => Response::builder().status(302).header("location", to).body(Full::default()).unwrap(),
    }
}

#[tokio::test]
async fn nobody_sends_the_api_server_elsewhere() {
    let server = TestServer::start().await;
    let (http, elsewhere) = (server.http(), Elsewhere::start().await);
    // A webhook.
    let hook = json!({"metadata": {"name": "elsewhere"}, "webhooks": [{"name": "elsewhere.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://localhost:{}/hook", elsewhere.port),
            "caBundle": elsewhere.bundle}, "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    http.post(hooks, &hook).await.expect(201);
    eventually("the webhook is asked", async || {
        let refused = http.post(CONFIG_MAPS, &config_map("a", "1")).await;
        (refused.code == 500 && !refused.text().contains("stolen")).then_some(())
    })
    .await;
    http.delete(&format!("{hooks}/elsewhere"), &Value::Null).await.expect(200);
    // The server of another group.
    elsewhere.register(&http).await;
    let answer = http.get(&format!("{GROUP}/things")).await;
    assert_eq!(answer.text(), "the backend attempted to redirect this request, which is not permitted");
    assert!(answer.code == 502 && !answer.headers.contains_key("location"), "{:?}", answer.headers);
    // A kubelet.
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": elsewhere.port}}}});
    http.patch("/api/v1/nodes/n1/status", "merge", &status).await.expect(200);
    let mut here = pod("here");
    here["spec"]["nodeName"] = "n1".into();
    http.post(crate::PODS, &here).await.expect(201);
    for way in ["exec?command=id", "attach", "portforward"] {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        let request = format!(
            "POST {}/here/{way} HTTP/1.1\r\nHost: s\r\nConnection: Upgrade, close\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
            crate::PODS
        );
        secured::send(&mut stream, &request).await;
        let answer = secured::rest(&mut stream).await;
        assert!(answer.contains("invalid upgrade response: status code 302"), "{way}: {answer}");
        assert!(!answer.contains("stolen"), "{answer}");
    }
    assert_eq!(elsewhere.visitors.load(Ordering::Relaxed), 0);
    let asked = elsewhere.asked.lock().join(" ");
    assert!(asked.contains("/hook") && asked.contains("/things") && asked.contains("/exec/"), "{asked}");
}

#[tokio::test]
async fn a_backend_that_does_not_upgrade_gets_no_more_requests() {
    let server = TestServer::start().await;
    let elsewhere = Elsewhere::start().await;
    elsewhere.register(&server.http()).await;
    let mut stream = secured::open(&server, "http/1.1", true).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    let first = format!("GET {GROUP}/refused HTTP/1.1\r\nHost: s\r\n{upgrade}\r\n\r\n");
    // What follows is ours to answer, whoever was asked before.
    let second = format!(
        "GET {GROUP}/hidden HTTP/1.1\r\nHost: s\r\nX-Remote-User: system:admin\r\nConnection: close\r\n\r\n"
    );
    secured::send(&mut stream, &first).await;
    secured::send(&mut stream, &second).await;
    let answers = secured::rest(&mut stream).await;
    assert!(answers.starts_with("HTTP/1.1 403 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 502 "), "the second one went through us: {answers}");
}

#[tokio::test]
async fn headers_have_one_reading() {
    let server = TestServer::start().await;
    for odd in [
        "Content-Length : 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: chunked, identity",
        "X: a\r\n folded",
        "Content-Length: +5",
        "Bad\u{0}Name: x",
    ] {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        let request =
            format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: s\r\n{odd}\r\nConnection: close\r\n\r\nhello");
        secured::send(&mut stream, &request).await;
        let answer = secured::rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{odd:?}: {answer}");
    }
}

#[tokio::test]
async fn what_strangers_ask_makes_no_metrics() {
    let server = TestServer::start().await;
    let (admin, stranger) = (server.http(), Http::new(server.user("stranger", &[])));
    for n in 0..20 {
        for path in [
            "/madeup",
            "/api/v1/madeup",
            "/apis/madeup.example.com/v1/madeup",
            "/api/v1/namespaces/madeup/pods",
        ] {
            stranger.get(&format!("{path}{n}?madeup={n}")).await;
            stranger.send(&format!("MADEUP{n}"), &format!("{path}{n}"), &[], String::new()).await;
            admin.get(&format!("{path}{n}")).await;
        }
    }
    let metrics = admin.get("/metrics").await.text().to_lowercase();
    assert!(metrics.contains("apiserver_request_total") && !metrics.contains("madeup"), "{metrics}");
}

#[tokio::test]
async fn a_name_in_a_path_is_one_name() {
    let server = TestServer::start().await;
    let admin = server.http();
    let secret = json!({"metadata": {"name": "victim"}, "stringData": {"key": "c2VjcmV0"}});
    admin.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "maps"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "maps"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]});
    admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    let jane = Http::new(server.user("jane", &[]));
    eventually("her role", async || (jane.get(CONFIG_MAPS).await.code == 200).then_some(())).await;
    for path in [
        "/api/v1/namespaces/default/configmaps/..%2fsecrets%2fvictim",
        "/api/v1/namespaces/default%2fsecrets/configmaps",
        "/api/v1/namespaces/..%2f..%2fsecrets/configmaps",
        "/api/v1/namespaces/%2e%2e/configmaps/../secrets/default/victim",
        "/api/v1/namespaces/default/configmaps/%2e%2e/%2e%2e/secrets/victim",
        "/api/v1/namespaces/default/configmaps/../secrets/victim",
        "/api/v1/namespaces/default//secrets/victim",
        "/api/v1/namespaces/default/configmaps/victim%00/../secrets",
    ] {
        for http in [&jane, &admin] {
            let Ok(answer) = http.try_send("GET", path, &[], String::new()).await else { continue };
            let text = answer.text();
            assert!(!text.contains("YzJWamNtVjA"), "{path}: {text}");
        }
        let Ok(answer) = jane.try_send("GET", path, &[], String::new()).await else { continue };
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_proxy_does_not_lead_to_the_servers_own_machine() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    let own = server.address().port();
    for address in ["127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "::ffff:127.0.0.1", "localhost"] {
        let kind = if address == "localhost" { "Hostname" } else { "InternalIP" };
        let status = json!({"status": {"addresses": [{"type": kind, "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": own}}}});
        http.patch("/api/v1/nodes/n1/status", "merge", &status).await.expect(200);
        for name in ["n1", &format!("n1:{own}"), "n1:2379", &format!("https:n1:{own}")] {
            let refused = http.get(&format!("/api/v1/nodes/{name}/proxy/metrics")).await;
            assert_eq!(
                (refused.code, refused.message().as_str()),
                (400, "address not allowed"),
                "{address} {name}"
            );
        }
    }
    http.post(crate::PODS, &pod("p")).await.expect(201);
    for address in ["127.0.0.1", "169.254.169.254"] {
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        http.patch(&format!("{}/p/status", crate::PODS), "merge", &status).await.expect(200);
        let refused = http.get(&format!("{}/p:{own}/proxy/", crate::PODS)).await;
        assert_eq!((refused.code, refused.message().as_str()), (400, "address not allowed"), "{address}");
    }
}

#[tokio::test]
async fn who_edits_a_namespace_writes_no_endpoints() {
    let server = TestServer::start().await;
    let admin = server.http();
    for (user, role) in [("edith", "edit"), ("adam", "admin")] {
        let binding = json!({"metadata": {"name": role}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": role}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
        admin.post(&format!("{RBAC}/namespaces/default/rolebindings"), &binding).await.expect(201);
        let http = Http::new(server.user(user, &[]));
        eventually("the role", async || (http.get(CONFIG_MAPS).await.code == 200).then_some(())).await;
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}]});
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        assert_eq!(http.post(slices, &slice).await.code, 403, "{role}");
        let endpoints = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]});
        assert_eq!(http.post("/api/v1/namespaces/default/endpoints", &endpoints).await.code, 403, "{role}");
    }
}

/// Streams that are reset as soon as they are begun end the connection of whoever does that, and nobody else's.
#[tokio::test]
async fn streams_that_are_reset_are_counted() {
    let server = TestServer::start().await;
    let mut stream = secured::open(&server, "h2", true).await;
    let frame = |kind: u8, flags: u8, id: u32, body: &[u8]| -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &id.to_be_bytes(), body].concat()
    };
    // GET, https, a path and a host, as HPACK has them.
    let text = |name: u8, text: &str| [&[name, text.len() as u8], text.as_bytes()].concat();
    let headers = [vec![0x82, 0x87], text(0x04, "/api/v1/namespaces"), text(0x01, "s")].concat();
    let mut flood = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    for id in (1..20_000).step_by(2) {
        flood.extend(frame(1, 0b101, id, &headers));
        flood.extend(frame(3, 0, id, &8u32.to_be_bytes()));
    }
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let mut said = Vec::new();
    let (_, _) = in_time("the connection ends", async {
        tokio::join!(write.write_all(&flood), read.read_to_end(&mut said))
    })
    .await;
    // The last words: which stream was the last, and why.
    let mut rest = said.as_slice();
    let mut why = None;
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let (body, next) = after.split_at(length.min(after.len()));
        why = if *kind == 7 { body.get(4..8).map(<[u8]>::to_vec) } else { why };
        rest = next;
    }
    const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
    assert_eq!(why.as_deref(), Some(&ENHANCE_YOUR_CALM[..]));
    server.http().get(CONFIG_MAPS).await.expect(200);
}
