//! The page of what others learnt the hard way (`docs/security.md`) is whole, and the tests that it names are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Vulnerabilities of Kubernetes, and of ingress-nginx, that name a part that is here.
const KNOWN: &[(u16, &[u32])] = &[
    (2017, &[1002101]),
    (2018, &[1002102, 1002105]),
    (2019, &[1002100, 11247, 11249, 11250, 11253, 11254, 16276]),
    (2020, &[8551, 8552, 8554, 8555, 8557, 8558, 8559, 8561, 8562]),
    (2021, &[25735, 25737, 25740, 25741, 25742, 25743, 25745, 25746]),
    (2022, &[3162, 3172, 3294]),
    (2023, &[2431, 2727, 2728, 3955, 44487]),
    (2024, &[3177, 7646, 9042, 10220]),
    (2025, &[426, 1097, 1098, 1767, 1974, 4563, 5187, 13281, 15566, 24513, 24514]),
    (2026, &[1580, 3288, 24512, 24513, 24514]),
];
/// Whatever is said instead of a test says something.
const SHORTEST_REASON: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The rows of the page: which, and what is said of it here.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| CVE-"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [which, _, here] = cells[..] else { panic!("{line}: three cells") };
        (which, here)
    })
    .collect()
}

#[test]
fn every_known_vulnerability_has_a_row() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let told: BTreeSet<String> = rows(&page).iter().map(|(which, _)| (*which).to_owned()).collect();
    let number = |(year, numbers): &(u16, &[u32])| -> Vec<String> {
        numbers.iter().map(|number| format!("CVE-{year}-{number:04}")).collect()
    };
    let known: BTreeSet<String> = KNOWN.iter().flat_map(number).collect();
    assert_eq!(told, known);
}

#[test]
fn the_tests_that_are_named_exist() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let tests = tests();
    for (which, here) in rows(&page) {
        let words = here.split('`').skip(1).step_by(2);
        let named: Vec<&str> = words
            .filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
            .collect();
        assert!(!named.is_empty() || here.len() >= SHORTEST_REASON, "{which}: neither a test nor a reason");
        for name in named {
            assert!(tests.contains(name), "{which}: there is no test {name}");
        }
    }
}

/// The names of all tests of the workspace.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("readable");
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            if let Some(name) = line.strip_prefix("async fn ").or(line.strip_prefix("fn ")) {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                if std::mem::take(&mut is_test) {
                    found.insert(name[..end].to_owned());
                }
            }
        }
    }
    found
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir()
            && !matches!(path.file_name().and_then(|name| name.to_str()), Some("target" | ".git"))
        {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
