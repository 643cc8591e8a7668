//! What sbatch is told about a pod: from its annotations and requests, and from who its namespace is. Pure.
//!
//! ```text
//! slurm-job.vk.io/flags ── argv, allow-list ──┐
//! slurm.minik8s.io/…    ── named, checked   ──┼──> options, the later win ──> #SBATCH lines
//! requests, activeDeadlineSeconds           ──┤
//! the namespace's user, account, QOS        ──┘
//! ```
//!
//! Nothing here reaches a shell, and no value can be more than one: what is not a plain word is refused by name.

use super::refusal::Refusal;
use super::site::{IDENTITY_FLAGS, Identity, SiteConfig, is_word};
use api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Annotations of ours begin with this.
pub const PREFIX: &str = "slurm.minik8s.io/";
/// Flags of sbatch, as interLink's plugin has them.
pub const FLAGS: &str = "slurm-job.vk.io/flags";
/// Annotations of interLink's plugin that this node does not carry out begin with this, but for those that it does.
const VK_PREFIX: &str = "slurm-job.vk.io/";
/// Those that it does.
const VK_KNOWN: [&str; 5] = ["flags", "mpi-flags", "singularity-mounts", "singularity-options", "image-root"];

/// What each of our annotations is to sbatch. Others are not options: the result's file and the source.
const NAMED: [(&str, &str); 6] = [
    ("partition", "partition"),
    ("nodes", "nodes"),
    ("ntasks-per-node", "ntasks-per-node"),
    ("cpus-per-task", "cpus-per-task"),
    ("time", "time"),
    ("constraint", "constraint"),
];
const OTHERS: [&str; 5] = ["gpus", "gpu-type", "output", "code-path", "code"];

/// Options of sbatch, by their long names.
pub type Options = BTreeMap<String, String>;

/// Works them out.
pub fn of(pod: &Pod, site: &SiteConfig, identity: &Identity) -> Result<Options, Refusal> {
    let mut options = Options::new();
    if let Some(partition) = &site.partition {
        options.insert("partition".into(), partition.clone());
    }
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    if let Some(flags) = annotations.get(FLAGS) {
        options.extend(flags_of(flags, site)?);
    }
    for (key, value) in &annotations {
        if let Some(name) = key.strip_prefix(VK_PREFIX)
            && !VK_KNOWN.contains(&name)
        {
            return Err(Refusal::annotation(key, "is not known to this node"));
        }
        let Some(name) = key.strip_prefix(PREFIX) else { continue };
        if let Some((_, option)) = NAMED.iter().find(|(known, _)| *known == name) {
            checked(value).map_err(|why| Refusal::annotation(key, why))?;
            options.insert((*option).to_owned(), value.clone());
        } else if !OTHERS.contains(&name) {
            return Err(Refusal::annotation(key, "is not known to this node"));
        }
    }
    requests(pod, site, &annotations, &mut options)?;
    let spec = pod.spec.as_ref();
    if let Some(seconds) = spec.and_then(|spec| spec.active_deadline_seconds) {
        options.insert("time".into(), minutes(seconds));
    }
    // Last, so that nothing above can have said it.
    for (option, value) in [("account", &identity.account), ("qos", &identity.qos)] {
        options.remove(option);
        options.extend(value.clone().map(|value| (option.to_owned(), value)));
    }
    Ok(options)
}

/// How many tasks a job has; more than one are started by srun.
pub fn tasks(options: &Options) -> u64 {
    let count = |name: &str| options.get(name).and_then(|value| value.parse::<u64>().ok());
    let nodes = count("nodes").unwrap_or(1);
    count("ntasks").unwrap_or_else(|| nodes * count("ntasks-per-node").unwrap_or(1)).max(nodes)
}

