//! The names that people call the one program by: links to it, but where the machine has a program of that name already.
//!
//! ```text
//! kubectl ── nobody's ──────────────> /usr/local/bin/kubectl -> /usr/local/lib/minik8s/minik8s
//!         └─ /usr/bin/kubectl, say ─> stays; ours is called `minik8s kubectl`
//! ```

use crate::layout;
use std::path::{Path, PathBuf};

/// What stands by a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// Nothing: it can be ours.
    Free,
    /// Ours.
    Linked,
    /// A program of somebody else's.
    Others(PathBuf),
}

/// The names, and what stands by each. `program` is the one that is to be installed, by whatever name it is called.
pub fn names(program: &Path) -> Vec<(&'static str, Name)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = [layout::BIN].into_iter().chain(path.split(':')).map(PathBuf::from).collect();
    let ours = [Path::new(layout::PROGRAM), program];
    layout::LINKS.into_iter().map(|name| (name, look(name, &folders, &ours))).collect()
}

/// The first folder is where links are made.
fn look(name: &str, folders: &[PathBuf], ours: &[&Path]) -> Name {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let ours: Vec<PathBuf> = ours.iter().filter_map(|path| real(path)).collect();
    let is_ours = |path: &Path| real(path).is_some_and(|path| ours.contains(&path));
    let link = folders.first().map(|folder| folder.join(name)).unwrap_or_default();
    // A link of ours may lead to a program that is not there yet.
    if std::fs::read_link(&link).is_ok_and(|target| target == Path::new(layout::PROGRAM)) {
        return Name::Linked;
    }
    if link.symlink_metadata().is_ok() {
        return Name::Others(link);
    }
    let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file() && !is_ours(file));
    found.map_or(Name::Free, Name::Others)
}

/// How a program of ours is called on this machine.
pub fn call(name: &str, names: &[(&'static str, Name)]) -> String {
    let is_others = |name: &str| names.iter().any(|(one, at)| *one == name && matches!(at, Name::Others(_)));
    match (is_others(name), is_others("minik8s")) {
        (false, _) => name.to_owned(),
        (true, false) => format!("minik8s {name}"),
        (true, true) => format!("{} {name}", layout::PROGRAM),
    }
}

/// Which programs stay what they were, and what ours are called; nothing if all names are ours.
pub fn told(names: &[(&'static str, Name)]) -> String {
    let left = names.iter().filter_map(|(name, at)| match at {
        Name::Others(file) => {
            Some(format!("; {} stays, ours is called `{}`", file.display(), call(name, names)))
        }
        Name::Free | Name::Linked => None,
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_others_are_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let (bin, usr) = (dir.path().join("local"), dir.path().join("usr"));
        let folders = [bin.clone(), usr.clone()];
        let program = dir.path().join("build/minik8s");
        for folder in [&bin, &usr, &dir.path().join("build")] {
            std::fs::create_dir(folder).expect("made");
        }
        std::fs::write(&program, "").expect("written");
        let check = |name: &str, expected: Name| {
            assert_eq!(look(name, &folders, &[Path::new(layout::PROGRAM), &program]), expected, "{name}");
        };
        check("kubectl", Name::Free);
        // What `make build` makes, on somebody's PATH.
        std::os::unix::fs::symlink(&program, usr.join("kubectl")).expect("linked");
        check("kubectl", Name::Free);
        std::fs::write(usr.join("kubeadm"), "another").expect("written");
        check("kubeadm", Name::Others(usr.join("kubeadm")));
        std::fs::write(bin.join("kubelet"), "another").expect("written");
        check("kubelet", Name::Others(bin.join("kubelet")));
        std::os::unix::fs::symlink(layout::PROGRAM, bin.join("kubectl")).expect("linked");
        check("kubectl", Name::Linked);
        // A link of somebody's that leads nowhere is somebody's.
        std::os::unix::fs::symlink("nowhere", bin.join("minik8s")).expect("linked");
        check("minik8s", Name::Others(bin.join("minik8s")));
    }

    #[test]
    fn it_is_said_what_ours_are_called() {
        let others = || Name::Others("/usr/bin/x".into());
        let names = [("minik8s", Name::Free), ("kubectl", others()), ("kubeadm", Name::Linked)];
        assert_eq!(call("kubectl", &names), "minik8s kubectl");
        assert_eq!(call("kubeadm", &names), "kubeadm");
        assert_eq!(told(&names), "; /usr/bin/x stays, ours is called `minik8s kubectl`");
        let names = [("minik8s", others()), ("kubectl", others())];
        assert_eq!(call("kubectl", &names), "/usr/local/lib/minik8s/minik8s kubectl");
        assert_eq!(told(&[("kubectl", Name::Free)]), "");
    }
}
