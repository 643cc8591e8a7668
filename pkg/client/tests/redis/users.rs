//! Who may hear what, on a real redis-server: and nothing there that the API would refuse.

use bus::{Channel, Connection, EVERY_NODE, Login, Message, RedisConfig, RedisError, Reply};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use testing::{Engine, RedisServer, TestServer, eventually, in_time};

/// What a user asks of Redis, and what comes of it.
async fn asks(config: &RedisConfig, login: &Login, words: &[&str]) -> Result<Reply, RedisError> {
    Connection::open(&config.server, login).await?.call(words).await
}

async fn may(config: &RedisConfig, login: &Login, words: &[&str]) -> bool {
    match asks(config, login, words).await {
        Ok(_) => true,
        Err(RedisError::Refused(words)) if words.starts_with("NOPERM") => false,
        Err(error) => panic!("{words:?}: {error}"),
    }
}

/// As kubeadm does: a node's kube-proxy is the node.
async fn bind_nodes(server: &TestServer) {
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "kubeadm:node-proxier"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    }))
    .expect("a binding");
    let bindings: Api<ClusterRoleBinding> = Api::all(server.admin());
    bindings.create(&PostParams::default(), &binding).await.expect("nodes are bound");
}

async fn make_node(server: &TestServer, name: &str) {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
    let nodes: Api<Node> = Api::all(server.admin());
    nodes.create(&PostParams::default(), &node).await.expect("a node is made");
}