/// SLURM counts minutes, and ends a job in the minute after.
fn minutes(seconds: i64) -> String {
    let seconds = seconds.max(1);
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// What all containers ask for together; an init container runs alone.
fn requests(
    pod: &Pod,
    site: &SiteConfig,
    annotations: &BTreeMap<String, String>,
    options: &mut Options,
) -> Result<(), Refusal> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let total = |resource: &str| {
        let sum: i128 = spec.containers.iter().map(|container| asked(container, resource)).sum();
        let first = spec.init_containers.iter().flatten().map(|container| asked(container, resource)).max();
        sum.max(first.unwrap_or(0))
    };
    let whole = |milli: i128| (milli + 999) / 1000;
    let cpus = whole(total("cpu"));
    // The seed says both, and means the same.
    if cpus > 0 && !annotations.contains_key(&format!("{PREFIX}cpus-per-task")) {
        options.insert("cpus-per-task".into(), cpus.to_string());
    }
    let bytes = whole(total("memory"));
    if bytes > 0 {
        options.insert("mem".into(), format!("{}M", (bytes + (1 << 20) - 1) >> 20));
    }
    let kind = annotations.get(&format!("{PREFIX}gpu-type"));
    if let Some(kind) = kind.filter(|kind| !is_word(kind)) {
        return Err(Refusal::annotation(&format!("{PREFIX}gpu-type"), &format!("{kind:?} is not a name")));
    }
    let mut gres = Vec::new();
    for (resource, name) in &site.gpus {
        let count = whole(total(resource));
        if count > 0 {
            let typed = kind.filter(|_| !name.contains(':')).map(|kind| format!(":{kind}"));
            gres.push(format!("{name}{}:{count}", typed.unwrap_or_default()));
        }
    }
    if !gres.is_empty() {
        options.insert("gres".into(), gres.join(","));
        options.remove("gpus");
        options.remove("gpus-per-node");
    }
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let Some(resources) = &container.resources else { continue };
        let named = resources.requests.iter().chain(&resources.limits).flat_map(BTreeMap::keys);
        for resource in named {
            let is_known = matches!(resource.as_str(), "cpu" | "memory") || site.gpus.contains_key(resource);
            if !is_known {
                return Err(Refusal::container(
                    container,
                    &format!("resources: {resource} is not in the site's table"),
                ));
            }
        }
    }
    Ok(())
}

/// In thousandths.
fn asked(container: &Container, resource: &str) -> i128 {
    let Some(resources) = &container.resources else { return 0 };
    let find = |list: &Option<BTreeMap<String, _>>| {
        let quantity: Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
            list.as_ref().and_then(|list| list.get(resource)).cloned();
        quantity
            .and_then(|quantity| quantity.0.parse::<Quantity>().ok())
            .map(|quantity| quantity.milli_value())
    };
    find(&resources.requests).or_else(|| find(&resources.limits)).map_or(0, i128::from)
}

/// Parses flags as a shell would split them, and takes those that the site allows.
fn flags_of(text: &str, site: &SiteConfig) -> Result<Options, Refusal> {
    let wrong = |what: &str| Refusal::annotation(FLAGS, what);
    let words = words(text).map_err(wrong)?;
    let mut options = Options::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, value) = if let Some(long) = word.strip_prefix("--") {
            match long.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (long.to_owned(), None),
            }
        } else if let Some(short) = word.strip_prefix('-') {
            let mut letters = short.chars();
            let letter = letters.next().ok_or_else(|| wrong("- is not a flag"))?;
            let name = long_name(letter)
                .ok_or_else(|| wrong(&format!("-{letter} is not a flag that this site allows")))?;
            let rest = letters.as_str();
            (name.to_owned(), (!rest.is_empty()).then(|| rest.to_owned()))
        } else {
            return Err(wrong(&format!("{word:?} is not a flag")));
        };
        let is_allowed = site.allowed_flags.contains(&name) && !IDENTITY_FLAGS.contains(&name.as_str());
        if !is_allowed {
            return Err(wrong(&format!("--{name} is not a flag that this site allows")));
        }
        let value = value.or_else(|| words.next()).ok_or_else(|| wrong(&format!("--{name} has no value")))?;
        checked(&value).map_err(|why| wrong(&format!("--{name}: {why}")))?;
        options.insert(name, value);
    }
    Ok(options)
}

fn long_name(letter: char) -> Option<&'static str> {
    Some(match letter {
        't' => "time",
        'c' => "cpus-per-task",
        'N' => "nodes",
        'n' => "ntasks",
        'p' => "partition",
        'C' => "constraint",
        'G' => "gpus",
        _ => return None,
    })
}

/// A value that is one word on a line of its own, for sbatch as for everybody else.
fn checked(value: &str) -> Result<(), &'static str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_.,:=+*&|()[]@/-".contains(c);
    if value.is_empty() || value.len() > 256 {
        return Err("is empty, or longer than 256 characters");
    }
    if value.starts_with('-') || !value.chars().all(is_good) {
        return Err("has characters that a value of sbatch never has");
    }
    Ok(())
}

