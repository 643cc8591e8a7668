//! The kubelet itself: who gets in, and its protocols to the byte.

use crate::node::{Cluster, NODE, SYSLOG};
use futures::{SinkExt, StreamExt};
use kube::config::AuthInfo;
use serde_json::{Value, json};
use testing::in_time;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_in_without_a_name_and_a_permission() {
    let cluster = Cluster::start().await;
    let nobody = cluster.node.client(AuthInfo::default());
    for path in ["/pods", "/healthz", "/metrics", "/exec/a/b/c", "/no/such/path"] {
        let answer = nobody.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (401, "Unauthorized"), "{path}");
    }
    let with = |token: &str| {
        cluster.node.client(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() })
    };
    assert_eq!(with("nonsense").get("/pods").await.code, 401);
    let token = cluster.server.service_account_token("default", "default").await;
    let refused = with(&token).get("/pods").await;
    assert_eq!(refused.code, 403);
    let expected = "Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    assert_eq!(refused.text(), expected);
    // What is permitted is permitted, and no more.
    let account = cluster.server.service_account_token("kube-system", "default").await;
    let http = cluster.server.http();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/stats", "nodes/metrics"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "default"}],
    });
    http.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    http.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    assert_eq!(with(&account).get("/metrics/resource").await.code, 200);
    assert_eq!(with(&account).get("/pods").await.code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_keeps_nobody_out() {
    let cluster = Cluster::start().await;
    let (http, health) = (cluster.server.http(), format!("/api/v1/nodes/{NODE}/proxy/healthz"));
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(cluster.node.address()).await.unwrap());
    }
    assert_eq!(http.get(&health).await.code, 200, "who comes now finds a place");
    // One address has 64 places, and the oldest make room.
    for stream in &mut silent[..36] {
        let closed = in_time("the oldest are closed", stream.read(&mut [0])).await;
        assert!(matches!(closed, Ok(0) | Err(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_apiserver_passes_on_what_is_asked_of_a_node() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let http = cluster.server.http();
    let node = |path: &str| format!("/api/v1/nodes/{NODE}/proxy{path}");
    let pods = http.get(&node("/pods")).await.expect(200);
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let running = http.get(&node("/runningpods/")).await.expect(200);
    assert_eq!(running["items"][0]["spec"]["containers"][0]["name"], "c");
    assert_eq!(
        http.get(&node("/configz")).await.expect(200)["kubeletconfig"]["kind"],
        "KubeletConfiguration"
    );
    assert_eq!(http.get(&node("/healthz")).await.text(), "ok");
    *cluster.node.pods.trouble.lock() = Some("sync loop took longer than expected".to_owned());
    let sick = http.get(&node("/healthz")).await;
    assert_eq!(sick.code, 500);
    assert!(
        sick.text().contains("[-]syncloop failed: sync loop took longer than expected"),
        "{}",
        sick.text()
    );
    let moved = http.get(&node("")).await;
    assert_eq!((moved.code, moved.headers["location"].to_str().unwrap()), (301, node("/").as_str()));
    assert_eq!(http.get(&node("/no/such/path")).await.code, 404);
    let listed = http.get(&node("/logs/")).await.text();
    assert!(listed.contains("<a href=\"syslog\">syslog</a>\n"), "{listed}");
    assert_eq!(http.get(&node("/logs/syslog")).await.text(), SYSLOG);
    assert_eq!(http.get(&node("/logs/../../etc/passwd")).await.code, 404);
    assert_eq!(http.get(&node("/logs/%2e%2e/%2e%2e/etc/passwd")).await.code, 404);
    let metrics = http.get(&node("/metrics")).await.text();
    assert!(metrics.contains("\nkubelet_running_pods 1\n"), "{metrics}");
}

type Socket = tokio_tungstenite::WebSocketStream<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>;

/// A WebSocket through the apiserver, with the admin's certificate.
async fn socket(cluster: &Cluster, path: &str, protocol: &str) -> Socket {
    let read = |file: &str| std::fs::read(cluster.server.data_dir().join(file)).unwrap();
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read("ca.crt")).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&read("admin.crt")).unwrap()],
            PrivateKeyDer::from_pem_slice(&read("admin.key")).unwrap(),
        )
        .unwrap();
    let stream = tokio::net::TcpStream::connect(cluster.server.address()).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let stream =
        tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await.unwrap();
    let mut request = format!("wss://{}{path}", cluster.server.address()).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    let (socket, answer) =
        in_time("a handshake", tokio_tungstenite::client_async(request, stream)).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
    socket
}