/// What the API says to a node that asks who some node is at Redis.
async fn credentials(server: &TestServer, asks: &str, of: &str) -> Result<Login, u16> {
    let request =
        http::Request::get(format!("/api/v1/nodes/{of}/redis")).body(Vec::new()).expect("a request");
    match server.node(asks).request::<Value>(request).await {
        Ok(answer) => {
            let text = |name: &str| answer["spec"][name].as_str().map(str::to_owned);
            Ok(Login { user: text("user"), password: text("password"), authorities: None })
        }
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_what_the_api_would_refuse_and_only_the_apiserver_speaks() {
    let redis = RedisServer::start();
    let config = redis.config("kube-apiserver");
    let server = TestServer::start_with(Engine::Embedded, |told| told.redis = Some(config)).await;
    bind_nodes(&server).await;
    for name in ["n1", "n2"] {
        make_node(&server, name).await;
    }
    let nodes = redis.config_of_nodes();
    let login = credentials(&server, "n1", "n1").await.expect("a node learns who it is");
    assert_eq!(credentials(&server, "n1", "n2").await.err(), Some(403), "and nobody else");
    let anonymous = http::Request::get("/api/v1/nodes/n1/redis").body(Vec::new()).expect("a request");
    assert!(server.anonymous().request::<Value>(anonymous).await.is_err());
    eventually("the node is let in", async || may_connect(&nodes, &login).await.then_some(())).await;

    let channels = [
        "minik8s:heartbeat",
        "minik8s:node:n1:pods",
        "minik8s:node:n1:nodes",
        "minik8s:node:n2:pods",
        "minik8s:node:n2:nodes",
        "minik8s:all:services",
        "minik8s:all:endpointslices.discovery.k8s.io",
        "minik8s:all:pods",
        "minik8s:all:secrets",
        "minik8s:all:configmaps",
        "minik8s:all:functions.minik8s.io",
        "minik8s:all:leases.coordination.k8s.io",
        "green:all:pods",
    ];
    let scheduler = redis.config("kube-scheduler");
    let knative = redis.config("knative");
    let controllers = redis.config("kube-controller-manager");
    let apiserver = redis.config("kube-apiserver");
    let of = |config: &RedisConfig| config.login().expect("a password");
    #[rustfmt::skip]
    let table: [(&str, &RedisConfig, Login, [bool; 13]); 5] = [
        // heartbeat, n1:pods, n1:nodes, n2:pods, n2:nodes, services, slices, pods, secrets, configmaps, functions, leases, green
        ("n1", &nodes, login.clone(), [true, true, true, false, false, true, true, false, false, false, false, false, false]),
        ("kube-scheduler", &scheduler, of(&scheduler), [true, false, false, false, false, true, false, true, false, false, false, false, false]),
        ("knative", &knative, of(&knative), [true, false, false, false, false, false, false, true, false, false, true, false, false]),
        ("kube-controller-manager", &controllers, of(&controllers), [true, true, true, true, true, true, true, true, true, true, true, true, false]),
        ("kube-apiserver", &apiserver, of(&apiserver), [false; 13]),
    ];
    for (who, config, login, may_hear) in &table {
        for (channel, expected) in channels.iter().zip(may_hear) {
            assert_eq!(may(config, login, &["SUBSCRIBE", channel]).await, *expected, "{who} hears {channel}");
            assert!(!may(config, login, &["PSUBSCRIBE", channel]).await, "{who} hears patterns");
        }
        let is_publisher = *who == "kube-apiserver";
        assert_eq!(may(config, login, &["PUBLISH", "minik8s:all:pods", "x"]).await, is_publisher, "{who}");
        assert!(!may(config, login, &["PUBLISH", "green:all:pods", "x"]).await, "{who}");
        assert_eq!(may(config, login, &["ACL", "USERS"]).await, is_publisher, "{who}");
        for words in [
            &["GET", "a"][..],
            &["KEYS", "*"],
            &["CONFIG", "GET", "*"],
            &["FLUSHALL"],
            &["PUBSUB", "CHANNELS"],
            &["CLIENT", "LIST"],
        ] {
            assert!(!may(config, login, words).await, "{who} {words:?}");
        }
    }

    // What every node hears it may also list, or the table would be wrong.
    for resource in EVERY_NODE {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let path = match group {
            "" => format!("/api/v1/{plural}"),
            group => format!("/apis/{group}/v1/{plural}"),
        };
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let listed = server.node("n1").request::<Value>(request).await;
        assert!(listed.is_ok(), "{resource}: {listed:?}");
    }

    let all: Api<Node> = Api::all(server.admin());
    all.delete("n1", &DeleteParams::default()).await.expect("the node is deleted");
    eventually("it is let in no more", async || (!may_connect(&nodes, &login).await).then_some(())).await;
    make_node(&server, "n1").await;
    let again = credentials(&server, "n1", "n1").await.expect("another node of that name");
    assert_ne!(again.password, login.password);
    eventually("which is let in", async || may_connect(&nodes, &again).await.then_some(())).await;
    assert!(!may_connect(&nodes, &login).await, "by its own password alone");
}

async fn may_connect(config: &RedisConfig, login: &Login) -> bool {
    Connection::open(&config.server, login).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_secret_holds_is_not_told() {
    let redis = RedisServer::start();
    let config = redis.config("kube-apiserver");
    let server = TestServer::start_with(Engine::Embedded, |told| told.redis = Some(config)).await;
    let config = redis.config("kube-controller-manager");
    let login = config.login().expect("a password");
    let mut connection = Connection::open(&config.server, &login).await.expect("let in");
    let channel = Channel::of_resource("", "secrets").expect("a channel").name("minik8s");
    connection.call(&["SUBSCRIBE", &channel]).await.expect("subscribed");
    let (mut reader, _writer) = connection.split();
    let api: Api<Secret> = Api::namespaced(server.admin(), "default");
    let stop = tokio_util::sync::CancellationToken::new();
    let bus = client::Bus::of(Some(&config), client::RedisIdentity::Files, &stop);
    let informers = client::Informers::new(server.admin(), stop.clone()).over(bus);
    let cache = informers.cache::<Secret>();
    cache.synced().await;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"word": "xyzzy-plugh"}}))
            .expect("a secret");
    api.create(&PostParams::default(), &secret).await.expect("a secret is made");
    let told = async {
        loop {
            let Ok(Reply::Parts(parts)) = reader.next().await else { panic!("Redis is gone") };
            let Some(Reply::Part(payload)) = parts.get(2) else { continue };
            assert!(!payload.windows(5).any(|window| window == b"xyzzy"), "in {payload:?}");
            let message = Message::decode(payload).expect("a message");
            if message.key == "default/s" {
                return message;
            }
        }
    };
    assert_eq!(in_time("the message", told).await.object, None);
    // Who may know learns it from the API.
    eventually("the informer knows it", async || cache.get(&client::Key::new("default", "s"))).await;
    stop.cancel();
}
