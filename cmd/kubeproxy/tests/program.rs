//! The program itself, beside a real apiserver, on a host of its own, with each iptables: what it serves, what of it
//! outlives the program and the apiserver, and that nothing is left of it when it is told so.

#[path = "../../../pkg/network/tests/network/host.rs"]
mod host;

use host::Host;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testing::{Http, TestServer, eventually, in_time};
use tokio::net::TcpListener;

/// The node's address.
const NODE: &str = "192.168.77.1";
/// Where somebody counts what he is sent.
const COUNTER: u16 = 8081;

#[test]
fn serves_with_nft() {
    on_a_host("iptables-nft");
}

#[test]
fn serves_with_legacy() {
    on_a_host("iptables-legacy");
}

fn on_a_host(iptables: &'static str) {
    // Everything that the test starts is on this host: its processes and threads begin there.
    Host::new().block_on(move || async move { tell(iptables).await });
}

async fn tell(iptables: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let _nginx = Nginx(folder.path().to_owned());
    prepare(iptables, folder.path());
    let before = traces(iptables, folder.path());
    let mut server = TestServer::start().await;
    let kubeconfig = server.kubeconfig(server.address(), "system:node:n1", &["system:nodes"]);
    let http = server.http();
    fill(&http).await;
    let _pages = Killed(
        Command::new("busybox")
            .args(["httpd", "-f", "-p", &format!("{NODE}:8080"), "-h"])
            .arg(folder.path().join("www"))
            .spawn()
            .expect("busybox runs"),
    );
    let theirs = std::net::TcpListener::bind("0.0.0.0:80").expect("a free port");
    let proxy = Program { folder: folder.path().to_owned(), kubeconfig, iptables: iptables.to_owned() };
    let mut running = proxy.start();

    let web = address_of(&http, "web").await;
    is(&format!("http://{web}/page"), &[], "page 200").await;
    says_how_it_is_doing(&web).await;
    eventually("a connection that one side has closed is remembered for an hour", || async {
        let seconds = sh("cat /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait");
        (seconds.trim() == "3600").then_some(())
    })
    .await;
    answers_names(&web).await;
    keeps_packets_for_added_ranges(&http).await;
    let refused = "nginx refuses the configuration, the last good one stays: \
        bind() to 0.0.0.0:80 failed (98: Address already in use)";
    is_told(&http, "Node", "HostsNotServed", refused).await;
    drop(theirs);
    serves_hosts_and_paths(&http, folder.path()).await;
    follows_headless_services(&http).await;
    takes_long_bodies(folder.path()).await;
    keeps_good_certificates(&http, folder.path()).await;
    serves_ingresses_as_they_are_meant(&http, folder.path()).await;
    leaves_names_to_whom_they_belong(&http, &web).await;
    resolves_only_what_is_claimed(&http, &Http::new(server.user("tenant", &[])), folder.path()).await;
    puts_back_what_others_take_away(&http, &proxy, &running, &web).await;
    serves_while_statuses_are_not_taken(&http).await;
    running.kill();
    let mut running = takes_nothing_away_that_it_does_not_know(&http, &proxy, &web).await;

    // Killed, and started again without an apiserver, after somebody has removed its rules: it has its copy.
    let nginx = nginx_pid(folder.path());
    eventually("the copy knows the last change", || async {
        let copy = std::fs::read_to_string(folder.path().join("state/objects.json")).unwrap_or_default();
        copy.contains("known.example").then_some(())
    })
    .await;
    running.kill();
    server.stop().await;
    sh(&format!("{iptables} -t nat -F KUBE-SERVICES; ip address del 10.96.0.10/32 dev lo"));
    // The kernel tells of what is removed: nobody has to look.
    let tells = iptables.contains("nft");
    let mut running = proxy.start_looking_every(if tells { "1h" } else { "2s" });
    is(&format!("http://{web}/page"), &[], "page 200").await;
    for flushed in ["nat -F KUBE-SERVICES", "nat -F OUTPUT"] {
        sh(&format!("{iptables} -t {flushed}"));
        is(&format!("http://{web}/page"), &[], "page 200").await;
    }
    answers_names(&web).await;
    is("http://late.example/page", &["--resolve", "late.example:80:192.168.77.1"], "page 200").await;
    assert_eq!(nginx_pid(folder.path()), nginx, "nginx goes on");

    // Back again: what is gone is taken away.
    server.restart().await;
    let http = server.http();
    http.delete("/api/v1/namespaces/default/services/web", &json!({})).await.expect(200);
    is(&format!("http://{web}/page"), &[], " 000").await;
    let site = ["--resolve", "site.example:80:192.168.77.1"];
    is("http://site.example/a/page", &site, " 503").await;
    for kind in [
        "/apis/minik8s.io/v1/namespaces/default/dnses",
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    ] {
        http.delete(kind, &json!({})).await.expect(200);
    }
    is("http://site.example/a/page", &site, " 000").await;
    eventually("no key is left", || async {
        let certificates = std::fs::read_dir(folder.path().join("state/nginx/certificates")).ok()?;
        (certificates.count() == 0).then_some(())
    })
    .await;
    running.kill();

    let cleaned = proxy.anew().arg("--cleanup").output().expect("it runs");
    assert!(cleaned.status.success(), "{}", String::from_utf8_lossy(&cleaned.stderr));
    // nginx ends in its own time.
    eventually("no process is left", || async { processes(folder.path()).is_empty().then_some(()) }).await;
    assert_eq!(traces(iptables, folder.path()), before);
}

