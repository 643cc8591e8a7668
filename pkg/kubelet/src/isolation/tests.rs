use super::*;
use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What becomes of a field.
enum Fate {
    /// Containers have it; the test that sees it in one, or in what the runtime is told.
    Given(&'static str),
    /// A pod that sets it so is refused with this reason and message.
    Refused(Value, &'static str, &'static str),
    /// It cannot be given, and the pod's sandbox or container is not made, for the reason that this test sees.
    NotMade(&'static str),
    /// It asks for nothing that isolates here.
    Nothing(&'static str),
}
use Fate::{Given, NotMade, Nothing, Refused};

const NO_APP_ARMOR: &str = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
const NO_SE_LINUX: &str =
    "Cannot enforce SELinux: seLinuxOptions.type is set, and SELinux is not enabled on the host";
const NO_WINDOWS: &str = "Failed to admit pod as windowsOptions are set and the node OS is linux";

fn of_both() -> Vec<(&'static str, Fate)> {
    vec![
        ("appArmorProfile", Refused(json!({"type": "RuntimeDefault"}), "AppArmor", NO_APP_ARMOR)),
        ("runAsGroup", Given("users_groups_and_capabilities")),
        ("runAsNonRoot", Given("users_groups_and_capabilities")),
        ("runAsUser", Given("users_groups_and_capabilities")),
        ("seLinuxOptions", Refused(json!({"type": "spc_t"}), "SELinux", NO_SE_LINUX)),
        ("seccompProfile", Given("users_groups_and_capabilities")),
        ("windowsOptions", Refused(json!({"hostProcess": true}), "PodOSNotSupported", NO_WINDOWS)),
    ]
}

fn of_pods() -> Vec<(&'static str, Fate)> {
    let sysctls = json!([{"name": "kernel.msgmax", "value": "1"}]);
    let mut fates = of_both();
    fates.extend([
        ("fsGroup", Given("the_group_owns_what_is_in_the_volume")),
        ("fsGroupChangePolicy", Given("what_the_root_says_is_believed_where_that_is_asked_for")),
        ("seLinuxChangePolicy", Nothing("volumes have no labels to change")),
        ("supplementalGroups", Given("users_groups_and_capabilities")),
        ("supplementalGroupsPolicy", Given("groups_of_the_image_are_merged_or_not")),
        (
            "sysctls",
            Refused(sysctls, "SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
        ),
    ]);
    fates
}

fn of_containers() -> Vec<(&'static str, Fate)> {
    let mut fates = of_both();
    fates.extend([
        ("allowPrivilegeEscalation", Given("users_groups_and_capabilities")),
        ("capabilities", Given("users_groups_and_capabilities")),
        ("privileged", Given("privileged_containers_see_everything")),
        ("procMount", NotMade("pods_that_ask_for_what_this_node_cannot_give: it needs hostUsers: false")),
        ("readOnlyRootFilesystem", Given("roots_mounts_and_what_is_hidden")),
    ]);
    fates
}

/// Fields of a pod's spec that isolate, beside the security contexts.
fn of_specs() -> Vec<(&'static str, Fate)> {
    vec![
        ("hostIPC", Given("a_pod_of_the_node_shares_the_namespaces_of_the_node")),
        ("hostNetwork", Given("a_pod_of_the_node_shares_the_namespaces_of_the_node")),
        ("hostPID", Given("a_pod_of_the_node_shares_the_namespaces_of_the_node")),
        ("hostUsers", NotMade("pods_that_ask_for_what_this_node_cannot_give")),
        ("runtimeClassName", NotMade("volumes_ports_classes_and_sysctls")),
        ("shareProcessNamespace", Given("a_container_joins_its_sandbox")),
    ]
}

fn fields<T: JsonSchema>() -> BTreeSet<String> {
    let schema = serde_json::to_value(T::json_schema(&mut SchemaGenerator::default())).expect("JSON");
    schema["properties"].as_object().expect("an object's schema").keys().cloned().collect()
}

#[track_caller]
fn check_table<T: JsonSchema>(table: &[(&'static str, Fate)], place: impl Fn(&str, Value) -> Value) {
    let named: BTreeSet<String> = table.iter().map(|(field, _)| (*field).to_owned()).collect();
    assert_eq!(named, fields::<T>(), "each field of the schema has a fate, and no other");
    for (field, fate) in table {
        match fate {
            Refused(value, reason, message) => {
                let pod = serde_json::from_value(place(field, value.clone())).expect("a pod");
                let refused = check(&pod, &Isolation::default()).expect_err(field);
                assert_eq!(
                    (refused.reason.as_str(), refused.message.as_str()),
                    (*reason, *message),
                    "{field}"
                );
            }
            Given(why) | NotMade(why) | Nothing(why) => assert!(!why.is_empty(), "{field}"),
        }
    }
}

#[test]
fn every_field_of_a_security_context_is_given_or_refused() {
    check_table::<PodSecurityContext>(
        &of_pods(),
        |field, value| json!({"spec": {"containers": [{"name": "c"}], "securityContext": {field: value}}}),
    );
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        check_table::<SecurityContext>(&of_containers(), |field, value| {
            let mut spec = json!({"containers": [{"name": "c"}]});
            spec[list] = json!([{"name": "own", "securityContext": {field: value}}]);
            json!({"spec": spec})
        });
    }
    let all = fields::<PodSpec>();
    for (field, _) in of_specs() {
        assert!(all.contains(field), "{field}");
    }
}

#[test]
fn what_asks_for_nothing_is_let_in() {
    for context in [
        json!({}),
        json!({"appArmorProfile": {"type": "Unconfined"}, "seLinuxOptions": {"level": "s0:c0,c1"}}),
        json!({"seLinuxOptions": {}, "sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
    ] {
        let pod = json!({"spec": {"containers": [{"name": "c"}], "securityContext": context}});
        let pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(check(&pod, &Isolation::default()), Ok(()), "{context}");
    }
    let level =
        json!({"spec": {"containers": [], "securityContext": {"seLinuxOptions": {"level": "s0:c0,c1"}}}});
    let with_se_linux = Isolation { se_linux: true, ..Isolation::default() };
    let refused = check(&serde_json::from_value(level).expect("a pod"), &with_se_linux).expect_err("a level");
    assert_eq!(refused.reason, "SELinux");
}
