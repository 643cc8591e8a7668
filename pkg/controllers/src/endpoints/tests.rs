//! Tables over the three plans.

use super::packing::Writes;
use super::{legacy, mirroring, slices};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn service(spec: Value) -> Arc<Service> {
    let mut all = json!({"clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "web", "namespace": "default", "uid": "s1", "labels": {"team": "a"}});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": all})).unwrap())
}

/// A pod `p<number>` on node n1, ready, at 10.0.0.<number>, changed by a merge of `overlay`.
fn pod(number: usize, overlay: Value) -> Arc<Pod> {
    let ip = format!("10.0.{}.{}", number / 250, number % 250);
    let mut pod = json!({
        "metadata": {"name": format!("p{number}"), "namespace": "default", "uid": format!("u{number}"), "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut pod, &overlay);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn merge(target: &mut Value, overlay: &Value) {
    match (target, overlay) {
        (Value::Object(target), Value::Object(overlay)) => {
            for (key, value) in overlay {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, overlay) => *target = overlay.clone(),
    }
}

fn view(service: Arc<Service>, pods: Vec<Arc<Pod>>, slices: Vec<Arc<EndpointSlice>>) -> slices::View {
    let zones = BTreeMap::from([("n1".to_owned(), Some("east".to_owned())), ("zoneless".to_owned(), None)]);
    slices::View { service, pods, zones, slices }
}

/// Carries the writes out on a list of slices, as the server would.
fn apply(slices: &mut Vec<Arc<EndpointSlice>>, writes: Writes) {
    for deleted in &writes.delete {
        slices.retain(|slice| slice.metadata.name != deleted.metadata.name);
    }
    for update in writes.update {
        let place = slices.iter_mut().find(|slice| slice.metadata.name == update.metadata.name);
        *place.expect("only what is there is updated") = Arc::new(update);
    }
    for mut new in writes.create {
        new.metadata.name = Some(format!("web-{}", slices.len() + 1));
        slices.push(Arc::new(new));
    }
}

/// The endpoints in slices: address and conditions, `r`eady, `s`erving, `t`erminating.
fn shown(slices: &[Arc<EndpointSlice>]) -> Vec<String> {
    let mut shown: Vec<String> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .map(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let letter = |condition: Option<bool>, letter| condition.unwrap_or(false).then_some(letter);
            let letters = [
                letter(conditions.ready, 'r'),
                letter(conditions.serving, 's'),
                letter(conditions.terminating, 't'),
            ];
            let letters: String = letters.into_iter().flatten().collect();
            format!("{} {letters}", endpoint.addresses.join(","))
        })
        .collect();
    shown.sort();
    shown
}

fn settled(service: Arc<Service>, pods: Vec<Arc<Pod>>) -> Vec<Arc<EndpointSlice>> {
    let mut slices = Vec::new();
    let view_of = |slices: &Vec<Arc<EndpointSlice>>| view(service.clone(), pods.clone(), slices.clone());
    let writes = slices::plan(&view_of(&slices));
    apply(&mut slices, writes);
    assert_eq!(slices::plan(&view_of(&slices)), Writes::default(), "a second look has nothing to do");
    slices
}

#[test]
fn conditions_say_how_a_pod_is() {
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut deleted_unready = not_ready.clone();
    merge(&mut deleted_unready, &deleted);
    let cases = [
        ("ready", json!({}), vec!["10.0.0.1 rs"], vec!["10.0.0.1 rs"]),
        ("unready", not_ready, vec!["10.0.0.1 "], vec!["10.0.0.1 r"]),
        ("terminating", deleted, vec!["10.0.0.1 st"], vec!["10.0.0.1 rst"]),
        ("terminating, unready", deleted_unready, vec!["10.0.0.1 t"], vec!["10.0.0.1 rt"]),
        ("ended", json!({"status": {"phase": "Failed"}}), vec![], vec![]),
        ("without address", json!({"status": {"podIP": null, "podIPs": []}}), vec![], vec![]),
        ("on a node that is gone", json!({"spec": {"nodeName": "gone"}}), vec![], vec!["10.0.0.1 rs"]),
        ("of the other family", json!({"status": {"podIPs": [{"ip": "fd00::1"}]}}), vec![], vec![]),
    ];
    for (name, overlay, plain, published) in cases {
        let pods = vec![pod(1, overlay)];
        assert_eq!(shown(&settled(service(json!({})), pods.clone())), plain, "{name}");
        let publishing = service(json!({"publishNotReadyAddresses": true}));
        assert_eq!(shown(&settled(publishing, pods)), published, "{name}, published");
    }
}

#[test]
fn a_slice_is_what_upstreams_is() {
    let slices =
        settled(service(json!({})), vec![pod(1, json!({"spec": {"hostname": "h", "subdomain": "web"}}))]);
    let slice = serde_json::to_value(slices[0].as_ref()).unwrap();
    let expected = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "web-1", "generateName": "web-", "namespace": "default",
            "labels": {"team": "a", "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s1",
                "controller": true, "blockOwnerDeletion": true}],
        },
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{
            "addresses": ["10.0.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "h", "nodeName": "n1", "zone": "east",
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "u1"},
        }],
    });
    assert_eq!(slice, expected);
}

