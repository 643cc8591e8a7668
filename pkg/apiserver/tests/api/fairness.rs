//! Priority and fairness on a real server: who floods holds up themselves.

use crate::webhooks::{VALIDATING, Webhook, allow, configuration};
use crate::{CONFIG_MAPS, config_map};
use apiserver::Config;
use serde_json::{Value, json};
use std::time::Duration;
use testing::{Answer, Engine, Http, TestServer, eventually};
use tokio::task::JoinSet;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SERVICE_ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const UIDS: [&str; 2] = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

/// A server with so many seats.
async fn start(seats: usize) -> TestServer {
    let configure = |config: &mut Config| {
        config.max_requests_in_flight = seats / 2;
        config.max_mutating_requests_in_flight = seats - seats / 2;
        // Nobody is to give up waiting.
        config.request_timeout = Duration::from_secs(600);
    };
    TestServer::start_with(Engine::Embedded, configure).await
}

/// Somebody who may do everything, but is nobody special.
pub async fn tenant(server: &TestServer, name: &str) -> Http {
    let binding = json!({"metadata": {"name": "tenants"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "tenants"}],
        "roleRef": {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "cluster-admin"}});
    server.http().post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let http = Http::new(server.user(name, &["tenants"]));
    eventually("the tenant may", async || (http.get(LEVELS).await.code == 200).then_some(())).await;
    http
}

/// Makes creating ConfigMaps last until the webhook is dropped.
async fn slow_config_maps(http: &Http) -> Webhook {
    let webhook = Webhook::start(allow).await;
    let mut hook = webhook.hook("slow.example.com", "/slow", "CREATE configmaps");
    hook["failurePolicy"] = "Ignore".into();
    hook["timeoutSeconds"] = 30.into();
    http.post(VALIDATING, &configuration("slow", &[hook])).await.expect(201);
    webhook
}

/// Requests that last until the webhook is dropped, and their codes.
fn flood(http: &Http, name: &str, count: usize) -> JoinSet<u16> {
    let create = |number: usize| {
        let (http, map) = (http.clone(), config_map(&format!("{name}-{number}"), ""));
        async move { http.post(CONFIG_MAPS, &map).await.code }
    };
    (0..count).map(create).collect()
}

/// The sum of a metric over the lines that have all these labels.
async fn metric(http: &Http, name: &str, labels: &[&str]) -> u64 {
    let text = http.get("/metrics").await.text();
    let of_name = |line: &&str| line.starts_with(&format!("apiserver_flowcontrol_{name}{{"));
    let lines = text.lines().filter(of_name).filter(|line| labels.iter().all(|label| line.contains(label)));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A schema for the ConfigMaps of a user.
fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["configmaps"], "namespaces": ["*"]}]}]}})
}

/// A level that lets nobody wait and borrows nothing.
fn level(name: &str, shares: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": shares,
        "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}})
}

