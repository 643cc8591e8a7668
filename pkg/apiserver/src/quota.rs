//! ResourceQuotas at work: what a write uses is charged in the same commit that writes it.
//!
//! ```text
//! commit { pods/default/web (absent), resourcequotas/default/q (as it was when its usage was read) }
//! ```
//!
//! So no quota is ever exceeded, however many write at once. What is deleted is given back by the quota controller,
//! which also says what is used when a quota begins: until then, nothing is limited by it.

use crate::error::{ApiError, Result};
use crate::server::Server;
use crate::storage::parse;
use api::kinds::pod_spec::requests::Amounts;
use api::quota::{is_terminating, list, matches, missing, tracks, usage};
use api::{Kind, Quantity, Value, object};
use jiff::Timestamp;
use serde_json::json;
use store::{Expect, Write};

const PLURAL: &str = "resourcequotas";

/// Charges the quotas of a namespace for an object that is to be written, or refuses it.
pub fn charge(
    server: &Server,
    kind: &Kind,
    new: &Value,
    old: Option<&Value>,
    subresource: &str,
    now: Timestamp,
) -> Result<Vec<Write>> {
    let quotas = server.registry.built_in("", PLURAL);
    if quotas.cache.is_empty() || !is_charged(kind, new, old, subresource) {
        return Ok(Vec::new());
    }
    let mut writes = Vec::new();
    for cached in quotas.objects(Some(object::namespace(new))) {
        let mut quota = parse(cached.as_json())?;
        let Some(used) = charged(&quota, kind, new, old, now)? else { continue };
        object::object_mut(&mut quota, "status").insert("used".into(), shown(&used));
        let key = quotas.kind.key(cached.namespace(), cached.name());
        let value = server.seal(&quotas.kind, &key, &quota)?;
        writes.push(Write { key, expect: Expect::Revision(cached.revision()), value: Some(value) });
    }
    Ok(writes)
}

fn is_charged(kind: &Kind, new: &Value, old: Option<&Value>, subresource: &str) -> bool {
    if subresource == "resize" {
        return true;
    }
    if !kind.namespaced() || !subresource.is_empty() || kind.plural == "events" {
        return false;
    }
    match (old, kind.group.as_str(), kind.plural.as_str()) {
        (None, ..) => true,
        (Some(old), "", "pods") => is_terminating(old) != is_terminating(new),
        (Some(_), "", "services" | "persistentvolumeclaims") => true,
        _ => false,
    }
}

/// What is used of a quota after a write; nothing if the write does not change that.
fn charged(
    quota: &Value,
    kind: &Kind,
    new: &Value,
    old: Option<&Value>,
    now: Timestamp,
) -> Result<Option<Amounts>> {
    let (group, plural) = (kind.group.as_str(), kind.plural.as_str());
    if !matches(quota, group, plural, new) {
        return Ok(None);
    }
    let name = object::name(quota);
    let refuse = |why: String| Err(ApiError::forbidden(kind, object::name(new), why));
    let mut hard = list(quota, "status.hard");
    hard.retain(|resource, _| tracks(group, plural, resource));
    let mut used = list(quota, "status.used");
    if (group, plural) == ("", "pods")
        && let Some(fault) = missing(hard.keys(), new)
    {
        return refuse(format!("failed quota: {name}: {fault}"));
    }
    if hard.keys().any(|resource| !used.contains_key(resource)) {
        let names = hard.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        return refuse(format!("status unknown for quota: {name}, resources: {names}"));
    }
    let mut delta = usage(group, plural, new, now);
    if let Some(old) = old.filter(|old| matches(quota, group, plural, old)) {
        for (resource, amount) in usage(group, plural, old, now) {
            delta.entry(resource).and_modify(|more| *more = (*more - amount).max(Quantity::default()));
        }
    }
    delta.retain(|resource, amount| hard.contains_key(resource) && !amount.is_zero());
    if delta.is_empty() {
        return Ok(None);
    }
    let before = used.clone();
    for (resource, amount) in &delta {
        used.entry(resource.clone()).and_modify(|used| *used = *used + *amount);
    }
    let exceeded: Vec<&String> = delta.keys().filter(|resource| used[*resource] > hard[*resource]).collect();
    if !exceeded.is_empty() {
        let say = |amounts: &Amounts| {
            let one = |resource: &&String| format!("{resource}={}", amounts[*resource]);
            exceeded.iter().map(one).collect::<Vec<_>>().join(",")
        };
        let (requested, used, limited) = (say(&delta), say(&before), say(&hard));
        return refuse(format!(
            "exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"
        ));
    }
    Ok(Some(used))
}

fn shown(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}
