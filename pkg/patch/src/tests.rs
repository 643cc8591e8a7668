//! What all kinds of patch promise together: for every list with keys in every built-in kind, and for any JSON.

use super::testing::{json, object, schema_of};
use super::*;
use api::schema::{ListType, Type};
use k8s_openapi::api::{apps::v1 as apps, batch::v1 as batch, core::v1 as core};
use proptest::prelude::*;
use serde_json::json;
use std::sync::LazyLock;

pub(super) static DEPLOYMENT: LazyLock<Schema> = LazyLock::new(schema_of::<apps::Deployment>);
pub(super) static POD: LazyLock<Schema> = LazyLock::new(schema_of::<core::Pod>);

pub(super) fn context<'a>(manager: &'a str, second: i64) -> WriteContext<'a> {
    WriteContext {
        manager,
        api_version: "apps/v1",
        subresource: "",
        reset_fields: &["status"],
        now: jiff::Timestamp::from_second(1_700_000_000 + second).expect("a time"),
    }
}

/// Calls `visit` with each struct that has a list with keys, and with that list's name and schema.
fn each_keyed_list(schema: &Schema, path: &str, visit: &mut dyn FnMut(&str, &Schema, &str, &Schema)) {
    match &schema.resolve().ty {
        Type::Object { properties, additional } => {
            for (name, member) in properties.iter() {
                let keyed = member.merge_key.is_some() || matches!(member.list, ListType::Map(_));
                if keyed {
                    visit(path, schema, name, member);
                }
                each_keyed_list(member, &format!("{path}.{name}"), visit);
            }
            if let Some(additional) = additional {
                each_keyed_list(additional, path, visit);
            }
        }
        Type::Array(element) => each_keyed_list(element, path, visit),
        _ => {}
    }
}

fn all_kinds(visit: &mut dyn FnMut(&str, &Schema, &str, &Schema)) {
    let job = schema_of::<batch::Job>();
    let statefulset = schema_of::<apps::StatefulSet>();
    let service = schema_of::<core::Service>();
    let service_account = schema_of::<core::ServiceAccount>();
    let node = schema_of::<core::Node>();
    let namespace = schema_of::<core::Namespace>();
    let claim = schema_of::<core::PersistentVolumeClaim>();
    let quota = schema_of::<k8s_openapi::api::resource::v1::ResourceClaim>();
    let hpa = schema_of::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>();
    let webhooks = schema_of::<k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration>();
    let csi_node = schema_of::<k8s_openapi::api::storage::v1::CSINode>();
    let all = [&*POD, &DEPLOYMENT, &job, &statefulset, &service, &service_account, &node, &namespace, &claim];
    for schema in all.into_iter().chain([&quota, &hpa, &webhooks, &csi_node]) {
        each_keyed_list(schema, "", visit);
    }
}

/// Elements that differ in each of the keys.
fn elements(list: &Schema, keys: &[Box<str>]) -> Vec<Value> {
    let element = list.element().expect("a list has elements");
    (0..3)
        .map(|number| {
            let members = keys.iter().map(|key| {
                let schema = element.property(key).expect("a key is a member");
                let value = match schema.resolve().ty {
                    Type::Integer { .. } => json!(8000 + number),
                    _ => json!(format!("x{number}")),
                };
                (key.to_string(), value)
            });
            Value::Object(members.collect())
        })
        .collect()
}

#[test]
fn a_strategic_patch_removes_exactly_one_element_of_any_list() {
    let mut seen = 0;
    all_kinds(&mut |path, parent, name, list| {
        let Some(key) = &list.merge_key else { return };
        let all = elements(list, std::slice::from_ref(key));
        let patch = json!({
            format!("$setElementOrder/{name}"): [all[0], all[2]],
            name: [{"$patch": "delete", &**key: all[1][&**key]}],
        });
        let result = strategic_merge_patch(parent, json!({name: all}), patch);
        assert_eq!(result, Ok(json!({name: [all[0], all[2]]})), "{path}.{name}");
        seen += 1;
    });
    assert!(seen > 50, "{seen}");
}

