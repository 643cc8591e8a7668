//! Answers that still hold: what nodes said to pods of a class, and what it would take to make room there, until something
//! changes on the node.
//!
//! ```text
//! changed: n3 n7 n3 │ n9          an answer that has seen up to here asks n9 again, and believes the rest
//! ```
//!
//! Of a thousand equal pods that must preempt, the first asks every node, and each other one only those where the one before
//! changed something. Only kept for pods where nothing but the node itself decides ([`Cluster::is_local`]); what is decided
//! is the same as without (see the tests).

use crate::cluster::nodes::Nodes;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::filter::View;
use crate::place::Refusal;
use crate::preempt::Room;
use crate::reasons::Reason;
use std::collections::HashMap;
use std::sync::Arc;

/// For so many classes answers are kept, each some hundred bytes per node.
const MOST_CLASSES: usize = 16;
/// In a small cluster so many changes are kept.
const LEAST_CHANGES: usize = 256;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Nodes that changed since the oldest answer, in order.
    changed: Vec<NodeId>,
    by_class: HashMap<u32, Answer>,
}

#[derive(Debug)]
struct Answer {
    /// How many of the changes are in it.
    seen: usize,
    refusal: Arc<Refusal>,
    /// In the order of nodes.
    verdicts: Vec<(NodeId, Reason)>,
    /// What it would take, in the order of nodes, as far as it was asked.
    rooms: Vec<Option<Result<Room, Reason>>>,
}

impl Answers {
    /// Something about a node changed: its amounts, its pods, or who waits for a place on it.
    pub(crate) fn node_changed(&mut self, node: NodeId, nodes: &Nodes) {
        if self.by_class.is_empty() {
            return;
        }
        if self.changed.len() >= nodes.order.len().max(LEAST_CHANGES) {
            // To ask all is no more work.
            self.clear();
            return;
        }
        self.changed.push(node);
    }

    /// Something else changed.
    pub(crate) fn clear(&mut self) {
        self.by_class.clear();
        self.changed.clear();
    }

    /// The number of a class will be another's.
    pub(crate) fn forget_class(&mut self, class: u32) {
        self.by_class.remove(&class);
    }

    fn keep(&mut self, class: u32, mut answer: Answer) {
        if self.by_class.len() >= MOST_CLASSES {
            self.clear();
        }
        answer.seen = self.changed.len();
        self.by_class.insert(class, answer);
    }
}

impl Cluster {
    /// The refusal that pods of this class got before, brought up to date; `None` if there is none, or it no longer holds.
    pub(crate) fn still_refused(&mut self, view: &View, pod: PodId) -> Option<Arc<Refusal>> {
        let mut answer = self.answers.by_class.remove(&view.class)?;
        if !self.keeps_answers(view, pod) {
            self.answers.by_class.insert(view.class, answer);
            return None;
        }
        let changed = self.answers.changed[answer.seen..].to_vec();
        let mut is_other = false;
        for node in changed {
            let Some(position) = self.nodes.position(node) else { continue };
            let reason = self.check_reserved(view, pod, node).err()?;
            let (_, before) = &mut answer.verdicts[position];
            is_other |= *before != reason;
            *before = reason;
            answer.rooms[position] = None;
        }
        if is_other {
            answer.refusal = Arc::new(self.refusal(&answer.verdicts));
        }
        let refusal = answer.refusal.clone();
        self.answers.keep(view.class, answer);
        Some(refusal)
    }

    /// Every node refused a pod of this class.
    pub(crate) fn keep_answer(
        &mut self,
        view: &View,
        pod: PodId,
        refusal: &Arc<Refusal>,
        verdicts: Vec<(NodeId, Reason)>,
    ) {
        if self.keeps_answers(view, pod) {
            let rooms = vec![None; verdicts.len()];
            let answer = Answer { seen: 0, refusal: refusal.clone(), verdicts, rooms };
            self.answers.keep(view.class, answer);
        }
    }

    /// Takes what is known about rooms for pods of this class, by the position of nodes; all unknown, if nothing is kept.
    pub(crate) fn take_rooms(&mut self, view: &View, pod: PodId) -> Vec<Option<Result<Room, Reason>>> {
        let is_usable = self.keeps_answers(view, pod);
        let changes = self.answers.changed.len();
        match self.answers.by_class.get_mut(&view.class) {
            Some(answer) if is_usable && answer.seen == changes => std::mem::take(&mut answer.rooms),
            _ => vec![None; self.nodes.order.len()],
        }
    }

    /// Gives back what was taken, with what was learnt.
    pub(crate) fn keep_rooms(&mut self, view: &View, rooms: Vec<Option<Result<Room, Reason>>>) {
        if let Some(answer) = self.answers.by_class.get_mut(&view.class)
            && answer.rooms.is_empty()
        {
            answer.rooms = rooms;
        }
    }

    /// Whether an answer to this pod is one to every pod of its class. Where it waits for a place itself, it is not.
    fn keeps_answers(&self, view: &View, pod: PodId) -> bool {
        self.is_local(view) && view.plan.names.is_none() && self.pods[pod].nominated.is_none()
    }
}

#[cfg(test)]
mod tests {
    use crate::place::Profile;
    use crate::scheduler::{Decision, Event, Kind, Object, Outcome, Scheduler};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::{BTreeMap, HashMap};

