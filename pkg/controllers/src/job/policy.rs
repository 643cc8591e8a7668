//! What a failed pod means for its job, and when some successes are enough.

use super::indexes::Indexes;
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, SuccessPolicy};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// What a failed pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It counts as one failure.
    Counts,
    /// It does not count.
    Ignored,
    /// Its index has failed.
    FailsIndex,
    /// The job has failed, for this reason.
    FailsJob(String),
}

/// What a failed pod means, by the first rule that fits.
pub fn meaning(spec: &JobSpec, pod: &Pod) -> Meaning {
    let rules = spec.pod_failure_policy.as_ref().map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    for (index, rule) in rules.iter().enumerate() {
        let why = if let Some(codes) = &rule.on_exit_codes {
            exited(pod, codes).map(|(container, code)| {
                format!("Container {container} for pod {name} failed with exit code {code} matching FailJob rule at index {index}")
            })
        } else {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut matching = conditions.filter(|condition| {
                rule.on_pod_conditions.iter().flatten().any(|pattern| {
                    pattern.type_ == condition.type_
                        && pattern.status.as_deref().unwrap_or("True") == condition.status
                })
            });
            matching.next().map(|condition| {
                format!("Pod {name} has condition {} matching FailJob rule at index {index}", condition.type_)
            })
        };
        let Some(why) = why else { continue };
        return match rule.action.as_str() {
            "Ignore" => Meaning::Ignored,
            "FailIndex" => Meaning::FailsIndex,
            "FailJob" => Meaning::FailsJob(why),
            _ => Meaning::Counts,
        };
    }
    Meaning::Counts
}

fn exited(pod: &Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut all = containers.chain(status.init_container_statuses.iter().flatten());
    let code = |container: &ContainerStatus| Some(container.state.as_ref()?.terminated.as_ref()?.exit_code);
    let fits = |container: &&ContainerStatus| {
        let is_named = wanted.container_name.as_ref().is_none_or(|name| *name == container.name);
        let is_in = |code: i32| wanted.values.contains(&code) == (wanted.operator == "In");
        is_named && code(container).is_some_and(|code| code != 0 && is_in(code))
    };
    let container = all.find(fits)?;
    Some((container.name.clone(), code(container)?))
}

/// Which rule says that these successes are enough, in words.
pub fn suffices(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: i32) -> Option<String> {
    let rules = policy?.rules.iter().enumerate().filter(|_| succeeded.count() > 0);
    let fits = |(index, rule): (usize, &k8s_openapi::api::batch::v1::SuccessPolicyRule)| {
        let enough = |count: i32| rule.succeeded_count.is_some_and(|wanted| count >= wanted);
        let is_met = match &rule.succeeded_indexes {
            Some(text) => {
                let wanted = Indexes::parse(text, completions);
                let met = wanted.0.intersection(&succeeded.0).count();
                !wanted.0.is_empty()
                    && (met == wanted.0.len() || enough(i32::try_from(met).unwrap_or(i32::MAX)))
            }
            None => enough(succeeded.count()),
        };
        is_met.then(|| format!("Matched rules at index {index}"))
    };
    rules.into_iter().find_map(fits)
}
