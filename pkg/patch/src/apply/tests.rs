use super::*;
use crate::last_applied::ANNOTATION;
use crate::managed_fields::track_update;
use crate::tests::{DEPLOYMENT, context};
use serde_json::json;

/// A configuration with this spec and these labels.
fn config(spec: Value, labels: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": labels}, "spec": spec})
}

fn applied(live: Option<&Value>, config: &Value, manager: &str) -> Result<Value, ApplyError> {
    apply(&DEPLOYMENT, live, config, &context(manager, 0), false)
}

fn forced(live: &Value, config: &Value, manager: &str) -> Value {
    apply(&DEPLOYMENT, Some(live), config, &context(manager, 5), true).expect("forced")
}

/// The fields of a manager.
fn owned(object: &Value, manager: &str) -> Vec<String> {
    let entries = encoded(object).cloned().map(decode_or_reset).unwrap_or_default();
    entries.iter().filter(|entry| entry.manager == manager).flat_map(|entry| entry.fields.paths()).collect()
}

fn containers(list: Value) -> Value {
    config(json!({"template": {"spec": {"containers": list}}}), json!({}))
}

#[test]
fn creating_owns_what_the_configuration_says() {
    let config = config(json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}), json!({"a": "b"}));
    let live = applied(None, &config, "me").expect("applies");
    assert_eq!(owned(&live, "me"), [".metadata.labels.a", ".spec.replicas", ".spec.selector"]);
    assert_eq!(live["metadata"]["managedFields"][0]["operation"], "Apply");
    assert_eq!(live["spec"], config["spec"]);
}

#[test]
fn one_conflict_reads_as_upstreams() {
    let live = applied(None, &config(json!({"replicas": 1}), json!({})), "one").expect("applies");
    let error =
        applied(Some(&live), &config(json!({"replicas": 2}), json!({})), "two").expect_err("a conflict");
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "one": .spec.replicas"#);
    let ApplyError::Conflict { causes, .. } = error else { panic!("a conflict") };
    let cause = ConflictCause { field: ".spec.replicas".into(), message: r#"conflict with "one""#.into() };
    assert_eq!(causes, [cause]);

    let mut updated = live.clone();
    updated["metadata"]["uid"] = json!("u");
    updated["spec"]["replicas"] = json!(3);
    track_update(&DEPLOYMENT, Some(&live), &mut updated, &context("hpa", 1));
    let error =
        applied(Some(&updated), &config(json!({"replicas": 1}), json!({})), "one").expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas"#
    );
}

