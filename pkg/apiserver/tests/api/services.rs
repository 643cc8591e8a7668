//! Addresses and ports of services: nobody is ever given somebody else's.

use crate::names;
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::HashSet;
use testing::{Engine, TestServer};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": kind, "selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

fn address(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap_or_else(|| panic!("no address: {service}")).to_owned()
}

async fn server_with_range(engine: Engine, range: &str) -> TestServer {
    let range = range.parse().unwrap();
    TestServer::start_with(engine, |config| config.service_cluster_ip_range = range).await
}

#[tokio::test]
async fn the_api_itself_has_the_first_address() {
    for (range, first) in
        [("10.96.0.0/12", "10.96.0.1"), ("222.222.0.0/16", "222.222.0.1"), ("fd00::/108", "fd00::1")]
    {
        let server = server_with_range(Engine::Embedded, range).await;
        let http = server.http();
        assert_eq!(address(&http.get(&format!("{SERVICES}/kubernetes")).await.expect(200)), first);
        let other = http.post(SERVICES, &service("web", "ClusterIP")).await.expect(201);
        let ip: std::net::IpAddr = address(&other).parse().unwrap();
        assert!(range.parse::<ipnet::IpNet>().unwrap().contains(&ip), "{ip} not in {range}");
        assert_eq!(other["spec"]["clusterIPs"], json!([ip.to_string()]));
    }
}

#[tokio::test]
async fn no_two_services_share_an_address_or_a_port() {
    for engine in Engine::both() {
        let mut server = server_with_range(engine, "10.0.0.0/24").await;
        let http = server.http();
        let made =
            join_all(
                (0..60).map(|index| {
                    let http = http.clone();
                    async move {
                        http.post(SERVICES, &service(&format!("s{index}"), "NodePort")).await.expect(201)
                    }
                }),
            )
            .await;
        let distinct = |services: &[Value]| {
            let addresses: HashSet<String> = services.iter().map(address).collect();
            let ports: HashSet<i64> =
                services.iter().map(|s| s["spec"]["ports"][0]["nodePort"].as_i64().unwrap()).collect();
            assert!(ports.iter().all(|port| (30000..=32767).contains(port)), "{ports:?}");
            (addresses.len(), ports.len())
        };
        assert_eq!(distinct(&made), (60, 60));

        server.restart().await;
        let http = server.http();
        let mut all = made;
        for index in 60..100 {
            all.push(http.post(SERVICES, &service(&format!("s{index}"), "NodePort")).await.expect(201));
        }
        assert_eq!(distinct(&all), (100, 100), "a restart forgets nothing");
    }
}

#[tokio::test]
async fn a_small_range_fills_up_and_is_given_back() {
    for engine in Engine::both() {
        let server = server_with_range(engine, "10.0.0.0/28").await;
        let http = server.http();
        let mut made = 0;
        let refused = loop {
            let answer = http.post(SERVICES, &service(&format!("s{made}"), "ClusterIP")).await;
            if answer.code != 201 {
                break answer;
            }
            made += 1;
            assert!(made < 16, "more addresses than there are");
        };
        assert_eq!(made, 13, "16 addresses without network, broadcast and the API's own");
        assert_eq!((refused.code, refused.reason().as_str()), (500, "InternalError"));
        assert!(
            refused.message().contains("failed to allocate a serviceIP: range is full"),
            "{}",
            refused.message()
        );
        let headless =
            json!({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}});
        http.post(SERVICES, &headless).await.expect(201);
        let freed = address(&http.get(&format!("{SERVICES}/s3")).await.expect(200));
        http.delete(&format!("{SERVICES}/s3"), &Value::Null).await.expect(200);
        let again = http.post(SERVICES, &service("again", "ClusterIP")).await.expect(201);
        assert_eq!(address(&again), freed);
        // Without the object that says so it is still taken.
        http.delete(&format!("/apis/networking.k8s.io/v1/ipaddresses/{freed}"), &Value::Null)
            .await
            .expect(200);
        let refused = http.post(SERVICES, &service("twice", "ClusterIP")).await;
        assert!(refused.message().contains("range is full"), "{}", refused.message());
    }
}

