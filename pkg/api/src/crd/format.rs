//! The string formats that a schema may name. Formats that upstream does not know are ignored, as there.

use super::regexp::Pattern;
use base64::Engine;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

/// A known format: how it was written, and the test.
#[derive(Debug, Clone)]
pub(super) struct Format {
    /// As the schema writes it: complaints repeat it.
    pub(super) name: String,
    test: fn(&str) -> bool,
}

impl Format {
    /// The format of that name, if it is one of those that are checked.
    pub(super) fn parse(name: &str) -> Option<Format> {
        let test = test(&normal(name))?;
        Some(Format { name: name.to_owned(), test })
    }

    pub(super) fn is_match(&self, value: &str) -> bool {
        (self.test)(value)
    }
}

/// Whether a format is one of those that are checked.
pub(super) fn is_known(name: &str) -> bool {
    test(&normal(name)).is_some()
}

fn normal(name: &str) -> String {
    name.replace('-', "")
}

fn test(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "bsonobjectid" => |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |s| s.contains('.') && s.parse::<IpAddr>().is_ok(),
        "ipv6" => |s| s.contains(':') && s.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |s| is_uuid(s, None, false),
        "uuid3" => |s| is_uuid(s, Some(b'3'), false),
        "uuid4" => |s| is_uuid(s, Some(b'4'), true),
        "uuid5" => |s| is_uuid(s, Some(b'5'), true),
        "isbn" => |s| is_isbn10(s) || is_isbn13(s),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |s| matched(&SSN, s),
        "hexcolor" => |s| matched(&HEX_COLOR, s),
        "rgbcolor" => |s| matched(&RGB_COLOR, s),
        "byte" => |s| base64::engine::general_purpose::STANDARD.decode(s).is_ok(),
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |s| s.len() <= 63 && is_dns_label(s),
        "k8slongname" => |s| s.len() <= 253 && s.split('.').all(is_dns_label),
        _ => return None,
    })
}

static SSN: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Pattern> = LazyLock::new(|| {
    let byte = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\s*";
    Pattern::new(&format!(r"^rgb\({byte},{byte},{byte}\)$"))
});
static CREDIT_CARD: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
});
static TIME: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});
static GO_DURATION: LazyLock<Pattern> =
    LazyLock::new(|| Pattern::new(r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static WORDY_DURATION: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(concat!(
        r"(?i)[0-9]+\s*(ns\b|nano|us\b|µs\b|micro|ms\b|milli|s\b|sec\b|second|m\b|min\b|minute",
        r"|h\b|hr\b|hour|d\b|day|w\b|wk\b|week)"
    ))
});

fn matched(pattern: &LazyLock<Pattern>, value: &str) -> bool {
    pattern.is_match(value)
}

fn is_dns_label(s: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !s.is_empty()
        && s.bytes().all(|b| inner(b) || b == b'-')
        && s.bytes().next().is_some_and(inner)
        && s.bytes().last().is_some_and(inner)
}

/// An absolute URI or an absolute path, as an HTTP request line has it.
fn is_request_uri(s: &str) -> bool {
    if s.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return false;
    }
    if s.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = s.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !rest.is_empty()
}

/// `user@host`, or `Name <user@host>`.
fn is_email(s: &str) -> bool {
    let address = match s.trim().strip_suffix('>').and_then(|s| s.rsplit_once('<')) {
        Some((_, address)) => address,
        None => s.trim(),
    };
    let Some((user, host)) = address.rsplit_once('@') else { return false };
    let plain = |part: &str| {
        part.split('.').all(|atom| {
            !atom.is_empty()
                && atom
                    .chars()
                    .all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
        })
    };
    let quoted = user.len() > 2 && user.starts_with('"') && user.ends_with('"');
    (plain(user) || quoted) && plain(host)
}

/// A label, or labels and a top-level domain of letters. Letters of any script count.
fn is_hostname(s: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c.is_alphabetic();
    let word =
        |c: char| c.is_ascii_digit() || letter(c) || !c.is_ascii() && !c.is_whitespace() && !c.is_control();
    let inner = |label: &str| label.chars().all(|c| word(c) || c == '-');
    let labels: Vec<&str> = s.split('.').collect();
    if s.len() > 255 || labels.iter().any(|label| label.len() > 63 || !label.starts_with(word)) {
        return false;
    }
    match labels.as_slice() {
        // Upstream takes a hyphen in a single label only as its second character.
        [label] => {
            let mut rest = label.chars().skip(1);
            rest.next().is_none_or(|c| word(c) || c == '-') && rest.all(word)
        }
        [labels @ .., top] => {
            labels.iter().all(|label| inner(label) && label.ends_with(word))
                && top.chars().count() >= 2
                && top.chars().all(letter)
        }
        [] => false,
    }
}

