//! The documents of a few kinds, looked at as clients look at them.

use super::*;
use k8s_openapi::api::{apps, authorization, core};
use std::collections::BTreeSet;

fn custom(extra: Value) -> Vec<Arc<Kind>> {
    let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "nullable": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                     "x-kubernetes-preserve-unknown-fields": true}}}}});
    schema["properties"]["extra"] = extra;
    let definition = json!({"spec": {"group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                      "subresources": {"status": {}}}]}});
    api::crd::kinds(&definition).into_iter().map(Arc::new).collect()
}

fn built_in() -> Vec<Arc<Kind>> {
    let kinds = vec![
        Kind::new::<apps::v1::Deployment>().with_status().with_scale(
            "spec.replicas",
            "status.replicas",
            "spec.selector",
        ),
        Kind::new::<core::v1::Node>(),
        Kind::new::<core::v1::Pod>()
            .with_status()
            .with_subresource("eviction", ("policy", "v1", "Eviction"), &["create"])
            .with_subresource("exec", ("", "", "PodExecOptions"), &["create", "get"])
            .with_subresource("log", ("", "", "Pod"), &["get"])
            .with_subresource(
                "proxy",
                ("", "", "PodProxyOptions"),
                &["create", "delete", "get", "patch", "update"],
            ),
        Kind { verbs: api::kind::Verbs::CreateOnly, ..Kind::new::<authorization::v1::SubjectAccessReview>() },
    ];
    kinds.into_iter().map(Arc::new).collect()
}

fn kinds() -> Vec<Arc<Kind>> {
    built_in().into_iter().chain(custom(json!({"type": "string"}))).collect()
}

fn v3(path: &str) -> Value {
    let document = Cache::new().v3(&kinds(), path).unwrap();
    serde_json::from_slice(&document.plain()).unwrap()
}

/// Every reference that stands anywhere in the value.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(target) if name == "$ref" => {
                        found.insert(target);
                    }
                    _ => references(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    for path in documents(&kinds()) {
        let document = v3(&path);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for target in found {
            let name = target.strip_prefix(schemas::PREFIX).unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{path}: {target}");
        }
    }
    let swagger: Value = serde_json::from_slice(&Cache::new().v2(&kinds(), V2Form::Json).plain()).unwrap();
    let mut found = BTreeSet::new();
    references(&swagger, &mut found);
    for target in found {
        assert!(
            swagger["definitions"].get(target.strip_prefix("#/definitions/").unwrap()).is_some(),
            "{target}"
        );
    }
}

#[test]
fn operation_ids_are_unique_and_upstreams() {
    let core = v3("api/v1");
    let ids: Vec<String> = core["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values())
        .filter_map(|operation| operation.get("operationId")?.as_str().map(str::to_owned))
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    for id in [
        "getCoreV1APIResources",
        "listCoreV1PodForAllNamespaces",
        "listCoreV1NamespacedPod",
        "createCoreV1NamespacedPod",
        "deleteCoreV1CollectionNamespacedPod",
        "readCoreV1NamespacedPodStatus",
        "createCoreV1NamespacedPodEviction",
        "readCoreV1NamespacedPodLog",
        "connectCoreV1GetNamespacedPodExec",
        "connectCoreV1PutNamespacedPodProxyWithPath",
        "replaceCoreV1Node",
    ] {
        assert!(ids.iter().any(|found| found == id), "{id}");
    }
    let custom = v3("apis/stable.example.com/v1");
    let path = &custom["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs"];
    assert_eq!(path["get"]["operationId"], "listStableExampleComV1NamespacedCronTab");
    assert_eq!(path["get"]["tags"], json!(["stableExampleCom_v1"]));
}

#[test]
fn patches_say_that_fields_are_validated() {
    for (path, item) in [
        ("apis/apps/v1", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"),
        ("apis/stable.example.com/v1", "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"),
    ] {
        let document = v3(path);
        let patch = &document["paths"][item]["patch"];
        assert!(patch["x-kubernetes-group-version-kind"]["kind"].is_string());
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
    }
}

#[test]
fn kinds_and_their_lists_are_named() {
    let apps = v3("apis/apps/v1");
    let schemas = &apps["components"]["schemas"];
    let gvk = |name: &str| schemas[name]["x-kubernetes-group-version-kind"].clone();
    let is =
        |group: &str, version: &str, kind: &str| json!([{"group": group, "version": version, "kind": kind}]);
    assert_eq!(gvk("io.k8s.api.apps.v1.Deployment"), is("apps", "v1", "Deployment"));
    assert_eq!(gvk("io.k8s.api.apps.v1.DeploymentList"), is("apps", "v1", "DeploymentList"));
    assert_eq!(gvk("io.k8s.api.autoscaling.v1.Scale"), is("autoscaling", "v1", "Scale"));
    assert_eq!(gvk("io.k8s.apimachinery.pkg.apis.meta.v1.Status"), is("", "v1", "Status"));
    assert!(schemas["io.k8s.api.core.v1.PodSpec"].is_object());
    assert!(schemas.get("io.k8s.api.core.v1.Node").is_none(), "only what its kinds reach");
    let custom = v3("apis/stable.example.com/v1");
    let schema = &custom["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(schema["x-kubernetes-group-version-kind"], is("stable.example.com", "v1", "CronTab"));
    assert!(schema["properties"]["metadata"]["allOf"].is_array());
    assert!(schema["properties"]["spec"]["properties"]["template"]["properties"]["metadata"].is_object());
}

#[test]
fn the_index_names_documents_by_their_hash() {
    let cache = Cache::new();
    let index: Value = serde_json::from_slice(&cache.index(&kinds()).plain()).unwrap();
    let paths: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "api",
            "api/v1",
            "apis",
            "apis/apps",
            "apis/apps/v1",
            "apis/authorization.k8s.io",
            "apis/authorization.k8s.io/v1",
            "apis/stable.example.com",
            "apis/stable.example.com/v1",
            "version"
        ]
    );
    let hash = cache.v3(&kinds(), "api/v1").unwrap().hash().to_owned();
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], format!("/openapi/v3/api/v1?hash={hash}"));
    assert!(cache.v3(&kinds(), "apis/none/v1").is_none());
    assert!(cache.v3(&kinds(), "apis//v1").is_none());
}

