//! Which pods of a node are evicted, and which speak against draining it.

use anyhow::{Result, bail};
use jiff::Timestamp;
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// What the user allowed.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub ignore_daemonsets: bool,
    pub delete_emptydir_data: bool,
    pub force: bool,
    /// Pods that have been ending for longer are left alone, in seconds; 0 is none.
    pub skip_ending_for: u64,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub struct Choice {
    pub evict: Vec<Value>,
    pub warnings: Vec<String>,
}

/// Why a pod is left alone, or what speaks against evicting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Evict,
    EvictAnyway(&'static str),
    Leave,
    LeaveAnyway(&'static str),
    Against(&'static str),
}

const DAEMON_SETS: &str = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const LOCAL_STORAGE: &str = "cannot delete Pods with local storage (use --delete-emptydir-data to override)";
const NOBODYS: &str = "cannot delete Pods that declare no controller (use --force to override)";

/// Chooses among pods, each with whether the DaemonSet that it says it is of is gone.
pub fn choose(pods: &[(Value, bool)], rules: &Rules) -> Result<Choice> {
    let mut choice = Choice { evict: Vec::new(), warnings: Vec::new() };
    let (mut against, mut warned): (Vec<(&str, Vec<String>)>, Vec<(&str, Vec<String>)>) =
        (Vec::new(), Vec::new());
    for (pod, is_orphaned) in pods {
        let name = format!(
            "{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap_or_default(),
            pod["metadata"]["name"].as_str().unwrap_or_default()
        );
        match verdict(pod, *is_orphaned, rules) {
            Verdict::Evict => choice.evict.push(pod.clone()),
            Verdict::EvictAnyway(why) => {
                choice.evict.push(pod.clone());
                note(&mut warned, why, name);
            }
            Verdict::Leave => {}
            Verdict::LeaveAnyway(why) => note(&mut warned, why, name),
            Verdict::Against(why) => note(&mut against, why, name),
        }
    }
    let shown = |(why, names): &(&str, Vec<String>)| format!("{why}: {}", names.join(", "));
    choice.warnings = warned.iter().map(shown).collect();
    match against.iter().map(shown).collect::<Vec<_>>().as_slice() {
        [] => Ok(choice),
        [one] => bail!("{one}"),
        several => bail!("[{}]", several.join(", ")),
    }
}

fn note(notes: &mut Vec<(&'static str, Vec<String>)>, why: &'static str, name: String) {
    match notes.iter_mut().find(|(other, _)| *other == why) {
        Some((_, names)) => names.push(name),
        None => notes.push((why, vec![name])),
    }
}

fn verdict(pod: &Value, is_orphaned: bool, rules: &Rules) -> Verdict {
    let metadata = &pod["metadata"];
    let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if metadata["annotations"].get(MIRROR).is_some() || is_ending_for_long(pod, rules) {
        return Verdict::Leave;
    }
    if daemon_set_of(pod).is_some() && !has_ended {
        if is_orphaned {
            return if rules.force {
                Verdict::EvictAnyway("deleting Pods that declare no controller")
            } else {
                Verdict::Against(NOBODYS)
            };
        }
        return if rules.ignore_daemonsets {
            Verdict::LeaveAnyway("ignoring DaemonSet-managed Pods")
        } else {
            Verdict::Against(DAEMON_SETS)
        };
    }
    if has_ended {
        return Verdict::Evict;
    }
    let has_local_storage = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|volume| volume.get("emptyDir").is_some());
    if has_local_storage && !rules.delete_emptydir_data {
        return Verdict::Against(LOCAL_STORAGE);
    }
    if controller(pod).is_none() {
        return if rules.force {
            Verdict::EvictAnyway("deleting Pods that declare no controller")
        } else {
            Verdict::Against(NOBODYS)
        };
    }
    if has_local_storage { Verdict::EvictAnyway("deleting Pods with local storage") } else { Verdict::Evict }
}

fn is_ending_for_long(pod: &Value, rules: &Rules) -> bool {
    let at = pod["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    at.is_some_and(|at| {
        let seconds = rules.now.duration_since(at).as_secs();
        rules.skip_ending_for > 0 && u64::try_from(seconds).unwrap_or(0) > rules.skip_ending_for
    })
}

fn controller(pod: &Value) -> Option<&Value> {
    pod["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// The DaemonSet that a pod says it is of.
pub fn daemon_set_of(pod: &Value) -> Option<&str> {
    controller(pod).filter(|owner| owner["kind"] == "DaemonSet")?["name"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, owner: Option<&str>, more: Value) -> (Value, bool) {
        let mut pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": {"phase": "Running"}});
        if let Some(kind) = owner {
            pod["metadata"]["ownerReferences"] = json!([{"controller": true, "kind": kind, "name": "owner"}]);
        }
        for (pointer, value) in more.as_object().expect("pointers") {
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
            pod.pointer_mut(parent).expect(parent)[field] = value.clone();
        }
        (pod, false)
    }

    fn rules() -> Rules {
        Rules {
            ignore_daemonsets: false,
            delete_emptydir_data: false,
            force: false,
            skip_ending_for: 0,
            now: "2026-01-01T00:10:00Z".parse().expect("a time"),
        }
    }

    fn evicted(pods: &[(Value, bool)], rules: &Rules) -> Vec<String> {
        let choice = choose(pods, rules).expect("allowed");
        choice.evict.iter().map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn pods_of_replica_sets_go_and_mirrors_stay() {
        let mirror = json!({"/metadata/annotations": {MIRROR: "x"}});
        let pods = [pod("web", Some("ReplicaSet"), json!({})), pod("static", Some("Node"), mirror)];
        assert_eq!(evicted(&pods, &rules()), ["web"]);
    }

    #[test]
    fn what_would_be_lost_speaks_against_draining() {
        let empty = json!({"/spec/volumes": [{"emptyDir": {}}]});
        let pods = [
            pod("agent", Some("DaemonSet"), json!({})),
            pod("cache", Some("ReplicaSet"), empty),
            pod("alone", None, json!({})),
        ];
        let error = choose(&pods, &rules()).expect_err("refused").to_string();
        assert_eq!(
            error,
            format!(
                "[{DAEMON_SETS}: default/agent, {LOCAL_STORAGE}: default/cache, {NOBODYS}: default/alone]"
            )
        );
        let allowed = Rules { ignore_daemonsets: true, delete_emptydir_data: true, force: true, ..rules() };
        assert_eq!(evicted(&pods, &allowed), ["cache", "alone"]);
        let warnings = choose(&pods, &allowed).expect("allowed").warnings;
        assert_eq!(warnings[0], "ignoring DaemonSet-managed Pods: default/agent");
    }

    #[test]
    fn what_has_ended_or_ends_does_not_hold_up() {
        let ended = json!({"/status/phase": "Succeeded", "/spec/volumes": [{"emptyDir": {}}]});
        let ending = json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pods = [pod("done", None, ended), pod("ending", Some("ReplicaSet"), ending)];
        assert_eq!(evicted(&pods, &rules()), ["done", "ending"]);
        assert_eq!(evicted(&pods, &Rules { skip_ending_for: 60, ..rules() }), ["done"]);
    }

    #[test]
    fn a_pod_whose_daemon_set_is_gone_is_nobodys() {
        let (orphan, _) = pod("orphan", Some("DaemonSet"), json!({}));
        let pods = [(orphan, true)];
        assert!(choose(&pods, &Rules { ignore_daemonsets: true, ..rules() }).is_err());
        assert_eq!(evicted(&pods, &Rules { force: true, ..rules() }), ["orphan"]);
    }
}