#[tokio::test]
async fn an_address_that_is_asked_for_is_given_if_it_is_free_and_ours() {
    let server = server_with_range(Engine::Embedded, "10.0.0.0/24").await;
    let http = server.http();
    let asking = |name: &str, ip: &str| {
        let mut wish = service(name, "ClusterIP");
        wish["spec"]["clusterIP"] = ip.into();
        wish
    };
    assert_eq!(address(&http.post(SERVICES, &asking("a", "10.0.0.77")).await.expect(201)), "10.0.0.77");
    for (ip, says) in [
        ("10.0.0.77", "provided IP is already allocated"),
        ("10.1.0.1", "is not in the valid range. The range of valid IPs is 10.0.0.0/24"),
        ("10.0.0", "must be a valid IP address"),
    ] {
        let refused = http.post(SERVICES, &asking("b", ip)).await;
        assert_eq!((refused.code, refused.reason().as_str()), (422, "Invalid"), "{ip}");
        assert!(refused.message().contains(says), "{ip}: {}", refused.message());
        assert!(refused.message().contains("spec.clusterIP"), "{ip}: {}", refused.message());
    }
    let mut taken = service("p", "NodePort");
    taken["spec"]["ports"][0]["nodePort"] = 30080.into();
    http.post(SERVICES, &taken).await.expect(201);
    taken["metadata"]["name"] = "q".into();
    let refused = http.post(SERVICES, &taken).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused
            .message()
            .contains("spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"),
        "{}",
        refused.message()
    );
    let list = http.get(SERVICES).await.expect(200);
    assert_eq!(names(&list), ["a", "kubernetes", "p"], "a refused service leaves nothing behind");
}

#[tokio::test]
async fn a_service_keeps_what_it_has_and_gives_back_what_it_no_longer_wants() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = format!("{SERVICES}/web");
    let made = http.post(SERVICES, &service("web", "NodePort")).await.expect(201);
    let kept = http.put(&path, &service("web", "NodePort")).await.expect(200);
    assert_eq!(address(&kept), address(&made), "an update that leaves the address out keeps it");
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], made["spec"]["ports"][0]["nodePort"]);
    let port = made["spec"]["ports"][0]["nodePort"].clone();
    let two =
        json!({"spec": {"ports": [{"name": "a", "port": 80, "nodePort": port}, {"name": "b", "port": 81}]}});
    let two = http.patch(&path, "merge", &two).await.expect(200);
    assert_eq!(two["spec"]["ports"][0]["nodePort"], port);
    assert!(two["spec"]["ports"][1]["nodePort"].as_u64().is_some_and(|other| port != other), "{two}");
    let local = json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}});
    let local = http.patch(&path, "merge", &local).await.expect(200);
    assert!(local["spec"]["healthCheckNodePort"].as_u64().is_some_and(|check| check >= 30000), "{local}");
    let inner = http.patch(&path, "merge", &json!({"spec": {"type": "ClusterIP"}})).await.expect(200);
    assert!(inner["spec"]["ports"][0].get("nodePort").is_none(), "{inner}");
    assert!(inner["spec"].get("healthCheckNodePort").is_none(), "{inner}");
    let mut other = service("other", "NodePort");
    other["spec"]["ports"][0]["nodePort"] = port;
    http.post(SERVICES, &other).await.expect(201);
    let named = json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": null}});
    let named = http.patch(&path, "merge", &named).await.expect(200);
    assert!(named["spec"].get("clusterIP").is_none_or(|ip| ip == ""), "{named}");
    let mut wish = service("heir", "ClusterIP");
    wish["spec"]["clusterIP"] = address(&made).into();
    http.post(SERVICES, &wish).await.expect(201);
}

