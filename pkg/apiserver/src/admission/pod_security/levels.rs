//! What a namespace asks for: a level and the version of its rules, to enforce and to warn by.

use std::fmt;

/// What the labels begin with.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// For each mode the labels of its level and of its version.
const LABELS: [[&str; 2]; 3] = [
    ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/enforce-version"],
    ["pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/audit-version"],
    ["pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/warn-version"],
];

/// How much is forbidden, from nothing to much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// By the rules of which Kubernetes, `v1.<minor>` or the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Minor(u64),
    Latest,
}

/// `baseline:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

/// What is refused, and what is warned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub enforce: LevelVersion,
    pub warn: LevelVersion,
}

/// A label that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub label: &'static str,
    pub value: String,
    pub expected: &'static str,
}

impl Policy {
    /// From the labels of a namespace. What cannot be understood is enforced as strictly as can be, and not warned of.
    pub fn read<'a>(label: impl Fn(&str) -> Option<&'a str>) -> (Policy, Vec<Fault>) {
        let mut faults = Vec::new();
        let [enforce, _, warn] = LABELS.map(|[level, version]| {
            (
                read(
                    level,
                    &label,
                    Level::parse,
                    "must be one of privileged, baseline, restricted",
                    &mut faults,
                ),
                read(version, &label, Version::parse, "must be \"latest\" or \"v1.x\"", &mut faults),
            )
        });
        let version = |read: Read<Version>| read.flatten().unwrap_or(Version::Latest);
        let of_enforce = LevelVersion {
            level: enforce.0.map_or(Level::Privileged, |level| level.unwrap_or(Level::Restricted)),
            version: version(enforce.1),
        };
        // What is enforced is warned of as well, unless something else is asked for.
        let warn = LevelVersion {
            level: warn.0.unwrap_or(enforce.0.flatten()).unwrap_or(Level::Privileged),
            version: if warn.0.is_some() { version(warn.1) } else { version(warn.1.or(enforce.1)) },
        };
        (Policy { enforce: of_enforce, warn }, faults)
    }
}

/// What a label says: nothing, something that cannot be understood, or something.
type Read<T> = Option<Option<T>>;

fn read<'a, T>(
    name: &'static str,
    label: impl Fn(&str) -> Option<&'a str>,
    parse: fn(&str) -> Option<T>,
    expected: &'static str,
    faults: &mut Vec<Fault>,
) -> Read<T> {
    let value = label(name)?;
    let parsed = parse(value);
    if parsed.is_none() {
        faults.push(Fault { label: name, value: value.to_owned(), expected });
    }
    Some(parsed)
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number =
            minor == "0" || (minor.bytes().all(|b| b.is_ascii_digit()) && !minor.starts_with('0'));
        minor.parse().ok().filter(|_| is_number).map(Version::Minor)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
            Version::Latest => f.write_str(":latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(labels: &[(&str, &str)], expected: [&str; 2], faults: &[&str]) {
        let find = |key: &str| {
            let mode = key.strip_prefix(PREFIX)?;
            labels.iter().find(|(name, _)| *name == mode).map(|(_, value)| *value)
        };
        let (policy, found) = Policy::read(find);
        assert_eq!([policy.enforce.to_string(), policy.warn.to_string()], expected);
        let found: Vec<String> =
            found.iter().map(|f| format!("{}={} {}", f.label, f.value, f.expected)).collect();
        assert_eq!(found, faults);
    }

    #[test]
    fn what_is_enforced_is_warned_of_unless_said_otherwise() {
        let nothing = "privileged:latest";
        check(&[], [nothing, nothing], &[]);
        check(&[("enforce", "baseline")], ["baseline:latest", "baseline:latest"], &[]);
        check(&[("warn", "restricted"), ("warn-version", "v1.20")], [nothing, "restricted:v1.20"], &[]);
        check(
            &[("enforce", "baseline"), ("enforce-version", "v1.9")],
            ["baseline:v1.9", "baseline:v1.9"],
            &[],
        );
        check(
            &[("enforce", "baseline"), ("enforce-version", "v1.9"), ("warn", "restricted")],
            ["baseline:v1.9", "restricted:latest"],
            &[],
        );
        check(&[("enforce", "restricted"), ("warn", "privileged")], ["restricted:latest", nothing], &[]);
        check(
            &[("enforce", "restricted"), ("warn-version", "v1.30")],
            ["restricted:latest", "restricted:v1.30"],
            &[],
        );
    }

    #[test]
    fn what_cannot_be_understood_is_enforced_strictly() {
        check(
            &[("enforce", "no"), ("audit", "yes"), ("warn", "Baseline")],
            ["restricted:latest", "privileged:latest"],
            &[
                "pod-security.kubernetes.io/enforce=no must be one of privileged, baseline, restricted",
                "pod-security.kubernetes.io/audit=yes must be one of privileged, baseline, restricted",
                "pod-security.kubernetes.io/warn=Baseline must be one of privileged, baseline, restricted",
            ],
        );
        for version in ["v1", "1.20", "v1.", "v1.01", "v1.+1", "v2.0", "v1.1.1", ""] {
            let fault = format!(
                "pod-security.kubernetes.io/enforce-version={version} must be \"latest\" or \"v1.x\""
            );
            let labels = [("enforce", "baseline"), ("enforce-version", version)];
            check(&labels, ["baseline:latest", "baseline:latest"], &[&fault]);
        }
    }
}
