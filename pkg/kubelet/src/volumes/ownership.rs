//! `fsGroup`: what is in a volume belongs to the group, and the group may use it.

use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::io::Result;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

/// Gives a volume to the pod's group, if it has one. `read_only`: the group may not write.
pub(super) fn apply(dir: &Path, pod: &Pod, read_only: bool) -> Result<()> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let Some(group) = context.and_then(|context| context.fs_group) else { return Ok(()) };
    let Ok(group) = u32::try_from(group) else { return Ok(()) };
    give(dir, group, if read_only { 0o440 } else { 0o660 })
}

fn give(path: &Path, group: u32, bits: u32) -> Result<()> {
    let found = fs::symlink_metadata(path)?;
    lchown(path, None, Some(group))?;
    if found.file_type().is_symlink() {
        return Ok(());
    }
    let mode = found.permissions().mode() & 0o7777;
    if found.is_dir() {
        // New files belong to the group too.
        fs::set_permissions(path, fs::Permissions::from_mode(mode | bits | 0o2110))?;
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group, bits)?;
        }
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode | bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_group_owns_what_is_in_the_volume() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("file"), "").expect("a file");
        fs::set_permissions(dir.path().join("file"), fs::Permissions::from_mode(0o600)).expect("permissions");
        let pod =
            serde_json::from_value(json!({"spec": {"containers": [], "securityContext": {"fsGroup": 4242}}}));
        apply(dir.path(), &pod.expect("a pod"), false).expect("given");
        let of = |path: &Path| fs::metadata(path).map(|m| (m.gid(), m.mode() & 0o7777)).expect("there");
        assert_eq!(of(&dir.path().join("file")), (4242, 0o660));
        assert_eq!(of(dir.path()).1 & 0o2770, 0o2770);
    }
}