/// A node, and services: one with a web server, one that load balancers ask about; a host and an ingress.
async fn fill(http: &Http) {
    let post = async |path: &str, object: Value| http.post(path, &object).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "proxies"}, "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"}});
    post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"podCIDR": "10.244.1.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE}]}});
    post("/api/v1/nodes", node).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": NODE}]}});
    http.patch("/api/v1/nodes/n1/status", "merge", &status).await.expect(200);
    let service = |name: &str, more: Value| {
        let mut spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    };
    let slice = |service: &str, port: u16| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
            "endpoints": [{"addresses": [NODE], "nodeName": "n1", "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}]})
    };
    let balanced =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000});
    for (name, more, port) in [
        ("web", json!({"type": "NodePort"}), 8080),
        ("balanced", balanced, 8080),
        ("counter", json!({}), COUNTER),
        ("headless", json!({"clusterIP": "None"}), 8080),
    ] {
        post("/api/v1/namespaces/default/services", service(name, more)).await;
        post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice(name, port)).await;
    }
    post("/apis/minik8s.io/v1/namespaces/default/dnses", dns("site", "site.example")).await;
    let mut counter = dns("counter", "counter.example");
    counter["spec"]["subpaths"] = json!([{"path": "/", "service": "counter", "port": 80}]);
    post("/apis/minik8s.io/v1/namespaces/default/dnses", counter).await;
}

fn dns(name: &str, host: &str) -> Value {
    json!({"apiVersion": "minik8s.io/v1", "kind": "DNS", "metadata": {"name": name}, "spec": {"host": host,
        "subpaths": [{"path": "/", "service": "web", "port": 80}, {"path": "/a", "service": "web", "port": 80}]}})
}

async fn says_how_it_is_doing(web: &str) {
    is(&format!("http://{NODE}:31000/"), &[], "\"localEndpoints\": 1").await;
    is("http://127.0.0.1:10256/healthz", &[], "\"nodeEligible\":true} 200").await;
    is("http://127.0.0.1:10249/proxyMode", &[], "iptables 200").await;
    for name in [
        "kubeproxy_sync_proxy_rules_duration_seconds_count",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count",
        "kubeproxy_network_programming_duration_seconds_count",
        "kubeproxy_sync_proxy_rules_iptables_total",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    ] {
        // Rules serve before the sync that wrote them is over and counted.
        eventually(&format!("{name} while {web} is served"), || async {
            let metrics = curl("http://127.0.0.1:10249/metrics", &[]);
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            value.filter(|value| *value > 0.0)
        })
        .await;
    }
}