/// An object's UID, once requests are sorted by it.
async fn uid_of(http: &Http, path: &str) -> String {
    http.get(path).await.expect(200)["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn uids(answer: &Answer) -> [String; 2] {
    UIDS.map(|name| answer.headers.get(name).map_or("", |uid| uid.to_str().unwrap()).to_owned())
}

/// One tenant has far more requests under way than there are seats, and none of them ends. Others are answered all the
/// same: another tenant of the same level, a node, an administrator.
#[tokio::test]
async fn a_tenants_flood_holds_up_nobody_else() {
    let server = start(60).await;
    let admin = server.http();
    let (mallory, trent) = (tenant(&server, "mallory").await, tenant(&server, "trent").await);
    let webhook = slow_config_maps(&admin).await;
    let mut flooding = flood(&mallory, "m", 120);
    let of_flood = ["flow_schema=\"global-default\""];
    eventually("the flood takes what it can", async || {
        let waiting = metric(&admin, "current_inqueue_requests", &of_flood).await;
        let executing = metric(&admin, "current_executing_requests", &of_flood).await;
        (waiting > 30 && waiting + executing == 120).then_some(())
    })
    .await;
    for number in 0..20 {
        let account = json!({"metadata": {"name": format!("t-{number}")}});
        trent.post(SERVICE_ACCOUNTS, &account).await.expect(201);
        trent.get(&format!("{SERVICE_ACCOUNTS}/t-{number}")).await.expect(200);
    }
    let node = Http::new(server.node("n1"));
    node.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    admin.post(SERVICE_ACCOUNTS, &json!({"metadata": {"name": "a"}})).await.expect(201);
    assert!(flooding.try_join_next().is_none(), "all that while none of the flood was answered");
    assert!(
        metric(&admin, "current_limit_seats", &["\"global-default\""]).await > 5,
        "it has borrowed seats"
    );
    drop(webhook);
    while let Some(code) = flooding.join_next().await {
        assert_eq!(code.unwrap(), 201, "who waits gets a turn");
    }
    assert_eq!(metric(&admin, "current_executing_seats", &of_flood).await, 0);
}

#[tokio::test]
async fn who_may_not_wait_is_told_to_come_back() {
    let server = start(100).await;
    let admin = server.http();
    let (mallory, trent) = (tenant(&server, "mallory").await, tenant(&server, "trent").await);
    admin.post(LEVELS, &level("narrow", 2)).await.expect(201);
    admin.post(SCHEMAS, &schema("mallory", "narrow", "mallory")).await.expect(201);
    let expected = [
        uid_of(&admin, &format!("{SCHEMAS}/mallory")).await,
        uid_of(&admin, &format!("{LEVELS}/narrow")).await,
    ];
    eventually("requests are sorted by it", async || {
        (uids(&mallory.get(CONFIG_MAPS).await) == expected).then_some(())
    })
    .await;
    let webhook = slow_config_maps(&admin).await;
    let flooding = flood(&mallory, "m", 1);
    eventually("the only seat is taken", async || {
        (metric(&admin, "current_executing_seats", &["\"narrow\""]).await == 1).then_some(())
    })
    .await;
    let refused = mallory.get(CONFIG_MAPS).await;
    assert_eq!(
        (refused.code, refused.text().as_str()),
        (429, "Too many requests, please try again later.\n")
    );
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(uids(&refused), expected);
    assert_eq!(
        metric(&admin, "rejected_requests_total", &["\"mallory\"", "reason=\"concurrency-limit\""]).await,
        1
    );
    trent.get(CONFIG_MAPS).await.expect(200);
    let missing = mallory.get("/api/v1/namespaces/default/secrets/none").await;
    missing.expect(404);
    assert_ne!(uids(&missing), expected, "errors say what they were taken for as well");
    assert!(uids(&missing).iter().all(|uid| !uid.is_empty()));

    // Shares that change count at once, for requests that are under way as well.
    admin
        .patch(
            &format!("{LEVELS}/narrow"),
            "merge",
            &json!({"spec": {"limited": {"nominalConcurrencyShares": 50}}}),
        )
        .await
        .expect(200);
    eventually("there are more seats", async || (mallory.get(CONFIG_MAPS).await.code == 200).then_some(()))
        .await;
    assert!(metric(&admin, "nominal_limit_seats", &["\"narrow\""]).await > 10);
    drop(webhook);
    assert_eq!(flooding.join_all().await, [201]);
}

#[tokio::test]
async fn what_every_cluster_has_stays() {
    let server = TestServer::start().await;
    let http = server.http();
    let schemas = http.get(SCHEMAS).await.expect(200);
    for schema in schemas["items"].as_array().unwrap() {
        let (name, level) =
            (&schema["metadata"]["name"], &schema["spec"]["priorityLevelConfiguration"]["name"]);
        let condition = &schema["status"]["conditions"][0];
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level} and it exists"
        );
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"]),
            (&json!("Dangling"), &json!("False"), &json!("Found")),
            "{name}"
        );
        assert_eq!(condition["message"], message);
    }
    for path in [format!("{SCHEMAS}/exempt"), format!("{LEVELS}/catch-all"), format!("{LEVELS}/system")] {
        let before = uid_of(&http, &path).await;
        http.delete(&path, &Value::Null).await.expect(200);
        eventually("it is there again", async || {
            let again = http.get(&path).await;
            (again.code == 200 && again.json()["metadata"]["uid"] != before.as_str()).then_some(())
        })
        .await;
    }
    let wrong = http
        .patch(
            &format!("{LEVELS}/catch-all"),
            "merge",
            &json!({"spec": {"limited": {"nominalConcurrencyShares": 0}}}),
        )
        .await;
    wrong.expect(422);
    assert!(
        wrong.message().contains("spec of 'catch-all' must equal the fixed value"),
        "{}",
        wrong.message()
    );

    let path = format!("{LEVELS}/workload-low");
    let shares = |shares: u32| json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
    let is = async |expected: u32| {
        eventually("its shares are what they should be", async || {
            let level = http.get(&path).await.expect(200);
            (level["spec"]["limited"]["nominalConcurrencyShares"] == expected).then_some(level)
        })
        .await
    };
    http.patch(&path, "merge", &shares(7)).await.expect(200);
    let level = is(100).await;
    assert_eq!(level["metadata"]["generation"], 3, "changed, and changed back");
    let own = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}});
    http.patch(&path, "merge", &own).await.expect(200);
    http.patch(&path, "merge", &shares(7)).await.expect(200);
    // A pass that would change it back has been made when what was deleted is there again.
    let probes = format!("{SCHEMAS}/probes");
    http.delete(&probes, &Value::Null).await.expect(200);
    eventually("it is there again", async || (http.get(&probes).await.code == 200).then_some(())).await;
    assert_eq!(is(7).await["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"], "false");
}

