use super::*;
use proptest::prelude::*;
use serde_json::json;

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    json!({"kind": kind, "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": role.0, "name": role.1}, "subjects": subjects})
}

fn pods(verb: &str) -> Value {
    json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}])
}

fn jane() -> User {
    User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() }
}

fn may(index: &Index, user: &User, verb: &str, namespace: &str) -> bool {
    let attributes = Attributes { namespace, ..Attributes::resource(user, verb, "", "pods") };
    index.authorize(&attributes).allowed
}

fn reason(index: &Index, user: &User, verb: &str, namespace: &str) -> String {
    let attributes = Attributes { namespace, ..Attributes::resource(user, verb, "", "pods") };
    index.authorize(&attributes).reason.to_string()
}

#[test]
fn a_binding_gives_its_role_where_it_stands() {
    let mut index = Index::default();
    index.apply(&role("", "reader", pods("get")));
    index.apply(&role("n", "writer", pods("update")));
    index.apply(&binding("n", "b", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "jane"}])));
    index.apply(&binding("n", "c", ("Role", "writer"), json!([{"kind": "Group", "name": "dev"}])));
    assert!(may(&index, &jane(), "get", "n"));
    assert!(may(&index, &jane(), "update", "n"));
    assert!(!may(&index, &jane(), "get", "other"));
    assert!(!may(&index, &jane(), "get", ""));
    assert!(!may(&index, &User::anonymous(), "get", "n"));
    index.apply(&binding("", "b", ("ClusterRole", "reader"), json!([{"kind": "Group", "name": "dev"}])));
    assert!(may(&index, &jane(), "get", "other") && may(&index, &jane(), "get", ""));
}

#[test]
fn service_accounts_are_bound_by_name_and_namespace() {
    let mut index = Index::default();
    index.apply(&role("", "reader", pods("get")));
    let subjects = json!([{"kind": "ServiceAccount", "name": "sa"},
        {"kind": "ServiceAccount", "name": "far", "namespace": "other"}]);
    index.apply(&binding("n", "b", ("ClusterRole", "reader"), subjects.clone()));
    assert!(may(&index, &User::service_account("n", "sa"), "get", "n"));
    assert!(may(&index, &User::service_account("other", "far"), "get", "n"));
    assert!(!may(&index, &User::service_account("other", "sa"), "get", "n"));
    // Without a namespace a service account is nobody.
    index.apply(&binding("", "b", ("ClusterRole", "reader"), subjects));
    assert!(!may(&index, &User::service_account("", "sa"), "get", ""));
}

#[test]
fn reasons_name_the_binding() {
    let mut index = Index::default();
    index.apply(&role("", "reader", pods("get")));
    index.apply(&role("n", "reader", pods("list")));
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    index.apply(&binding("", "all", ("ClusterRole", "reader"), subjects.clone()));
    index.apply(&binding("n", "some", ("Role", "reader"), subjects.clone()));
    assert_eq!(
        reason(&index, &jane(), "get", "n"),
        r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "jane""#
    );
    assert_eq!(
        reason(&index, &jane(), "list", "n"),
        r#"RBAC: allowed by RoleBinding "some/n" of Role "reader" to User "jane""#
    );
    assert_eq!(reason(&index, &jane(), "delete", "n"), "");
    index.apply(&binding("n", "none", ("Role", "gone"), subjects.clone()));
    assert_eq!(
        reason(&index, &jane(), "delete", "n"),
        r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#
    );
    index.apply(&binding("", "none", ("ClusterRole", "gone"), subjects));
    assert_eq!(
        reason(&index, &jane(), "delete", "n"),
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#
    );
}

#[test]
fn objects_come_and_go_in_any_order() {
    let mut index = Index::default();
    let bound = binding("n", "b", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "jane"}]));
    let reader = role("", "reader", pods("get"));
    for _ in 0..3 {
        index.apply(&bound);
        assert!(!may(&index, &jane(), "get", "n"));
        index.apply(&reader);
        assert!(may(&index, &jane(), "get", "n"));
        index.apply(&role("", "reader", pods("list")));
        assert!(!may(&index, &jane(), "get", "n") && may(&index, &jane(), "list", "n"));
        // A binding that changes its subjects takes back what it gave.
        index.apply(&binding("n", "b", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "joe"}])));
        assert!(!may(&index, &jane(), "list", "n"));
        index.apply(&bound);
        index.delete(&reader);
        assert!(!may(&index, &jane(), "list", "n"));
        index.apply(&reader);
        assert!(may(&index, &jane(), "get", "n"));
        index.delete(&bound);
        assert!(!may(&index, &jane(), "get", "n"));
        index.delete(&reader);
        index.delete(&reader);
        index.delete(&bound);
    }
    assert_eq!(index.slots.slots.len(), 1, "slots are used again");
    assert!(index.slots.by_role.is_empty() && index.namespaces.is_empty() && index.bindings.is_empty());
}