fn is_cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// Six, eight or twenty bytes in hexadecimal, separated as `00:00`, `00-00` or `0000.0000`.
fn is_mac(s: &str) -> bool {
    let all_of_width = |separator: char, width: usize| {
        let parts: Vec<&str> = s.split(separator).collect();
        let bytes = parts.len() * width / 2;
        matches!(bytes, 6 | 8 | 20)
            && parts.iter().all(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    all_of_width(':', 2) || all_of_width('-', 2) || all_of_width('.', 4)
}

fn is_uuid(s: &str, version: Option<u8>, variant: bool) -> bool {
    let mut parts = Vec::new();
    let mut rest = s.as_bytes();
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(length) else { return false };
        parts.push(part);
        rest = after;
    }
    rest.is_empty()
        && parts.iter().all(|part| part.iter().all(u8::is_ascii_hexdigit))
        && version.is_none_or(|version| parts[2][0] == version)
        && (!variant || b"89abAB".contains(&parts[3][0]))
}

fn is_isbn10(s: &str) -> bool {
    let digits: Vec<u8> = s.bytes().filter(|b| !b" -".contains(b)).collect();
    let well_formed = digits.len() == 10
        && digits.iter().enumerate().all(|(i, b)| b.is_ascii_digit() || i == 9 && *b == b'X');
    let value = |b: u8| if b == b'X' { 10 } else { u32::from(b - b'0') };
    well_formed && digits.iter().zip(1..).map(|(&b, weight)| weight * value(b)).sum::<u32>() % 11 == 0
}

fn is_isbn13(s: &str) -> bool {
    let digits: Vec<u8> = s.bytes().filter(|b| !b" -".contains(b)).collect();
    digits.len() == 13
        && digits.iter().all(u8::is_ascii_digit)
        && digits
            .iter()
            .zip([1, 3].into_iter().cycle())
            .map(|(b, weight)| weight * u32::from(b - b'0'))
            .sum::<u32>()
            % 10
            == 0
}

fn is_credit_card(s: &str) -> bool {
    let digits: String = s.chars().filter(char::is_ascii_digit).collect();
    let luhn = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(index, b)| {
            let digit = u32::from(b - b'0');
            match (index % 2, digit * 2) {
                (0, _) => digit,
                (_, doubled) if doubled > 9 => doubled - 9,
                (_, doubled) => doubled,
            }
        })
        .sum::<u32>();
    CREDIT_CARD.is_match(&digits) && luhn.is_multiple_of(10)
}

fn is_date(s: &str) -> bool {
    s.len() == 10 && s.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(s: &str) -> bool {
    let lower = s.to_lowercase();
    lower.split_once('t').is_some_and(|(date, time)| is_date(date) && TIME.is_match(time))
}

fn is_duration(s: &str) -> bool {
    GO_DURATION.is_match(s) || WORDY_DURATION.is_match(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_what_upstream_takes() {
        for (name, good, bad) in [
            ("uri", "http://example.com/a?b", "not a uri"),
            ("email", "a.b@example.com", "a@"),
            ("hostname", "web-1.example.com", "-a"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:1b:44:11:3a:b7", "00:1b:44:11:3a"),
            ("uuid", "C56A4180-65AA-42EC-A945-5FD21DEC0538", "x"),
            ("uuid3", "A987FBC9-4BED-3078-CF07-9141BA07C9F3", "A987FBC9-4BED-4078-8F07-9141BA07C9F3"),
            ("uuid4", "57B73598-8764-4AD0-A76A-679BB6640EB1", "57B73598-8764-3AD0-A76A-679BB6640EB1"),
            ("isbn10", "0321751043", "0321751042"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("isbn", "978-0321751041", "1"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "1111"),
            ("hexcolor", "#FFFFFF", "#FFFF"),
            ("rgbcolor", "rgb(255, 0, 10)", "rgb(256,0,0)"),
            ("byte", "aGk=", "!"),
            ("date", "2026-02-28", "2026-02-30"),
            ("date-time", "2014-12-15T19:30:20.000Z", "2014-12-15 19:30"),
            ("datetime", "2014-12-15T19:30:20+01:00", "2014-12-15T29:30:20Z"),
            ("duration", "1h30m", "soon"),
            ("duration", "22 ns", "22"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b-c", "a..b"),
        ] {
            let format = Format::parse(name).unwrap();
            assert!(format.is_match(good), "{name} takes {good}");
            assert!(!format.is_match(bad), "{name} refuses {bad}");
        }
        assert!(Format::parse("int32").is_none());
    }
}
