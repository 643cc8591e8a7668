//! What both kinds of bindings share.

use crate::field::{Errors, Field};
use crate::kind::{Column, column, wide};
use crate::kinds::pod_spec::{fill, list_mut};
use crate::names;
use crate::object::object_mut;
use crate::printing;
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles, users and groups are of our group where nothing else is said.
pub(super) fn default(binding: &mut Value) {
    object_mut(binding, "roleRef");
    fill(&mut binding["roleRef"], "apiGroup", GROUP);
    for subject in list_mut(binding, "subjects") {
        if matches!(printing::text(subject, "kind"), "User" | "Group") {
            fill(subject, "apiGroup", GROUP);
        }
    }
}

/// Complains about a binding to a role of one of `kinds`.
pub(super) fn validate(binding: &Field<'_>, kinds: &[&str], errors: &mut Errors) {
    let role = binding.get("roleRef");
    let (group, kind, name) = (role.get("apiGroup"), role.get("kind"), role.get("name"));
    if group.text() != GROUP {
        group.not_supported(&[GROUP], errors);
    }
    if !kinds.contains(&kind.text()) {
        kind.not_supported_in_order(kinds, errors);
    }
    if name.required(errors) {
        name.conforms(names::is_path_segment, errors);
    }
    let is_namespaced = kinds.contains(&"Role");
    for subject in binding.get("subjects").items() {
        validate_subject(&subject, is_namespaced, errors);
    }
}

fn validate_subject(subject: &Field<'_>, is_namespaced: bool, errors: &mut Errors) {
    let (kind, name) = (subject.get("kind"), subject.get("name"));
    let (group, namespace) = (subject.get("apiGroup"), subject.get("namespace"));
    let is_named = name.required(errors);
    match kind.text() {
        "ServiceAccount" => {
            if is_named {
                name.conforms(names::is_dns1123_subdomain, errors);
            }
            if !group.text().is_empty() {
                group.not_supported(&[""], errors);
            }
            if !is_namespaced {
                namespace.required(errors);
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                group.not_supported(&[GROUP], errors);
            }
        }
        _ => kind.not_supported_in_order(&["ServiceAccount", "User", "Group"], errors),
    }
}

/// Who is bound may change, what to may not: whoever made a binding was allowed to give that role.
pub(super) fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let role = new.get("roleRef");
    if role.value() != old.get("roleRef").value() {
        role.invalid("cannot change roleRef", errors);
    }
}

/// The columns.
pub(super) fn columns() -> Vec<Column> {
    vec![
        printing::name_column(),
        column("Role", "string", |binding, _| {
            let role = &binding["roleRef"];
            format!("{}/{}", printing::text(role, "kind"), printing::text(role, "name")).into()
        }),
        printing::age_column(),
        wide("Users", "string", |binding, _| subjects_cell(binding, "User").into()),
        wide("Groups", "string", |binding, _| subjects_cell(binding, "Group").into()),
        wide("ServiceAccounts", "string", |binding, _| subjects_cell(binding, "ServiceAccount").into()),
    ]
}

fn subjects_cell(binding: &Value, kind: &str) -> String {
    let subjects = printing::items(binding, "subjects").iter();
    let names: Vec<String> = subjects
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", printing::text(subject, "namespace"), printing::text(subject, "name"))
            }
            _ => printing::text(subject, "name").to_owned(),
        })
        .collect();
    names.join(", ")
}
