//! What is rendered is read back, and says what was meant and nothing else, whatever the objects say: names, hosts and paths
//! that no API server would take are among them.

mod iptables;
mod nginx;

use api::kinds::minik8s::DNS;
use k8s_openapi::api::networking::v1::Ingress;
use proptest::prelude::*;
use proxy::gateway::{Classes, Listen, Services, Sites, render, sites};
use proxy::record::{Service, Slice};
use proxy::rules::{self, Settings};
use proxy::services::{Here, ServicePort, ports_of};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Names as they are, and as they never should be.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c]",
        2 => Just("web".to_owned()),
        1 => "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        1 => odd(),
    ]
}

/// What would mean something to nginx, to iptables, or to whoever reads lines.
fn odd() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~]{0,20}",
        "[\"'\\\\;{}#$~\n\r\t *._/:-]{0,12}",
        Just("x\"; include /etc/passwd; #".to_owned()),
        Just("x\n-A KUBE-SERVICES -j ACCEPT".to_owned()),
        Just("\" -j ACCEPT -m comment --comment \"".to_owned()),
        Just("} server { listen 81; }".to_owned()),
        Just("~^.*$".to_owned()),
        Just("${http_x}".to_owned()),
        "x{200,300}",
    ]
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c]\\.example",
        2 => "(\\*\\.)?[a-c]\\.example\\.com",
        1 => Just(String::new()),
        1 => odd(),
        1 => odd().prop_map(|odd| format!("*.{odd}")),
        1 => Just("_".to_owned()),
        1 => Just(".example".to_owned()),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![4 => "(/[a-c]){0,3}/?", 1 => odd().prop_map(|odd| format!("/{odd}")), 1 => odd(), 1 => Just("/%22;".to_owned())]
}

fn port() -> impl Strategy<Value = Value> {
    prop_oneof![3 => Just(json!({"number": 80})), 1 => Just(json!({"name": "http"})), 1 => odd().prop_map(|name| json!({"name": name})),
        1 => any::<i32>().prop_map(|number| json!({"number": number}))]
}

prop_compose! {
    fn backend()(name in name(), port in port()) -> Value {
        json!({"service": {"name": name, "port": port}})
    }
}

prop_compose! {
    fn metadata()(namespace in name(), name in name(), day in 1u32..28) -> Value {
        json!({"namespace": namespace, "name": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")})
    }
}

prop_compose! {
    fn ingress()(
        metadata in metadata(),
        rules in prop::collection::vec((host(), prop::collection::vec((path(), "Exact|Prefix|ImplementationSpecific", backend()), 0..4)), 0..3),
        default in prop::option::of(backend()),
        tls in prop::collection::vec((host(), name()), 0..2),
    ) -> Value {
        let path = |(path, kind, backend)| json!({"path": path, "pathType": kind, "backend": backend});
        let paths = |paths: Vec<_>| -> Vec<Value> { paths.into_iter().map(path).collect() };
        let rules: Vec<Value> =
            rules.into_iter().map(|(host, all)| json!({"host": host, "http": {"paths": paths(all)}})).collect();
        let tls: Vec<Value> =
            tls.into_iter().map(|(host, secret)| json!({"hosts": [host], "secretName": secret})).collect();
        json!({"metadata": metadata, "spec": {"rules": rules, "defaultBackend": default, "tls": tls}})
    }
}

prop_compose! {
    fn dns()(
        metadata in metadata(),
        host in host(),
        subpaths in prop::collection::vec((path(), name(), any::<i32>()), 0..4),
    ) -> Value {
        let subpaths: Vec<Value> = subpaths
            .into_iter()
            .map(|(path, service, port)| json!({"path": path, "service": service, "port": if port % 2 == 0 { 80 } else { port }}))
            .collect();
        json!({"metadata": metadata, "spec": {"host": host, "subpaths": subpaths}})
    }
}

fn address() -> impl Strategy<Value = String> {
    prop_oneof![3 => "10\\.96\\.0\\.[1-9]", 1 => "192\\.0\\.2\\.[1-9]", 1 => "fd00::[1-9]", 1 => odd()]
}

prop_compose! {
    fn service()(
        metadata in metadata(),
        addresses in prop_oneof![prop::collection::vec(address(), 1..3), Just(vec!["None".to_owned()])],
        ports in prop::collection::vec((prop_oneof![2 => Just("http".to_owned()), 1 => odd()], 1u16..90, prop::option::of(30000u16..30010), any::<bool>()), 0..3),
        kind in "ClusterIP|NodePort|LoadBalancer|ExternalName",
        external in prop::collection::vec(address(), 0..3),
        balancers in prop::collection::vec(address(), 0..2),
        ranges in prop::collection::vec(prop_oneof![Just("192.0.2.0/24".to_owned()), Just("fd00::/64".to_owned()), odd()], 0..2),
        local in any::<(bool, bool)>(),
        affinity in any::<bool>(),
    ) -> Value {
        let ports: Vec<Value> = ports.into_iter().map(|(name, port, node_port, udp)| {
            json!({"name": name, "port": port, "nodePort": node_port, "protocol": if udp { "UDP" } else { "TCP" }})
        }).collect();
        let policy = |local: bool| if local { "Local" } else { "Cluster" };
        let points: Vec<Value> = balancers.into_iter().map(|ip| json!({"ip": ip})).collect();
        json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": points}}, "spec": {"type": kind,
            "clusterIP": addresses[0], "clusterIPs": addresses, "ports": ports, "externalIPs": external,
            "loadBalancerSourceRanges": ranges, "externalTrafficPolicy": policy(local.0), "internalTrafficPolicy": policy(local.1),
            "sessionAffinity": if affinity { "ClientIP" } else { "None" }, "externalName": "x"}})
    }
}

