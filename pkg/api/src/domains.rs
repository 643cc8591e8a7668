//! Hosts of DNS objects and ingresses: since when an object has each, and whether its writers may claim it.
//!
//! ```text
//! a write ── apiserver: may they `claim` domains.minik8s.io "example.com"? ──> the annotation minik8s.io/hosts
//!                                                       kube-proxies: which names lead here ──┘ believe nothing else
//! ```
//!
//! The record is a part of the object, so that it comes, goes, is backed up and is renamed with it, and every kube-proxy
//! that sees the object decides alike. Only the API server writes it: what others send in its place is not looked at.

use crate::object::Value;
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation that holds the record.
pub const RECORD: &str = "minik8s.io/hosts";
/// The verb that is asked for.
pub const VERB: &str = "claim";
/// The group of the resource that it is asked on, which has no objects.
pub const GROUP: &str = "minik8s.io";
/// The resource that it is asked on.
pub const RESOURCE: &str = "domains";
/// An object has room for four times as much in all of its annotations. Hosts beyond are claimed by nobody.
const LONGEST_RECORD_BYTES: usize = 64 << 10;
/// What the hosts of one moment take, without the hosts.
const ENTRY_BYTES: usize = r#"{"claimed":false,"since":"2000-01-01T00:00:00.000000Z","hosts":[]},""#.len();

/// How an object has a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whoever wrote it may claim it: it is resolved.
    pub claimed: bool,
    /// Since when it has it like that.
    pub since: Timestamp,
}

/// The hosts of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<String, Held>);

/// The hosts of one write, as the annotation has them.
#[derive(Serialize, Deserialize)]
struct Entry {
    claimed: bool,
    since: Timestamp,
    hosts: Vec<String>,
}

impl Record {
    /// As an object's annotation says.
    pub fn of(object: &Value) -> Record {
        Record::parse(object["metadata"]["annotations"][RECORD].as_str().unwrap_or_default())
    }

    /// From the annotation's text. What cannot be read claims nothing.
    pub fn parse(text: &str) -> Record {
        let entries: Vec<Entry> = serde_json::from_str(text).unwrap_or_default();
        let held = |entry: Entry| {
            let Entry { claimed, since, hosts } = entry;
            hosts.into_iter().map(move |host| (host, Held { claimed, since }))
        };
        Record(entries.into_iter().flat_map(held).collect())
    }

    /// The annotation's text; none if there are no hosts.
    pub fn text(&self) -> Option<String> {
        let mut by_time: BTreeMap<(Timestamp, bool), Vec<String>> = BTreeMap::new();
        for (host, held) in &self.0 {
            by_time.entry((held.since, held.claimed)).or_default().push(host.clone());
        }
        let entries = by_time.into_iter().map(|((since, claimed), hosts)| Entry { claimed, since, hosts });
        let entries: Vec<Entry> = entries.collect();
        let text = (!entries.is_empty()).then(|| serde_json::to_string(&entries))?;
        Some(text.expect("texts, times and truths are JSON"))
    }

    /// How the object has a host.
    pub fn get(&self, host: &str) -> Option<Held> {
        self.0.get(host).copied()
    }

    /// The hosts that nobody claims.
    pub fn unclaimed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, held)| !held.claimed).map(|(host, _)| host.as_str())
    }

    /// What is to be recorded of an object that has these hosts now. What was claimed stays claimed for as long as the
    /// object has the host, whoever writes it: a right that is taken back takes back nothing that was done with it, as
    /// with the verbs `bind` and `escalate`. `may_claim` speaks for whoever writes, and is absent where they do not stand
    /// for the hosts: then nothing is added.
    pub fn next(
        &self,
        hosts: impl IntoIterator<Item = String>,
        may_claim: Option<&mut dyn FnMut(&str) -> bool>,
        now: Timestamp,
    ) -> Record {
        let hosts = hosts.into_iter().filter(|host| !host.is_empty()).map(|host| host.to_ascii_lowercase());
        let Some(may_claim) = may_claim else {
            let kept = hosts.filter_map(|host| Some((self.get(&host)?, host)));
            return Record(kept.map(|(held, host)| (host, held)).collect());
        };
        // A record that came and went through a clock of less precision says the same.
        let now = now.round(Unit::Microsecond).unwrap_or(now);
        let (mut next, mut moments) = (BTreeMap::new(), BTreeSet::new());
        let mut room = LONGEST_RECORD_BYTES;
        for host in hosts {
            if next.contains_key(&host) || room < host.len() + ENTRY_BYTES {
                continue;
            }
            let held = match self.get(&host) {
                Some(held) if held.claimed => held,
                before => match may_claim(&host) {
                    true => Held { claimed: true, since: now },
                    false => before.unwrap_or(Held { claimed: false, since: now }),
                },
            };
            let is_new = moments.insert((held.since, held.claimed));
            room -= host.len() + r#""","#.len() + if is_new { ENTRY_BYTES - 3 } else { 0 };
            next.insert(host, held);
        }
        Record(next)
    }
}