/// The hints of each endpoint, by address.
fn hinted(slices: &[Arc<EndpointSlice>]) -> BTreeMap<String, Value> {
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    endpoints.map(|endpoint| (endpoint.addresses.join(","), json!(endpoint.hints))).collect()
}

#[test]
fn ready_endpoints_are_for_clients_nearby() {
    let zone = json!({"forZones": [{"name": "east"}]});
    let node = |name: &str| json!([{"name": name}]);
    let both = json!({"forNodes": node("n1"), "forZones": zone["forZones"]});
    let alone = json!({"forNodes": node("zoneless")});
    // (distribution, hints in a zone, hints without one)
    let cases = [
        (json!(null), json!(null), json!(null)),
        (json!("PreferClose"), zone.clone(), json!(null)),
        (json!("PreferSameZone"), zone, json!(null)),
        (json!("PreferSameNode"), both, alone),
        (json!("Other"), json!(null), json!(null)),
    ];
    let pods = [
        pod(1, json!({})),
        pod(2, json!({"spec": {"nodeName": "zoneless"}})),
        pod(3, json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
        pod(4, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ];
    for (distribution, in_zone, zoneless) in cases {
        let service = service(json!({"trafficDistribution": distribution}));
        let expected = [in_zone, zoneless, json!(null), json!(null)];
        let expected =
            (1..).zip(expected).map(|(number, hints)| (format!("10.0.0.{number}"), hints)).collect();
        assert_eq!(hinted(&settled(service, pods.to_vec())), expected, "{distribution}");
    }
}

#[test]
fn hints_follow_the_service_and_the_zone() {
    let mut slices = settled(service(json!({})), vec![pod(1, json!({}))]);
    let name = slices[0].metadata.name.clone();
    let zones = |name: &str| json!({"forZones": [{"name": name}]});
    let same_node = json!({"forNodes": [{"name": "n1"}], "forZones": [{"name": "west"}]});
    let steps = [
        (json!("PreferClose"), "east", 1, zones("east")),
        (json!("PreferSameZone"), "east", 0, zones("east")),
        (json!("PreferSameZone"), "west", 1, zones("west")),
        (json!("PreferSameNode"), "west", 1, same_node),
        (json!(null), "west", 1, json!(null)),
        (json!(null), "west", 0, json!(null)),
    ];
    for (distribution, zone, updates, hints) in steps {
        let service = service(json!({"trafficDistribution": distribution}));
        let mut view = view(service, vec![pod(1, json!({}))], slices.clone());
        view.zones.insert("n1".to_owned(), Some(zone.to_owned()));
        let writes = slices::plan(&view);
        let counted = (writes.create.len(), writes.update.len(), writes.delete.len());
        assert_eq!(counted, (0, updates, 0), "{distribution} in {zone}");
        apply(&mut slices, writes);
        assert_eq!(hinted(&slices)["10.0.0.1"], hints, "{distribution} in {zone}");
        assert_eq!(slices[0].metadata.name, name);
    }
}

#[test]
fn topology_aware_routing_goes_before_the_distribution() {
    for (annotation, mode, none) in [
        ("topology-mode", "Auto", true),
        ("topology-aware-hints", "auto", true),
        ("topology-mode", "Disabled", false),
    ] {
        let mut service = Service::clone(&service(json!({"trafficDistribution": "PreferClose"})));
        let annotation = (format!("service.kubernetes.io/{annotation}"), mode.to_owned());
        service.metadata.annotations = Some(BTreeMap::from([annotation]));
        let slices = settled(Arc::new(service), vec![pod(1, json!({}))]);
        assert_eq!(hinted(&slices)["10.0.0.1"].is_null(), none, "{mode}");
    }
}

#[test]
fn services_that_are_not_ours_are_left_alone() {
    for spec in [json!({"selector": null}), json!({"type": "ExternalName"})] {
        let writes = slices::plan(&view(service(spec), vec![pod(1, json!({}))], vec![]));
        assert_eq!(writes, Writes::default());
    }
}

#[test]
fn headless_and_empty_services_have_a_slice_that_says_so() {
    let slices = settled(service(json!({"clusterIP": "None", "ports": null})), vec![]);
    assert_eq!(slices.len(), 1);
    assert!(slices[0].endpoints.is_empty());
    assert!(slices[0].metadata.labels.as_ref().unwrap().contains_key("service.kubernetes.io/headless"));
    let slices = settled(service(json!({"clusterIP": "None", "ports": null})), vec![pod(1, json!({}))]);
    assert_eq!(shown(&slices), ["10.0.0.1 rs"]);
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let dual = pod(1, json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
    let slices = settled(both, vec![dual]);
    let families: Vec<&str> = slices.iter().map(|slice| slice.address_type.as_str()).collect();
    assert_eq!(families, ["IPv4", "IPv6"]);
    assert_eq!(shown(&slices), ["10.0.0.1 rs", "fd00::1 rs"]);
}

#[test]
fn pods_with_other_ports_are_in_other_slices() {
    let other =
        json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 9090}]}]}});
    let none = json!({"spec": {"containers": [{"name": "c"}]}});
    let sidecar = json!({"spec": {"containers": [{"name": "c"}], "initContainers":
        [{"name": "s", "restartPolicy": "Always", "ports": [{"name": "http", "containerPort": 7070}]}]}});
    let slices =
        settled(service(json!({})), vec![pod(1, json!({})), pod(2, other), pod(3, none), pod(4, sidecar)]);
    let mut ports: Vec<Option<i32>> = slices
        .iter()
        .map(|slice| slice.ports.as_deref().unwrap_or_default().first().and_then(|port| port.port))
        .collect();
    ports.sort();
    assert_eq!(ports, [None, Some(7070), Some(8080), Some(9090)]);
}