#[test]
fn rules_mean_what_upstreams_mean() {
    let user = jane();
    let list = |text: &str| -> Vec<String> {
        text.split(',').filter(|item| !item.is_empty()).map(|item| item.replace("core", "")).collect()
    };
    // verbs groups resources names | verb group resource subresource name
    let check = |rule: [&str; 4], request: [&str; 5], expected: bool| {
        let rule = Rule {
            verbs: list(rule[0]),
            api_groups: list(rule[1]),
            resources: list(rule[2]),
            resource_names: list(rule[3]),
            non_resource_urls: Vec::new(),
        };
        let attributes = Attributes {
            subresource: request[3],
            name: request[4],
            ..Attributes::resource(&user, request[0], request[1], request[2])
        };
        assert_eq!(rule.allows(&attributes), expected, "{rule} {request:?}");
    };
    check(["get", "core", "pods", ""], ["get", "", "pods", "", "a"], true);
    check(["get", "core", "pods", ""], ["list", "", "pods", "", ""], false);
    check(["get", "apps", "pods", ""], ["get", "", "pods", "", "a"], false);
    check(["get", "core", "pods", ""], ["get", "", "pods", "log", "a"], false);
    check(["get", "core", "pods/log", ""], ["get", "", "pods", "log", "a"], true);
    check(["get", "core", "pods/log", ""], ["get", "", "pods", "", "a"], false);
    check(["get", "core", "pods/*", ""], ["get", "", "pods", "log", "a"], false);
    check(["*", "*", "*", ""], ["any", "g", "r", "s", "n"], true);
    check(["get", "*", "*/scale", ""], ["get", "apps", "deployments", "scale", "a"], true);
    check(["get", "*", "*/scale", ""], ["get", "apps", "deployments", "upscale", "a"], false);
    check(["get", "*", "*/scale", ""], ["get", "apps", "scale", "", "a"], false);
    check(["get", "core", "pods", "a,b"], ["get", "", "pods", "", "b"], true);
    check(["get", "core", "pods", "a,b"], ["get", "", "pods", "", "c"], false);
    check(["list", "core", "pods", "a"], ["list", "", "pods", "", ""], false);
    check(["get", "core", "https://aud", ""], ["get", "", "https://aud", "", ""], true);
    check(["", "core", "pods", ""], ["get", "", "pods", "", ""], false);
}

#[test]
fn paths_match_exactly_or_up_to_a_star() {
    let user = jane();
    let check = |url: &str, path: &str, expected: bool| {
        let rule = Rule { verbs: vec!["get".into()], non_resource_urls: vec![url.into()], ..Rule::default() };
        assert_eq!(rule.allows(&Attributes::non_resource(&user, "get", path)), expected, "{url} {path}");
        assert!(!rule.allows(&Attributes::non_resource(&user, "post", path)));
        assert!(!rule.allows(&Attributes { path, ..Attributes::resource(&user, "get", "", "") }));
    };
    check("/healthz", "/healthz", true);
    check("/healthz", "/healthz/etcd", false);
    check("/healthz/*", "/healthz/etcd", true);
    check("/healthz/*", "/healthz", false);
    check("/api*", "/apis/apps", true);
    check("*", "/anything", true);
}

const VERBS: [&str; 4] = ["get", "list", "update", "*"];
const GROUPS: [&str; 3] = ["", "apps", "*"];
const RESOURCES: [&str; 7] =
    ["pods", "pods/log", "deployments", "deployments/scale", "*/scale", "*", "pods/*"];

fn some(from: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(from, 0..=from.len().min(3))
        .prop_map(|list| list.into_iter().map(str::to_owned).collect())
}

prop_compose! {
    fn any_rule()(
        verbs in some(&VERBS),
        api_groups in some(&GROUPS),
        resources in some(&RESOURCES),
        resource_names in some(&["a", "b"]),
        non_resource_urls in some(&["/a", "/a*", "*"]),
    ) -> Rule {
        Rule { verbs, api_groups, resources, resource_names, non_resource_urls }
    }
}

proptest! {
    #[test]
    fn the_index_agrees_with_reading_the_rules_one_by_one(
        rules in proptest::collection::vec(any_rule(), 0..6),
        verb in 0..3usize, group in 0..2usize, resource in 0..2usize, subresource in 0..3usize,
        name in 0..3usize, path in 0..3usize,
    ) {
        let user = jane();
        let mut index = Index::default();
        let list: Vec<Value> = rules.iter().map(Rule::to_json).collect();
        index.apply(&role("", "r", json!(list)));
        index.apply(&binding("", "b", ("ClusterRole", "r"), json!([{"kind": "User", "name": "jane"}])));
        let resource = Attributes {
            subresource: ["", "log", "scale"][subresource],
            name: ["", "a", "c"][name],
            ..Attributes::resource(&user, VERBS[verb], GROUPS[group], ["pods", "deployments"][resource])
        };
        let path = Attributes::non_resource(&user, VERBS[verb], ["/a", "/ab", "/b"][path]);
        for attributes in [resource, path] {
            let expected = rules.iter().any(|rule| rule.allows(&attributes));
            prop_assert_eq!(index.authorize(&attributes).allowed, expected);
        }
    }

    #[test]
    fn whatever_covers_allows_as_much(owner in any_rule(), other in any_rule(), verb in 0..3usize, group in 0..2usize,
        resource in 0..2usize, subresource in 0..3usize, name in 0..3usize) {
        let user = jane();
        if super::super::covers(std::slice::from_ref(&owner), std::slice::from_ref(&other)) {
            let attributes = Attributes {
                subresource: ["", "log", "scale"][subresource],
                name: ["", "a", "c"][name],
                ..Attributes::resource(&user, VERBS[verb], GROUPS[group], ["pods", "deployments"][resource])
            };
            prop_assert!(!other.allows(&attributes) || owner.allows(&attributes));
        }
    }
}
