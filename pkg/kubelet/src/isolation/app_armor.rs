//! AppArmor profiles: which one a container asks for, and whether the kernel has it.

use crate::plan::containers_of;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};
use std::path::{Path, PathBuf};

/// The profile that runtimes load for containers that ask for theirs.
const RUNTIME_DEFAULT: &str = "cri-containerd.apparmor.d";
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The kernel's AppArmor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppArmor {
    /// The file of all loaded profiles; none: it is not enabled.
    loaded: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Profile {
    Unconfined,
    RuntimeDefault,
    Localhost(String),
}

impl AppArmor {
    /// Of this machine.
    pub fn of_this_machine() -> AppArmor {
        let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        let is_enabled = enabled.is_ok_and(|text| text.starts_with('Y'));
        AppArmor { loaded: is_enabled.then(|| "/sys/kernel/security/apparmor/profiles".into()) }
    }

    /// Whether each container can be given the profile that it asks for.
    pub(super) fn check(&self, pod: &Pod) -> Result<(), String> {
        let containers = containers_of(pod);
        containers.iter().try_for_each(|(_, container)| self.profile(pod, container).map(drop))
    }

    /// The name of the profile that a container runs under, if it asks for one.
    pub(crate) fn profile(&self, pod: &Pod, container: &Container) -> Result<Option<String>, String> {
        let name = match asked(pod, container)? {
            None | Some(Profile::Unconfined) => return Ok(None),
            Some(Profile::RuntimeDefault) => RUNTIME_DEFAULT.to_owned(),
            Some(Profile::Localhost(name)) => name,
        };
        let Some(loaded) = &self.loaded else {
            return Err("AppArmor is not enabled on the host".to_owned());
        };
        match is_loaded(loaded, &name) {
            true => Ok(Some(name)),
            false => Err(format!("profile {name:?} is not loaded on the host")),
        }
    }
}

/// Each line is a name and, in brackets, how it is enforced.
fn is_loaded(profiles: &Path, name: &str) -> bool {
    let text = std::fs::read_to_string(profiles).unwrap_or_default();
    text.lines().filter_map(|line| line.rsplit_once(" (")).any(|(loaded, _)| loaded == name)
}

/// The container's own word, then the annotation that there was before the field, then the pod's word.
fn asked(pod: &Pod, container: &Container) -> Result<Option<Profile>, String> {
    let own = container.security_context.as_ref().and_then(|own| own.app_armor_profile.as_ref());
    if let Some(own) = own {
        return field(own).map(Some);
    }
    let key = format!("{ANNOTATION}{}", container.name);
    if let Some(text) = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(&key)) {
        return match text.as_str() {
            "" => Ok(None),
            "unconfined" => Ok(Some(Profile::Unconfined)),
            "runtime/default" => Ok(Some(Profile::RuntimeDefault)),
            other => match other.strip_prefix("localhost/").filter(|name| !name.is_empty()) {
                Some(name) => Ok(Some(Profile::Localhost(name.to_owned()))),
                None => Err(format!("invalid AppArmor profile name: {other:?}")),
            },
        };
    }
    let whole = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    whole.and_then(|whole| whole.app_armor_profile.as_ref()).map(field).transpose()
}

fn field(profile: &AppArmorProfile) -> Result<Profile, String> {
    let name = profile.localhost_profile.as_ref().filter(|name| !name.trim().is_empty());
    match (profile.type_.as_str(), name) {
        ("Unconfined", _) => Ok(Profile::Unconfined),
        ("RuntimeDefault", _) => Ok(Profile::RuntimeDefault),
        ("Localhost", Some(name)) => Ok(Profile::Localhost(name.clone())),
        ("Localhost", None) => Err("a profile of type Localhost has no localhostProfile".to_owned()),
        (other, _) => Err(format!("invalid AppArmor profile type: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn profile(
        node: &AppArmor,
        own: Value,
        annotation: Option<&str>,
        whole: Value,
    ) -> Result<Option<String>, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": annotation.map(|text| json!({format!("{ANNOTATION}c"): text}))},
            "spec": {"securityContext": {"appArmorProfile": whole},
                "containers": [{"name": "c", "securityContext": {"appArmorProfile": own}}]},
        }))
        .expect("a pod");
        let made = node.profile(&pod, &pod.spec.as_ref().expect("a spec").containers[0]);
        assert_eq!(made.is_ok(), node.check(&pod).is_ok());
        made
    }

    #[test]
    fn a_profile_is_loaded_or_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let profiles = dir.path().join("profiles");
        std::fs::write(&profiles, "mine (enforce)\nwith space (complain)\n").expect("written");
        let has = AppArmor { loaded: Some(profiles) };
        let local = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
        let default = json!({"type": "RuntimeDefault"});
        let none = Value::Null;
        let check = |own: &Value, annotation, whole: &Value, expected: Result<Option<&str>, &str>| {
            let found = profile(&has, own.clone(), annotation, whole.clone());
            let found = found.as_ref().map(Option::as_deref).map_err(String::as_str);
            assert_eq!(found, expected);
        };
        check(&none, None, &none, Ok(None));
        check(&local("mine"), Some("runtime/default"), &default, Ok(Some("mine")));
        check(&none, Some("localhost/with space"), &default, Ok(Some("with space")));
        check(&none, None, &local("mine"), Ok(Some("mine")));
        check(&json!({"type": "Unconfined"}), None, &local("mine"), Ok(None));
        check(&local("min"), None, &none, Err("profile \"min\" is not loaded on the host"));
        check(&default, None, &none, Err("profile \"cri-containerd.apparmor.d\" is not loaded on the host"));
        check(&none, Some("localhost/"), &none, Err("invalid AppArmor profile name: \"localhost/\""));
        let nothing = AppArmor::default();
        for asked in [local("mine"), default] {
            let said = profile(&nothing, asked, None, Value::Null).expect_err("there is none");
            assert_eq!(said, "AppArmor is not enabled on the host");
        }
    }
}