#[test]
fn slices_stay_and_few_are_written() {
    let service = service(json!({}));
    let pods = |range: std::ops::Range<usize>| -> Vec<Arc<Pod>> {
        range.map(|number| pod(number, json!({}))).collect()
    };
    let mut slices = settled(service.clone(), pods(1..251));
    let sizes = |slices: &[Arc<EndpointSlice>]| {
        let mut sizes: Vec<usize> = slices.iter().map(|slice| slice.endpoints.len()).collect();
        sizes.sort();
        sizes
    };
    assert_eq!(sizes(&slices), [50, 100, 100]);
    // (what changes, pods now, creates, updates, deletes, sizes after)
    let steps = [
        ("one more fits", pods(1..252), (0, 1, 0), vec![51, 100, 100]),
        ("one less", pods(1..251), (0, 1, 0), vec![50, 100, 100]),
        ("as many as two slices", pods(1..401), (1, 1, 0), vec![100, 100, 100, 100]),
        ("nothing", pods(1..401), (0, 0, 0), vec![100, 100, 100, 100]),
        ("none", vec![], (0, 1, 3), vec![0]),
        ("again", pods(1..2), (0, 1, 0), vec![1]),
    ];
    for (name, pods, (creates, updates, deletes), after) in steps {
        let writes = slices::plan(&view(service.clone(), pods, slices.clone()));
        let counted = (writes.create.len(), writes.update.len(), writes.delete.len());
        apply(&mut slices, writes);
        assert_eq!(sizes(&slices), after, "{name}");
        assert_eq!(counted, (creates, updates, deletes), "{name}");
    }
}

#[test]
fn slices_of_a_service_of_the_same_name_before_go() {
    let mut slices = settled(service(json!({})), vec![pod(1, json!({}))]);
    let mut newer = Service::clone(&service(json!({})));
    newer.metadata.uid = Some("s2".to_owned());
    let writes = slices::plan(&view(Arc::new(newer), vec![pod(1, json!({}))], slices.clone()));
    assert_eq!((writes.create.len(), writes.update.len(), writes.delete.len()), (1, 0, 1));
    apply(&mut slices, writes);
    assert_eq!(slices[0].metadata.owner_references.as_ref().unwrap()[0].uid, "s2");
}

fn endpoints_of(service: Arc<Service>, pods: Vec<Arc<Pod>>) -> Endpoints {
    let view = |endpoints| legacy::View { service: Some(service.clone()), pods: pods.clone(), endpoints };
    let Some(legacy::Action::Create(created)) = legacy::plan(&view(None)) else { panic!("no create") };
    assert_eq!(
        legacy::plan(&view(Some(Arc::new(*created.clone())))),
        None,
        "a second look has nothing to do"
    );
    *created
}