#[test]
fn applying_without_one_element_removes_exactly_that_one_from_any_list() {
    let mut seen = 0;
    all_kinds(&mut |path, parent, name, list| {
        let ListType::Map(keys) = &list.list else { return };
        let any = |name: &str| (name.into(), Schema::default());
        let members = [("spec".into(), parent.clone()), any("metadata"), any("apiVersion")];
        let properties = members.into_iter().collect();
        let root = Schema { ty: Type::Object { properties, additional: None }, ..Schema::default() };
        let all = elements(list, keys);
        let config =
            |list: Value| json!({"apiVersion": "apps/v1", "metadata": {"name": "x"}, "spec": {name: list}});
        let context = context("me", 0);
        let live = apply(&root, None, &config(json!(all)), &context, false).expect("applies");
        assert_eq!(live["spec"][name], json!(all), "{path}.{name}");
        let live =
            apply(&root, Some(&live), &config(json!([all[0], all[2]])), &context, false).expect("applies");
        assert_eq!(live["spec"][name], json!([all[0], all[2]]), "{path}.{name}");
        seen += 1;
    });
    assert!(seen > 50, "{seen}");
}

#[test]
fn long_lists_take_no_longer_than_their_length() {
    const MANY: usize = 100_000;
    let names = |from: usize, many: usize| -> Vec<Value> {
        (from..many + from).map(|n| json!({"name": format!("e{n}")})).collect()
    };
    let pod = |env: Vec<Value>| {
        let spec = json!({"containers": [{"name": "a", "env": env}]});
        json!({"apiVersion": "apps/v1", "metadata": {"name": "x"}, "spec": spec})
    };
    let patch = json!({"spec": {"containers": [{"name": "a", "$setElementOrder/env": names(7, MANY), "env": names(7, MANY)}]}});
    let patched = strategic_merge_patch(&POD, pod(names(0, MANY)), patch).expect("applies");
    assert_eq!(patched["spec"]["containers"][0]["env"].as_array().map(Vec::len), Some(MANY + 7));

    let context = context("me", 0);
    let live = apply(&POD, None, &pod(names(0, MANY / 5)), &context, false).expect("applies");
    let mut live = apply(&POD, Some(&live), &pod(names(7, MANY / 5)), &context, false).expect("applies");
    assert_eq!(live["spec"]["containers"][0]["env"].as_array().map(Vec::len), Some(MANY / 5));
    let before = live.clone();
    live["spec"]["containers"][0]["env"][5]["value"] = json!("changed");
    track_update(&POD, Some(&before), &mut live, &context);

    let add = json!({"op": "add", "path": "/a/0", "value": 1});
    let document = json!({"a": vec![0; MANY]});
    assert!(json_patch(document.clone(), &json!(vec![add.clone(); 1_000])).is_ok());
    let error = json_patch(document, &json!(vec![add; 10_000]));
    assert_eq!(error, Err(PatchError::Unprocessable("the patch takes too much work".into())));
}

/// A deployment with some of the members that matter to merging, right or wrong.
fn deployment() -> impl Strategy<Value = Value> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let env = prop::collection::vec((name(), "[x-z]"), 0..3)
        .prop_map(|env| env.into_iter().map(|(n, v)| json!({"name": n, "value": v})).collect::<Vec<_>>());
    let container =
        (name(), prop::option::of("[x-z]"), env, any::<bool>()).prop_map(|(name, image, env, port)| {
            let mut container = json!({"name": name});
            if let Some(image) = image {
                container["image"] = json!(image);
            }
            if !env.is_empty() {
                container["env"] = json!(env);
            }
            if port {
                container["ports"] = json!([{"containerPort": 80}]);
            }
            container
        });
    let labels = prop::collection::btree_map("[a-c]", "[x-z]", 0..3);
    (prop::collection::vec(container, 0..3), labels, prop::option::of(0..3)).prop_map(|(containers, labels, replicas)| {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": labels}});
        object["spec"]["template"]["spec"]["containers"] = json!(containers);
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        object
    })
}