#[tokio::test]
async fn a_service_may_have_an_address_of_each_family() {
    for engine in Engine::both() {
        let server = server_with_range(engine, "10.0.0.0/24,fd00::/120").await;
        let http = server.http();
        let addresses = |service: &Value| -> Vec<String> {
            let list = service["spec"]["clusterIPs"].as_array().expect("a list").iter();
            list.map(|ip| ip.as_str().expect("text").to_owned()).collect()
        };
        let mut wanted = service("both", "ClusterIP");
        wanted["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
        let both = http.post(SERVICES, &wanted).await.expect(201);
        let [four, six] = addresses(&both).try_into().expect("two addresses");
        assert!(four.starts_with("10.0.0.") && six.starts_with("fd00::"), "{four} {six}");
        assert_eq!(both["spec"]["clusterIP"], four.as_str());
        assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        let single = http.post(SERVICES, &service("single", "ClusterIP")).await.expect(201);
        assert_eq!(single["spec"]["ipFamilyPolicy"], "SingleStack");
        assert_eq!(addresses(&single).len(), 1);

        // The second one is its own until it is given back, which the policy says; then another may have it.
        let mut second = service("second", "ClusterIP");
        second["spec"]["clusterIP"] = six.as_str().into();
        let refused = http.post(SERVICES, &second).await.expect(422);
        assert!(
            refused["message"].as_str().is_some_and(|text| text.contains("already allocated")),
            "{refused}"
        );
        let mut less = both.clone();
        less["spec"]["clusterIPs"] = json!([four]);
        less["spec"]["ipFamilies"] = json!(["IPv4"]);
        let path = format!("{SERVICES}/both");
        let refused = http.put(&path, &less).await.expect(422);
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("SingleStack")), "{refused}");
        let mut single = both.clone();
        single["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        let single = http.put(&path, &single).await.expect(200);
        assert_eq!(addresses(&single), [four.as_str()]);
        let second = http.post(SERVICES, &second).await.expect(201);
        assert_eq!(second["spec"]["ipFamilies"], json!(["IPv6"]));

        // And back: the first stays, another second one is found.
        let mut again = single.clone();
        again["spec"]["ipFamilyPolicy"] = "PreferDualStack".into();
        let again = http.put(&path, &again).await.expect(200);
        let [first, other] = addresses(&again).try_into().expect("two addresses");
        assert_eq!(first, four);
        assert_ne!(other, six);
    }
}

#[tokio::test]
async fn addresses_of_services_are_objects() {
    let mut server = TestServer::start().await;
    let http = server.http();
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let range = http.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.expect(200);
    assert_eq!(range["spec"]["cidrs"], json!(["10.96.0.0/12"]));
    assert_eq!(range["status"]["conditions"][0]["type"], "Ready");
    let own = http.get(&format!("{addresses}/10.96.0.1")).await.expect(200);
    assert_eq!(
        own["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );

    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]}});
    http.post("/api/v1/namespaces/default/services", &service("a")).await.expect(201);
    let path = format!("{addresses}/10.96.9.9");
    assert_eq!(
        http.get(&path).await.expect(200)["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"],
        "IPv4"
    );
    // An address without its object is one that a service still has: it is taken again.
    http.delete(&path, &Value::Null).await.expect(200);
    server.restart().await;
    let http = server.http();
    http.get(&path).await.expect(200);
    http.delete("/api/v1/namespaces/default/services/a", &Value::Null).await.expect(200);
    http.get(&path).await.expect(404);

    // Whoever uses the address for something else keeps services from it.
    let taken = json!({"metadata": {"name": "10.96.9.9"}, "spec": {"parentRef": {"group": "example.com", "resource": "xs", "name": "x"}}});
    http.post(addresses, &taken).await.expect(201);
    let refused = http.post("/api/v1/namespaces/default/services", &service("b")).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("provided IP is already allocated"), "{}", refused.message());
}

#[tokio::test]
async fn addresses_come_from_ranges_that_were_added() {
    let server = server_with_range(Engine::Embedded, "10.0.0.0/28").await;
    let http = server.http();
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    let asked = |name: &str| {
        let mut service = service(name, "ClusterIP");
        service["spec"]["clusterIP"] = "10.1.0.9".into();
        service
    };
    http.post(cidrs, &json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.1.0.0/24"]}}))
        .await
        .expect(201);
    let refused = http.post(SERVICES, &asked("early")).await;
    assert!(
        refused.code == 422 && refused.message().contains("not in the valid range"),
        "{}",
        refused.message()
    );
    let say = async |status: &str| {
        let ready = json!([{"type": "Ready", "status": status, "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let patch = json!({"status": {"conditions": ready}});
        http.patch(&format!("{cidrs}/more/status"), "merge", &patch).await.expect(200);
        // A read waits until the caches know of it.
        http.get(&format!("{cidrs}/more")).await.expect(200);
    };
    say("True").await;
    http.post(SERVICES, &asked("asked")).await.expect(201);
    for n in 0..13 {
        let made = http.post(SERVICES, &service(&format!("s{n}"), "ClusterIP")).await.expect(201);
        assert!(address(&made).starts_with("10.0.0."), "{made}");
    }
    let more = http.post(SERVICES, &service("more", "ClusterIP")).await.expect(201);
    assert!(address(&more).starts_with("10.1.0."), "{more}");
    say("False").await;
    let refused = http.post(SERVICES, &service("late", "ClusterIP")).await;
    assert!(refused.message().contains("range is full"), "{}", refused.message());
}