async fn answers_names(web: &str) {
    let reversed = web.split('.').rev().collect::<Vec<_>>().join(".") + ".in-addr.arpa";
    for (kind, name, expected) in [
        ("a", "web.default.svc.cluster.local", web),
        ("srv", "_http._tcp.web.default.svc.cluster.local", "80 web.default.svc.cluster.local"),
        ("ptr", &reversed, "web.default.svc.cluster.local"),
        ("a", "site.example", NODE),
    ] {
        eventually(&format!("{name} is {expected}"), || async {
            let answer = sh(&format!("timeout 5 busybox nslookup -type={kind} {name} 10.96.0.10 || true"));
            answer.contains(expected).then_some(())
        })
        .await;
    }
}

async fn serves_hosts_and_paths(http: &Http, folder: &Path) {
    let site = ["--resolve", "site.example:80:192.168.77.1"];
    is("http://site.example/a/page", &site, "page 200").await;
    eventually("the host's file of names", || async {
        let hosts = std::fs::read_to_string(folder.join("hosts")).unwrap_or_default();
        hosts.contains("192.168.77.1 site.example").then_some(())
    })
    .await;
    eventually("its status", || async {
        let dns = http.get("/apis/minik8s.io/v1/namespaces/default/dnses/site").await.expect(200);
        (dns["status"]["conditions"][0]["status"] == "True").then_some(())
    })
    .await;
    // Somebody who reads slowly is not cut off by other hosts that come meanwhile.
    let slow = Command::new("curl")
        .args(["-s", "--limit-rate", "16M", "-o", "/dev/null", "-w", "%{size_download}"])
        .args(site)
        .arg("http://site.example/large")
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs");
    for n in 0..3 {
        let host = format!("h{n}.example");
        let path = "/apis/minik8s.io/v1/namespaces/default/dnses";
        http.post(path, &dns(&format!("h{n}"), &host)).await.expect(201);
        is(&format!("http://{host}/page"), &["--resolve", &format!("{host}:80:{NODE}")], "page 200").await;
    }
    let output = slow.wait_with_output().expect("curl ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), LARGE.to_string());
}

/// One more range of services' addresses is kept on the node for as long as it is there; what is a node's own never is.
async fn keeps_packets_for_added_ranges(http: &Http) {
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    for (name, range) in
        [("network", "192.168.77.0/24"), ("pods", "10.244.0.0/16"), ("more", "203.0.113.0/24")]
    {
        let cidr = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name},
            "spec": {"cidrs": [range]}});
        http.post(cidrs, &cidr).await.expect(201);
    }
    let routes = || sh("ip route show dev lo proto 109");
    eventually("a route for the range", || async { routes().contains("203.0.113.0/24").then_some(()) }).await;
    let routes_now = routes();
    assert!(!routes_now.contains("192.168.77.0/24") && !routes_now.contains("10.244.0.0/16"), "{routes_now}");
    http.delete(&format!("{cidrs}/more"), &json!({})).await.expect(200);
    eventually("no route for it", || async { (!routes().contains("203.0.113.0/24")).then_some(()) }).await;
}

/// A host leads to the endpoints of a service without an address, as they come and go.
async fn follows_headless_services(http: &Http) {
    let mut headless = dns("headless", "headless.example");
    headless["spec"]["subpaths"] = json!([{"path": "/a", "service": "headless", "port": 80}]);
    let dnses = "/apis/minik8s.io/v1/namespaces/default/dnses";
    http.post(dnses, &headless).await.expect(201);
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/headless-1";
    let resolve = ["--resolve", "headless.example:80:192.168.77.1"];
    for (is_ready, expected) in [(true, "page 200"), (false, " 503"), (true, "page 200")] {
        let endpoints = json!([{"addresses": [NODE], "nodeName": "n1", "conditions": {"ready": is_ready}}]);
        http.patch(slice, "merge", &json!({"endpoints": endpoints})).await.expect(200);
        is("http://headless.example/a/page", &resolve, expected).await;
    }
    eventually("its status", || async {
        let dns = http.get(&format!("{dnses}/headless")).await.expect(200);
        (dns["status"]["subpaths"][0]["clusterIP"] == "None").then_some(())
    })
    .await;
}

