//! discovery, networking, policy and coordination.

use super::*;

fn slice() -> Value {
    created(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata("web-x"),
        "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n", "hints": {"forZones": [{"name": "a"}]}}]}),
    )
}

#[test]
fn bad_endpoint_slices_say_why() {
    let slice = slice();
    assert_eq!(slice["ports"][0], json!({"port": 80, "name": "", "protocol": "TCP"}));
    check_invalid(
        &slice,
        &[
            ("/addressType", json!(null), "addressType: Required value"),
            (
                "/addressType",
                json!("IPv5"),
                "addressType: Unsupported value: \"IPv5\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
            ),
            (
                "/addressType",
                json!("IPv6"),
                "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address",
            ),
            ("/ports/0/protocol", json!("X"), "ports[0].protocol: Unsupported value"),
            ("/ports/0/name", json!("A"), "ports[0].name: Invalid value: \"A\""),
            (
                "/ports/1",
                json!({"port": 81, "name": "", "protocol": "TCP"}),
                "ports[1].name: Duplicate value: \"\"",
            ),
            (
                "/endpoints/0/addresses",
                json!([]),
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
            ("/endpoints/0/addresses/0", json!("x"), "endpoints[0].addresses[0]: Invalid value: \"x\""),
            (
                "/endpoints/0/addresses/0",
                json!("127.0.0.1"),
                "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range",
            ),
            ("/endpoints/0/nodeName", json!("A b"), "endpoints[0].nodeName: Invalid value"),
            ("/endpoints/0/hostname", json!("a.b"), "endpoints[0].hostname: Invalid value"),
            (
                "/endpoints/0/hints/forZones/1",
                json!({"name": "a"}),
                "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
            ),
        ],
    );
    check_update(
        &slice,
        &[("/addressType", json!("IPv6"), "addressType: Invalid value: \"IPv6\": field is immutable")],
    );
    let names = with(
        &with(&slice, "/addressType", json!("FQDN")),
        "/endpoints/0/addresses",
        json!(["a.example.com."]),
    );
    check_invalid(
        &names,
        &[(
            "/endpoints/0/addresses/0",
            json!("localhost"),
            "endpoints[0].addresses[0]: Invalid value: \"localhost\": should be a domain with at least two segments",
        )],
    );
}

#[test]
fn endpoint_slices_show_a_few() {
    assert_eq!(row(&slice()), "Name=web-x | AddressType=IPv4 | Ports=80 | Endpoints=10.0.0.1 | Age=5m");
    let many =
        with(&slice(), "/endpoints/0/addresses", json!(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]));
    assert!(row(&many).contains("Endpoints=10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."));
    assert!(row(&with(&slice(), "/ports", json!([]))).contains("Ports=<unset>"));
}

#[test]
fn labels_of_a_slice_count_as_a_change() {
    let old = with(&slice(), "/metadata/generation", json!(2));
    let mut new = with(&old, "/metadata/labels", json!({"kubernetes.io/service-name": "web"}));
    (kind_of(&old).prepare)(&mut new, Some(&old));
    assert_eq!(new["metadata"]["generation"], 3);
}

