//! core/v1 Service.

use super::*;

fn service(spec: Value) -> Value {
    created(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("web"), "spec": spec}))
}

/// A service as it is after the server has handed out an address.
fn allocated(spec: Value) -> Value {
    let mut service = service(spec);
    service["spec"]["clusterIP"] = json!("10.96.0.7");
    service["spec"]["clusterIPs"] = json!(["10.96.0.7"]);
    service["spec"]["ipFamilies"] = json!(["IPv4"]);
    service["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    service
}

fn plain() -> Value {
    allocated(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}))
}

fn load_balancer() -> Value {
    let mut service =
        allocated(json!({"type": "LoadBalancer", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]}));
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}});
    service
}

#[test]
fn what_is_left_out_is_filled_in() {
    assert_eq!(
        service(json!({"ports": [{"port": 80}]}))["spec"],
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
    assert_eq!(
        service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": []}))["spec"],
        json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [],
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true})
    );
    let external = service(json!({"type": "ExternalName", "externalName": "example.com"}));
    assert_eq!(
        external["spec"],
        json!({"type": "ExternalName", "externalName": "example.com", "sessionAffinity": "None"})
    );
    let headless = service(json!({"clusterIP": "None"}));
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(complaints(&headless), Vec::<String>::new());
    assert_eq!(complaints(&external), Vec::<String>::new());
}

