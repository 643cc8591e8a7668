//! Schedules: of the times that have passed since the last one, the latest calls.

use super::{Cause, call, label};
use crate::controller::Shared;
use crate::definition::Definition;
use api::kinds::batch::times::{self, Times};
use api::kinds::minik8s::{FunctionTrigger, FunctionTriggerStatus};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::path::Path;
use std::sync::Arc;

const ZONES: &str = "/usr/share/zoneinfo";

/// Calls the functions whose time has come. When the next one's will have.
pub async fn ring(shared: &Arc<Shared>, definitions: &[Arc<Definition>]) -> Option<Timestamp> {
    let mut next = None;
    for definition in definitions {
        for trigger in definition.function.spec.triggers.iter().filter(|trigger| trigger.on.is_none()) {
            let after = tokio::select! {
                after = ring_one(shared, definition, trigger) => after,
                () = shared.shutdown().cancelled() => return None,
            };
            next = next.into_iter().chain(after).min();
        }
    }
    next
}

async fn ring_one(shared: &Shared, definition: &Definition, trigger: &FunctionTrigger) -> Option<Timestamp> {
    let (label, now) = (label(trigger), Timestamp::now());
    let key = &definition.key;
    let known = shared.progress(key).remove(&label);
    let times = match times(trigger) {
        Ok(times) => times,
        Err(message) => {
            let status =
                FunctionTriggerStatus { trigger: label, message, ..FunctionTriggerStatus::default() };
            shared.progressed(key, status);
            return None;
        }
    };
    // What was due before it was there is not made up for.
    let since = known.as_ref().and_then(|known| known.last_time.as_ref()).map_or(now, |time| time.0);
    let due = times.due(since, None, now).time;
    if let Some(time) = due {
        let cause = Cause {
            identity: time.as_second().to_string(),
            source: "schedule".to_owned(),
            kind: "io.minik8s.schedule".to_owned(),
            time,
            params: if trigger.params.is_null() { String::new() } else { trigger.params.to_string() },
        };
        call(shared, definition, &label, cause).await;
    }
    if due.is_some() || known.is_none() {
        let last_time = Some(Time(due.unwrap_or(now)));
        shared.progressed(
            key,
            FunctionTriggerStatus { trigger: label, last_time, ..FunctionTriggerStatus::default() },
        );
    }
    times.after(now)
}

fn times(trigger: &FunctionTrigger) -> Result<Times, String> {
    let zone = match trigger.time_zone.as_str() {
        "" => TimeZone::UTC,
        name => {
            // Only of what is a name is there a file to be read.
            times::zone(name, None)?;
            times::zone(name, std::fs::read(Path::new(ZONES).join(name)).ok().as_deref())?
        }
    };
    Times::new(&trigger.schedule, zone)
}
