//! The forms that names, keys and addresses must have, with upstream's words for what is wrong with them.
//!
//! Each `is_…` check takes the text and returns one message per fault, none if all is well; a rule turns them into
//! complaints with [`Field::conforms`](crate::Field::conforms). The `…_name` functions are the same rules in the
//! shape that [`Kind::validate_name`](crate::Kind::validate_name) wants.
//!
//! Checked byte by byte rather than by regular expression: every write of every object passes here.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A check: no messages means that the text is fine.
pub type Check = fn(&str) -> Vec<String>;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A label of a DNS name: names of namespaces, containers, volumes.
pub fn is_dns1123_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !label_1123(text) {
        faults.push(if subdomain_1123(text) {
            "must not contain dots".into()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    faults
}

/// Labels joined by dots: names of most objects.
pub fn is_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !subdomain_1123(text) {
        faults.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    faults
}

/// A subdomain whose labels may start with and hold underscores: DNS searches of pods.
pub fn is_dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    let label = |label: &str| {
        let rest = label.strip_prefix('_').unwrap_or(label);
        framed(rest, lower_or_digit, |b| lower_or_digit(b) || b == b'-' || b == b'_', lower_or_digit)
    };
    if !text.split('.').all(label) {
        faults.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    faults
}

/// A subdomain after `*.`: hosts of ingresses.
pub fn is_wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !text.strip_prefix("*.").is_some_and(subdomain_1123) {
        faults.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{DNS1123_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    faults
}

/// A label that starts with a letter: names of services.
pub fn is_dns1035_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !framed(text, |b| b.is_ascii_lowercase(), |b| lower_or_digit(b) || b == b'-', lower_or_digit) {
        faults.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    faults
}

/// `name` or `prefix/name`: keys of labels and annotations, finalizers, resource names, condition types.
pub fn is_qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".into());
            } else {
                faults.extend(
                    is_dns1123_subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_error(LABEL_KEY_TEXT, LABEL_KEY, &["MyName", "my.name", "123-abc"])
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", max_len_error(63)));
    }
    if !label_key(name) {
        faults.push(format!(
            "name part {}",
            regex_error(LABEL_KEY_TEXT, LABEL_KEY, &["MyName", "my.name", "123-abc"])
        ));
    }
    faults
}

/// The value of a label.
pub fn is_label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !text.is_empty() && !label_key(text) {
        faults.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    faults
}

/// The name of a port: an IANA service name.
pub fn is_port_name(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 15);
    if text.is_empty() || !text.bytes().all(|b| lower_or_digit(b) || b == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".into());
    }
    faults
}

/// An identifier of C.
pub fn is_c_identifier(text: &str) -> Vec<String> {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let rest = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if framed(text, first, rest, rest) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The name of an environment variable: any printable ASCII without `=`.
pub fn is_env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    if text.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .into(),
    ]
}

/// A key of a ConfigMap or Secret: a file name.
pub fn is_config_map_key(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        faults.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => faults.push("must not be '.'".into()),
        ".." => faults.push("must not be '..'".into()),
        _ if text.starts_with("..") => faults.push("must not start with '..'".into()),
        _ => {}
    }
    faults
}

/// The name of an HTTP header.
pub fn is_http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A whole number of percent, such as `25%`.
pub fn is_percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// A name that can stand in a URL's path: what is asked of roles and their bindings, and of every other name.
pub fn is_path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|&&part| text.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// An IP address in canonical form.
pub fn is_ip(text: &str) -> Vec<String> {
    let canonical = match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
        (Ok(ip), _) => ip.to_string(),
        (_, Ok(ip)) if ip.to_ipv4_mapped().is_some() => {
            return vec!["must not be an IPv4-mapped IPv6 address".into()];
        }
        (_, Ok(ip)) => ip.to_string(),
        _ => return is_legacy_ip(text).or_fault("must not have leading 0s"),
    };
    if canonical == text { Vec::new() } else { vec![format!("must be in canonical form ({canonical:?})")] }
}

/// An IP address as fields that are older than strict checking take it: leading zeros and all.
pub fn is_legacy_ip(text: &str) -> Vec<String> {
    if sloppy_v4(text).is_some() || text.parse::<Ipv6Addr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()]
}