/// What comes on each channel, to the end.
async fn heard(mut socket: Socket, is_base64: bool) -> [String; 5] {
    use base64::Engine;
    let mut channels: [Vec<u8>; 5] = Default::default();
    while let Some(Ok(message)) = in_time("a message", socket.next()).await {
        let (channel, bytes) = match message {
            Message::Binary(bytes) if !is_base64 => (bytes[0], bytes[1..].to_vec()),
            Message::Text(text) if is_base64 => {
                let bytes = base64::prelude::BASE64_STANDARD.decode(&text.as_bytes()[1..]).unwrap();
                (text.as_bytes()[0] - b'0', bytes)
            }
            Message::Close(_) => break,
            other => panic!("{other:?}"),
        };
        channels[usize::from(channel)].extend(bytes);
    }
    channels.map(|bytes| String::from_utf8(bytes).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_of_the_channel_protocol_is_spoken() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let exec = "/api/v1/namespaces/default/pods/web/exec?stdin=true&stdout=true&stderr=true";
    for (protocol, is_base64, has_status) in [
        ("v5.channel.k8s.io", false, true),
        ("v4.channel.k8s.io", false, true),
        ("v4.base64.channel.k8s.io", true, true),
        ("channel.k8s.io", false, false),
        ("base64.channel.k8s.io", true, false),
    ] {
        let path = format!(
            "{exec}&command=sh&command=-c&command=read%20a;echo%20%22$a%22;echo%20bad%20%3E%262;exit%204"
        );
        let mut socket = socket(&cluster, &path, protocol).await;
        let line = if is_base64 { Message::text("0aGkK") } else { Message::binary(&b"\x00hi\n"[..]) };
        socket.send(line).await.unwrap();
        let [_, out, err, end, _] = heard(socket, is_base64).await;
        assert_eq!((out.as_str(), err.as_str()), ("hi\n", "bad\n"), "{protocol}");
        if has_status {
            let status: Value = serde_json::from_str(&end).unwrap();
            assert_eq!(
                status["details"]["causes"],
                json!([{"reason": "ExitCode", "message": "4"}]),
                "{protocol}"
            );
        } else {
            assert!(end.starts_with("command terminated with non-zero exit code"), "{protocol}: {end}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_can_be_closed_and_what_cannot_be_executed_is_told() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let exec = "/api/v1/namespaces/default/pods/web/exec?stdin=true&stdout=true";
    let mut counting = socket(&cluster, &format!("{exec}&command=wc&command=-c"), "v5.channel.k8s.io").await;
    counting.send(Message::binary(&b"\x00hello"[..])).await.unwrap();
    counting.send(Message::binary(&b"\xff\x00"[..])).await.unwrap();
    let [_, out, _, end, _] = heard(counting, false).await;
    assert_eq!(out.trim(), "5");
    assert_eq!(serde_json::from_str::<Value>(&end).unwrap()["status"], "Success");
    let missing = socket(&cluster, &format!("{exec}&command=/no/such/program"), "v5.channel.k8s.io").await;
    let [_, _, _, end, _] = heard(missing, false).await;
    let status: Value = serde_json::from_str(&end).unwrap();
    assert_eq!(status["reason"], "InternalError");
    assert!(status["message"].as_str().unwrap().contains("error executing command in container"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_read_may_not_execute() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let http = cluster.server.http();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    http.post(&format!("{rbac}/roles"), &role).await.expect(201);
    http.post(&format!("{rbac}/rolebindings"), &binding).await.expect(201);
    let reader = testing::Http::new(cluster.server.user("reader", &[]));
    for part in ["exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=80"] {
        // Until the binding is known, it may not even read.
        testing::eventually("only creating is forbidden", async || {
            let answer = reader.get(&format!("/api/v1/namespaces/default/pods/web/{part}")).await;
            assert_eq!(answer.code, 403, "{part}");
            answer.message().contains("cannot create resource \"pods/").then_some(())
        })
        .await;
        let answer = http.get(&format!("/api/v1/namespaces/default/pods/web/{part}")).await;
        assert_eq!((answer.code, answer.message().as_str()), (400, "Upgrade request required"), "{part}");
    }
}