fn ingress() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    created(json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata("web"),
        "spec": {"ingressClassName": "nginx", "tls": [{"hosts": ["a.example.com"], "secretName": "s"}],
            "rules": [{"host": "a.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}))
}

#[test]
fn bad_ingresses_say_why() {
    let path = "spec.rules[0].http.paths[0]";
    check_invalid(
        &ingress(),
        &[
            (
                "/spec/rules",
                json!([]),
                "spec: Invalid value: []: either `defaultBackend` or `rules` must be specified",
            ),
            ("/spec/rules/0/host", json!("A"), "spec.rules[0].host: Invalid value: \"A\""),
            (
                "/spec/rules/0/host",
                json!("10.0.0.1"),
                "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
            ),
            (
                "/spec/rules/0/host",
                json!("a.*.com"),
                "spec.rules[0].host: Invalid value: \"a.*.com\": a wildcard DNS-1123 subdomain",
            ),
            ("/spec/rules/0/http/paths", json!([]), "spec.rules[0].http.paths: Required value"),
            (
                "/spec/rules/0/http/paths/0/pathType",
                json!(null),
                &format!("{path}.pathType: Required value: pathType must be specified"),
            ),
            (
                "/spec/rules/0/http/paths/0/pathType",
                json!("X"),
                &format!("{path}.pathType: Unsupported value"),
            ),
            (
                "/spec/rules/0/http/paths/0/path",
                json!("a"),
                &format!("{path}.path: Invalid value: \"a\": must be an absolute path"),
            ),
            (
                "/spec/rules/0/http/paths/0/path",
                json!("/a//b"),
                &format!("{path}.path: Invalid value: \"/a//b\": must not contain '//'"),
            ),
            (
                "/spec/rules/0/http/paths/0/path",
                json!("/a/.."),
                &format!("{path}.path: Invalid value: \"/a/..\": cannot end with '/..'"),
            ),
            (
                "/spec/rules/0/http/paths/0/backend",
                json!({}),
                &format!("{path}.backend: Invalid value: \"\": resource or service backend is required"),
            ),
            (
                "/spec/rules/0/http/paths/0/backend/service/name",
                json!(""),
                &format!("{path}.backend.service.name: Required value"),
            ),
            (
                "/spec/rules/0/http/paths/0/backend/service/port",
                json!({}),
                &format!("{path}.backend: Required value: port name or number is required"),
            ),
            (
                "/spec/rules/0/http/paths/0/backend/service/port/name",
                json!("http"),
                &format!("{path}.backend: Invalid value: \"\": cannot set both port name & port number"),
            ),
            (
                "/spec/defaultBackend",
                json!({"resource": {"kind": "", "name": "x"}}),
                "spec.defaultBackend.resource.kind: Required value",
            ),
            ("/spec/tls/0/hosts/0", json!("A"), "spec.tls[0].hosts[0]: Invalid value"),
            ("/spec/ingressClassName", json!("A b"), "spec.ingressClassName: Invalid value"),
            (
                "/metadata/annotations",
                json!({"kubernetes.io/ingress.class": "x"}),
                "annotations.kubernetes.io/ingress.class: Invalid value: \"x\": must match `ingressClassName` when both are specified",
            ),
        ],
    );
    check_status(
        &ingress(),
        &[(
            "/status",
            json!({"loadBalancer": {"ingress": [{"ip": "x"}]}}),
            "status.loadBalancer.ingress[0].ip: Invalid value: \"x\"",
        )],
    );
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb"}]}});
    assert_eq!(
        row(&with(&ingress(), "/status", status)),
        "Name=web | Class=nginx | Hosts=a.example.com | Address=192.0.2.1,lb | Ports=80, 443 | Age=5m"
    );
}

#[test]
fn ingress_classes_keep_their_controller() {
    let class = created(json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": metadata("nginx"), "spec": {"controller": "example.com/nginx",
            "parameters": {"apiGroup": "example.com", "kind": "Params", "name": "p"}}}));
    assert_eq!(class["spec"]["parameters"]["scope"], "Cluster");
    check_invalid(
        &class,
        &[
            ("/spec/controller", json!(""), "spec.controller: Required value"),
            (
                "/spec/controller",
                json!("nginx"),
                "spec.controller: Invalid value: \"nginx\": must be a domain-prefixed path",
            ),
            ("/spec/parameters/kind", json!(""), "spec.parameters.kind: Required value"),
            ("/spec/parameters/scope", json!("X"), "spec.parameters.scope: Unsupported value"),
            (
                "/spec/parameters/scope",
                json!("Namespace"),
                "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
            ),
            (
                "/spec/parameters/namespace",
                json!("a"),
                "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
            ),
        ],
    );
    check_update(&class, &[("/spec/controller", json!("example.com/x"), "spec.controller: Invalid value")]);
    assert_eq!(
        row(&class),
        "Name=nginx | Controller=example.com/nginx | Parameters=Params.example.com/p | Age=5m"
    );
}

