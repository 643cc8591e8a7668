use super::*;
use serde_json::json;

const ADMIN: &str = r#"[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]"#;

fn rules(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn rule(verbs: &[&str], resource: &str) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]})
}

/// An index in which jane has these rules in the cluster.
fn index(rules: Value) -> Index {
    let mut index = Index::default();
    index.apply(&json!({"kind": "ClusterRole", "metadata": {"name": "janes"}, "rules": rules}));
    index.apply(&json!({"kind": "ClusterRoleBinding", "metadata": {"name": "janes"},
        "roleRef": {"kind": "ClusterRole", "name": "janes"}, "subjects": [{"kind": "User", "name": "jane"}]}));
    index
}

fn jane() -> User {
    User { name: "jane".into(), groups: vec!["dev".into(), "ops".into()], ..User::default() }
}

fn write_role(index: &Index, user: &User, new: &Value, old: Option<&Value>) -> Result<(), String> {
    let name = old.map(api::object::name).unwrap_or_default();
    let verb = if old.is_some() { "update" } else { "create" };
    let request = Attributes { name, ..Attributes::resource(user, verb, GROUP, "clusterroles") };
    check_role_write(index, &request, new, old).map_err(|error| error.to_string())
}

fn bind(index: &Index, user: &User, role: &str) -> Result<(), String> {
    let new = json!({"kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}});
    let request =
        Attributes { namespace: "n", ..Attributes::resource(user, "create", GROUP, "rolebindings") };
    check_binding_write(index, &request, &new, None).map_err(|error| error.to_string())
}

fn role(rules: Value) -> Value {
    json!({"kind": "ClusterRole", "metadata": {"name": "new"}, "rules": rules})
}

#[test]
fn one_gives_what_one_has() {
    let own = index(json!([rule(&["get", "list"], "pods"), rule(&["*"], "secrets")]));
    let check = |rules: Value, fine: bool| {
        assert_eq!(write_role(&own, &jane(), &role(rules.clone()), None).is_ok(), fine, "{rules}");
    };
    check(json!([]), true);
    check(json!([rule(&["get"], "pods")]), true);
    check(json!([rule(&["get", "list"], "pods"), rule(&["delete"], "secrets")]), true);
    check(json!([rule(&["get"], "secrets/x")]), false);
    check(json!([rule(&["*"], "pods")]), false);
    check(json!([rule(&["get"], "*")]), false);
    check(json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}]), false);
    check(
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]),
        true,
    );
    check(json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]), false);
}

#[test]
fn what_is_missing_is_listed_as_upstream_does() {
    let own = index(json!([rule(&["get"], "pods")]));
    let wanted = json!([rule(&["get", "list", "watch"], "pods"), rule(&["get"], "secrets"),
        {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"]}]);
    assert_eq!(
        write_role(&own, &jane(), &role(wanted), None).unwrap_err(),
        concat!(
            r#"user "jane" (groups=["dev" "ops"]) is attempting to grant RBAC permissions not currently held:"#,
            "\n",
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
            "\n",
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
            "\n",
            r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["get"]}"#,
            "\n",
            r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
        )
    );
}

#[test]
fn those_who_may_escalate_give_anything() {
    let everything = role(rules(ADMIN));
    let masters = User { groups: vec![User::MASTERS.into()], ..jane() };
    assert!(write_role(&index(json!([])), &masters, &everything, None).is_ok());
    let escalate = |names: Value| json!([{"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": names}]);
    assert!(write_role(&index(escalate(json!([]))), &jane(), &everything, None).is_ok());
    let by_name = index(escalate(json!(["new"])));
    assert!(write_role(&by_name, &jane(), &everything, None).is_err(), "a create has no name");
    assert!(write_role(&by_name, &jane(), &everything, Some(&role(json!([])))).is_ok());
    assert!(write_role(&index(rules(ADMIN)), &jane(), &everything, None).is_ok(), "has it all anyway");
}

#[test]
fn gathering_takes_everything() {
    let mut aggregated = role(json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
    let text = Err("must have cluster-admin privileges to use the aggregationRule".to_owned());
    let own = index(json!([rule(&["*"], "*")]));
    assert_eq!(write_role(&own, &jane(), &aggregated, None), text);
    assert_eq!(write_role(&own, &jane(), &role(json!([])), Some(&aggregated)), text);
    assert!(write_role(&index(rules(ADMIN)), &jane(), &aggregated, None).is_ok());
}

#[test]
fn the_garbage_collector_gives_nothing() {
    let old = role(rules(ADMIN));
    let mut new = old.clone();
    new["metadata"]["ownerReferences"] = json!([{"kind": "x"}]);
    new["metadata"]["finalizers"] = json!(["x"]);
    assert!(write_role(&index(json!([])), &jane(), &new, Some(&old)).is_ok());
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(write_role(&index(json!([])), &jane(), &new, Some(&old)).is_err());
}

#[test]
fn one_binds_what_one_has_or_may_bind() {
    let with = |rules: Value| {
        let mut index = index(rules);
        index.apply(&role(json!([rule(&["get"], "secrets")])));
        index
    };
    assert!(bind(&with(json!([rule(&["get"], "secrets")])), &jane(), "new").is_ok());
    assert!(
        bind(&with(json!([rule(&["get"], "pods")])), &jane(), "new")
            .unwrap_err()
            .contains("not currently held")
    );
    let may = |name: &str| json!([{"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": [name]}]);
    assert!(bind(&with(may("new")), &jane(), "new").is_ok());
    assert!(bind(&with(may("other")), &jane(), "new").is_err());
    assert_eq!(
        bind(&with(json!([])), &jane(), "gone"),
        Err(r#"clusterroles.rbac.authorization.k8s.io "gone" not found"#.to_owned())
    );
}