prop_compose! {
    fn slice()(
        endpoints in prop::collection::vec((prop_oneof![3 => "10\\.244\\.1\\.[1-9]", 1 => "fd00:1::[1-9]", 1 => odd()], any::<bool>(), any::<bool>(), "n1|n2"), 0..5),
        ports in prop::collection::vec((prop_oneof![2 => Just("http".to_owned()), 1 => odd()], 1u16.., any::<bool>()), 0..3),
    ) -> Value {
        let endpoints: Vec<Value> = endpoints.into_iter().map(|(address, ready, serving, node)| {
            json!({"addresses": [address], "nodeName": node, "conditions": {"ready": ready, "serving": serving, "terminating": !ready}})
        }).collect();
        let ports: Vec<Value> = ports.into_iter().map(|(name, port, udp)| {
            json!({"name": name, "port": port, "protocol": if udp { "UDP" } else { "TCP" }})
        }).collect();
        json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})
    }
}

/// How many objects are made up.
fn cases() -> u32 {
    if std::env::var_os("SOAK").is_some() { 20_000 } else { 500 }
}

/// An object, unless its JSON is none of its kind.
fn object<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn nginx_is_told_what_the_objects_say(
        ingresses in prop::collection::vec(ingress(), 0..4),
        dnses in prop::collection::vec(dns(), 0..3),
        services in prop::collection::vec(service(), 0..4),
        slices in prop::collection::vec(slice(), 0..3),
    ) {
        let ingresses: Vec<Ingress> = ingresses.into_iter().filter_map(object).collect();
        let dnses: Vec<DNS> = dnses.into_iter().filter_map(object).collect();
        let services: Vec<Service> = services.into_iter().filter_map(object).collect();
        let slices: Vec<Arc<Slice>> = slices.into_iter().filter_map(object).map(Arc::new).collect();
        let services = Services::new(services.iter(), |_| slices.clone());
        let all: Sites = sites(dnses.iter(), ingresses.iter(), &Classes::default(), &services, true);
        let listen = Listen { http: 80, https: 443, ipv6: true };
        let certificate = |(namespace, name): &(String, String)| {
            let stem = if namespace.len() + name.len() > 4 { return None } else { "one" };
            Some((format!("/x/{stem}.crt"), format!("/x/{stem}.key")))
        };
        let text = render(&all, Path::new("/x"), listen, &certificate);
        prop_assert_eq!(nginx::says_the_same(&all, &text), Ok(()), "{}", text);
    }

    #[test]
    fn iptables_is_told_what_the_services_say(
        services in prop::collection::vec((service(), prop::collection::vec(slice(), 0..3)), 0..4),
        ipv6 in any::<bool>(),
        pods in any::<bool>(),
    ) {
        let here = Here { node: "n1".to_owned(), zone: None };
        let ports = services.into_iter().flat_map(|(service, slices)| {
            let slices: Vec<Slice> = slices.into_iter().filter_map(object).collect();
            object::<Service>(service).map(|service| ports_of(&service, slices.iter(), &here)).unwrap_or_default()
        });
        let ports: Vec<ServicePort> = ports.collect();
        let range = |v4: &str, v6: &str| if ipv6 { v6.parse() } else { v4.parse() };
        let settings = Settings {
            pods: pods.then(|| range("10.244.0.0/16", "fd00:1::/64").expect("a range")),
            service_ranges: vec![range("10.96.0.0/12", "fd00::/112").expect("a range")],
            ..Settings::new(ipv6)
        };
        let rules = rules::render(&ports, &settings);
        prop_assert_eq!(iptables::says_the_same(&ports, &settings, &rules), Ok(()));
    }
}

