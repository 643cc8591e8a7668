//! Whether mounts can cross between a place of the node and a container, as it is asked for.

use super::super::{Error, Mount, Propagation};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Says of mounts that could not cross that they cannot: as containerd's Kubernetes plugin does.
pub(super) fn check(mounts: &[Mount]) -> Result<(), Error> {
    if mounts.iter().all(|mount| mount.propagation == Propagation::None) {
        return Ok(());
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Error::Container(format!("failed to read the table of mounts: {error}")))?;
    let wrong = mounts.iter().find_map(|mount| {
        // Links are followed by whoever mounts it, too.
        let path = mount.host_path.canonicalize().unwrap_or_else(|_| mount.host_path.clone());
        problem(&table, &path, mount.propagation)
    });
    wrong.map_or(Ok(()), |why| {
        Err(Error::Container(format!("failed to generate container spec: failed to generate spec: {why}")))
    })
}

fn problem(table: &str, path: &Path, propagation: Propagation) -> Option<String> {
    let (mounted, is_shared, is_slave) = mount_of(table, path)?;
    let shown = path.display();
    match propagation {
        Propagation::Bidirectional if !is_shared => {
            Some(format!("path {shown:?} is mounted on {mounted:?} but it is not a shared mount"))
        }
        Propagation::HostToContainer if !is_shared && !is_slave => {
            Some(format!("path {shown:?} is mounted on {mounted:?} but it is not a shared or slave mount"))
        }
        _ => None,
    }
}

/// The mount that a path is on: the one made last of those nearest above it. Whether it is shared, or a slave.
fn mount_of<'a>(table: &'a str, path: &Path) -> Option<(&'a str, bool, bool)> {
    let mut found: Option<(&str, bool, bool)> = None;
    for line in table.lines() {
        let mut fields = line.split(' ');
        let Some(mounted) = fields.nth(4) else { continue };
        let is_above = path.starts_with(Path::new(std::ffi::OsStr::from_bytes(mounted.as_bytes())));
        if is_above && found.is_none_or(|(nearest, ..)| nearest.len() <= mounted.len()) {
            let tags: Vec<&str> = fields.skip(1).take_while(|field| *field != "-").collect();
            let has = |kind: &str| tags.iter().any(|tag| tag.starts_with(kind));
            found = Some((mounted, has("shared:"), has("master:")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_cross_only_where_they_can() {
        let table = "1 0 8:1 / / rw,relatime - ext4 /dev/a rw\n\
                     2 1 8:2 / /shared rw shared:5 - ext4 /dev/b rw\n\
                     3 1 8:3 / /slave rw master:5 - ext4 /dev/c rw\n\
                     4 2 8:4 / /shared/private rw - ext4 /dev/d rw\n\
                     5 1 8:5 / /slave rw shared:6 - ext4 /dev/e rw\n";
        let check = |path: &str, propagation, expected: Option<&str>| {
            assert_eq!(problem(table, Path::new(path), propagation).as_deref(), expected, "{path}");
        };
        for path in ["/x", "/shared/private/x", "/shared2"] {
            check(path, Propagation::None, None);
        }
        check("/shared/x", Propagation::Bidirectional, None);
        check("/shared", Propagation::HostToContainer, None);
        check("/slave/x", Propagation::Bidirectional, None);
        let both = "path \"/x\" is mounted on \"/\" but it is not a shared mount";
        check("/x", Propagation::Bidirectional, Some(both));
        let down = "path \"/shared/private/x\" is mounted on \"/shared/private\" but it is not a shared or slave mount";
        check("/shared/private/x", Propagation::HostToContainer, Some(down));
    }
}