/// What somebody sends arrives as it comes: nothing is kept on a disk, where the workers of nginx could not put it.
async fn takes_long_bodies(folder: &Path) {
    let counter = std::net::TcpListener::bind((NODE, COUNTER)).expect("a free port");
    // Not in this thread, which waits for curl.
    std::thread::spawn(move || counter.incoming().flatten().try_for_each(count));
    let body = format!("@{}", folder.join("www/large").display());
    let sending = ["--resolve", "counter.example:80:192.168.77.1", "--data-binary", &body];
    is("http://counter.example/", &sending, &format!("{LARGE} bytes 200")).await;
}

/// Answers a request by the length of its body.
fn count(connection: std::net::TcpStream) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let (mut length, mut line) = (0, String::new());
    while connection.read_line(&mut line)? > 2 {
        let header = line.to_ascii_lowercase();
        length = header.strip_prefix("content-length:").map_or(length, |it| it.trim().parse().unwrap_or(0));
        line.clear();
    }
    let counted = std::io::copy(&mut connection.by_ref().take(length), &mut std::io::sink())?;
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{counted} bytes");
    connection.get_mut().write_all(answer.as_bytes())
}

async fn keeps_good_certificates(http: &Http, folder: &Path) {
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "safe"}, "spec": {
        "tls": [{"hosts": ["safe.example"], "secretName": "safe"}],
        "rules": [{"host": "safe.example", "http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "web", "port": {"name": "http"}}}}]}}]}});
    http.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress).await.expect(201);
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).expect("made before");
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "safe"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": text("one.crt"), "tls.key": text("one.key")}});
    http.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let safe = ["-k", "-v", "--stderr", "-", "--resolve", "safe.example:443:192.168.77.1"];
    is("https://safe.example/page", &safe, "O=one").await;
    // A renewed one is used; one that makes no sense is not, and hinders nobody.
    secret["stringData"] = json!({"tls.crt": text("two.crt"), "tls.key": text("two.key")});
    http.patch("/api/v1/namespaces/default/secrets/safe", "merge", &secret).await.expect(200);
    is("https://safe.example/page", &safe, "O=two").await;
    secret["stringData"] = json!({"tls.crt": text("one.crt"), "tls.key": text("two.key")});
    http.patch("/api/v1/namespaces/default/secrets/safe", "merge", &secret).await.expect(200);
    let path = "/apis/minik8s.io/v1/namespaces/default/dnses";
    http.post(path, &dns("late", "late.example")).await.expect(201);
    is("http://late.example/page", &["--resolve", "late.example:80:192.168.77.1"], "page 200").await;
    is("https://safe.example/page", &safe, "O=two").await;
}

