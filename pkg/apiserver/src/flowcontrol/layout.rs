//! FlowSchemas and PriorityLevelConfigurations, understood: what the server works by.
//!
//! What is mandatory is there whatever is stored, and says what the program says: nobody can lock an administrator out by
//! an object that is missing, or wrong. Other objects that are wrong are as if they were not there.

use super::queue_set::Queuing;
use super::rules::{Distinguisher, Rules};
use super::shares::Shares;
use api::kinds::flowcontrol::{MANDATORY, suggested};
use api::{Value, object};

/// A PriorityLevelConfiguration.
#[derive(Debug)]
pub struct LevelSpec {
    pub name: String,
    pub uid: String,
    pub is_exempt: bool,
    pub shares: Shares,
    pub queuing: Option<Queuing>,
}

/// A FlowSchema.
#[derive(Debug)]
pub struct SchemaSpec {
    pub name: String,
    pub uid: String,
    pub level: String,
    pub precedence: i64,
    pub rules: Rules,
    pub distinguisher: Distinguisher,
}

/// The levels that there are, and the mandatory ones.
pub fn levels(stored: &[Value]) -> Vec<LevelSpec> {
    with_mandatory("PriorityLevelConfiguration", stored).iter().filter_map(LevelSpec::of).collect()
}

/// The schemas that there are, and the mandatory ones, in the order in which they are asked.
pub fn schemas(stored: &[Value]) -> Vec<SchemaSpec> {
    let mut schemas: Vec<SchemaSpec> =
        with_mandatory("FlowSchema", stored).iter().filter_map(SchemaSpec::of).collect();
    schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    schemas
}

/// What is stored, but the mandatory ones as they must be. Of these only the identity is that of the stored object, and
/// how much the exempt level keeps free.
fn with_mandatory(kind: &str, stored: &[Value]) -> Vec<Value> {
    let is_mandatory = |value: &&Value| MANDATORY.contains(&object::name(value));
    let mut all: Vec<Value> = stored.iter().filter(|value| !is_mandatory(value)).cloned().collect();
    for mut wanted in suggested().into_iter().filter(|wanted| wanted["kind"] == kind) {
        if !is_mandatory(&&wanted) {
            continue;
        }
        if let Some(found) = stored.iter().find(|found| object::name(found) == object::name(&wanted)) {
            wanted["metadata"]["uid"] = found["metadata"]["uid"].clone();
            if wanted["spec"]["exempt"].is_object() && found["spec"]["exempt"].is_object() {
                wanted["spec"]["exempt"] = found["spec"]["exempt"].clone();
            }
        }
        all.push(wanted);
    }
    all
}

impl LevelSpec {
    fn of(level: &Value) -> Option<LevelSpec> {
        let (name, spec) = (object::name(level).to_owned(), &level["spec"]);
        let is_exempt = spec["type"] == "Exempt";
        // A level does not become another sort of level while its requests are under way.
        if is_exempt != (name == MANDATORY[0]) {
            return None;
        }
        let limits =
            if is_exempt { &spec["exempt"] } else { spec.get("limited").filter(|it| it.is_object())? };
        let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        let shares = Shares {
            nominal: count(&limits["nominalConcurrencyShares"]).unwrap_or(if is_exempt { 0 } else { 30 }),
            lendable_percent: count(&limits["lendablePercent"]).unwrap_or(0).min(100),
            borrowing_percent: count(&limits["borrowingLimitPercent"]),
        };
        let response = &limits["limitResponse"];
        let queuing = match response["type"].as_str() {
            Some("Queue") => Some(queuing(&response["queuing"])?),
            Some("Reject") => None,
            _ if is_exempt => None,
            _ => return None,
        };
        Some(LevelSpec { name, uid: uid(level), is_exempt, shares, queuing })
    }
}

fn queuing(queuing: &Value) -> Option<Queuing> {
    let count = |name: &str| usize::try_from(queuing[name].as_u64()?).ok().filter(|count| *count > 0);
    Some(Queuing {
        queues: count("queues")?,
        hand_size: count("handSize")?,
        length_limit: count("queueLengthLimit")?,
    })
}

impl SchemaSpec {
    fn of(schema: &Value) -> Option<SchemaSpec> {
        let (name, spec) = (object::name(schema).to_owned(), &schema["spec"]);
        let precedence = spec["matchingPrecedence"].as_i64().filter(|precedence| *precedence > 0)?;
        // The first of all is the administrators'.
        let is_first = name == MANDATORY[0];
        Some(SchemaSpec {
            level: spec["priorityLevelConfiguration"]["name"].as_str()?.to_owned(),
            precedence: if is_first { 1 } else { precedence.max(2) },
            rules: Rules::of(spec),
            distinguisher: Distinguisher::of(spec),
            uid: uid(schema),
            name,
        })
    }
}