#[test]
fn a_changed_kind_makes_its_documents_again() {
    let cache = Cache::new();
    let built_in = built_in();
    let with = |extra: Value| -> Vec<Arc<Kind>> { built_in.iter().cloned().chain(custom(extra)).collect() };
    let (before, after) = (with(json!({"type": "string"})), with(json!({"type": "integer"})));
    let path = "apis/stable.example.com/v1";
    let first = cache.v3(&before, path).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.v3(&before, path).unwrap()));
    let apps = cache.v3(&before, "apis/apps/v1").unwrap();
    let index = cache.index(&before);
    assert_ne!(first.hash(), cache.v3(&after, path).unwrap().hash());
    assert!(Arc::ptr_eq(&apps, &cache.v3(&after, "apis/apps/v1").unwrap()), "others stay");
    assert_ne!(index.etag(), cache.index(&after).etag());
    cache.index(&built_in);
    assert!(!cache.documents.lock().contains_key(&Key::V3(path.into())), "what is gone is dropped");
}

#[test]
fn the_older_form_says_nothing_of_a_kind_that_may_have_anything() {
    let definition = json!({"spec": {"group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "bags", "kind": "Bag"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {"type": "object"}}}}}]}});
    let bags: Vec<Arc<Kind>> = api::crd::kinds(&definition).into_iter().map(Arc::new).collect();
    let swagger: Value = serde_json::from_slice(&Cache::new().v2(&bags, V2Form::Json).plain()).unwrap();
    assert_eq!(
        swagger["definitions"]["com.example.stable.v1.Bag"],
        json!({"type": "object", "x-kubernetes-group-version-kind": [{"group": "stable.example.com", "version": "v1", "kind": "Bag"}]})
    );
}

#[test]
fn the_older_form_says_the_same() {
    let cache = Cache::new();
    let swagger: Value = serde_json::from_slice(&cache.v2(&kinds(), V2Form::Json).plain()).unwrap();
    assert_eq!(swagger["swagger"], "2.0");
    let create = &swagger["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(create["parameters"][0]["in"], "body");
    assert_eq!(create["parameters"][0]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");
    assert_eq!(create["responses"]["201"]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");
    assert_eq!(create["consumes"], json!(["*/*"]));
    assert_eq!(create.get("requestBody"), None);
    let custom = &swagger["definitions"]["com.example.stable.v1.CronTab"];
    assert_eq!(custom["properties"]["spec"]["properties"]["size"], json!({}));
    let quantity = &swagger["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let protobuf = cache.v2(&kinds(), V2Form::Protobuf).plain();
    assert!(protobuf.ends_with(b"\x0a\x032.0"), "the last member by name is the version");
    let kubectl = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert_eq!(V2Form::accepted(kubectl), V2Form::Protobuf);
    assert_eq!(V2Form::accepted("application/json"), V2Form::Json);
}
