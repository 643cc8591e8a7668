//! Which pod has to go when the node is short of something, and which pods use more than they may. Pure.

use super::thresholds::{Met, Signal};
use api::Quantity;
use api::kinds::pod_spec::requests::pod_requests;
use api::quantity::Format;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// From this priority on a pod is the system's.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What one container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerUse {
    /// Memory that cannot be given back easily.
    pub memory_bytes: u64,
    /// Its own files and its log.
    pub disk_bytes: u64,
    /// How many files that are.
    pub inodes: u64,
    /// Processes.
    pub pids: u64,
}

/// What a pod uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodUse {
    /// Which.
    pub pod: Arc<Pod>,
    /// Its containers, by name.
    pub containers: BTreeMap<String, ContainerUse>,
    /// Bytes in each of its emptyDir volumes, by name.
    pub volumes: BTreeMap<String, u64>,
    /// Files in them.
    pub volume_inodes: u64,
}

/// A pod that has to go.
#[derive(Debug, Clone, PartialEq)]
pub struct Eviction {
    /// Which.
    pub pod: Arc<Pod>,
    /// Why, as its status says it.
    pub message: String,
    /// The node's need, not the pod's own fault.
    pub for_the_node: bool,
}

impl PodUse {
    fn sum(&self, of: impl Fn(&ContainerUse) -> u64) -> u64 {
        self.containers.values().map(of).sum()
    }

    fn disk_bytes(&self) -> u64 {
        self.sum(|c| c.disk_bytes) + self.volumes.values().sum::<u64>()
    }

    /// What it uses of what is missing.
    fn used(&self, signal: Signal) -> u64 {
        match signal {
            Signal::Memory => self.sum(|c| c.memory_bytes),
            Signal::Disk | Signal::ImageDisk => self.disk_bytes(),
            Signal::Inodes | Signal::ImageInodes => self.sum(|c| c.inodes) + self.volume_inodes,
            Signal::Pids => self.sum(|c| c.pids),
        }
    }

    /// What it asked for of what is missing.
    fn requested(&self, signal: Signal) -> u64 {
        let spec = self.pod.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok());
        let requests = pod_requests(&spec.unwrap_or_default());
        let amount = requests.get(signal.resource()).map_or(0, Quantity::value);
        u64::try_from(amount).unwrap_or(0)
    }
}

/// Whether the node may never be without it.
pub fn is_critical(pod: &Pod) -> bool {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    crate::plan::is_static(pod) || priority >= CRITICAL_PRIORITY
}

/// The pod that goes: those first that use more than they asked for, then those of lower priority, then those that use
/// the most beyond what they asked for.
pub fn choose(met: &Met, pods: Vec<PodUse>) -> Option<Eviction> {
    let signal = met.signal;
    let evictable = pods.into_iter().filter(|of| !is_critical(&of.pod));
    let first = evictable.min_by_key(|of| {
        let (used, requested) = (of.used(signal), of.requested(signal));
        let exceeds = used > requested && signal != Signal::Pids;
        let priority = of.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        (!exceeds, priority, Reverse(i128::from(used) - i128::from(requested)))
    })?;
    let message = message(met, &first);
    Some(Eviction { pod: first.pod, message, for_the_node: true })
}

fn message(met: &Met, chosen: &PodUse) -> String {
    let resource = met.signal.resource();
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        met.least, met.available
    );
    for container in containers(&chosen.pod) {
        let Some(used) = chosen.containers.get(&container.name) else { continue };
        let used = match met.signal {
            Signal::Memory => used.memory_bytes,
            Signal::Disk | Signal::ImageDisk => used.disk_bytes,
            _ => continue,
        };
        let asked = amount(container, false, resource).unwrap_or_default();
        if used > u64::try_from(asked.value()).unwrap_or(0) {
            let _ = write!(
                text,
                "Container {} was using {}, request is {asked}, has larger consumption of {resource}. ",
                container.name,
                kib(used),
            );
        }
    }
    text
}

