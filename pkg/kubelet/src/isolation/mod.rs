//! Isolation that a pod asks for and this node cannot give. Such a pod is refused, by the name of what it asked for,
//! before anything of it starts: it would otherwise run without, and nobody would know.
//!
//! What is given is in [`crate::host`] and [`crate::runtime`]; what is neither given nor refused is not there: the test
//! of this module names every field.

mod app_armor;
mod sysctls;
#[cfg(test)]
mod tests;

pub use app_armor::AppArmor;
pub use sysctls::{AllowedSysctls, is_namespaced};

use crate::admission::Rejection;
use crate::plan::containers_of;
use k8s_openapi::api::core::v1::{Pod, SELinuxOptions};
use std::path::Path;

/// What this node can give of what is not everywhere.
#[derive(Debug, Clone, Default)]
pub struct Isolation {
    /// Kernel parameters that pods may set.
    pub sysctls: AllowedSysctls,
    /// The kernel's AppArmor.
    pub app_armor: AppArmor,
    /// The kernel has SELinux. Containers are given no labels of it.
    pub se_linux: bool,
}

impl Isolation {
    /// Of this machine. `unsafe_sysctls` are those that its administrator allows besides the safe ones.
    pub fn of_this_machine(unsafe_sysctls: &[String]) -> Isolation {
        Isolation {
            sysctls: AllowedSysctls::new(unsafe_sysctls),
            app_armor: AppArmor::of_this_machine(),
            se_linux: Path::new("/sys/fs/selinux/enforce").exists(),
        }
    }
}

/// Whether the node can give all the isolation that a pod asks for.
pub(crate) fn check(pod: &Pod, node: &Isolation) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    node.sysctls
        .check(spec)
        .map_err(|why| rejection("SysctlForbidden", format!("forbidden sysctl: {why}")))?;
    node.app_armor
        .check(pod)
        .map_err(|why| rejection("AppArmor", format!("Cannot enforce AppArmor: {why}")))?;
    let whole = spec.security_context.as_ref();
    let containers = containers_of(pod);
    let own = containers.iter().filter_map(|(_, container)| container.security_context.as_ref());
    let labels = whole.and_then(|context| context.se_linux_options.as_ref());
    let windows = whole.and_then(|context| context.windows_options.as_ref());
    for options in labels.into_iter().chain(own.clone().filter_map(|own| own.se_linux_options.as_ref())) {
        let refused = |why| rejection("SELinux", format!("Cannot enforce SELinux: {why}"));
        se_linux(options, node.se_linux).map_err(refused)?;
    }
    if windows.is_some() || own.clone().any(|own| own.windows_options.is_some()) {
        let message = "Failed to admit pod as windowsOptions are set and the node OS is linux";
        return Err(rejection("PodOSNotSupported", message.to_owned()));
    }
    Ok(())
}

/// No container is given a label, so none may ask for one. A level alone only keeps apart what has labels; where the
/// kernel has none, there is nothing that it could keep apart from anything, and upstream's own tests ask for it.
fn se_linux(options: &SELinuxOptions, is_enabled: bool) -> Result<(), String> {
    let fields = [("type", &options.type_), ("user", &options.user), ("role", &options.role)];
    let named = fields.into_iter().find(|(_, value)| value.as_ref().is_some_and(|value| !value.is_empty()));
    match (named, is_enabled) {
        (Some((field, _)), false) => {
            Err(format!("seLinuxOptions.{field} is set, and SELinux is not enabled on the host"))
        }
        (Some((field, _)), true) => Err(format!("seLinuxOptions.{field} is not supported by this node")),
        (None, true) if options.level.as_ref().is_some_and(|level| !level.is_empty()) => {
            Err("seLinuxOptions.level is not supported by this node".to_owned())
        }
        (None, _) => Ok(()),
    }
}

fn rejection(reason: &str, message: String) -> Rejection {
    Rejection { reason: reason.to_owned(), message }
}
