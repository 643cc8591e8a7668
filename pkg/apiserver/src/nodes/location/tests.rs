use super::*;
use serde_json::json;

#[test]
fn the_kubelet_is_at_the_preferred_address() {
    let node = json!({"status": {
        "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}},
    }});
    let check = |preferred: &[&str], expected: Option<&str>| {
        let preferred: Vec<String> = preferred.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(kubelet(&node, &preferred).map(|place| place.authority()).as_deref(), expected);
    };
    check(&["InternalIP", "Hostname"], Some("10.0.0.1:1234"));
    check(&["ExternalIP", "Hostname"], Some("n:1234"));
    check(&["ExternalIP"], None);
}

#[test]
fn the_container_is_named_or_the_only_one() {
    let pod = |containers: &[&str]| {
        let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i"}], "containers": containers}})
    };
    let check = |containers: &[&str], wanted: &str, expected: Result<&str, &str>| {
        let found = container(&pod(containers), wanted).map_err(|error| error.message);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    };
    check(&["a"], "", Ok("a"));
    check(&["a", "b"], "b", Ok("b"));
    check(&["a"], "i", Ok("i"));
    check(&["a", "b"], "", Err("a container name must be specified for pod p, choose one of: [i a b]"));
    check(&["a"], "x", Err("container x is not valid for pod p"));
}

#[test]
fn paths_are_the_kubelets() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}]}});
    let query = |text: &str| Query::parse(Some(text)).unwrap();
    assert_eq!(
        stream(&pod, "exec", &query("command=sh&command=echo%20a%26b&stdin=true&stdout=true&tty=false"))
            .unwrap(),
        "/exec/ns/p/c?input=1&output=1&command=sh&command=echo%20a%26b"
    );
    assert_eq!(stream(&pod, "attach", &query("stdout=1&command=no")).unwrap(), "/attach/ns/p/c?output=1");
    assert_eq!(
        stream(&pod, "portforward", &query("ports=80&ports=81")).unwrap(),
        "/portForward/ns/p?port=80%2C81"
    );
    assert_eq!(
        log(&pod, "c", &query("follow=true&sinceTime=2024-01-01T00:00:00Z&container=c")),
        "/containerLogs/ns/p/c?follow=true&sinceTime=2024-01-01T00%3A00%3A00Z"
    );
}

#[test]
fn names_carry_scheme_and_port() {
    assert_eq!(split("a"), Some((Scheme::Http, "a", "")));
    assert_eq!(split("a:80"), Some((Scheme::Http, "a", "80")));
    assert_eq!(split("https:a:"), Some((Scheme::Https, "a", "")));
    assert_eq!(split("ftp:a:80"), None);
    assert_eq!(split(":80"), None);
    assert_eq!(split("a:b:c:d"), None);
}

#[test]
fn only_ready_pods_are_behind_a_service() {
    let endpoint = |address: &str, ready: bool, kind: &str| json!({"addresses": [address], "conditions": {"ready": ready}, "targetRef": {"kind": kind, "name": "p"}});
    let slices = [json!({
        "ports": [{"name": "web", "port": 8080}],
        "endpoints": [
            endpoint("10.1.0.1", true, "Pod"),
            endpoint("10.1.0.2", false, "Pod"),
            endpoint("127.0.0.1", true, "Pod"),
            endpoint("10.1.0.3", true, "Node"),
        ],
    })];
    let is_pod = |reference: &Value, _: &str| reference["kind"] == "Pod";
    assert_eq!(endpoints(&slices, "web", is_pod), [("10.1.0.1".to_owned(), 8080)]);
    assert_eq!(endpoints(&slices, "other", is_pod), []);
    let service = json!({"spec": {"ports": [{"name": "web", "port": 80}]}});
    assert_eq!(port_name(&service, "s", "80").unwrap(), "web");
    assert_eq!(port_name(&service, "s", "web").unwrap(), "web");
    assert_eq!(
        port_name(&service, "s", "81").unwrap_err().message,
        "no service port 81 found for service \"s\""
    );
}
