//! A cluster with everybody whom a server must tell apart, and something for each of them to find.

use crate::grammar::Question;
use crate::wire::{Answer, Credentials, Wire};
use pki::Authority;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Of `system:masters`.
    Admin,
    /// May do everything in the namespace `team`, by a Role.
    Owner,
    /// May do everything to the Secret `allowed` in `team`.
    Holder,
    /// May watch everything.
    Watcher,
    /// The node `n1`, with the pod `team/p1` that mounts `allowed`.
    Node,
    /// The service account `team/default`, which may look at most of `team`.
    Account,
    /// May impersonate the owner.
    Agent,
    /// Has an account and nothing else.
    Nobody,
    /// Has none.
    Anonymous,
}

pub const EVERYBODY: [Who; 9] = [
    Who::Admin,
    Who::Owner,
    Who::Holder,
    Who::Watcher,
    Who::Node,
    Who::Account,
    Who::Agent,
    Who::Nobody,
    Who::Anonymous,
];

/// Connections of one user: watches that are left do not hold up others.
const WIRES: usize = 2;

/// A server in which all of them are known, and connections of each.
pub struct World {
    wires: Vec<Vec<Wire>>,
    turn: AtomicUsize,
}

impl World {
    /// Fills a server whose authority is in a folder.
    pub async fn make(address: SocketAddr, keys: &Path) -> World {
        let read = |file: &str| std::fs::read_to_string(keys.join(file)).unwrap();
        let (certificate, key) = (read("ca.crt"), read("ca.key"));
        let authority = Authority::load(&certificate, &key).unwrap();
        let named = |name: &str, groups: &[&str]| Credentials::certificate(&authority, name, groups);
        let admin = Wire::new(address, &certificate, named("admin", &["system:masters"]));
        fill(&admin).await;
        let token = token(&admin).await;
        let credentials = |who: Who| match who {
            Who::Admin => named("admin", &["system:masters"]),
            Who::Owner => named("owner", &[]),
            Who::Holder => named("holder", &[]),
            Who::Watcher => named("watcher", &[]),
            Who::Node => named("system:node:n1", &["system:nodes"]),
            Who::Account => Credentials::Token(token.clone()),
            Who::Agent => named("agent", &[]),
            Who::Nobody => named("nobody", &[]),
            Who::Anonymous => Credentials::None,
        };
        let wires = EVERYBODY.iter().map(|who| {
            let credentials = credentials(*who);
            (0..WIRES).map(|_| Wire::new(address, &certificate, credentials.clone())).collect()
        });
        let world = World { wires: wires.collect(), turn: AtomicUsize::new(0) };
        world.settle().await;
        world
    }

    /// Asks as who asks.
    pub async fn ask(&self, question: &Question) -> Answer {
        self.ask_as(question.who, question).await
    }

    /// Asks the same as somebody else.
    pub async fn ask_as(&self, who: Who, question: &Question) -> Answer {
        let place = EVERYBODY.iter().position(|one| *one == who).unwrap();
        self.wires[place][self.turn.fetch_add(1, Relaxed) % WIRES].ask(question).await
    }

    /// Roles, the node's pod and custom kinds count from a moment after they were written on.
    async fn settle(&self) {
        for (who, path) in [
            (Who::Owner, "/api/v1/namespaces/team/pods"),
            (Who::Holder, "/api/v1/namespaces/team/secrets/allowed"),
            (Who::Watcher, "/api/v1/namespaces?watch=1&timeoutSeconds=1"),
            (Who::Node, "/api/v1/namespaces/team/secrets/allowed"),
            (Who::Account, "/api/v1/namespaces/team/pods"),
            (Who::Owner, "/apis/example.com/v1/namespaces/team/widgets/w1"),
            (Who::Admin, "/apis/example.com/v1/gadgets/g1"),
        ] {
            let question = Question::get(who, path);
            let what = format!("{who:?} is known");
            testing::eventually(&what, async || (self.ask(&question).await.code == 200).then_some(())).await;
        }
    }
}