/// What is odd in one of them must not keep back the others, and what is somebody else's is left alone.
async fn serves_ingresses_as_they_are_meant(http: &Http, folder: &Path) {
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let rule = |path: &str, kind: &str, service: &str| json!({"path": path, "pathType": kind, "backend": {"service": {"name": service, "port": {"number": 80}}}});
    let ingress = |name: &str, annotations: Value, paths: Value| {
        let host = format!("{name}.example");
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name, "annotations": annotations},
            "spec": {"rules": [{"host": host, "http": {"paths": paths}}]}})
    };
    let other = ingress(
        "other",
        json!({"kubernetes.io/ingress.class": "nginx"}),
        json!([rule("/", "Prefix", "web")]),
    );
    http.post(path, &other).await.expect(201);
    let twice = json!([
        rule("/page", "Prefix", "nobody"),
        rule("/page", "Exact", "web"),
        rule("/page/", "Prefix", "web"),
        rule("/a%20page", "Prefix", "nobody"),
        rule("/a page", "Prefix", "web"),
    ]);
    http.post(path, &ingress("twice", json!({}), twice)).await.expect(201);
    let twice = ["--resolve", "twice.example:80:192.168.77.1"];
    is("http://twice.example/page", &twice, "page 200").await;
    is("http://twice.example/page/below", &twice, " 503").await;
    is("http://twice.example/a%20page/below", &twice, " 503").await;
    // One name more is not two.
    let mut below = ingress("below", json!({}), json!([rule("/", "Prefix", "web")]));
    below["spec"]["rules"][0]["host"] = "*.below.example".into();
    http.post(path, &below).await.expect(201);
    let host = |name: &str| curl(&format!("http://{NODE}/page"), &["-H", &format!("Host: {name}")]);
    is(&format!("http://{NODE}/page"), &["-H", "Host: a.below.example"], "page 200").await;
    assert!(host("a.b.below.example").ends_with(" 404") && host("below.example").ends_with(" 404"));
    eventually("where it is reached", || async {
        let ingress = http.get(&format!("{path}/twice")).await.expect(200);
        (ingress["status"]["loadBalancer"]["ingress"] == json!([{"ip": NODE}])).then_some(())
    })
    .await;
    let address = "http://[fd00:77::1]/page";
    is(address, &["-g", "-H", "Host: twice.example"], "page 200").await;
    assert_eq!(curl(address, &["-g", "-H", "Host: other.example"]), "default backend - 404\n 404");
    assert!(!std::fs::read_to_string(folder.join("hosts")).expect("the file").contains("other.example"));
    assert_eq!(http.get(&format!("{path}/other")).await.expect(200)["status"], json!({"loadBalancer": {}}));
    // Whoever made them is told what is wrong with them.
    is_told(http, "Ingress", "ServiceNotFound", "service \"nobody\" not found").await;
    let mismatch = "secret \"safe\": nginx does not take it: key values mismatch";
    is_told(http, "Ingress", "CertificateNotUsed", mismatch).await;
    // With TLS, too, a host is itself only.
    let plain = ["-k", "-v", "--stderr", "-", "--resolve", "twice.example:443:192.168.77.1"];
    is("https://twice.example/page", &plain, "unrecognized name").await;
    let disguised = ["-k", "--resolve", "safe.example:443:192.168.77.1", "-H", "Host: twice.example"];
    is("https://safe.example/page", &disguised, " 421").await;
    // What fits no path of a host goes where an ingress with this host says, and no other; so do hosts of nobody.
    let mut fallback = ingress("fallback", json!({}), json!([rule("/x", "Prefix", "nobody")]));
    fallback["spec"]["defaultBackend"] = json!({"service": {"name": "web", "port": {"number": 80}}});
    http.post(path, &fallback).await.expect(201);
    is("http://fallback.example/page", &["--resolve", "fallback.example:80:192.168.77.1"], "page 200").await;
    assert_eq!(curl("http://twice.example/large", &twice), "default backend - 404\n 404");
    let nobody = ["-H", "Host: nobody.example"];
    is(&format!("http://{NODE}/page"), &nobody, "page 200").await;
}

/// What the cluster or a node is called cannot be led elsewhere by an object of some namespace.
async fn leaves_names_to_whom_they_belong(http: &Http, web: &str) {
    let path = "/apis/minik8s.io/v1/namespaces/default/dnses";
    http.post(path, &dns("thief", "web.default.svc.cluster.local")).await.expect(201);
    eventually("it is told so", || async {
        let dns = http.get(&format!("{path}/thief")).await.expect(200);
        (dns["status"]["conditions"][0]["reason"] == "HostReserved").then_some(())
    })
    .await;
    let reserved = "web.default.svc.cluster.local is a name of the cluster, of a node or of a registry, and does not lead here";
    is_told(http, "DNS", "HostReserved", reserved).await;
    answers_names(web).await;
}

