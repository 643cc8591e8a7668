//! The condition `Available`, as it is written on APIServices.

use super::put_right;
use crate::error::Result;
use crate::server::Server;
use crate::time;
use api::Value;
use serde_json::{Map, json};

/// Whether one is available, with a reason and a message.
pub type Said<'a> = (&'a str, &'a str, &'a str);

/// Writes whether one is available, if that is not what is written already.
pub async fn say(server: &Server, service: &Value, said: Said<'_>) -> Result<()> {
    let resource = server.registry.built_in(super::GROUP, "apiservices");
    let now = time::rfc3339(jiff::Timestamp::now());
    put_right(server, &resource, service, "status", |current| with_condition(&current["status"], said, &now))
        .await
}

/// A status that says so; `None` if it does. Conditions of others stay as they are, and so does the time while the answer
/// is the same.
fn with_condition(status: &Value, (answer, reason, message): Said<'_>, now: &str) -> Option<Value> {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let known = conditions.iter_mut().find(|condition| condition["type"] == "Available");
    match known {
        Some(known) => {
            let before = known.clone();
            if known["status"] != answer {
                known["status"] = answer.into();
                known["lastTransitionTime"] = now.into();
            }
            known["reason"] = reason.into();
            known["message"] = message.into();
            if *known == before {
                return None;
            }
        }
        None => conditions.push(json!({
            "type": "Available", "status": answer, "reason": reason, "message": message, "lastTransitionTime": now,
        })),
    }
    let mut status = status.as_object().cloned().unwrap_or_else(Map::new);
    status.insert("conditions".to_owned(), conditions.into());
    Some(status.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: Said<'static> = ("True", "Passed", "all checks passed");

    fn available(status: &str, reason: &str, since: &str) -> Value {
        json!({"type": "Available", "status": status, "reason": reason, "message": "m", "lastTransitionTime": since})
    }

    #[test]
    fn conditions_of_others_stay() {
        let other = json!({"type": "Other", "status": "True", "lastTransitionTime": "1"});
        let status = json!({"conditions": [other, available("False", "No", "2")]});
        let said = with_condition(&status, PASSED, "3").unwrap();
        assert_eq!(said["conditions"][0], other);
        assert_eq!(said["conditions"].as_array().unwrap().len(), 2);
        assert_eq!(said["conditions"][1]["lastTransitionTime"], "3", "its own, and not the first one's");
        assert_eq!(with_condition(&said, PASSED, "4"), None, "it is said already");
        let said = with_condition(&json!({"conditions": [other]}), PASSED, "3").unwrap();
        assert_eq!(said["conditions"][1]["reason"], "Passed");
    }

    #[test]
    fn the_time_is_that_of_the_answer() {
        let status = json!({"conditions": [available("False", "ServiceNotFound", "1")]});
        let said = with_condition(&status, ("False", "MissingEndpoints", "m"), "2").unwrap();
        assert_eq!(said["conditions"][0], available("False", "MissingEndpoints", "1"));
        let said = with_condition(&said, ("True", "Passed", "m"), "3").unwrap();
        assert_eq!(said["conditions"][0], available("True", "Passed", "3"));
    }
}
