//! One webhook as its configuration says, and what it wants to be asked about.

use super::call::Client;
use super::review::Version;
use crate::admission::matching::Matching;
use api::admission::Conditions;
use api::{Value, object};
use std::time::Duration;

/// A webhook, ready to be asked.
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The name of the configuration that it stands in.
    pub configuration: String,
    /// What it wants to hear of.
    pub matching: Matching,
    /// Where all of these hold.
    pub conditions: Conditions,
    /// Whether a write goes on when it cannot be asked.
    pub ignores_failure: bool,
    /// Whether it is asked again about what others have changed.
    pub is_reinvoked: bool,
    /// Whether it does nothing beside answering when nothing is to be written.
    pub takes_dry_runs: bool,
    /// How long its answer may take.
    pub timeout: Duration,
    /// The version of the question that it understands.
    pub review_version: Option<Version>,
    /// Where it is.
    pub client: Client,
}

impl Hook {
    /// The webhooks of a configuration.
    pub fn all(configuration: &Value) -> Vec<Hook> {
        list(configuration, "webhooks").map(|hook| Hook::new(object::name(configuration), hook)).collect()
    }

    fn new(configuration: &str, hook: &Value) -> Hook {
        let is = |name: &str, value: &str| hook[name] == value;
        Hook {
            name: text(hook, "name"),
            configuration: configuration.to_owned(),
            matching: Matching::of_webhook(hook),
            conditions: Conditions::compile(hook),
            ignores_failure: is("failurePolicy", "Ignore"),
            is_reinvoked: is("reinvocationPolicy", "IfNeeded"),
            takes_dry_runs: is("sideEffects", "None") || is("sideEffects", "NoneOnDryRun"),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            review_version: list(hook, "admissionReviewVersions")
                .find_map(|version| Version::named(version.as_str()?)),
            client: Client::new(&hook["clientConfig"]),
        }
    }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
