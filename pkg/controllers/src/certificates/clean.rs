//! Requests that served their purpose, or never will, go.

use super::{has, is_issued};
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::sync::Arc;
use std::time::Duration;

const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

/// When a request is to go; `None` if nobody can say.
fn ends(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let updated = |kind: &str| {
        let mut conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let condition = conditions.find(|condition| condition.type_ == kind)?;
        condition.last_update_time.as_ref().map(|time| time.0)
    };
    let created = request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let issued = is_issued(request);
    let mut ends = vec![
        updated("Denied").map(|at| at + DECIDED),
        updated("Failed").map(|at| at + DECIDED),
        updated("Approved").map(|at| at + if issued { DECIDED } else { PENDING }),
    ];
    if issued && has(request, "Approved") {
        ends.push(expires(request));
    }
    if ["Denied", "Failed", "Approved"].iter().all(|kind| !has(request, kind)) {
        ends.push(created.map(|at| at + PENDING));
    }
    ends.into_iter().flatten().min()
}

fn expires(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    let facts = pki::Facts::from_pem(std::str::from_utf8(&certificate.0).ok()?).ok()?;
    Timestamp::from_second(facts.not_after).ok()
}

fn plan(request: &CertificateSigningRequest, now: Timestamp) -> Plan {
    match ends(request) {
        Some(at) if at < now => Plan { writes: vec![Write::delete(request)], ..Plan::default() },
        Some(at) => {
            let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Plan::later(left + Duration::from_secs(1))
        }
        None => Plan::default(),
    }
}

struct Cleaner {
    requests: Cache<CertificateSigningRequest>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let requests: Cache<CertificateSigningRequest> = context.informers.cache();
    Driver::new(context, Cleaner { requests: requests.clone() }).owns(&requests).task()
}

impl Controller for Cleaner {
    type View = Arc<CertificateSigningRequest>;

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        Ok(self.requests.get(key))
    }

    fn plan(&self, request: &Self::View, now: Timestamp) -> Plan {
        plan(request, now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn each_goes_in_its_time() {
        let told =
            |kind: &str| json!({"type": kind, "status": "True", "lastUpdateTime": "2026-01-01T06:00:00Z"});
        let issued = |conditions: Value| json!({"conditions": conditions, "certificate": "eA=="});
        let cases = [
            ("pending", json!({}), "2026-01-02T00:00:00Z"),
            ("denied", json!({"conditions": [told("Denied")]}), "2026-01-01T07:00:00Z"),
            ("failed", json!({"conditions": [told("Approved"), told("Failed")]}), "2026-01-01T07:00:00Z"),
            ("approved", json!({"conditions": [told("Approved")]}), "2026-01-02T06:00:00Z"),
            ("issued", issued(json!([told("Approved")])), "2026-01-01T07:00:00Z"),
        ];
        for (name, status, at) in cases {
            let request = request(super::super::CLIENT, "bob", &[], &[], &["client auth"], status);
            let at: Timestamp = at.parse().unwrap();
            assert_eq!(ends(&request), Some(at), "{name}");
            assert_eq!(
                plan(&request, at - SignedDuration::from_secs(9)),
                Plan::later(Duration::from_secs(10)),
                "{name}"
            );
            assert_eq!(plan(&request, at + SignedDuration::from_secs(1)).writes.len(), 1, "{name}");
        }
    }
}