#[test]
fn bad_services_say_why() {
    check_invalid(
        &plain(),
        &[
            (
                "/spec/type",
                json!("X"),
                "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ),
            ("/spec/type", json!(null), "spec.type: Required value"),
            ("/spec/ports", json!([]), "spec.ports: Required value"),
            (
                "/spec/ports/0/port",
                json!(0),
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            ("/spec/ports/0/protocol", json!("ICMP"), "spec.ports[0].protocol: Unsupported value"),
            ("/spec/ports/0/targetPort", json!("not a port"), "spec.ports[0].targetPort: Invalid value"),
            ("/spec/ports/0/name", json!("A"), "spec.ports[0].name: Invalid value: \"A\""),
            ("/spec/ports/0/appProtocol", json!("a b"), "spec.ports[0].appProtocol: Invalid value"),
            (
                "/spec/ports/0/nodePort",
                json!(30000),
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            ),
            (
                "/spec/ports/1",
                json!({"port": 81, "protocol": "TCP", "targetPort": 81}),
                "spec.ports[0].name: Required value",
            ),
            (
                "/spec/ports/1",
                json!({"name": "b", "port": 80, "protocol": "TCP", "targetPort": 80}),
                "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
            ),
            ("/spec/selector", json!({"a b": "c"}), "spec.selector: Invalid value: \"a b\""),
            ("/spec/sessionAffinity", json!("X"), "spec.sessionAffinity: Unsupported value"),
            (
                "/spec/sessionAffinity",
                json!("ClientIP"),
                "spec.sessionAffinityConfig: Required value: when session affinity type is ClientIP",
            ),
            (
                "/spec/sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 5}}),
                "spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None",
            ),
            (
                "/spec/clusterIP",
                json!("10.96.0.8"),
                "spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: first value must match `clusterIP`",
            ),
            (
                "/spec/clusterIP",
                json!(null),
                "spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: must be empty when `clusterIP` is not specified",
            ),
            (
                "/spec/clusterIPs/0",
                json!("x"),
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address",
            ),
            (
                "/spec/clusterIPs/1",
                json!("10.96.0.9"),
                "spec.clusterIPs: Invalid value: [\"10.96.0.7\",\"10.96.0.9\"]: may specify no more than one IP for each IP family",
            ),
            (
                "/spec/ipFamilies/0",
                json!("IPv6"),
                "spec.clusterIPs[0]: Invalid value: \"10.96.0.7\": expected an IPv6 value as indicated by `ipFamilies[0]`",
            ),
            ("/spec/ipFamilies/1", json!("IPv4"), "spec.ipFamilies[1]: Duplicate value: \"IPv4\""),
            ("/spec/ipFamilyPolicy", json!("X"), "spec.ipFamilyPolicy: Unsupported value"),
            (
                "/spec/externalIPs",
                json!(["x"]),
                "spec.externalIPs[0]: Invalid value: \"x\": must be a valid IP address",
            ),
            (
                "/spec/externalIPs",
                json!(["127.0.0.1"]),
                "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range",
            ),
            (
                "/spec/externalIPs",
                json!(["169.254.1.1"]),
                "spec.externalIPs[0]: Invalid value: \"169.254.1.1\": may not be in the link-local range",
            ),
            ("/spec/externalIPs", json!(["192.0.2.1"]), "spec.externalTrafficPolicy: Required value"),
            (
                "/spec/externalTrafficPolicy",
                json!("Local"),
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ),
            ("/spec/internalTrafficPolicy", json!(null), "spec.internalTrafficPolicy: Required value"),
            ("/spec/internalTrafficPolicy", json!("X"), "spec.internalTrafficPolicy: Unsupported value"),
            ("/spec/trafficDistribution", json!("X"), "spec.trafficDistribution: Unsupported value"),
            (
                "/spec/loadBalancerSourceRanges",
                json!(["10.0.0.0/8"]),
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ),
            (
                "/spec/loadBalancerClass",
                json!("a/b"),
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ),
            (
                "/spec/allocateLoadBalancerNodePorts",
                json!(true),
                "spec.allocateLoadBalancerNodePorts: Forbidden",
            ),
            (
                "/spec/healthCheckNodePort",
                json!(30000),
                "spec.healthCheckNodePort: Invalid value: 30000: may only be set when",
            ),
        ],
    );
    check_invalid(
        &load_balancer(),
        &[
            (
                "/spec/loadBalancerSourceRanges",
                json!(["x"]),
                "spec.LoadBalancerSourceRanges[0]: Invalid value: \"x\": must be a valid CIDR value",
            ),
            ("/spec/externalTrafficPolicy", json!("Local"), "spec.healthCheckNodePort: Required value"),
            (
                "/spec/ports/1",
                json!({"name": "b", "port": 81, "nodePort": 30080, "protocol": "TCP", "targetPort": 81}),
                "spec.ports[1].nodePort: Duplicate value: 30080",
            ),
            (
                "/spec/allocateLoadBalancerNodePorts",
                json!(null),
                "allocateLoadBalancerNodePorts: Required value",
            ),
        ],
    );
    let external = service(json!({"type": "ExternalName", "externalName": "example.com."}));
    check_invalid(
        &external,
        &[
            ("/spec/externalName", json!(""), "spec.externalName: Required value"),
            ("/spec/externalName", json!("A_b"), "spec.externalName: Invalid value: \"A_b\""),
            (
                "/spec/clusterIPs",
                json!(["None"]),
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            ),
            ("/spec/ipFamilyPolicy", json!("SingleStack"), "spec.ipFamilyPolicy: Forbidden"),
        ],
    );
}

#[test]
fn addresses_stay() {
    check_update(
        &plain(),
        &[
            ("/spec/clusterIP", json!(null), ""),
            ("/spec/clusterIPs", json!(null), ""),
            ("/spec/ipFamilies", json!(null), ""),
            (
                "/spec/clusterIP",
                json!("10.96.0.8"),
                "spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set",
            ),
            (
                "/spec/ipFamilies/0",
                json!("IPv6"),
                "spec.ipFamilies[0]: Invalid value: [\"IPv6\"]: may not change once set",
            ),
        ],
    );
    check_update(
        &load_balancer(),
        &[
            ("/spec/ports/0/nodePort", json!(null), ""),
            (
                "/spec/loadBalancerClass",
                json!("a/b"),
                "spec.loadBalancerClass: Invalid value: \"a/b\": may not change once set",
            ),
        ],
    );
}

/// An update is prepared: what does the spec look like?
fn updated(old: &Value, new: Value) -> Value {
    let mut new = new;
    (kind_of(old).default)(&mut new);
    (kind_of(old).prepare)(&mut new, Some(old));
    assert_eq!(complaints(&new), Vec::<String>::new());
    new
}

#[test]
fn the_same_manifest_again_keeps_what_was_handed_out() {
    let old = load_balancer();
    let mut manifest = old.clone();
    manifest["spec"] = json!({"type": "LoadBalancer", "ports": [{"name": "a", "port": 80}]});
    assert_eq!(updated(&old, manifest), old);
}

#[test]
fn a_new_type_drops_what_it_has_no_use_for() {
    let old = load_balancer();
    let now = updated(&old, with(&old, "/spec/type", json!("ClusterIP")));
    assert_eq!(now["spec"]["clusterIP"], "10.96.0.7");
    assert_eq!(now["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(now["spec"].get("allocateLoadBalancerNodePorts"), None);
    assert_eq!(now["spec"].get("externalTrafficPolicy"), None);
    assert_eq!(now["status"]["loadBalancer"], json!({}));
    let mut external = with(&plain(), "/spec/type", json!("ExternalName"));
    external["spec"]["externalName"] = json!("example.com");
    let now = updated(&plain(), external);
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert_eq!(now["spec"].get(name), None, "{name}");
    }
}

#[test]
fn only_load_balancers_have_points_of_entry() {
    let point = |ingress: Value| json!({"loadBalancer": {"ingress": [ingress]}});
    check_status(
        &load_balancer(),
        &[
            ("/status", point(json!({"hostname": "lb.example.com"})), ""),
            (
                "/status",
                point(json!({"ip": "x", "ipMode": "VIP"})),
                "status.loadBalancer.ingress[0].ip: Invalid value: \"x\"",
            ),
            (
                "/status",
                point(json!({"ip": "192.0.2.1"})),
                "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
            ),
            (
                "/status",
                point(json!({"ip": "192.0.2.1", "ipMode": "X"})),
                "status.loadBalancer.ingress[0].ipMode: Unsupported value",
            ),
            (
                "/status",
                point(json!({"hostname": "192.0.2.1"})),
                "status.loadBalancer.ingress[0].hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address",
            ),
        ],
    );
    check_status(
        &plain(),
        &[("/status", point(json!({"hostname": "a.b"})), "status.loadBalancer.ingress: Forbidden")],
    );
}

#[test]
fn services_show_their_addresses() {
    assert_eq!(
        row(&plain()),
        "Name=web | Type=ClusterIP | Cluster-IP=10.96.0.7 | External-IP=<none> | Port(s)=80/TCP | Age=5m | +Selector=app=web"
    );
    let row_of = row(&load_balancer());
    assert!(row_of.contains("External-IP=192.0.2.1 | Port(s)=80:30080/TCP"), "{row_of}");
    let pending = with(&load_balancer(), "/status", json!({}));
    assert!(row(&pending).contains("External-IP=<pending>"));
}