/// The names by any of which somebody may be allowed to claim a host: `example.com` covers itself and all that is below
/// it, `*.example.com` only what is below.
pub fn covering(host: &str) -> impl Iterator<Item = String> {
    let base = host.strip_prefix("*.").unwrap_or(host);
    let is_wildcard = base.len() < host.len();
    let names = std::iter::successors(Some(base), |name| name.split_once('.').map(|(_, above)| above));
    names.enumerate().flat_map(move |(n, name)| {
        let below = (n > 0 || is_wildcard).then(|| format!("*.{name}"));
        std::iter::once(name.to_owned()).chain(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn hosts(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn a_right_covers_what_is_below() {
        let check = |host: &str, expected: &[&str]| {
            assert_eq!(covering(host).collect::<Vec<_>>(), expected, "{host}");
        };
        check("com", &["com"]);
        check("a.example.com", &["a.example.com", "example.com", "*.example.com", "com", "*.com"]);
        check("*.example.com", &["example.com", "*.example.com", "com", "*.com"]);
    }

    #[test]
    fn what_is_claimed_stays_claimed_while_the_object_has_it() {
        let (mut all, mut none) = (|_: &str| true, |_: &str| false);
        let nothing = Record::default();
        let refused = nothing.next(hosts(&["a.example", "A.example", ""]), Some(&mut none), at(1));
        assert_eq!(refused.get("a.example"), Some(Held { claimed: false, since: at(1) }));
        assert_eq!(refused.unclaimed().collect::<Vec<_>>(), ["a.example"]);
        // Who may comes later: from then on.
        let claimed = refused.next(hosts(&["a.example"]), Some(&mut all), at(2));
        assert_eq!(claimed.get("a.example"), Some(Held { claimed: true, since: at(2) }));
        // Others change it, or what belongs to it, or only its labels.
        let changed = claimed.next(hosts(&["a.example", "b.example"]), Some(&mut none), at(3));
        assert_eq!(changed.get("a.example"), claimed.get("a.example"));
        assert_eq!(changed.get("b.example"), Some(Held { claimed: false, since: at(3) }));
        assert_eq!(changed.next(hosts(&["a.example", "b.example", "c.example"]), None, at(4)), changed);
        // It gives the host up.
        assert_eq!(changed.next(hosts(&["b.example"]), None, at(5)).get("a.example"), None);
        let again = changed.next(hosts(&["b.example"]), Some(&mut none), at(5));
        assert_eq!(
            again.next(hosts(&["a.example"]), Some(&mut none), at(6)).get("a.example").unwrap().since,
            at(6)
        );
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut odd = |host: &str| host.starts_with('a');
        let first = Record::default().next(hosts(&["a.example", "b.example"]), Some(&mut odd), at(1));
        let second = first.next(hosts(&["a.example", "b.example", "ab.example"]), Some(&mut odd), at(2));
        let text = second.text().unwrap();
        assert_eq!(
            text,
            r#"[{"claimed":false,"since":"1970-01-01T00:00:01Z","hosts":["b.example"]},"#.to_owned()
                + r#"{"claimed":true,"since":"1970-01-01T00:00:01Z","hosts":["a.example"]},"#
                + r#"{"claimed":true,"since":"1970-01-01T00:00:02Z","hosts":["ab.example"]}]"#
        );
        assert_eq!(Record::parse(&text), second);
        assert_eq!(Record::default().text(), None);
        for odd in ["", "x", "{}", "[{}]", r#"[{"claimed":true,"hosts":["a"]}]"#] {
            assert_eq!(Record::parse(odd), Record::default(), "{odd}");
        }
    }

    #[test]
    fn a_record_has_an_end() {
        let many = (0..50_000).map(|n| format!("h{n}.example"));
        let record = Record::default().next(many, Some(&mut |_: &str| true), at(1));
        assert!(record.0.len() > 1000 && record.text().unwrap().len() <= LONGEST_RECORD_BYTES);
        assert_eq!(Record::parse(&record.text().unwrap()), record);
        let mut slow = Record::default();
        for n in 0..2_000 {
            let hosts = (0..=n).map(|n| format!("h{n}.example"));
            slow = slow.next(hosts, Some(&mut |_: &str| true), at(n));
        }
        assert!(slow.0.len() > 500 && slow.text().unwrap().len() <= LONGEST_RECORD_BYTES, "{}", slow.0.len());
    }
}