async fn post(admin: &Wire, path: &str, body: &Value) -> Value {
    let question = Question {
        method: "POST".into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: body.to_string(),
        ..Question::get(Who::Admin, path)
    };
    // A definition is served a moment after it was made.
    testing::eventually(path, async || {
        let answer = admin.ask(&question).await;
        match answer.code {
            200 | 201 | 409 => Some(serde_json::from_slice(&answer.body).unwrap()),
            404 | 0 | 429 | 500.. => None,
            code => panic!("{path}: {code}: {}", String::from_utf8_lossy(&answer.body)),
        }
    })
    .await
}

async fn token(admin: &Wire) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/team/serviceaccounts/default/token";
    let answer = post(admin, path, &request).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn fill(admin: &Wire) {
    let named = |name: &str| json!({"metadata": {"name": name}});
    for namespace in ["team", "other"] {
        post(admin, "/api/v1/namespaces", &named(namespace)).await;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        post(admin, &accounts, &named("default")).await;
    }
    for (name, port) in [("n1", 9), ("n2", 9)] {
        // Nobody listens there: who gets as far is told so.
        let node = json!({"metadata": {"name": name}, "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        post(admin, "/api/v1/nodes", &node).await;
    }
    for (namespace, names) in [("team", ["allowed", "victim"]), ("other", ["allowed", "treasure"])] {
        for kind in ["secrets", "configmaps"] {
            for name in names {
                post(admin, &format!("/api/v1/namespaces/{namespace}/{kind}"), &named(name)).await;
            }
        }
    }
    for (namespace, name, node) in [("team", "p1", "n1"), ("team", "p2", "n2"), ("other", "p1", "n2")] {
        let pod = json!({"metadata": {"name": name}, "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
            "volumes": if node == "n1" { json!([{"name": "v", "secret": {"secretName": "allowed"}}]) } else { json!([]) },
        }});
        post(admin, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
        let service = json!({"metadata": {"name": "s1"}, "spec": {"ports": [{"port": 80}]}});
        post(admin, &format!("/api/v1/namespaces/{namespace}/services"), &service).await;
        // Nobody serves it, and that is known.
        post(admin, &format!("/api/v1/namespaces/{namespace}/endpoints"), &named("s1")).await;
    }
    for (plural, kind, scope) in [("widgets", "Widget", "Namespaced"), ("gadgets", "Gadget", "Cluster")] {
        let definition = json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
        post(admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    }
    let custom = |kind: &str, name: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}});
    post(admin, "/apis/example.com/v1/gadgets", &custom("Gadget", "g1")).await;
    for namespace in ["team", "other"] {
        let widgets = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
        post(admin, &widgets, &custom("Widget", "w1")).await;
    }
    roles(admin).await;
}

async fn roles(admin: &Wire) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let one =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["allowed"], "verbs": ["*"]}]);
    for (name, rules) in [("owner", all), ("holder", one)] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        post(admin, &format!("{RBAC}/namespaces/team/roles"), &role).await;
        let binding = binding("Role", name, &json!({"kind": "User", "name": name}));
        post(admin, &format!("{RBAC}/namespaces/team/rolebindings"), &binding).await;
    }
    let account = json!({"kind": "ServiceAccount", "name": "default", "namespace": "team"});
    let viewed = [
        "pods",
        "pods/log",
        "pods/status",
        "configmaps",
        "services",
        "serviceaccounts",
        "events",
        "namespaces",
    ];
    let view = json!([{"apiGroups": [""], "resources": viewed, "verbs": ["get", "list", "watch"]}]);
    let role = json!({"metadata": {"name": "viewer"}, "rules": view});
    post(admin, &format!("{RBAC}/namespaces/team/roles"), &role).await;
    let binding_of_account = binding("Role", "viewer", &account);
    post(admin, &format!("{RBAC}/namespaces/team/rolebindings"), &binding_of_account).await;
    let watch = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["watch"]}]);
    let act = json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["owner"], "verbs": ["impersonate"]}]);
    for (name, rules) in [("watcher", watch), ("agent", act)] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        post(admin, &format!("{RBAC}/clusterroles"), &role).await;
        let binding = binding("ClusterRole", name, &json!({"kind": "User", "name": name}));
        post(admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    }
}

fn binding(kind: &str, role: &str, subject: &Value) -> Value {
    let mut subject = subject.clone();
    if subject["kind"] == "User" {
        subject["apiGroup"] = "rbac.authorization.k8s.io".into();
    }
    json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject],
    })
}