/// A subnet as fields that are older than strict checking take it: bits beyond the prefix and all.
pub fn is_legacy_cidr(text: &str) -> Vec<String> {
    let valid = text.split_once('/').is_some_and(|(ip, bits)| {
        let most = match (sloppy_v4(ip), ip.parse::<Ipv6Addr>()) {
            (Some(_), _) => 32,
            (_, Ok(_)) => 128,
            _ => return false,
        };
        !bits.is_empty()
            && bits.bytes().all(|b| b.is_ascii_digit())
            && bits.parse().is_ok_and(|n: u8| n <= most)
    });
    if valid {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".into()]
}

/// A subnet in canonical form, with no bits beyond the prefix.
pub fn is_cidr(text: &str) -> Vec<String> {
    let faults = is_legacy_cidr(text);
    if !faults.is_empty() {
        return faults;
    }
    let Ok(net) = text.parse::<ipnet::IpNet>() else {
        return vec!["must not have leading 0s in IP or prefix length".into()];
    };
    if matches!(net.addr(), std::net::IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return vec!["must not have an IPv4-mapped IPv6 address".into()];
    }
    if net.addr() != net.network() {
        return vec!["must not have bits set beyond the prefix length".into()];
    }
    let canonical = net.to_string();
    if canonical == text { Vec::new() } else { vec![format!("must be in canonical form ({canonical:?})")] }
}

/// Names of most objects.
pub fn dns_subdomain_name(name: &str) -> Result<(), String> {
    first(is_dns1123_subdomain(name))
}

/// Names of namespaces.
pub fn dns_label_name(name: &str) -> Result<(), String> {
    first(is_dns1123_label(name))
}

/// Names of services of old.
pub fn dns1035_label_name(name: &str) -> Result<(), String> {
    first(is_dns1035_label(name))
}

/// Names of roles, cluster roles and their bindings.
pub fn path_segment_name(name: &str) -> Result<(), String> {
    first(is_path_segment(name))
}

/// Upstream's wording for text longer than allowed.
pub fn max_len_error(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// Upstream's wording for text that does not match.
pub fn regex_error(text: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn first(faults: Vec<String>) -> Result<(), String> {
    faults.into_iter().next().map_or(Ok(()), Err)
}

trait OrFault {
    fn or_fault(self, fault: &str) -> Vec<String>;
}

impl OrFault for Vec<String> {
    fn or_fault(self, fault: &str) -> Vec<String> {
        if self.is_empty() { vec![fault.into()] } else { self }
    }
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most { vec![max_len_error(most)] } else { Vec::new() }
}

fn lower_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether the text is not empty, its ends are as the outer checks say and all between as the inner one says.
fn framed(text: &str, first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => first(*only),
        [start, between @ .., end] => first(*start) && between.iter().all(|&b| inner(b)) && last(*end),
    }
}

fn label_1123(text: &str) -> bool {
    framed(text, lower_or_digit, |b| lower_or_digit(b) || b == b'-', lower_or_digit)
}

fn subdomain_1123(text: &str) -> bool {
    text.split('.').all(label_1123)
}

fn label_key(text: &str) -> bool {
    let ends = |b: u8| b.is_ascii_alphanumeric();
    framed(text, ends, |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'), ends)
}

/// Four numbers, leading zeros ignored.
fn sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part =
            parts.next().filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))?;
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|error| if part.bytes().all(|b| b == b'0') { Ok(0) } else { Err(error) })
            .ok()?;
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(check: Check, good: &[&str], bad: &[(&str, &str)]) {
        for text in good {
            assert_eq!(check(text), Vec::<String>::new(), "{text:?}");
        }
        for (text, fault) in bad {
            let faults = check(text);
            assert!(faults.iter().any(|found| found.contains(fault)), "{text:?}: {faults:?}");
        }
    }

    #[test]
    fn names_of_dns() {
        let long = "a".repeat(64);
        check(
            is_dns1123_label,
            &["a", "a-1", "1"],
            &[
                ("a.b", "must not contain dots"),
                (
                    "-a",
                    "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                ),
                ("", "RFC 1123 label"),
                (&long, "must be no more than 63 characters"),
            ],
        );
        check(
            is_dns1123_subdomain,
            &["a.b-c.1"],
            &[("a..b", "RFC 1123 subdomain"), ("A", "(e.g. 'example.com', regex used")],
        );
        check(is_dns1035_label, &["a1"], &[("1a", "DNS-1035 label")]);
        check(is_wildcard_dns1123_subdomain, &["*.a.b"], &[("*", "wildcard"), ("a.b", "wildcard")]);
        check(is_dns1123_subdomain_with_underscore, &["_a.b_c"], &[("a_", "'_', '-' or '.'")]);
    }

    #[test]
    fn keys_and_values() {
        check(
            is_qualified_name,
            &["a", "A_b.c", "x.io/A"],
            &[
                ("", "name part must be non-empty"),
                ("/a", "prefix part must be non-empty"),
                ("A/a", "prefix part a lowercase RFC 1123 subdomain"),
                ("a/b/c", "a valid label key must consist"),
                ("a b", "name part must consist of alphanumeric characters"),
            ],
        );
        check(is_label_value, &["", "A.b"], &[("a b", "a valid label must be an empty string")]);
        check(
            is_config_map_key,
            &["a.b_C-1", ".x"],
            &[("a b", "a valid config key"), ("..", "must not be '..'"), ("..x", "must not start with '..'")],
        );
        check(
            is_env_var_name,
            &["A B", "1x", "a.b"],
            &[("a=b", "other than '='"), ("", "must be non-empty"), ("é", "printable ASCII")],
        );
        check(
            is_port_name,
            &["http", "p-1"],
            &[
                ("", "only alpha-numeric"),
                ("80", "at least one letter"),
                ("a--b", "consecutive"),
                ("-a", "begin or end"),
                ("aaaaaaaaaaaaaaaa", "no more than 15"),
            ],
        );
        check(
            is_path_segment,
            &["system:node:x"],
            &[("a/b", "may not contain '/'"), ("..", "may not be '..'")],
        );
        check(is_percent, &["5%"], &[("5", "valid percent"), ("%", "valid percent")]);
    }

    #[test]
    fn addresses() {
        check(
            is_ip,
            &["10.0.0.1", "2001:db8::1"],
            &[
                ("010.0.0.1", "must not have leading 0s"),
                ("10.0.0", "must be a valid IP address"),
                ("::ffff:1.2.3.4", "IPv4-mapped"),
                ("2001:DB8::1", r#"must be in canonical form ("2001:db8::1")"#),
            ],
        );
        check(is_legacy_ip, &["010.0.0.1", "::FFFF"], &[("10.0.0.256", "must be a valid IP address")]);
        check(
            is_cidr,
            &["10.0.0.0/8"],
            &[("10.0.0.1/8", "bits set beyond"), ("10.0.0.0/33", "must be a valid CIDR")],
        );
        check(is_legacy_cidr, &["10.0.0.1/8"], &[("10.0.0.0", "must be a valid CIDR")]);
    }
}
