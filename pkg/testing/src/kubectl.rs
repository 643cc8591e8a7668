//! Upstream's kubectl, where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest minor version that has all the commands and flags that tests use.
const OLDEST: u32 = 30;

/// The newest kubectl on the PATH, if it is new enough; also under names such as `kubectl.1.33`. Debian has none.
pub fn kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let newest = std::env::split_paths(&path)
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(is_kubectl))
        .filter_map(|file| Some((minor_version(&file)?, file)))
        .max()?;
    (newest.0 >= OLDEST).then_some(newest.1)
}

fn is_kubectl(name: &str) -> bool {
    name == "kubectl" || name.strip_prefix("kubectl.").is_some_and(|version| version.starts_with("1."))
}

fn minor_version(kubectl: &Path) -> Option<u32> {
    let output = Command::new(kubectl).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?;
    minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}