/// A tenant leads a host somewhere without the right to claim it, and adds to one that somebody else has.
async fn resolves_only_what_is_claimed(http: &Http, tenant: &Http, folder: &Path) {
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "tenant"});
    let binding = |kind: &str, name: &str| {
        json!({"metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    };
    http.post(&format!("{rbac}/namespaces/team/rolebindings"), &binding("ClusterRole", "edit"))
        .await
        .expect(201);
    let path = "/apis/minik8s.io/v1/namespaces/team/dnses";
    eventually("the tenant's role", || async { (tenant.get(path).await.code == 200).then_some(()) }).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80}], "clusterIP": "None"}});
    tenant.post("/api/v1/namespaces/team/services", &service).await.expect(201);
    tenant.post(path, &dns("stolen", "stolen.example")).await.expect(201);
    let mut more = dns("more", "site.example");
    more["spec"]["subpaths"][0]["path"] = "/more".into();
    tenant.post(path, &more).await.expect(201);
    let unclaimed = "stolen.example is served, but resolved for nobody: who wrote this may not claim domains.minik8s.io \"stolen.example\"";
    is_told(http, "DNS", "HostNotClaimed", unclaimed).await;
    let taken = "/more: it is a host of namespace \"default\", by DNS default/site";
    is_told(http, "DNS", "HostTaken", taken).await;
    // It is there for whoever comes with that name, and for nobody else.
    is(&format!("http://{NODE}/page"), &["-H", "Host: stolen.example"], " 503").await;
    let site = ["--resolve", "site.example:80:192.168.77.1"];
    assert!(curl("http://site.example/more", &site).contains(" 404"), "the first one's paths only");
    let hosts = || std::fs::read_to_string(folder.join("hosts")).expect("the file");
    let lookup = || sh("timeout 5 busybox nslookup -type=a stolen.example 10.96.0.10 || true");
    assert!(!hosts().contains("stolen.example") && !lookup().contains(NODE), "{}{}", hosts(), lookup());
    // Who is given the right, and writes it again, has it.
    let rules = json!([{"apiGroups": ["minik8s.io"], "resources": ["domains"], "verbs": ["claim"], "resourceNames": ["stolen.example"]}]);
    let role = json!({"metadata": {"name": "claims"}, "rules": rules});
    http.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    http.post(&format!("{rbac}/clusterrolebindings"), &binding("ClusterRole", "claims")).await.expect(201);
    eventually("it is claimed, and resolved", || async {
        let mut again = dns("stolen", "stolen.example");
        again["metadata"]["resourceVersion"] =
            tenant.get(&format!("{path}/stolen")).await.expect(200)["metadata"]["resourceVersion"].clone();
        tenant.put(&format!("{path}/stolen"), &again).await;
        (hosts().contains("192.168.77.1 stolen.example") && lookup().contains(NODE)).then_some(())
    })
    .await;
    http.delete("/api/v1/namespaces/team", &json!({})).await.expect(200);
    for name in ["stolen", "more"] {
        http.delete(&format!("{path}/{name}"), &json!({})).await.expect(200);
    }
}

/// Waits for an event.
async fn is_told(http: &Http, kind: &str, reason: &str, message: &str) {
    eventually(message, || async {
        let events = http.get("/api/v1/events").await.expect(200);
        let told = |event: &Value| {
            event["reason"] == reason
                && event["message"] == message
                && event["involvedObject"]["kind"] == kind
        };
        events["items"].as_array().is_some_and(|events| events.iter().any(told)).then_some(())
    })
    .await;
}

async fn puts_back_what_others_take_away(http: &Http, proxy: &Program, running: &Killed, web: &str) {
    let page = format!("http://{web}/page");
    for flushed in ["nat -F KUBE-SERVICES", "nat -F OUTPUT"] {
        // It looks every two seconds, and must not do so before we have seen that the page is gone.
        running.stop();
        sh(&format!("{} -t {flushed}", proxy.iptables));
        assert!(!curl(&page, &["--connect-timeout", "1"]).contains("page 200"), "{flushed}");
        running.go_on();
        is(&page, &[], "page 200").await;
    }
    assert!(sh("ip -o address show dev lo").contains("10.96.0.10/32 scope host"), "packets would take it on");
    sh("ip address del 10.96.0.10/32 dev lo");
    answers_names(web).await;
    // Workers without a master go on with what they know, and must not be in the way of the next one.
    let master = nginx_pid(&proxy.folder);
    sh(&format!("kill -9 {}", master.trim()));
    http.post("/apis/minik8s.io/v1/namespaces/default/dnses", &dns("after", "after.example"))
        .await
        .expect(201);
    is("http://after.example/page", &["--resolve", "after.example:80:192.168.77.1"], "page 200").await;
}