/// The pods that use more of the disk than they may, whatever the node has.
pub fn over_their_limits(pods: &[PodUse]) -> Vec<Eviction> {
    let over = pods.iter().filter_map(|of| {
        let message = over_a_volume(of).or_else(|| over_all(of)).or_else(|| over_a_container(of))?;
        Some(Eviction { pod: of.pod.clone(), message, for_the_node: false })
    });
    over.collect()
}

fn over_a_volume(of: &PodUse) -> Option<String> {
    let volumes = of.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let most: Quantity = limit.0.parse().ok()?;
        let used = *of.volumes.get(&volume.name)?;
        (most.value() > 0 && exceeds(used, &most)).then(|| {
            format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\". ", volume.name, limit.0)
        })
    })
}

/// Only where every container has a limit is there one of the pod.
fn over_all(of: &PodUse) -> Option<String> {
    let limits: Option<Vec<Quantity>> =
        containers(&of.pod).map(|container| amount(container, true, "ephemeral-storage")).collect();
    let limits = limits.filter(|limits| !limits.is_empty())?;
    let most: i64 = limits.iter().map(Quantity::value).sum();
    let most = Quantity::from_value(most).with_format(limits[0].format());
    exceeds(of.disk_bytes(), &most)
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {most}. "))
}

fn over_a_container(of: &PodUse) -> Option<String> {
    containers(&of.pod).find_map(|container| {
        let most = amount(container, true, "ephemeral-storage")?;
        let used = of.containers.get(&container.name)?.disk_bytes;
        exceeds(used, &most).then(|| {
            format!("Container {} exceeded its local ephemeral storage limit \"{most}\". ", container.name)
        })
    })
}

/// Whether a pod has a limit of this kind at all: only then its files are counted.
pub fn has_disk_limits(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let limited = |dir: &k8s_openapi::api::core::v1::EmptyDirVolumeSource| dir.size_limit.is_some();
    volumes.into_iter().any(|volume| volume.empty_dir.as_ref().is_some_and(limited))
        || containers(pod).any(|container| amount(container, true, "ephemeral-storage").is_some())
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten().filter(|c| crate::plan::is_sidecar(c));
        spec.containers.iter().chain(sidecars)
    })
}

fn amount(container: &Container, limit: bool, resource: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let list = if limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
    list?.get(resource)?.0.parse().ok()
}

fn exceeds(used: u64, most: &Quantity) -> bool {
    u64::try_from(most.value()).is_ok_and(|most| used > most)
}

