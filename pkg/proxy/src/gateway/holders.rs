//! Which namespace has which host: the first that was allowed to claim it, or else the first that led it somewhere.
//!
//! ```text
//! claimed before unclaimed ── since when ── the older object      every kube-proxy sees the same
//! *.example.com, claimed ──> shop.example.com of another namespace must be claimed itself
//! ```

use super::Owner;
use api::domains::{Held, Record};
use std::collections::BTreeMap;

/// Who has a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The object that it is by.
    pub owner: Owner,
    /// They may claim it: it is resolved.
    pub claimed: bool,
}

/// Who has the hosts that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders(BTreeMap<String, Wanted>);

/// An object that wants a host. The first of all has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    unclaimed: bool,
    /// What is not recorded came last.
    unrecorded: bool,
    since: Option<jiff::Timestamp>,
    owner: Owner,
}

impl Holders {
    /// Somebody wants a host; how they have it is what the API server has recorded.
    pub fn add(&mut self, host: &str, owner: &Owner, record: &Record) {
        if host.is_empty() {
            return;
        }
        let held: Option<Held> = record.get(host);
        let wanted = Wanted {
            unclaimed: !held.is_some_and(|held| held.claimed),
            unrecorded: held.is_none(),
            since: held.map(|held| held.since),
            owner: owner.clone(),
        };
        match self.0.get_mut(host) {
            Some(first) if *first <= wanted => {}
            Some(first) => *first = wanted,
            None => {
                self.0.insert(host.to_owned(), wanted);
            }
        }
    }

    /// Who has a host. A host that nobody claims is a part of what somebody else claims around it.
    pub fn of(&self, host: &str) -> Option<Holder> {
        let own = self.0.get(host)?;
        let around = host.split_once('.').and_then(|(_, domain)| self.0.get(&format!("*.{domain}")));
        let around = around.filter(|around| own.unclaimed && !around.unclaimed);
        let has_it = match around {
            Some(around) if around.owner.namespace != own.owner.namespace => around,
            _ => own,
        };
        // Nobody asks for a name of its own that is resolved as a part of another.
        Some(Holder { owner: has_it.owner.clone(), claimed: !own.unclaimed || around.is_some() })
    }

    /// Who has a host, if they are in another namespace.
    pub fn other(&self, host: &str, owner: &Owner) -> Option<Owner> {
        self.of(host).map(|holder| holder.owner).filter(|holder| holder.namespace != owner.namespace)
    }

    /// Whether a host is resolved.
    pub fn is_claimed(&self, host: &str) -> bool {
        self.of(host).is_some_and(|holder| holder.claimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    fn owner(namespace: &str, created: &str) -> Owner {
        let metadata = json!({"namespace": namespace, "name": "i", "creationTimestamp": created});
        Owner::of("Ingress", &serde_json::from_value::<ObjectMeta>(metadata).unwrap())
    }

    fn record(host: &str, claimed: bool, since: &str) -> Record {
        Record::parse(&json!([{"claimed": claimed, "since": since, "hosts": [host]}]).to_string())
    }

    const T: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"];

    /// Who has the last of these hosts, each wanted as (namespace, created, host, claimed since, else had since).
    fn check(wanted: &[(&str, &str, &str, Option<&str>, Option<&str>)], expected: (&str, bool)) {
        // In whatever order they are seen.
        for turned in 0..wanted.len() {
            let mut holders = Holders::default();
            let (first, second) = wanted.split_at(turned);
            for (namespace, created, host, claimed, had) in second.iter().chain(first) {
                let record = match (claimed, had) {
                    (Some(since), _) => record(host, true, since),
                    (None, Some(since)) => record(host, false, since),
                    (None, None) => Record::default(),
                };
                holders.add(host, &owner(namespace, created), &record);
            }
            let host = wanted.last().unwrap().2;
            let holder = holders.of(host).unwrap();
            assert_eq!((holder.owner.namespace.as_str(), holder.claimed), expected, "{wanted:?}");
        }
    }

    #[test]
    fn the_first_who_may_claim_a_host_has_it() {
        let host = "shop.example.com";
        // The older object came to the host later.
        check(&[("a", T[1], host, Some(T[1]), None), ("b", T[0], host, Some(T[2]), None)], ("a", true));
        // Who was there first without the right does not keep it from who has the right.
        check(&[("a", T[0], host, None, Some(T[0])), ("b", T[1], host, Some(T[2]), None)], ("b", true));
        check(&[("a", T[1], host, None, Some(T[1])), ("b", T[0], host, None, Some(T[2]))], ("a", false));
        // What is from before records were kept.
        check(&[("a", T[0], host, None, None), ("b", T[1], host, None, Some(T[1]))], ("b", false));
        check(&[("a", T[0], host, None, None), ("b", T[1], host, None, None)], ("a", false));
        check(&[("b", T[0], host, None, None), ("a", T[0], host, None, None)], ("a", false));
    }

    #[test]
    fn a_part_of_what_somebody_claims_must_be_claimed() {
        let (all, shop) = ("*.example.com", "shop.example.com");
        let claims = ("a", T[1], all, Some(T[1]), None);
        check(&[claims, ("b", T[0], shop, None, Some(T[0]))], ("a", true));
        check(&[claims, ("b", T[2], shop, Some(T[2]), None)], ("b", true));
        check(&[claims, ("a", T[0], shop, None, Some(T[0]))], ("a", true));
        check(&[("a", T[0], all, None, Some(T[0])), ("b", T[1], shop, None, Some(T[1]))], ("b", false));
        check(&[claims, ("b", T[0], "a.shop.example.com", None, Some(T[0]))], ("b", false));
    }

    #[test]
    fn what_has_no_host_is_for_all() {
        let mut holders = Holders::default();
        holders.add("", &owner("a", T[0]), &Record::default());
        assert_eq!(holders.of(""), None);
        assert_eq!(holders.other("", &owner("b", T[0])), None);
    }
}