    /// One thing that happens.
    #[derive(Debug, Clone)]
    enum Step {
        /// A node and its CPUs.
        Node(u8, u8),
        DeleteNode(u8),
        /// A pod, the CPUs it asks for, its priority, and whether it tolerates no equal beside it.
        Pod(u8, u8, u8, bool),
        /// When a pod started.
        Started(u8, u8),
        DeletePod(u8),
        /// How many pods may be disrupted.
        Budget(u8),
        /// All that can be decided; whether victims go at once.
        Decide(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..6u8, 2..5u8).prop_map(|(node, cpus)| Step::Node(node, cpus)),
            1 => (0..6u8).prop_map(Step::DeleteNode),
            12 => (0..40u8, 1..4u8, 0..3u8, 0..20u8)
                .prop_map(|(pod, cpus, priority, alone)| Step::Pod(pod, cpus, priority, alone == 0)),
            2 => (0..40u8, 0..9u8).prop_map(|(pod, second)| Step::Started(pod, second)),
            2 => (0..40u8).prop_map(Step::DeletePod),
            1 => (0..3u8).prop_map(Step::Budget),
            6 => any::<bool>().prop_map(Step::Decide),
        ]
    }

    struct World {
        scheduler: Scheduler,
        pods: BTreeMap<String, Value>,
        now_ms: u64,
        /// Whether every answer is forgotten before every decision.
        forgets: bool,
    }

    impl World {
        fn new(forgets: bool) -> World {
            let profiles = HashMap::from([(String::new(), Profile::Default)]);
            World { scheduler: Scheduler::new(profiles, 0, 1), pods: BTreeMap::new(), now_ms: 0, forgets }
        }

        fn set(&mut self, object: Object) {
            self.scheduler.apply(Event::Set(object), self.now_ms);
        }

        fn set_pod(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
            let Some(pod) = self.pods.get_mut(name) else { return };
            change(pod);
            let object = serde_json::from_value(pod.clone()).unwrap();
            self.set(Object::Pod(object));
        }

        fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
            self.pods.remove(name);
            self.scheduler.apply(Event::Delete(kind, namespace.to_owned(), name.to_owned()), self.now_ms);
        }

        /// What was decided, in words.
        fn step(&mut self, step: &Step) -> Vec<String> {
            match *step {
                Step::Node(node, cpus) => {
                    let name = format!("n{node}");
                    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                        "status": {"allocatable": {"cpu": cpus.to_string(), "memory": "8Gi", "pods": "10"}}});
                    self.set(Object::Node(serde_json::from_value(node).unwrap()));
                }
                Step::DeleteNode(node) => self.delete(Kind::Node, "", &format!("n{node}")),
                Step::Pod(pod, cpus, priority, is_alone) => {
                    let name = format!("p{pod}");
                    let term = json!([{"labelSelector": {"matchLabels": {"app": "web"}},
                        "topologyKey": "kubernetes.io/hostname"}]);
                    let mut spec = json!({"priority": priority, "containers": [
                        {"image": "a", "resources": {"requests": {"cpu": cpus.to_string()}}}]});
                    if is_alone {
                        spec["affinity"] = json!({"podAntiAffinity":
                            {"requiredDuringSchedulingIgnoredDuringExecution": term}});
                    }
                    let meta =
                        json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}});
                    self.pods
                        .entry(name.clone())
                        .or_insert(json!({"metadata": meta, "spec": spec, "status": {}}));
                    self.set_pod(&name, |_| {});
                }
                Step::Started(pod, second) => self.set_pod(&format!("p{pod}"), |pod| {
                    pod["status"]["startTime"] = format!("2026-01-01T00:00:0{second}Z").into();
                }),
                Step::DeletePod(pod) => self.delete(Kind::Pod, "default", &format!("p{pod}")),
                Step::Budget(allowed) => {
                    let budget = json!({"metadata": {"name": "b", "namespace": "default"},
                        "spec": {"selector": {"matchLabels": {"app": "web"}}},
                        "status": {"disruptionsAllowed": allowed}});
                    self.set(Object::Selecting(Kind::Budget, serde_json::from_value(budget).unwrap()));
                }
                Step::Decide(go) => return self.decide(go),
            }
            Vec::new()
        }

        fn decide(&mut self, go: bool) -> Vec<String> {
            let mut decided = Vec::new();
            self.now_ms += 60_000;
            loop {
                if self.forgets {
                    self.scheduler.cluster.answers.clear();
                    self.scheduler.cluster.refusals.1.clear();
                }
                let Some(decision) = self.scheduler.next(self.now_ms) else { return decided };
                decided.push(format!("{decision:?}"));
                match decision {
                    Decision::Bind { target, node, claims } => {
                        self.scheduler.bound(&target, &claims, Outcome::Bound, self.now_ms);
                        self.set_pod(&target.name, |pod| pod["spec"]["nodeName"] = node.into());
                    }
                    Decision::Refuse { victims, .. } if go => {
                        victims.iter().for_each(|victim| self.delete(Kind::Pod, "default", &victim.name));
                    }
                    Decision::Refuse { target, nominated, .. } => self.set_pod(&target.name, |pod| {
                        if let Some(node) = nominated {
                            pod["status"]["nominatedNodeName"] = node.into();
                        }
                    }),
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn what_is_remembered_changes_no_decision(steps in proptest::collection::vec(step(), 1..120)) {
            let (mut world, mut forgetful) = (World::new(false), World::new(true));
            for step in &steps {
                prop_assert_eq!(world.step(step), forgetful.step(step), "{:?}", step);
            }
        }
    }
}