#[test]
fn bad_network_policies_say_why() {
    let policy = created(json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata("np"), "spec": {"podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"ports": [{"port": 80}], "from": [{"podSelector": {}}]}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}]}}));
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["protocol"], "TCP");
    let port = "spec.ingress[0].ports[0]";
    check_invalid(
        &policy,
        &[
            ("/spec/ingress/0/ports/0/protocol", json!("X"), &format!("{port}.protocol: Unsupported value")),
            (
                "/spec/ingress/0/ports/0/port",
                json!(0),
                &format!("{port}.port: Invalid value: 0: must be between"),
            ),
            (
                "/spec/ingress/0/ports/0/endPort",
                json!(79),
                &format!("{port}.endPort: Invalid value: 80: must be greater than or equal to `port`"),
            ),
            (
                "/spec/ingress/0/ports/0",
                json!({"endPort": 80}),
                &format!(
                    "{port}.endPort: Invalid value: 80: may not be specified when `port` is not specified"
                ),
            ),
            (
                "/spec/ingress/0/ports/0",
                json!({"port": "http", "endPort": 80}),
                &format!(
                    "{port}.endPort: Invalid value: 80: may not be specified when `port` is non-numeric"
                ),
            ),
            (
                "/spec/ingress/0/from/0",
                json!({}),
                "spec.ingress[0].from[0]: Required value: must specify a peer",
            ),
            (
                "/spec/egress/0/to/0/podSelector",
                json!({}),
                "spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer",
            ),
            (
                "/spec/egress/0/to/0/ipBlock/cidr",
                json!("x"),
                "spec.egress[0].to[0].ipBlock.cidr: Invalid value: \"x\": must be a valid CIDR value",
            ),
            (
                "/spec/egress/0/to/0/ipBlock/except/0",
                json!("11.0.0.0/16"),
                "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
            ),
            ("/spec/policyTypes", json!(["X"]), "spec.policyTypes[0]: Unsupported value"),
            (
                "/spec/podSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "X"}]}),
                "spec.podSelector.matchExpressions[0].operator: Invalid value: \"X\": not a valid selector operator",
            ),
        ],
    );
    assert_eq!(row(&policy), "Name=np | Pod-Selector=app=web | Age=5m");
}

#[test]
fn bad_disruption_budgets_say_why() {
    let budget = created(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata("web"), "spec": {"minAvailable": "50%", "selector": {}}}));
    check_invalid(
        &budget,
        &[
            (
                "/spec/maxUnavailable",
                json!(1),
                "spec: Invalid value: {\"maxUnavailable\":1,\"minAvailable\":\"50%\",\"selector\":{}}: minAvailable and maxUnavailable cannot be both set",
            ),
            ("/spec/minAvailable", json!("x"), "spec.minAvailable: Invalid value: \"x\""),
            (
                "/spec/minAvailable",
                json!("101%"),
                "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            ("/spec/minAvailable", json!(-1), "spec.minAvailable: Invalid value: -1"),
            (
                "/spec/unhealthyPodEvictionPolicy",
                json!("X"),
                "spec.unhealthyPodEvictionPolicy: Unsupported value",
            ),
        ],
    );
    check_status(
        &budget,
        &[("/status", json!({"currentHealthy": -1}), "status.currentHealthy: Invalid value: -1")],
    );
    assert_eq!(
        row(&with(&budget, "/status", json!({"disruptionsAllowed": 2}))),
        "Name=web | Min Available=50% | Max Unavailable=N/A | Allowed Disruptions=2 | Age=5m"
    );
}

#[test]
fn bad_leases_say_why() {
    let lease = created(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": metadata("n1"), "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}}));
    check_invalid(
        &lease,
        &[
            (
                "/spec/leaseDurationSeconds",
                json!(0),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "/spec/leaseTransitions",
                json!(-1),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
            ("/spec/strategy", json!("X"), "spec.strategy.strategy: Unsupported value"),
            (
                "/spec/preferredHolder",
                json!("x"),
                "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
            ),
        ],
    );
    assert_eq!(row(&lease), "Name=n1 | Holder=n1 | Age=5m");
}
