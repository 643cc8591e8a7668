//! What a reader trips over, found by a test: files nobody compiles, crates that know too much, documents that lag.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom. Everything else is forbidden.
const ALLOWED: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("daemon", &[]),
    ("store", &[]),
    ("listwatch", &["store", "api"]),
    ("pki", &["api"]),
    ("client", &["api", "pki"]),
    ("apiserver", &["api", "store", "listwatch", "pki", "daemon"]),
    ("controllers", &["api", "client", "pki"]),
    ("scheduler", &["api", "client"]),
    ("functions", &["api", "client", "pki", "daemon"]),
    ("network", &["api"]),
    ("kubelet", &["api", "client", "network", "pki", "daemon"]),
    ("interlink", &["api", "client", "kubelet", "pki", "daemon"]),
    ("proxy", &["api", "client", "network", "daemon"]),
    ("cli", &["api", "client"]),
    ("apiserver-cmd", &["apiserver", "daemon"]),
    ("controller-manager-cmd", &["controllers", "daemon"]),
    ("scheduler-cmd", &["scheduler", "daemon"]),
    ("knative-cmd", &["functions", "daemon"]),
    ("interlink-cmd", &["interlink", "daemon"]),
    ("kubelet-cmd", &["kubelet", "interlink", "daemon"]),
    ("kubeproxy-cmd", &["proxy", "daemon"]),
    ("kubeadm-cmd", &["api", "cli", "client", "pki", "store", "kubelet", "daemon"]),
    ("kubectl-cmd", &["api", "cli", "client"]),
    (
        "minik8s-cmd",
        &[
            "apiserver-cmd",
            "controller-manager-cmd",
            "interlink-cmd",
            "knative-cmd",
            "kubeadm-cmd",
            "kubectl-cmd",
            "kubelet-cmd",
            "kubeproxy-cmd",
            "scheduler-cmd",
        ],
    ),
    (
        "testing",
        &[
            "api",
            "store",
            "listwatch",
            "pki",
            "apiserver",
            "client",
            "controllers",
            "scheduler",
            "kubelet",
            "network",
        ],
    ),
    (
        "bench",
        &["api", "store", "listwatch", "pki", "apiserver", "client", "controllers", "scheduler", "testing"],
    ),
];

/// Licences that go together with Apache-2.0.
const LICENCES: &[&str] =
    &["Apache-2.0", "BSD-3-Clause", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// Longer files are not read by anybody.
const LONGEST_FILE: usize = 1000;

/// What crates need on other platforms is not there on a machine that has built this only for itself.
const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn metadata(more: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", HOST])
        .args(more)
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn packages() -> Vec<Value> {
    metadata(&["--no-deps"])["packages"].as_array().expect("packages").clone()
}

fn name(value: &Value) -> String {
    value["name"].as_str().expect("a name").to_owned()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !matches!(path.file_name().and_then(|n| n.to_str()), Some("target" | ".git")) {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn crates_depend_only_in_the_allowed_direction() {
    let packages = packages();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let from = name(package);
        let Some(may) = allowed.get(from.as_str()) else {
            wrong.push(format!("{from} is not in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = name(dependency);
            // Tests may look anywhere; a crate's own programs and libraries may not.
            let is_dev = dependency["kind"] == "dev";
            if ours.contains(&to) && !is_dev && !may.contains(&to.as_str()) {
                wrong.push(format!("{from} must not depend on {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_dependency_has_a_licence_that_goes_with_ours() {
    // What an expression such as "(MIT OR Apache-2.0) AND ISC" asks for: one of each group.
    let is_allowed = |expression: &str| {
        expression.split(" AND ").all(|group| {
            let group = group.trim_matches(['(', ')']).replace(" OR ", "/");
            group.split('/').any(|licence| LICENCES.contains(&licence.trim()))
        })
    };
    let metadata = metadata(&[]);
    let wrong: Vec<String> = metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .map(|package| format!("{}: {}", name(package), package["license"]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn architecture_names_every_crate() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let missing: Vec<String> = packages()
        .iter()
        .map(|package| {
            let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
            let dir = manifest.parent().expect("a folder").strip_prefix(root()).expect("in the workspace");
            dir.display().to_string()
        })
        .filter(|dir| !text.contains(&format!("`{dir}`")))
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md says nothing of {missing:?}");
}

#[test]
fn every_file_is_compiled() {
    let mut orphans = Vec::new();
    for package in packages() {
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let dir = manifest.parent().expect("a folder").join("src");
        let roots: Vec<PathBuf> = package["targets"]
            .as_array()
            .expect("targets")
            .iter()
            .map(|target| PathBuf::from(target["src_path"].as_str().expect("a path")))
            .collect();
        let mut files = Vec::new();
        rust_files(&dir, &mut files);
        let declared: String =
            files.iter().map(|file| std::fs::read_to_string(file).expect("readable")).collect();
        for file in files.iter().filter(|file| !roots.contains(file)) {
            let module = match file.file_stem().and_then(|stem| stem.to_str()) {
                Some("mod") => {
                    file.parent().and_then(|parent| parent.file_name()).and_then(|name| name.to_str())
                }
                other => other,
            };
            let module = module.expect("a module name");
            if !declared.contains(&format!("mod {module};")) {
                orphans.push(file.clone());
            }
        }
    }
    assert!(orphans.is_empty(), "no `mod` names {orphans:#?}");
}

#[test]
fn no_file_is_so_long_that_nobody_reads_it() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let long: Vec<String> = files
        .iter()
        .filter_map(|file| {
            let lines = std::fs::read_to_string(file).expect("readable").lines().count();
            (lines > LONGEST_FILE).then(|| format!("{} has {lines} lines", file.display()))
        })
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn nothing_is_left_unfinished() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let this = Path::new(file!()).file_name();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.file_name() != this) {
        let text = std::fs::read_to_string(file).expect("readable");
        for (number, line) in text.lines().enumerate() {
            for word in ["FIXME", "XXX", "todo!(", "unimplemented!(", "dbg!("] {
                if line.contains(word) {
                    found.push(format!("{}:{}: {word}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn skipped_tests_are_in_the_list_with_their_reason() {
    let list = std::fs::read_to_string(root().join("testcases/skipped.txt")).expect("testcases/skipped.txt");
    let listed: BTreeSet<&str> = list
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (test, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason in {line:?}"));
            assert!(reason.len() > 10, "{test}: a reason that tells something");
            test
        })
        .collect();
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let this = Path::new(file!()).file_name();
    for file in files.iter().filter(|file| file.file_name() != this) {
        let text = std::fs::read_to_string(file).expect("readable");
        let mut is_ignored = false;
        for line in text.lines() {
            is_ignored |= line.trim_start().starts_with("#[ignore");
            if let Some(rest) = line.trim_start().trim_start_matches("async ").strip_prefix("fn ") {
                let test = rest.split('(').next().expect("a name");
                assert!(
                    !std::mem::take(&mut is_ignored) || listed.contains(test),
                    "{test} is ignored but not listed"
                );
            }
        }
    }
}