/// Whoever does not answer when it is told of a status keeps back no change of what is served.
async fn serves_while_statuses_are_not_taken(http: &Http) {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("its address").port();
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"}, "webhooks": [{"name": "silent.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")}, "rules": [{"operations": ["UPDATE"],
                "apiGroups": ["minik8s.io"], "apiVersions": ["v1"], "resources": ["dnses/status"]}]}]});
    http.post(hooks, &hook).await.expect(201);
    let path = "/apis/minik8s.io/v1/namespaces/default/dnses";
    http.post(path, &dns("told", "told.example")).await.expect(201);
    let asked = in_time("a status is written", silent.accept()).await.expect("the apiserver asks");
    http.post(path, &dns("untold", "untold.example")).await.expect(201);
    is("http://untold.example/page", &["--resolve", "untold.example:80:192.168.77.1"], "page 200").await;
    let conditions = |dns: &Value| dns["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
    let told = http.get(&format!("{path}/told")).await.expect(200);
    assert!(!conditions(&told), "it is still being asked: {told}");
    http.delete(&format!("{hooks}/silent"), &json!({})).await.expect(200);
    drop((asked, silent));
    for name in ["told", "untold"] {
        eventually(&format!("the status of {name}"), || async {
            conditions(&http.get(&format!("{path}/{name}")).await.expect(200)).then_some(())
        })
        .await;
    }
}

/// Without a copy, and without an answer about ingresses, what nginx serves goes on.
async fn takes_nothing_away_that_it_does_not_know(http: &Http, proxy: &Program, web: &str) -> Killed {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/minik8s:node-gateway";
    let all = http.get(path).await.expect(200)["rules"].clone();
    let few: Vec<&Value> = all
        .as_array()
        .expect("rules")
        .iter()
        .filter(|rule| rule["apiGroups"] == json!(["minik8s.io"]))
        .collect();
    http.patch(path, "merge", &json!({"rules": few})).await.expect(200);
    std::fs::remove_file(proxy.folder.join("state/objects.json")).expect("the copy");
    let running = proxy.start();
    answers_names(web).await;
    let safe = ["-k", "-v", "--stderr", "-", "--resolve", "safe.example:443:192.168.77.1"];
    assert!(curl("https://safe.example/page", &safe).contains("O=two"));
    // Its certificate is nowhere else: the Secret has another one by now, which makes no sense.
    http.patch(path, "merge", &json!({"rules": all})).await.expect(200);
    http.post("/apis/minik8s.io/v1/namespaces/default/dnses", &dns("known", "known.example"))
        .await
        .expect(201);
    is("http://known.example/page", &["--resolve", "known.example:80:192.168.77.1"], "page 200").await;
    assert!(curl("https://safe.example/page", &safe).contains("O=two"));
    running
}

/// More than sockets hold for somebody who reads slowly.
const LARGE: usize = 32 << 20;

/// Devices, pages, certificates, and rules of others.
fn prepare(iptables: &str, folder: &Path) {
    sh(&format!(
        "ip link add eth0 type veth peer name cable; ip link set cable up; ip link set eth0 up; ip address add {NODE}/24 dev eth0"
    ));
    sh("ip address add fd00:77::1/64 dev eth0 nodad");
    sh(&format!("{iptables} -t nat -A POSTROUTING -s 1.2.3.4/32 -j ACCEPT"));
    sh(&format!("{iptables} -t nat -N MINE; {iptables} -t nat -A MINE -j RETURN"));
    // The tables that there are at all are not what is looked at.
    sh(&format!(
        "{iptables} -t filter -L >/dev/null; {} -t nat -L >/dev/null",
        iptables.replace("ip", "ip6")
    ));
    // As kubeadm makes it.
    sh(&format!("chmod 700 {}", folder.display()));
    std::fs::create_dir(folder.join("www")).expect("a folder");
    std::fs::write(folder.join("www/page"), "page").expect("a page");
    std::fs::write(folder.join("www/large"), vec![b'x'; LARGE]).expect("a page");
    std::fs::write(folder.join("hosts"), "127.0.0.1 localhost\n").expect("the file of names");
    if iptables.ends_with("legacy") {
        // As in a container.
        sh(&format!("mount --bind {0}/hosts {0}/hosts", folder.display()));
    }
    for name in ["one", "two"] {
        sh(&format!(
            "cd {}; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /O={name}/CN=safe.example -keyout {name}.key -out {name}.crt 2>&1",
            folder.display()
        ));
    }
}