#[tokio::test]
async fn schemas_say_whether_there_is_their_level() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(SCHEMAS, &schema("s", "later", "u")).await.expect(201);
    let path = format!("{SCHEMAS}/s");
    let dangling = async |expected: &str| {
        eventually("it says so", async || {
            let found = http.get(&path).await.expect(200)["status"]["conditions"][0].clone();
            (found["status"] == expected).then_some(found)
        })
        .await
    };
    let message = "This FlowSchema references the PriorityLevelConfiguration object named \"later\" but there is no such object";
    let found = dangling("True").await;
    assert_eq!((&found["reason"], &found["message"]), (&json!("NotFound"), &json!(message)));
    http.post(LEVELS, &level("later", 1)).await.expect(201);
    dangling("False").await;
    http.delete(&format!("{LEVELS}/later"), &Value::Null).await.expect(200);
    dangling("True").await;
}

/// A schema that comes before nearly all others sends everybody to a level without a seat: an administrator takes it
/// away again, and probes are answered meanwhile.
#[tokio::test]
async fn no_schema_locks_administrators_out() {
    let server = TestServer::start().await;
    let admin = server.http();
    let jane = tenant(&server, "jane").await;
    admin.post(LEVELS, &level("jail", 0)).await.expect(201);
    let everybody = json!({"metadata": {"name": "everybody"}, "spec": {
        "priorityLevelConfiguration": {"name": "jail"}, "matchingPrecedence": 2,
        "rules": [{"subjects": [{"kind": "Group", "group": {"name": "*"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]}]}});
    let mut first = everybody.clone();
    first["spec"]["matchingPrecedence"] = 1.into();
    admin.post(SCHEMAS, &first).await.expect(422);
    admin.post(SCHEMAS, &everybody).await.expect(201);
    eventually("others are locked out", async || (jane.get(CONFIG_MAPS).await.code == 429).then_some(()))
        .await;
    Http::new(server.anonymous()).get("/livez").await.expect(200);
    admin.post(CONFIG_MAPS, &config_map("a", "")).await.expect(201);
    admin.delete(&format!("{SCHEMAS}/everybody"), &Value::Null).await.expect(200);
    eventually("they are let in", async || (jane.get(CONFIG_MAPS).await.code == 200).then_some(())).await;
}

#[tokio::test]
async fn who_comes_first_is_not_for_tenants_to_say() {
    let server = TestServer::start().await;
    let jane = Http::new(server.user("jane", &["nobodies"]));
    for (path, object) in [(SCHEMAS, schema("mine", "exempt", "jane")), (LEVELS, level("mine", 1000))] {
        jane.post(path, &object).await.expect(403);
        jane.get(path).await.expect(403);
    }
    jane.patch(&format!("{SCHEMAS}/global-default"), "merge", &json!({"spec": {"matchingPrecedence": 2}}))
        .await
        .expect(403);
}

#[tokio::test]
async fn watches_take_a_seat_only_until_they_have_begun() {
    let server = start(60).await;
    let admin = server.http();
    let jane = tenant(&server, "jane").await;
    let mut watches = Vec::new();
    for _ in 0..80 {
        watches.push(jane.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    }
    assert_eq!(metric(&admin, "current_executing_requests", &["\"global-default\""]).await, 0);
    admin.post(CONFIG_MAPS, &config_map("seen", "")).await.expect(201);
    for watch in &mut watches {
        watch.until("the ConfigMap", |event| event.name() == "seen").await;
    }
}

/// Without priority and fairness there are two limits, which administrators do not have.
#[tokio::test]
async fn it_can_be_switched_off() {
    let configure = |config: &mut Config| {
        config.enable_priority_and_fairness = false;
        config.max_mutating_requests_in_flight = 2;
    };
    let server = TestServer::start_with(Engine::Embedded, configure).await;
    let admin = server.http();
    let jane = tenant(&server, "jane").await;
    let webhook = slow_config_maps(&admin).await;
    let flooding = flood(&jane, "j", 2);
    eventually("both are under way", async || {
        let text = admin.get("/metrics").await.text();
        text.contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 2\n").then_some(())
    })
    .await;
    let account = json!({"metadata": {"name": "j"}});
    let refused = jane.post(SERVICE_ACCOUNTS, &account).await;
    assert_eq!(refused.code, 429);
    assert_eq!((refused.headers["retry-after"].as_bytes(), uids(&refused)), (&b"1"[..], Default::default()));
    jane.get(CONFIG_MAPS).await.expect(200);
    admin.post(SERVICE_ACCOUNTS, &account).await.expect(201);
    drop(webhook);
    assert_eq!(flooding.join_all().await, [201, 201]);
}