/// Words between blanks; quotes keep blanks. A line end is no blank: it would begin another line of the script.
pub(super) fn words(text: &str) -> Result<Vec<String>, &'static str> {
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err("has a line end, or another control character");
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("has a quote that nothing closes");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn site() -> SiteConfig {
        SiteConfig::parse(
            "dataRoot: /s\nnamespaces: {'*': {}}\ngpus: {nvidia.com/gpu: gpu, nvidia.com/mig-1g.5gb: 'gpu:1g.5gb', \
             minik8s.io/shard: shard}\n",
        )
        .expect("a site")
    }

    fn options(annotations: Value, spec: Value) -> Result<String, String> {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}),
        )
        .expect("a pod");
        let identity = Identity { user: None, account: Some("acc".into()), qos: None };
        let found = of(&pod, &site(), &identity).map_err(|refusal| refusal.message)?;
        Ok(found.iter().map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    fn container(limits: Value) -> Value {
        json!({"containers": [{"name": "c", "resources": {"limits": limits}}]})
    }

    #[test]
    fn requests_win_over_flags_and_the_namespace_over_all() {
        let flags = json!({"slurm-job.vk.io/flags": "--time=10 --mem 1G -c2 --gres=gpu:9"});
        let asked = container(json!({"cpu": "1500m", "memory": "200Mi", "nvidia.com/gpu": "2"}));
        let said = options(flags, asked);
        assert_eq!(said.as_deref(), Ok("--account=acc --cpus-per-task=2 --gres=gpu:2 --mem=200M --time=10"));
    }

    #[test]
    fn gpus_have_types_profiles_and_shares() {
        let of = |annotations, limits| options(annotations, container(limits)).expect("options");
        let typed = json!({"slurm.minik8s.io/gpu-type": "a100"});
        assert_eq!(of(typed.clone(), json!({"nvidia.com/gpu": "1"})), "--account=acc --gres=gpu:a100:1");
        assert_eq!(of(typed, json!({"nvidia.com/mig-1g.5gb": "1"})), "--account=acc --gres=gpu:1g.5gb:1");
        assert_eq!(of(json!({}), json!({"minik8s.io/shard": "3"})), "--account=acc --gres=shard:3");
    }

    #[test]
    fn the_seeds_numbers_are_sbatchs() {
        let seeds = json!({
            "slurm.minik8s.io/partition": "dgx2", "slurm.minik8s.io/nodes": "2",
            "slurm.minik8s.io/ntasks-per-node": "3", "slurm.minik8s.io/cpus-per-task": "6",
            "slurm.minik8s.io/output": "result", "slurm.minik8s.io/code-path": "/root/add.cu",
        });
        let said = options(seeds, container(json!({"cpu": "6"}))).expect("options");
        assert_eq!(said, "--account=acc --cpus-per-task=6 --nodes=2 --ntasks-per-node=3 --partition=dgx2");
    }

    #[test]
    fn nobody_becomes_somebody_else_by_flags() {
        for (flags, said) in [
            ("--uid=0", "--uid is not a flag"),
            ("--ui=0", "--ui is not a flag"),
            ("--account=rich", "--account is not a flag"),
            ("-A rich", "-A is not a flag"),
            ("--wrap=id", "--wrap is not a flag"),
            ("--time=1\n#SBATCH --uid=0", "line end"),
            ("--time=1;id", "characters"),
            ("--time='1 --uid=0'", "characters"),
            ("--time=$(id)", "characters"),
            ("--time --uid=0", "characters"),
            ("--constraint='a", "nothing closes"),
            ("script.sh", "is not a flag"),
            ("--time", "has no value"),
        ] {
            let refused =
                options(json!({"slurm-job.vk.io/flags": flags}), container(json!({}))).expect_err(flags);
            assert!(refused.contains(said), "{flags}: {refused}");
        }
        for (name, value) in
            [("partition", "a b"), ("time", "1\n2"), ("colour", "red"), ("gpu-type", "a:b"), ("nodes", "")]
        {
            let key = format!("slurm.minik8s.io/{name}");
            assert!(options(json!({ key.clone(): value }), container(json!({}))).is_err(), "{key}={value}");
        }
        assert!(options(json!({}), container(json!({"example.com/fpga": "1"}))).is_err());
    }

    #[test]
    fn a_deadline_is_a_time_limit() {
        let mut spec = container(json!({}));
        spec["activeDeadlineSeconds"] = json!(3725);
        assert_eq!(options(json!({}), spec).as_deref(), Ok("--account=acc --time=1:02:05"));
    }

    #[test]
    fn more_than_one_task_is_counted() {
        let count = |options: &[(&str, &str)]| {
            tasks(&options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[("nodes", "2")]), 2);
        assert_eq!(count(&[("nodes", "2"), ("ntasks-per-node", "3")]), 6);
        assert_eq!(count(&[("ntasks", "5")]), 5);
    }
}