fn kib(bytes: u64) -> Quantity {
    Quantity::from_value(i64::try_from(bytes).unwrap_or(i64::MAX)).with_format(Format::BinarySi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MI: u64 = 1 << 20;

    fn pod(name: &str, spec: Value) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
                .expect("a pod"),
        )
    }

    /// A pod of one container that asks for memory and disk, and what it uses of each.
    fn uses(name: &str, priority: i32, asks: &str, used: u64) -> PodUse {
        let requests = json!({"memory": asks, "ephemeral-storage": asks});
        let spec =
            json!({"priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}]});
        let container =
            ContainerUse { memory_bytes: used, disk_bytes: used, inodes: used / MI, pids: used / MI };
        PodUse { pod: pod(name, spec), containers: [("c".to_owned(), container)].into(), ..PodUse::default() }
    }

    fn met(signal: Signal) -> Met {
        Met { signal, least: "100Mi".parse().unwrap(), available: "50Mi".parse().unwrap() }
    }

    #[track_caller]
    fn check(signal: Signal, pods: Vec<PodUse>, expected: Option<&str>) {
        let chosen = choose(&met(signal), pods);
        assert_eq!(chosen.and_then(|chosen| chosen.pod.metadata.name.clone()).as_deref(), expected);
    }

    #[test]
    fn who_goes_first() {
        for signal in [Signal::Memory, Signal::Disk, Signal::ImageDisk] {
            check(signal, vec![], None);
            // More than was asked for comes before everything.
            check(
                signal,
                vec![uses("within", -5, "90Mi", 80 * MI), uses("over", 9, "10Mi", 11 * MI)],
                Some("over"),
            );
            // Then priority, then how much.
            check(signal, vec![uses("high", 9, "0", 99 * MI), uses("low", 1, "0", MI)], Some("low"));
            check(
                signal,
                vec![uses("small", 0, "10Mi", 20 * MI), uses("large", 0, "50Mi", 70 * MI)],
                Some("large"),
            );
            // All within their requests: who is nearest to it.
            check(
                signal,
                vec![uses("far", 0, "90Mi", 10 * MI), uses("near", 0, "90Mi", 80 * MI)],
                Some("near"),
            );
        }
        // What cannot be asked for: by priority and use alone.
        for signal in [Signal::Inodes, Signal::Pids] {
            check(signal, vec![uses("few", 0, "0", MI), uses("many", 0, "99Mi", 2 * MI)], Some("many"));
            check(signal, vec![uses("few", 0, "0", MI), uses("many", 1, "0", 2 * MI)], Some("few"));
        }
    }

    #[test]
    fn the_system_stays() {
        check(
            Signal::Memory,
            vec![uses("system", 2_000_001_000, "0", 99 * MI), uses("app", 0, "9Mi", MI)],
            Some("app"),
        );
        check(Signal::Memory, vec![uses("system", 2_000_001_000, "0", 99 * MI)], None);
        let mut of = uses("static", 0, "0", 99 * MI);
        let mut own = (*of.pod).clone();
        own.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
        of.pod = Arc::new(own);
        check(Signal::Memory, vec![of], None);
    }

    #[test]
    fn why_is_told_as_upstream_tells_it() {
        let told = |signal, of| choose(&met(signal), vec![of]).expect("one").message;
        assert_eq!(
            told(Signal::Memory, uses("a", 0, "10Mi", 20 * MI)),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using \
             20Mi, request is 10Mi, has larger consumption of memory. "
        );
        assert_eq!(
            told(Signal::Inodes, uses("a", 0, "10Mi", 20 * MI)),
            "The node was low on resource: inodes. Threshold quantity: 100Mi, available: 50Mi. "
        );
    }

    #[test]
    fn limits_of_volumes_pods_and_containers() {
        let spec = |limit: Option<&str>, size: Option<&str>| {
            let limits = limit.map_or(json!({}), |limit| json!({"ephemeral-storage": limit}));
            json!({
                "containers": [{"name": "c", "resources": {"limits": limits}}, {"name": "d"}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": size}}],
            })
        };
        let of = |spec: Value, own: u64, volume: u64| PodUse {
            pod: pod("p", spec),
            containers: [("c".to_owned(), ContainerUse { disk_bytes: own, ..ContainerUse::default() })]
                .into(),
            volumes: [("v".to_owned(), volume)].into(),
            ..PodUse::default()
        };
        let check = |of: PodUse, expected: Option<&str>| {
            let found = over_their_limits(&[of]);
            assert_eq!(found.first().map(|eviction| eviction.message.as_str()), expected);
        };
        check(of(spec(None, None), 99 * MI, 99 * MI), None);
        check(of(spec(None, Some("9Mi")), 99 * MI, 9 * MI), None);
        check(
            of(spec(None, Some("9Mi")), 0, 10 * MI),
            Some("Usage of EmptyDir volume \"v\" exceeds the limit \"9Mi\". "),
        );
        check(
            of(spec(Some("9Mi"), None), 10 * MI, 0),
            Some("Container c exceeded its local ephemeral storage limit \"9Mi\". "),
        );
        let mut all = spec(Some("9Mi"), None);
        all["containers"][1]["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
        check(
            of(all, 8 * MI, 3 * MI),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "),
        );
        assert!(
            !has_disk_limits(&pod("p", spec(None, None)))
                && has_disk_limits(&pod("p", spec(None, Some("1"))))
        );
    }
}