fn uid(object: &Value) -> String {
    object::meta(object, "uid").unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Attributes, User};
    use serde_json::json;

    #[test]
    fn what_is_mandatory_is_there_whatever_is_stored() {
        let broken = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name, "uid": "7"}, "spec": {"matchingPrecedence": 9, "rules": []}});
        let found = levels(&[
            broken("PriorityLevelConfiguration", "exempt"),
            broken("PriorityLevelConfiguration", "x"),
        ]);
        let found: Vec<_> =
            found.iter().map(|level| (level.name.as_str(), level.uid.as_str(), level.is_exempt)).collect();
        assert_eq!(found, [("exempt", "7", true), ("catch-all", "", false)]);
        let found = schemas(&[broken("FlowSchema", "exempt"), broken("FlowSchema", "catch-all")]);
        let found: Vec<_> = found
            .iter()
            .map(|schema| (schema.name.as_str(), schema.precedence, schema.level.as_str()))
            .collect();
        assert_eq!(found, [("exempt", 1, "exempt"), ("catch-all", 10000, "catch-all")]);
        let admin = User { groups: vec![User::MASTERS.into()], ..User::default() };
        let anything = Attributes::resource(&admin, "delete", "", "pods");
        assert!(schemas(&[broken("FlowSchema", "exempt")])[0].rules.match_request(&anything));
    }

    #[test]
    fn nobody_comes_before_the_administrators() {
        let schema = |name: &str, precedence: i64| {
            json!({"kind": "FlowSchema", "metadata": {"name": name}, "spec": {"matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": "catch-all"}}})
        };
        let found = schemas(&[schema("b", 1), schema("a", 1), schema("c", 0), schema("z", 10000)]);
        let names: Vec<&str> = found.iter().map(|schema| schema.name.as_str()).collect();
        assert_eq!(names, ["exempt", "a", "b", "catch-all", "z"]);
    }

    #[test]
    fn levels_are_what_their_spec_says() {
        let check = |spec: Value, expected: Option<(u32, Option<u32>, Option<usize>)>| {
            let level = LevelSpec::of(&json!({"metadata": {"name": "l"}, "spec": spec}));
            let found =
                level.map(|l| (l.shares.nominal, l.shares.borrowing_percent, l.queuing.map(|q| q.queues)));
            assert_eq!(found, expected, "{spec}");
        };
        let limited = |limited: Value| json!({"type": "Limited", "limited": limited});
        let queuing = json!({"queues": 4, "handSize": 2, "queueLengthLimit": 3});
        check(
            limited(json!({"nominalConcurrencyShares": 5, "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Queue", "queuing": queuing}})),
            Some((5, Some(0), Some(4))),
        );
        check(limited(json!({"limitResponse": {"type": "Reject"}})), Some((30, None, None)));
        check(limited(json!({"limitResponse": {"type": "Queue"}})), None);
        check(limited(json!({})), None);
        check(json!({"type": "Limited"}), None);
        check(json!({"type": "Exempt", "exempt": {}}), None);
    }

    /// The schema and the level of a request, where there is only what every cluster has.
    fn check(user: &str, groups: &[&str], request: &str, expected: &str) {
        let every = suggested();
        let user =
            User { name: user.into(), groups: groups.iter().map(|&g| g.into()).collect(), ..User::default() };
        let words: Vec<&str> = request.split(' ').collect();
        let attributes = match words[1].strip_prefix('/') {
            Some(_) => Attributes::non_resource(&user, words[0], words[1]),
            None => {
                let (group, resource) = words[1].split_once(':').unwrap_or(("", words[1]));
                let namespace = words.get(2).copied().unwrap_or_default();
                Attributes { namespace, ..Attributes::resource(&user, words[0], group, resource) }
            }
        };
        let schemas = schemas(&every);
        let found = schemas.iter().find(|schema| schema.rules.match_request(&attributes)).unwrap();
        let found = format!("{} {} {}", found.name, found.level, found.distinguisher.flow(&attributes));
        assert_eq!(found.trim_end(), expected, "{} {request}", user.name);
    }

    #[test]
    fn requests_go_where_upstreams_go() {
        let all = "system:authenticated";
        check("root", &["system:masters", all], "delete pods a", "exempt exempt");
        check("jane", &[all], "get /healthz", "probes exempt");
        check("system:anonymous", &["system:unauthenticated"], "get /livez/ping", "probes exempt");
        check(
            "system:anonymous",
            &["system:unauthenticated"],
            "get /version",
            "global-default global-default system:anonymous",
        );
        check("jane", &[all], "list pods a", "global-default global-default jane");
        let scheduler = "system:kube-scheduler";
        check(
            scheduler,
            &[all],
            "update coordination.k8s.io:leases kube-system",
            "system-leader-election leader-election system:kube-scheduler",
        );
        check(scheduler, &[all], "list pods", "kube-scheduler workload-high");
        check(
            "system:kube-controller-manager",
            &[all],
            "create pods a",
            "kube-controller-manager workload-high a",
        );
        let nodes = &["system:nodes", all];
        check(
            "system:node:n",
            nodes,
            "update coordination.k8s.io:leases kube-node-lease",
            "system-node-high node-high system:node:n",
        );
        check("system:node:n", nodes, "get nodes", "system-node-high node-high system:node:n");
        check("system:node:n", nodes, "get secrets a", "system-nodes system system:node:n");
        let accounts = &["system:serviceaccounts", all];
        check(
            "system:serviceaccount:kube-system:x",
            accounts,
            "list pods b",
            "kube-system-service-accounts workload-high b",
        );
        check(
            "system:serviceaccount:a:x",
            accounts,
            "list pods a",
            "service-accounts workload-low system:serviceaccount:a:x",
        );
    }
}
