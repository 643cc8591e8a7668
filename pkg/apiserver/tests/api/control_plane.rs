//! Several apiservers as one, and one that comes and goes.

use crate::{CONFIG_MAPS, config_map, crds, names, version};
use apiserver::EtcdConfig;
use pki::{Authority, San};
use serde_json::{Value, json};
use std::sync::Arc;
use testing::{Engine, EtcdServer, EtcdTls, Http, TestServer, eventually, in_time};

#[tokio::test]
async fn what_one_acknowledged_the_other_shows() {
    let one = TestServer::start_on(Engine::etcd()).await;
    let two = one.twin().await;
    let (a, b) = (one.http(), two.http());
    let start = b.get(CONFIG_MAPS).await.expect(200);
    let mut watch = b.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", version(&start))).await;
    for round in 0..30 {
        let name = format!("c{round:02}");
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let made = writer.post(CONFIG_MAPS, &config_map(&name, "1")).await.expect(201);
        let read = reader.get(&format!("{CONFIG_MAPS}/{name}")).await.expect(200);
        assert_eq!(version(&read), version(&made));
        let list = reader.get(CONFIG_MAPS).await.expect(200);
        assert!(names(&list).contains(&name.as_str()));
        let not_older =
            format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&made));
        assert!(names(&reader.get(&not_older).await.expect(200)).contains(&name.as_str()));
        let stale = json!({"metadata": {"name": name, "resourceVersion": version(&start)}});
        assert_eq!(reader.put(&format!("{CONFIG_MAPS}/{name}"), &stale).await.code, 409);
        assert_eq!(watch.next().await.unwrap().name(), name);
    }
    // The same keys: a token of one, a secret of one, a page of one are good at the other.
    let token = one.service_account_token("default", "default").await;
    Http::new(two.token(&token)).get("/version").await.expect(200);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
    a.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    assert_eq!(b.get("/api/v1/namespaces/default/secrets/s").await.expect(200)["data"]["a"], "Yg==");
    let page = a.get(&format!("{CONFIG_MAPS}?limit=10")).await.expect(200);
    let more = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&b.get(&format!("{CONFIG_MAPS}?limit=10&continue={more}")).await.expect(200))[0], "c10");
}

/// The names are upstream's, and who asks for one of them is told of that alone.
#[tokio::test]
async fn every_check_of_upstreams_can_be_asked_for() {
    let etcd = Arc::new(EtcdServer::start());
    let server = TestServer::start_on(Engine::Etcd(etcd.clone())).await;
    let http = server.http();
    let of_all = "ping log etcd poststarthook/start-apiserver-admission-initializer poststarthook/generic-apiserver-start-informers         poststarthook/start-apiextensions-informers poststarthook/start-apiextensions-controllers         poststarthook/crd-informer-synced poststarthook/bootstrap-controller         poststarthook/start-system-namespaces-controller poststarthook/start-service-ip-repair-controllers         poststarthook/scheduling/bootstrap-system-priority-classes         poststarthook/start-cluster-authentication-info-controller poststarthook/start-kube-aggregator-informers         poststarthook/apiservice-registration-controller poststarthook/apiservice-status-local-available-controller         poststarthook/apiservice-status-remote-available-controller poststarthook/kube-apiserver-autoregistration         autoregister-completion poststarthook/apiservice-openapi-controller poststarthook/storage-readiness";
    for (endpoint, own) in [("healthz", ""), ("livez", ""), ("readyz", "informer-sync shutdown")] {
        let verbose = http.get(&format!("/{endpoint}?verbose")).await;
        assert_eq!(verbose.code, 200, "{}", verbose.text());
        for check in of_all.split_whitespace().chain(own.split_whitespace()) {
            assert!(verbose.text().contains(&format!("[+]{check} ok\n")), "{check}: {}", verbose.text());
            assert_eq!(http.get(&format!("/{endpoint}/{check}")).await.text(), "ok", "{check}");
        }
        assert!(verbose.text().ends_with(&format!("{endpoint} check passed\n")), "{}", verbose.text());
        assert_eq!(http.get(&format!("/{endpoint}/nonsense")).await.code, 404);
    }
    assert_eq!(http.get("/livez/shutdown").await.code, 404, "it says nothing of whether it lives");

    // Without its store it is of no use, but starting it again would be no help.
    etcd.freeze(true);
    assert_eq!(http.get("/livez/etcd").await.code, 500);
    assert_eq!(http.get("/livez/ping").await.text(), "ok");
    assert_eq!(http.get("/livez?exclude=etcd").await.text(), "ok");
    assert!(http.get("/readyz?verbose").await.text().contains("[-]etcd failed: reason withheld\n"));
    etcd.freeze(false);
}