fn distinct(list: &Value, key: &str) -> bool {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut keys: Vec<String> = list.iter().map(|item| item[key].to_string()).collect();
    keys.sort();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

/// Whether no key repeats: such a configuration cannot be applied.
fn applicable(object: &Value) -> bool {
    let containers = &object["spec"]["template"]["spec"]["containers"];
    distinct(containers, "name")
        && containers.as_array().into_iter().flatten().all(|container| distinct(&container["env"], "name"))
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(
        live in deployment(),
        config in deployment().prop_filter("keys repeat", applicable),
    ) {
        let once = apply(&DEPLOYMENT, Some(&live), &config, &context("me", 0), true).expect("applies");
        let twice = apply(&DEPLOYMENT, Some(&once), &config, &context("me", 9), false).expect("applies");
        prop_assert_eq!(&twice, &once);
        let mut same = once.clone();
        track_update(&DEPLOYMENT, Some(&once), &mut same, &context("other", 9));
        prop_assert_eq!(same, once);
    }

    #[test]
    fn what_was_applied_is_there_and_what_is_no_longer_is_not(
        first in deployment().prop_filter("keys repeat", applicable),
        second in deployment().prop_filter("keys repeat", applicable),
    ) {
        let live = apply(&DEPLOYMENT, None, &first, &context("me", 0), false).expect("applies");
        let live = apply(&DEPLOYMENT, Some(&live), &second, &context("me", 1), false).expect("applies");
        let mut without_managed_fields = live;
        without_managed_fields["metadata"].as_object_mut().expect("a map").remove("managedFields");
        // Nobody else owned anything, so only the second configuration is left, but for maps that became empty.
        prop_assert_eq!(without_empty(without_managed_fields), without_empty(second));
    }

    #[test]
    fn the_set_of_a_configuration_is_exactly_its_leaves(config in deployment().prop_filter("keys repeat", applicable)) {
        let set = typed::field_set(&DEPLOYMENT, &config);
        let left = typed_merge::remove(&DEPLOYMENT, &config, &set.with_structs(&DEPLOYMENT));
        prop_assert_eq!(left, json!({}));
        prop_assert_eq!(FieldSet::decode(set.clone().encode()), Ok(set.clone()));
        let leaves = set.paths().into_iter().filter(|path| path.ends_with(".image")).count();
        let containers = config["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(leaves, containers.iter().filter(|container| container.get("image").is_some()).count());
    }

    #[test]
    fn a_patch_that_says_what_is_there_changes_nothing(live in deployment().prop_filter("keys repeat", applicable)) {
        let patched = strategic_merge_patch(&DEPLOYMENT, live.clone(), live.clone()).expect("applies");
        prop_assert_eq!(&patched, &live);
        prop_assert_eq!(strategic_merge_patch(&DEPLOYMENT, live.clone(), json!({})).expect("applies"), live);
    }

    #[test]
    fn nothing_panics(live in wild(), patch in wild(), entries in json()) {
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge] {
            let _ = apply_patch(patch_type, &DEPLOYMENT, live.clone(), patch.clone());
        }
        let mut live = live;
        if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("managedFields".into(), entries);
        }
        let _ = apply(&DEPLOYMENT, Some(&live), &patch, &context("kubectl", 0), false);
        track_update(&DEPLOYMENT, Some(&live), &mut patch.clone(), &context("me", 0));
        track_update(&DEPLOYMENT, None, &mut patch.clone(), &context("me", 0));
    }

    #[test]
    fn no_operations_panic(document in object(), operations in prop::collection::vec(operation(), 0..6)) {
        let _ = json_patch(document, &Value::from(operations));
    }
}

fn operation() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "other"]);
    let pointer = || {
        prop::collection::vec("[a-c]{1,2}|-|0|1|-1|~1|", 0..4)
            .prop_map(|parts| parts.into_iter().map(|part| format!("/{part}")).collect::<String>())
    };
    (op, pointer(), pointer(), json())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

/// A deployment with something wrong somewhere.
fn wild() -> impl Strategy<Value = Value> {
    let places = vec![
        "/metadata",
        "/metadata/labels",
        "/metadata/finalizers",
        "/spec",
        "/spec/template",
        "/spec/template/spec",
        "/spec/template/spec/containers",
        "/spec/template/spec/containers/0",
        "/spec/template/spec/containers/0/env",
        "/spec/template/spec/containers/0/env/0",
        "/spec/template/spec/containers/0/name",
        "/spec/strategy",
        "/spec/template/spec/$setElementOrder~1containers",
        "/spec/template/spec/$patch",
        "/spec/strategy/$retainKeys",
        "/metadata/$deleteFromPrimitiveList~1finalizers",
        "/spec/template/spec/containers/0/$patch",
    ];
    (deployment(), prop::sample::select(places), json()).prop_map(|(object, place, value)| {
        let operations = json!([{"op": "add", "path": place, "value": value}]);
        json_patch(object.clone(), &operations).unwrap_or(object)
    })
}

fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name, without_empty(member)))
            .filter(|(_, member)| *member != json!({}) && *member != json!([]))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        scalar => scalar,
    }
}