#[test]
fn endpoints_are_what_upstreams_are() {
    let not_ready = json!({"status": {"conditions": []}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let endpoints = endpoints_of(
        service(json!({})),
        vec![pod(2, json!({})), pod(1, json!({})), pod(3, not_ready), pod(4, deleted)],
    );
    let found = serde_json::to_value(&endpoints).unwrap();
    let address = |number: usize| {
        json!({"ip": format!("10.0.0.{number}"), "nodeName": "n1",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("p{number}"), "uid": format!("u{number}")}})
    };
    let subsets = json!([{"addresses": [address(1), address(2)], "notReadyAddresses": [address(3)],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}]);
    assert_eq!(found["subsets"], subsets);
    let labels = json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(found["metadata"]["labels"], labels);
}

#[test]
fn more_than_a_thousand_addresses_are_cut() {
    let unready = json!({"status": {"conditions": []}});
    let mut pods: Vec<Arc<Pod>> = (1..900).map(|number| pod(number, json!({}))).collect();
    pods.extend((900..1200).map(|number| pod(number, unready.clone())));
    let endpoints = endpoints_of(service(json!({})), pods);
    let subset = &endpoints.subsets.unwrap()[0];
    assert_eq!(subset.addresses.as_ref().unwrap().len(), 899);
    assert_eq!(subset.not_ready_addresses.as_ref().unwrap().len(), 101);
    let annotations = endpoints.metadata.annotations.unwrap();
    assert_eq!(annotations["endpoints.kubernetes.io/over-capacity"], "truncated");
}

#[test]
fn endpoints_without_a_service_go() {
    let endpoints = endpoints_of(service(json!({})), vec![]);
    let view = |endpoints| legacy::View { service: None, pods: vec![], endpoints: Some(Arc::new(endpoints)) };
    assert_eq!(legacy::plan(&view(endpoints.clone())), Some(legacy::Action::Delete));
    let mut electing = endpoints;
    let leader = ("control-plane.alpha.kubernetes.io/leader".to_owned(), "{}".to_owned());
    electing.metadata.annotations = Some(BTreeMap::from([leader]));
    assert_eq!(legacy::plan(&view(electing)), None);
}

#[test]
fn endpoints_written_by_hand_are_mirrored() {
    let by_hand = |metadata: Value| -> Arc<Endpoints> {
        let mut all = json!({"name": "web", "namespace": "default", "uid": "e1", "labels": {"of": "mine"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x"}});
        merge(&mut all, &metadata);
        let subsets = json!([{"addresses": [{"ip": "192.0.2.1"}, {"ip": "fd00::1"}],
            "notReadyAddresses": [{"ip": "192.0.2.2"}], "ports": [{"port": 80, "protocol": "TCP"}]}]);
        Arc::new(serde_json::from_value(json!({"metadata": all, "subsets": subsets})).unwrap())
    };
    let view = |service: Option<Arc<Service>>, endpoints: Arc<Endpoints>, slices: &[Arc<EndpointSlice>]| {
        mirroring::View { service, endpoints: Some(endpoints), slices: slices.to_vec() }
    };
    let unselected = service(json!({"selector": null, "trafficDistribution": "PreferClose"}));
    let mut slices = Vec::new();
    let first = view(Some(unselected.clone()), by_hand(json!({})), &slices);
    apply(&mut slices, mirroring::plan(&first));
    assert_eq!(shown(&slices), ["192.0.2.1 r", "192.0.2.2 ", "fd00::1 r"]);
    assert_eq!(slices[0].metadata.annotations, Some(BTreeMap::from([("note".to_owned(), "x".to_owned())])));
    let hints = serde_json::from_value(json!({"forZones": [{"name": "east"}]})).unwrap();
    Arc::make_mut(&mut slices[0]).endpoints[0].hints = Some(hints);
    let again = view(Some(unselected.clone()), by_hand(json!({})), &slices);
    assert_eq!(mirroring::plan(&again), Writes::default());
    let ends = [
        view(None, by_hand(json!({})), &slices),
        view(Some(service(json!({}))), by_hand(json!({})), &slices),
        view(
            Some(unselected),
            by_hand(json!({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}})),
            &slices,
        ),
    ];
    for end in ends {
        assert_eq!(mirroring::plan(&end).delete.len(), 2);
    }
}
