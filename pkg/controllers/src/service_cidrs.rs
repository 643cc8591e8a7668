//! ServiceCIDRs: one more range that addresses of services come from, and that stays while a service has one of them.
//!
//! The apiserver gives addresses from those that are `Ready` and not on their way out; kube-proxy keeps packets for all of
//! them on their node. Which addresses are taken is asked for only when a range is to go, which is rare.

use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Whoever gives addresses has heard by then that a range is to go.
const GRACE: SignedDuration = SignedDuration::from_secs(10);
/// How soon it is asked again whether addresses have been given back.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// A range.
#[derive(Debug)]
pub struct View {
    /// It.
    pub cidr: Arc<ServiceCIDR>,
    /// Addresses in it that no other range has.
    pub only_here: bool,
}

/// What to do about it.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let cidr = view.cidr.as_ref();
    let Some(going) = &cidr.metadata.deletion_timestamp else {
        let writes = Write::hold(cidr, FINALIZER, true).into_iter().collect();
        return Plan { writes, status: status(cidr, "True", "", READY, now), ..Plan::default() };
    };
    if view.only_here {
        let status = status(cidr, "False", "Terminating", IN_USE, now);
        return Plan { status, ..Plan::later(ASK_AGAIN) };
    }
    let left = (going.0 + GRACE).duration_since(now);
    match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
        Some(left) => Plan::later(left),
        None => {
            let writes = Write::hold(cidr, FINALIZER, false).into_iter().collect();
            Plan { writes, ..Plan::default() }
        }
    }
}

fn status(cidr: &ServiceCIDR, status: &str, reason: &str, message: &str, now: Timestamp) -> Option<Write> {
    let conditions = cidr.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let before = conditions.clone().find(|condition| condition.type_ == "Ready");
    let is_said = |before: &Condition| {
        (before.status.as_str(), before.reason.as_str(), before.message.as_str()) == (status, reason, message)
    };
    if before.is_some_and(is_said) {
        return None;
    }
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.0);
    let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or(now).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    let others = conditions.filter(|condition| condition.type_ != "Ready").map(|condition| json!(condition));
    let conditions: Vec<_> = others.chain([ready]).collect();
    let patch = json!({"status": {"conditions": conditions}});
    Some(Write::merge_patch(cidr, patch).on("status").tolerating(404))
}

/// Whether one of these addresses is in this range and in no other.
fn any_only_in(
    cidr: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    mut addresses: impl Iterator<Item = IpAddr>,
) -> bool {
    let mine = ranges(cidr);
    let others = all.iter().filter(|other| other.metadata.name != cidr.metadata.name);
    let others: Vec<IpNet> = others.flat_map(|other| ranges(other)).collect();
    let is_in = |ranges: &[IpNet], address: IpAddr| ranges.iter().any(|range| range.contains(&address));
    addresses.any(|address| is_in(&mine, address) && !is_in(&others, address))
}

fn ranges(cidr: &ServiceCIDR) -> Vec<IpNet> {
    let ranges = cidr.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    ranges.filter_map(|range| range.parse().ok()).collect()
}

struct Keeper {
    client: Client,
    cidrs: Cache<ServiceCIDR>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let cidrs: Cache<ServiceCIDR> = context.informers.cache();
    let keeper = Keeper { client: context.client.clone(), cidrs: cidrs.clone() };
    let all = cidrs.clone();
    Driver::new(context, keeper)
        // One that comes may take over the addresses of one that is to go.
        .watches(&cidrs, move |change| {
            let going = all.list().into_iter().filter(|cidr| cidr.metadata.deletion_timestamp.is_some());
            going.map(|cidr| Key::of(cidr.as_ref())).chain([change.key()]).collect()
        })
        .task()
}

impl Controller for Keeper {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(cidr) = self.cidrs.get(key) else { return Ok(None) };
        let mut only_here = false;
        if cidr.metadata.deletion_timestamp.is_some() {
            let addresses = Api::<IPAddress>::all(self.client.clone());
            let addresses = addresses.list_metadata(&ListParams::default()).await?;
            let names = addresses.items.iter().filter_map(|address| address.metadata.name.as_deref());
            only_here = any_only_in(&cidr, &self.cidrs.list(), names.filter_map(|name| name.parse().ok()));
        }
        Ok(Some(View { cidr, only_here }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn cidr(name: &str, ranges: &[&str], metadata: Value, status: Value) -> Arc<ServiceCIDR> {
        let mut cidr = json!({"metadata": metadata, "spec": {"cidrs": ranges}, "status": status});
        cidr["metadata"]["name"] = name.into();
        Arc::new(serde_json::from_value(cidr).unwrap())
    }

    fn at(second: &str) -> Timestamp {
        format!("2026-01-01T00:00:{second}Z").parse().unwrap()
    }

    #[test]
    fn a_range_is_ready_and_held() {
        let new = cidr("more", &["10.1.0.0/24"], json!({}), json!({}));
        let first = plan(&View { cidr: new, only_here: false }, at("07"));
        assert_eq!(first.writes[0].body["metadata"]["finalizers"], json!([FINALIZER]));
        let said = first.status.unwrap().body["status"].take();
        assert_eq!(
            said,
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": READY,
                "lastTransitionTime": "2026-01-01T00:00:07Z"}]})
        );
        let known = cidr("more", &["10.1.0.0/24"], json!({"finalizers": [FINALIZER]}), said);
        assert_eq!(plan(&View { cidr: known, only_here: false }, at("08")), Plan::default());
    }

    #[test]
    fn a_range_goes_when_nobody_has_an_address_of_it() {
        let metadata = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let going = cidr("more", &["10.1.0.0/24"], metadata, json!({}));
        let view = |only_here: bool| View { cidr: going.clone(), only_here };
        let held = plan(&view(true), at("30"));
        assert_eq!(held.look_again, Some(ASK_AGAIN));
        let said = held.status.unwrap().body["status"]["conditions"][0].take();
        assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("Terminating")));
        assert_eq!(plan(&view(false), at("04")), Plan::later(Duration::from_secs(6)));
        let gone = plan(&view(false), at("10"));
        assert_eq!(gone.writes[0].body["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn an_address_that_another_range_has_holds_nothing() {
        let one = cidr("one", &["10.1.0.0/24", "fd00::/112"], json!({}), json!({}));
        let wider = cidr("wider", &["10.1.0.0/16"], json!({}), json!({}));
        let check = |all: &[&Arc<ServiceCIDR>], address: &str, expected: bool| {
            let all: Vec<_> = all.iter().map(|cidr| (*cidr).clone()).collect();
            assert_eq!(
                any_only_in(&one, &all, [address.parse().unwrap()].into_iter()),
                expected,
                "{address}"
            );
        };
        check(&[&one], "10.1.0.9", true);
        check(&[&one], "10.1.1.9", false);
        check(&[&one, &wider], "10.1.0.9", false);
        check(&[&one, &wider], "fd00::9", true);
    }
}