#[test]
fn more_conflicts_are_listed_by_manager() {
    let first =
        config(json!({"template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}), json!({}));
    let live = applied(None, &first, "one").expect("applies");
    let live =
        applied(Some(&live), &config(json!({"replicas": 1}), json!({"l": "x"})), "two").expect("applies");
    let other = config(
        json!({"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}),
        json!({"l": "y"}),
    );
    let error = applied(Some(&live), &other, "three").expect_err("conflicts");
    let expected = concat!(
        "Apply failed with 3 conflicts: conflicts with \"one\":\n",
        "- .spec.template.spec.containers[name=\"a\"].image\n",
        "conflicts with \"two\":\n- .metadata.labels.l\n- .spec.replicas"
    );
    assert_eq!(error.to_string(), expected);

    let live = forced(&live, &other, "three");
    assert_eq!(live["spec"]["replicas"], 2);
    assert_eq!(owned(&live, "two"), [""; 0]);
    let container = r#".spec.template.spec.containers[name="a"]"#;
    assert_eq!(owned(&live, "one"), [".metadata.labels", container, &format!("{container}.name")]);
}

#[test]
fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
    let both = config(json!({"replicas": 1, "paused": true}), json!({"l": "x"}));
    let live = applied(None, &both, "one").expect("applies");
    let live = applied(Some(&live), &both, "two").expect("applies");
    let less = config(json!({"replicas": 1}), json!({}));
    let live = applied(Some(&live), &less, "one").expect("applies");
    assert_eq!(live["spec"]["paused"], true, "two still owns it");
    let live = applied(Some(&live), &less, "two").expect("applies");
    assert_eq!(live["spec"], json!({"replicas": 1}));
    assert_eq!(live["metadata"].get("labels"), None);
}

#[test]
fn defaults_and_fields_of_others_stay() {
    let mine = containers(json!([{"name": "a", "image": "x", "env": [{"name": "A", "value": "1"}]}]));
    let mut live = applied(None, &mine, "me").expect("applies");
    live["metadata"]["uid"] = json!("u");
    live["spec"]["replicas"] = json!(1);
    live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    let mut changed = live.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "B", "value": "2"}));
    track_update(&DEPLOYMENT, Some(&live), &mut changed, &context("injector", 1));

    let less = containers(json!([{"name": "a", "image": "x"}]));
    let new = applied(Some(&changed), &less, "me").expect("applies");
    assert_eq!(
        new["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "x", "imagePullPolicy": "Always", "env": [{"name": "B", "value": "2"}]}])
    );
    assert_eq!(new["spec"]["replicas"], 1);
}

#[test]
fn an_element_goes_with_the_defaults_in_it() {
    let two = containers(json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]));
    let mut live = applied(None, &two, "me").expect("applies");
    live["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
    let new = applied(Some(&live), &containers(json!([{"name": "a", "image": "x"}])), "me").expect("applies");
    assert_eq!(new["spec"]["template"]["spec"]["containers"], json!([{"name": "a", "image": "x"}]));
}

#[test]
fn new_elements_stand_where_the_configuration_has_them() {
    let check = |live: &[&str], config: &[&str], expected: &[&str]| {
        let list = |names: &[&str]| containers(names.iter().map(|name| json!({"name": name})).collect());
        let mut object = applied(None, &list(live), "one").expect("applies");
        object = applied(Some(&object), &list(config), "two").expect("applies");
        assert_eq!(
            object["spec"]["template"]["spec"]["containers"],
            list(expected)["spec"]["template"]["spec"]["containers"],
            "{live:?} with {config:?}"
        );
    };
    check(&["a", "b"], &["c"], &["a", "b", "c"]);
    check(&["a", "b"], &["c", "b"], &["a", "c", "b"]);
    check(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
    check(&["b", "a", "x"], &["a", "b", "c"], &["a", "x", "b", "c"]);
    check(&["a"], &["b", "a", "c"], &["b", "a", "c"]);
}

#[test]
fn ports_are_told_apart_by_their_defaults() {
    let ports = |list: Value| containers(json!([{"name": "a", "ports": list}]));
    let live = applied(None, &ports(json!([{"containerPort": 53, "name": "t"}])), "me").expect("applies");
    let both = ports(json!([{"containerPort": 53, "name": "t"}, {"containerPort": 53, "protocol": "UDP"}]));
    let live = applied(Some(&live), &both, "me").expect("applies");
    let path = r#".spec.template.spec.containers[name="a"].ports[containerPort=53,protocol="TCP"].name"#;
    assert!(owned(&live, "me").iter().any(|owned| owned == path), "{:?}", owned(&live, "me"));
    let error =
        applied(None, &ports(json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "TCP"}])), "me");
    let error = error.expect_err("a duplicate").to_string();
    assert!(error.contains(r#"duplicate entries for key [containerPort=53,protocol="TCP"]"#), "{error}");
}

#[test]
fn what_was_there_before_belongs_to_nobody_who_applies() {
    let live = config(json!({"replicas": 1, "paused": true}), json!({}));
    let error =
        applied(Some(&live), &config(json!({"replicas": 2}), json!({})), "me").expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas"#
    );
    let new = applied(Some(&live), &config(json!({"replicas": 1}), json!({})), "me").expect("the same value");
    assert!(owned(&new, "before-first-apply").contains(&".spec.paused".to_owned()));
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client_side() {
    let last = config(json!({"replicas": 1}), json!({}));
    let mut live = config(json!({"replicas": 1, "paused": true}), json!({}));
    live["metadata"]["annotations"] = json!({ANNOTATION: last.to_string()});
    let next = config(json!({"replicas": 2}), json!({}));
    let new = applied(Some(&live), &next, "kubectl").expect("no conflict");
    assert_eq!(new["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(new["metadata"]["annotations"][ANNOTATION], format!("{next}\n"));

    let paused = config(json!({"replicas": 2, "paused": false}), json!({}));
    let error = applied(Some(&live), &paused, "kubectl").expect_err("a conflict").to_string();
    assert!(error.ends_with(".spec.paused"), "{error}");
    assert!(applied(Some(&live), &next, "somebody").is_err());
}

#[test]
fn reset_fields_are_neither_owned_nor_in_conflict() {
    let mut with_status = config(json!({"replicas": 1}), json!({}));
    with_status["status"] = json!({"replicas": 7});
    let live = applied(None, &with_status, "me").expect("applies");
    assert_eq!(owned(&live, "me"), [".metadata.labels", ".spec.replicas"]);
}

#[test]
fn configurations_that_are_none_are_refused() {
    let check = |config: Value, expected: &str| {
        let error = applied(None, &config, "me").expect_err("refused");
        assert_eq!(error.to_string(), expected);
    };
    check(json!([]), "the applied configuration must be an object");
    check(
        json!({"apiVersion": "v1"}),
        "Incorrect version specified in apply patch. Specified patch version: v1, expected: apps/v1",
    );
    let mut managed = config(json!({}), json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    check(managed, "metadata.managedFields must be nil");
    let failed = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): ";
    check(
        config(json!({"replicaz": 1}), json!({})),
        &format!("{failed}.spec.replicaz: field not declared in schema"),
    );
    check(
        config(json!({"replicas": "1"}), json!([])),
        &format!(
            "{failed}errors:\n  .metadata.labels: expected map, got &{{[]}}\n  \
             .spec.replicas: expected numeric (int or float), got string"
        ),
    );
    check(
        containers(json!([{"name": "a"}, {"name": "a"}])),
        &format!("{failed}.spec.template.spec.containers: duplicate entries for key [name=\"a\"]"),
    );
    check(
        containers(json!(["a"])),
        &format!(
            "{failed}.spec.template.spec.containers: element 0: \
             associative list with keys may not have non-map elements"
        ),
    );
}

#[test]
fn sets_lose_what_was_applied_only() {
    let with = |finalizers: Value| {
        let mut config = config(json!({}), json!({}));
        config["metadata"]["finalizers"] = finalizers;
        config
    };
    let live = applied(None, &with(json!(["a.io/x", "b.io/y"])), "one").expect("applies");
    let live = applied(Some(&live), &with(json!(["c.io/z"])), "two").expect("applies");
    let live = applied(Some(&live), &with(json!(["b.io/y"])), "one").expect("applies");
    assert_eq!(live["metadata"]["finalizers"], json!(["b.io/y", "c.io/z"]));
}