/// What reads back must find what is wrong: a test that cannot fail says nothing.
#[test]
fn what_was_not_meant_is_found() {
    let ingress = json!({"metadata": {"namespace": "ns", "name": "i"}, "spec": {"rules": [{"host": "a.example", "http": {"paths": [
        {"path": "/a", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}});
    let service = json!({"metadata": {"namespace": "ns", "name": "web"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}});
    let (ingress, service): (Ingress, Service) = (object(ingress).unwrap(), object(service).unwrap());
    let services = Services::new([service].iter(), |_| Vec::new());
    let all = sites([].iter(), [ingress].iter(), &Classes::default(), &services, true);
    let text = render(&all, Path::new("/x"), Listen { http: 80, https: 443, ipv6: false }, &|_| None);
    assert_eq!(nginx::says_the_same(&all, &text), Ok(()));
    for (from, to) in [
        ("10.96.0.5", "10.96.0.6"),
        ("location \"/a/\"", "location \"/b/\""),
        ("server_name \"a.example\"", "server_name \"b.example\""),
        ("access_log off;", "access_log off; include /etc/passwd;"),
        ("return 404", "return 200"),
        ("}\n}\n", "}\n"),
    ] {
        let other = text.replacen(from, to, 1);
        assert!(other != text && nginx::says_the_same(&all, &other).is_err(), "{from} -> {to}: {other}");
    }
    let service = json!({"metadata": {"namespace": "ns", "name": "web"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80, "name": "http"}]}});
    let slice = json!({"metadata": {}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.244.1.7"]}], "ports": [{"name": "http", "port": 8080}]});
    let (service, slice): (Service, Slice) = (object(service).unwrap(), object(slice).unwrap());
    let (settings, here) = (Settings::new(false), Here { node: "n1".to_owned(), zone: None });
    let ports = ports_of(&service, [slice].iter(), &here);
    let rules = rules::render(&ports, &settings);
    assert_eq!(iptables::says_the_same(&ports, &settings, &rules), Ok(()));
    for (from, to) in [
        ("--to-destination 10.244.1.7:8080", "--to-destination 10.244.1.8:8080"),
        ("-d 10.96.0.5 -p tcp", "-d 10.96.0.6 -p tcp"),
        ("-j DNAT", "-g DNAT"),
        ("cluster IP", "cluster\" --wait \"IP"),
        ("cluster IP", "cluster\nIP"),
    ] {
        let mut other = rules.clone();
        other.nat.values_mut().flatten().for_each(|rule| *rule = rule.replace(from, to));
        assert!(
            other != rules && iptables::says_the_same(&ports, &settings, &other).is_err(),
            "{from} -> {to}"
        );
    }
}