/// What of it could be left.
fn traces(iptables: &str, folder: &Path) -> String {
    let save = |program: &str| {
        format!(
            "{program}-save | grep -v '^#' | sed 's/\\[[0-9:]*\\]//' | grep -v '^[:*]\\(PREROUTING\\|INPUT\\|OUTPUT\\|FORWARD\\|POSTROUTING\\|nat\\|filter\\|mangle\\)' | grep -v COMMIT || true"
        )
    };
    let (v4, v6) = (save(iptables), save(&iptables.replacen("ip", "ip6", 1)));
    let folder = folder.display();
    sh(&format!(
        "{v4}; {v6}; ip -o link | cut -d: -f2; ip -o address | grep -v fe80 | awk '{{print $2,$4}}'; ip route; cat {folder}/hosts; ls {folder}"
    ))
}

/// What runs with our folder.
fn processes(folder: &Path) -> String {
    sh(&format!("pgrep -af '{}/stat[e]' || true", folder.display()))
}

fn nginx_pid(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("state/nginx/nginx.pid")).expect("nginx runs")
}

async fn address_of(http: &Http, service: &str) -> String {
    let path = format!("/api/v1/namespaces/default/services/{service}");
    let service = http.get(&path).await.expect(200);
    service["spec"]["clusterIP"].as_str().expect("an address").to_owned()
}

/// Waits until this page, followed by its code, contains what is expected.
async fn is(url: &str, arguments: &[&str], expected: &str) {
    eventually(&format!("{url}: {expected}"), || async {
        curl(url, arguments).contains(expected).then_some(())
    })
    .await;
}

fn curl(url: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-s", "-m", "5", "-w", " %{http_code}"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().expect("sh runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {out}{err}");
    out.into_owned()
}

struct Program {
    folder: PathBuf,
    kubeconfig: PathBuf,
    iptables: String,
}

impl Program {
    /// Knowing nothing of the cluster.
    fn anew(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubeproxy"));
        command.arg("--state-dir").arg(self.folder.join("state"));
        command.arg("--hosts-file").arg(self.folder.join("hosts"));
        command.args(["--iptables", &self.iptables, "--overlay", "true"]);
        command
    }

    fn command(&self) -> Command {
        let mut command = self.anew();
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--hostname-override", "n1", "--service-cluster-ip-range", "10.96.0.0/12"]);
        command.args(["--cluster-cidr", "10.244.0.0/16", "--upstream-dns", "192.168.77.9"]);
        command
    }

    fn start(&self) -> Killed {
        self.start_looking_every("2s")
    }

    fn start_looking_every(&self, period: &str) -> Killed {
        let mut command = self.command();
        command.args(["--iptables-sync-period", period]);
        Killed(command.spawn().expect("kubeproxy runs"))
    }
}

/// Ends when it is dropped.
struct Killed(Child);

impl Killed {
    /// It stands still, and what it has started is done.
    fn stop(&self) {
        let pid = self.0.id();
        sh(&format!("kill -STOP {pid}; timeout 30 sh -c 'while pgrep -r D,R,S -P {pid}; do :; done'"));
    }

    fn go_on(&self) {
        sh(&format!("kill -CONT {}", self.0.id()));
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// nginx outlives the program; it must not outlive a test that failed.
struct Nginx(PathBuf);

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.0.join("state/nginx/nginx.pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}
