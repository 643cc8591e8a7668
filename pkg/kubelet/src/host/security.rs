//! What a container may do: its own security context over its pod's.

use crate::isolation::AppArmor;
use crate::runtime::{Image, Seccomp, Security};
use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};
use std::path::{Component, Path};

/// Works it out. An error: it may not run like this.
pub(super) fn of(
    pod: &Pod,
    container: &Container,
    image: &Image,
    root: &Path,
    app_armor: &AppArmor,
) -> Result<Security, String> {
    let whole = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(whole.run_as_user);
    let non_root = own.run_as_non_root.or(whole.run_as_non_root) == Some(true);
    if non_root {
        check_non_root(pod, container, image, user)?;
    }
    let mut groups = whole.supplemental_groups.clone().unwrap_or_default();
    groups.extend(whole.fs_group);
    let capabilities = own.capabilities.unwrap_or_default();
    let seccomp = own.seccomp_profile.as_ref().or(whole.seccomp_profile.as_ref());
    let privileged = own.privileged == Some(true);
    Ok(Security {
        privileged,
        user,
        group: own.run_as_group.or(whole.run_as_group),
        must_be_non_root: non_root,
        supplemental_groups: groups,
        only_these_groups: whole.supplemental_groups_policy.as_deref() == Some("Strict"),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        read_only_root: own.read_only_root_filesystem == Some(true),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        seccomp: if privileged { Seccomp::Unconfined } else { profile(seccomp, root)? },
        app_armor: if privileged { None } else { app_armor.profile(pod, container)? },
        unmasked_proc: own.proc_mount.as_deref() == Some("Unmasked"),
    })
}

fn profile(profile: Option<&SeccompProfile>, root: &Path) -> Result<Seccomp, String> {
    let Some(profile) = profile else { return Ok(Seccomp::Unconfined) };
    let file = profile.localhost_profile.as_deref().filter(|file| !file.is_empty());
    match (profile.type_.as_str(), file) {
        ("Unconfined", _) => Ok(Seccomp::Unconfined),
        ("RuntimeDefault", _) => Ok(Seccomp::RuntimeDefault),
        ("Localhost", Some(file)) if is_below(file) => {
            Ok(Seccomp::Localhost(root.join("seccomp").join(file)))
        }
        ("Localhost", Some(file)) => {
            Err(format!("seccomp profile {file:?} is not below the node's folder of them"))
        }
        ("Localhost", None) => {
            Err("localhostProfile must be set if seccompProfile type is Localhost.".to_owned())
        }
        (other, _) => Err(format!("seccomp profile type {other:?} is not supported")),
    }
}

fn is_below(file: &str) -> bool {
    Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
}

fn check_non_root(pod: &Pod, container: &Container, image: &Image, user: Option<i64>) -> Result<(), String> {
    let meta = &pod.metadata;
    let which = format!(
        "(pod: \"{}_{}({})\", container: {})",
        meta.name.as_deref().unwrap_or_default(),
        meta.namespace.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default(),
        container.name
    );
    match (user, image.user, &image.user_name) {
        (Some(0), ..) => Err(format!("container's runAsUser breaks non-root policy {which}")),
        (Some(_), ..) => Ok(()),
        (None, Some(0), _) | (None, None, None) => {
            Err(format!("container has runAsNonRoot and image will run as root {which}"))
        }
        (None, Some(_), _) => Ok(()),
        (None, None, Some(name)) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {which}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ImageId;
    use serde_json::{Value, json};

    fn image(user: Option<i64>) -> Image {
        Image {
            id: ImageId("sha256:1".into()),
            tags: vec![],
            digests: vec![],
            size_bytes: 0,
            user,
            user_name: None,
            is_pinned: false,
        }
    }

    fn of_context(whole: Value, own: Value, image: &Image) -> Result<Security, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "securityContext": whole, "containers": [{"name": "c", "securityContext": own}]}}))
        .expect("a pod");
        of(
            &pod,
            &pod.spec.as_ref().expect("a spec").containers[0],
            image,
            Path::new("/k"),
            &AppArmor::default(),
        )
    }

    #[test]
    fn a_containers_own_word_counts_more() {
        let made = of_context(
            json!({"runAsUser": 1, "fsGroup": 7, "supplementalGroups": [5], "seccompProfile": {"type": "RuntimeDefault"}}),
            json!({"runAsUser": 2, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
            &image(None),
        )
        .expect("it may run");
        assert_eq!((made.user, made.supplemental_groups), (Some(2), vec![5, 7]));
        assert!(made.no_new_privileges && made.seccomp == Seccomp::RuntimeDefault);
        assert_eq!(made.drop_capabilities, ["ALL"]);
    }

    #[test]
    fn a_profile_that_is_none_is_refused() {
        let of = |profile: Value| of_context(json!({"seccompProfile": profile}), json!(null), &image(None));
        let file = of(json!({"type": "Localhost", "localhostProfile": "a/b.json"})).expect("a file");
        assert_eq!(file.seccomp, Seccomp::Localhost("/k/seccomp/a/b.json".into()));
        for bad in [
            json!({"type": "Localhost"}),
            json!({"type": "Localhost", "localhostProfile": "../x"}),
            json!({"type": "Localhost", "localhostProfile": "/etc/x"}),
            json!({"type": "Strict"}),
        ] {
            assert!(of(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn non_root_is_checked_before_it_runs() {
        let non_root = json!({"runAsNonRoot": true});
        assert!(of_context(json!(null), non_root.clone(), &image(Some(1000))).is_ok());
        assert!(of_context(json!({"runAsUser": 1}), non_root.clone(), &image(Some(0))).is_ok());
        for bad in [image(Some(0)), image(None)] {
            assert!(of_context(json!(null), non_root.clone(), &bad).is_err());
        }
        assert!(of_context(json!({"runAsUser": 0}), non_root, &image(Some(1000))).is_err());
    }
}