/// Nobody but the store is there on the machine of a test, unless somebody runs a cluster there.
#[tokio::test]
async fn components_are_asked_how_they_are() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = "/api/v1/componentstatuses";
    let list = http.get(path).await;
    let warning = list.headers.get("warning").and_then(|warning| warning.to_str().ok()).unwrap_or_default();
    assert!(warning.contains("v1 ComponentStatus is deprecated in v1.19+"), "{warning}");
    assert_eq!(names(&list.expect(200)), ["scheduler", "controller-manager", "etcd-0"]);
    let store = http.get(&format!("{path}/etcd-0")).await.expect(200);
    assert_eq!(store["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = http.send("GET", &format!("{path}/etcd-0"), &table, "").await.expect(200);
    assert_eq!(table["rows"][0]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
    let one = http.get(&format!("{path}?fieldSelector=metadata.name%3Detcd-0")).await.expect(200);
    assert_eq!(names(&one), ["etcd-0"]);
    assert_eq!(names(&http.get(&format!("{path}?labelSelector=a%3Db")).await.expect(200)), [""; 0]);
    assert_eq!(http.get(&format!("{path}/kubelet")).await.code, 404);
    assert_eq!(http.delete(&format!("{path}/etcd-0"), &Value::Null).await.code, 405);
    assert_eq!(http.get(&format!("{path}?watch=true")).await.code, 405);
}

#[tokio::test]
async fn when_one_dies_the_other_goes_on() {
    let mut one = TestServer::start_on(Engine::etcd()).await;
    let two = one.twin().await;
    let (a, b) = (one.http(), two.http());
    let last = a.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    one.kill();
    b.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    b.post(CONFIG_MAPS, &config_map("b", "1")).await.expect(201);
    let mut watch = b.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", version(&last))).await;
    assert_eq!(watch.next().await.unwrap().name(), "b");
    one.restart().await;
    assert_eq!(names(&one.http().get(CONFIG_MAPS).await.expect(200)), ["a", "b"]);
}

#[tokio::test]
async fn services_of_two_servers_never_share_an_address() {
    let one = TestServer::start_with(Engine::etcd(), |config| {
        config.service_cluster_ip_range = "10.0.0.0/25".parse().unwrap();
    })
    .await;
    let two = one.twin().await;
    let servers = [one.http(), two.http()];
    let made = futures::future::join_all((0..60).map(|index| {
        let http = servers[index % 2].clone();
        async move {
            let service =
                json!({"metadata": {"name": format!("s{index}")}, "spec": {"ports": [{"port": 80}]}});
            http.post("/api/v1/namespaces/default/services", &service).await.expect(201)
        }
    }))
    .await;
    let addresses: std::collections::HashSet<&str> =
        made.iter().map(|service| service["spec"]["clusterIP"].as_str().unwrap()).collect();
    assert_eq!(addresses.len(), 60);
}

#[tokio::test]
async fn nothing_is_made_in_what_is_on_its_way_out() {
    let one = TestServer::start_on(Engine::etcd()).await;
    let two = one.twin().await;
    for round in 0..10 {
        let team = format!("team-{round}");
        let config_maps = format!("/api/v1/namespaces/{team}/configmaps");
        let namespace = json!({"metadata": {"name": team}});
        racing(&one, &two, "/api/v1/namespaces", &namespace, &config_maps, json!({})).await;
        let widgets = "/apis/example.com/v1/namespaces/default/widgets";
        racing(&one, &two, crds::DEFINITIONS, &crds::definition(), widgets, json!({"size": 1})).await;
    }
}

/// Makes objects through one apiserver while what they are made in is deleted through the other: none is younger than that.
async fn racing(
    one: &TestServer,
    two: &TestServer,
    path: &str,
    container: &Value,
    objects: &str,
    spec: Value,
) {
    let (a, b) = (one.http(), two.http());
    eventually("it is there", async || (a.post(path, container).await.code == 201).then_some(())).await;
    let object = json!({"metadata": {"generateName": "late-"}, "spec": spec});
    let create = async || {
        eventually("objects are taken", async || {
            matches!(b.post(objects, &object).await.code, 201).then_some(())
        })
        .await;
        let mut last = 0;
        loop {
            let made = b.post(objects, &object).await;
            if made.code != 201 {
                assert!(matches!(made.code, 403..=405), "{}", made.text());
                return last;
            }
            last = version(&made.json()).parse::<u64>().unwrap();
        }
    };
    let delete = async {
        eventually("there are some", async || {
            let list = a.get(objects).await.json();
            list["items"].as_array().is_some_and(|items| items.len() > 20).then_some(())
        })
        .await;
        let name = container["metadata"]["name"].as_str().unwrap();
        a.delete(&format!("{path}/{name}"), &Value::Null).await.expect(200)
    };
    let (made, gone) = futures::join!(futures::future::join_all((0..8).map(|_| create())), delete);
    let gone: u64 = version(&gone).parse().unwrap();
    assert!(made.iter().all(|made| *made < gone), "{path}: {made:?} after {gone}");
}

#[tokio::test]
async fn a_restart_loses_nothing_that_was_acknowledged() {
    for engine in Engine::both() {
        let mut server = TestServer::start_on(engine).await;
        let http = server.http();
        let mut made = Vec::new();
        for index in 0..20 {
            made.push(http.post(CONFIG_MAPS, &config_map(&format!("c{index:02}"), "1")).await.expect(201));
        }
        http.delete(&format!("{CONFIG_MAPS}/c05"), &Value::Null).await.expect(200);
        for crash in [false, true] {
            if crash {
                server.kill();
            }
            server.restart().await;
            let http = server.http();
            let list = http.get(CONFIG_MAPS).await.expect(200);
            assert_eq!(names(&list).len(), 19);
            for object in made.iter().filter(|object| object["metadata"]["name"] != "c05") {
                let name = object["metadata"]["name"].as_str().unwrap();
                assert_eq!(http.get(&format!("{CONFIG_MAPS}/{name}")).await.expect(200), *object);
            }
            let mut watch =
                http.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", version(&made[18]))).await;
            let next = [watch.next().await.unwrap(), watch.next().await.unwrap()];
            assert_eq!(next.map(|e| format!("{} {}", e.kind, e.name())), ["ADDED c19", "DELETED c05"]);
            let newer = http.post(CONFIG_MAPS, &config_map(&format!("after-{crash}"), "1")).await.expect(201);
            let number = |object: &Value| version(object).parse::<u64>().unwrap();
            assert!(number(&newer) > number(&made[19]));
            http.delete(&format!("{CONFIG_MAPS}/after-{crash}"), &Value::Null).await.expect(200);
        }
    }
}

#[tokio::test]
async fn ending_lets_requests_finish_and_ends_watches() {
    let mut server = TestServer::start().await;
    let http = server.http();
    let watch = http.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let writer = tokio::spawn({
        let http = http.clone();
        async move {
            let mut acknowledged = Vec::new();
            for index in 0.. {
                let name = format!("c{index}");
                let body = config_map(&name, "1").to_string();
                let headers = [("content-type", "application/json")];
                let Ok(answer) = http.try_send("POST", CONFIG_MAPS, &headers, body).await else { break };
                answer.expect(201);
                acknowledged.push(name);
            }
            acknowledged
        }
    });
    let seen = in_time("some writes", async {
        let mut watch = watch;
        watch.until("some writes", |event| event.name() == "c5").await;
        watch
    })
    .await;
    server.stop().await;
    let acknowledged = writer.await.unwrap();
    seen.rest().await;
    server.restart().await;
    let list = server.http().get(CONFIG_MAPS).await.expect(200);
    let stored = names(&list);
    for name in &acknowledged {
        assert!(stored.contains(&name.as_str()), "{name} was acknowledged");
    }
}

#[tokio::test]
async fn etcd_may_ask_for_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let now = jiff::Timestamp::now();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let authority = Authority::create("etcd", now).unwrap();
    let ca_file = write("ca.crt", authority.pem());
    let address: std::net::IpAddr = [127, 0, 0, 1].into();
    let own = authority.server("etcd", &[San::Ip(address)], now).unwrap();
    let tls = EtcdTls {
        ca_file: ca_file.clone(),
        cert_file: write("server.crt", &own.certificate),
        key_file: write("server.key", &own.key),
    };
    let etcd = EtcdServer::start_secured(tls);
    let client = authority.client("apiserver", &[], now).unwrap();
    let config = EtcdConfig {
        servers: vec![etcd.url()],
        ca_file: Some(ca_file),
        cert_file: Some(write("client.crt", &client.certificate)),
        key_file: Some(write("client.key", &client.key)),
    };
    // Without a certificate, or with somebody else's, etcd does not talk to us.
    let stranger = Authority::create("elsewhere", now).unwrap().client("apiserver", &[], now).unwrap();
    let read = |path: &Option<std::path::PathBuf>| std::fs::read(path.as_ref().unwrap()).unwrap();
    let identity = (stranger.certificate.clone().into(), stranger.key.clone().into());
    for identity in [None, Some(identity)] {
        let tls = store::Tls { ca: read(&config.ca_file), identity };
        assert!(store::Etcd::connect(&config.servers, Some(tls)).await.is_err());
    }
    let server = TestServer::start_with(Engine::Embedded, |c| c.etcd = Some(config.clone())).await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    assert_eq!(names(&http.get(CONFIG_MAPS).await.expect(200)), ["a"]);
    let tls = store::Tls {
        ca: read(&config.ca_file),
        identity: Some((read(&config.cert_file), read(&config.key_file))),
    };
    let store = store::Etcd::connect(&config.servers, Some(tls)).await.unwrap();
    let key = "/registry/core/configmaps/default/a";
    assert!(store::Store::get(&store, key).await.unwrap().is_some(), "it is in etcd");
}
