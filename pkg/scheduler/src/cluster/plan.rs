//! What is worked out once for a class of pods, before the first of them is placed: its rules for nodes, and the tallies
//! that say where its like and its friends are.

use super::class::{Carried, Class, ClassKey};
use super::{Cluster, NodeId, RuleTable};
use crate::requests::Requests;
use crate::rules::NodeRules;
use crate::terms::{Matcher, Part, Scope, TallySpec, keyed, parse};
use crate::wire;
use api::selector::{LabelSelector, Labels};
use std::collections::HashMap;
use std::sync::Arc;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// How pods of a class are placed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub rules: u32,
    /// The only nodes there are for it, by name.
    pub names: Option<Vec<String>>,
    /// Tallies of pods that match all required terms, one for each term's topology.
    pub affinity: Vec<u32>,
    /// Whether the first of its kind may go anywhere.
    pub is_own_friend: bool,
    pub anti_affinity: Vec<u32>,
    pub preferred: Vec<(u32, i64)>,
    pub hard: Vec<Spread>,
    pub soft: Vec<Spread>,
    /// Whether nodes that lack one of the labels are left out of the spreading.
    pub soft_needs_all: bool,
    pub images: Vec<String>,
    pub wants_most_free_memory: bool,
    /// What the default constraints count, and the version of the owners it was taken from.
    default_selectors: Vec<LabelSelector>,
    owners: u64,
}

/// A constraint on how evenly pods are spread.
#[derive(Debug)]
pub(crate) struct Spread {
    pub tally: u32,
    pub topology: u32,
    pub max_skew: i64,
    pub min_domains: u32,
    pub counts_itself: bool,
    pub is_by_host: bool,
}

/// Services and sets: by default, their pods are spread.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    services: HashMap<String, HashMap<String, wire::Map>>,
    sets: HashMap<(&'static str, String), LabelSelector>,
    version: u64,
}

impl Owners {
    fn selectors(&self, key: &ClassKey, labels: &Labels) -> Vec<LabelSelector> {
        let mut of_services = wire::Map::new();
        for selector in self.services.get(&key.namespace).into_iter().flat_map(HashMap::values) {
            if !selector.is_empty() && selector.iter().all(|(k, v)| labels.get(k) == Some(v)) {
                of_services.extend(selector.clone());
            }
        }
        let mut selectors = Vec::new();
        if !of_services.is_empty() {
            selectors.push(parse(&serde_json::json!({"matchLabels": of_services})));
        }
        if let Some(owner) = &key.controller
            && let Some(kind) =
                ["ReplicaSet", "StatefulSet", "ReplicationController"].into_iter().find(|k| *k == owner.kind)
        {
            let set = self.sets.get(&(kind, super::key(&key.namespace, &owner.name)));
            selectors.extend(set.filter(|selector| !selector.is_everything()).cloned());
        }
        selectors
    }
}

impl Cluster {
    /// Takes over a service.
    pub fn set_service(&mut self, service: wire::Selecting) {
        let selector = serde_json::from_value(service.spec.selector).unwrap_or_default();
        let of_namespace = self.owners.services.entry(service.metadata.namespace).or_default();
        of_namespace.insert(service.metadata.name, selector);
        self.owners.version += 1;
    }

    /// Forgets a service.
    pub fn delete_service(&mut self, namespace: &str, name: &str) {
        if let Some(services) = self.owners.services.get_mut(namespace) {
            services.remove(name);
        }
        self.owners.version += 1;
    }

    /// Takes over a set of pods: `kind` is `ReplicaSet`, `StatefulSet` or `ReplicationController`.
    pub fn set_set(&mut self, kind: &'static str, set: wire::Selecting) {
        let selector = match kind {
            "ReplicationController" => parse(&serde_json::json!({"matchLabels": set.spec.selector})),
            _ => parse(&set.spec.selector),
        };
        let key = super::key(&set.metadata.namespace, &set.metadata.name);
        if self.owners.sets.insert((kind, key), selector.clone()).as_ref() != Some(&selector) {
            self.owners.version += 1;
        }
    }

    /// Forgets a set of pods.
    pub fn delete_set(&mut self, kind: &'static str, key: &str) {
        self.owners.sets.remove(&(kind, key.to_owned()));
        self.owners.version += 1;
    }

    /// The number of a class, with one more user.
    pub(super) fn class(&mut self, key: ClassKey) -> u32 {
        if let Some(id) = self.class_ids.get(&key) {
            self.classes[*id].users += 1;
            return *id;
        }
        let labels: Labels = key.labels.iter().collect();
        let requests = Requests::of(&key.spec);
        let others =
            requests.others.iter().map(|(name, amount)| (self.nodes.resource(name), *amount)).collect();
        let mut carried = Vec::new();
        for (term, refuses, weight) in key.carries() {
            let topology = self.topology(&term.topology_key);
            let (held, is_new) = self.terms.hold(key.held(&term, topology));
            carried.push(Carried { held, refuses, weight });
            if is_new {
                self.tell_concerned(held);
            }
        }
        let counted_by = self
            .terms
            .tallies
            .iter()
            .filter(|(_, tally)| tally.spec.matcher.matches(&key.namespace, &labels, &self.namespaces))
            .map(|(id, _)| id)
            .collect();
        let key = Arc::new(key);
        let id = self.classes.insert(Class {
            labels,
            requests,
            others,
            ports: key.ports(),
            claims: key.claims(),
            carried,
            counted_by,
            concerned: Vec::new(),
            plan: None,
            users: 1,
            key: key.clone(),
        });
        self.class_ids.insert(key, id);
        id
    }

    /// Gives a class up.
    pub(super) fn drop_class(&mut self, id: u32) {
        self.classes[id].users -= 1;
        if self.classes[id].users > 0 {
            return;
        }
        self.drop_plan(id);
        let Some(class) = self.classes.remove(id) else { return };
        self.class_ids.remove(&class.key);
        // Its number will be another's, who was not refused.
        self.refusals.1.remove(&id);
        self.answers.forget_class(id);
        for carried in class.carried {
            if self.terms.let_go(carried.held) {
                for (_, class) in self.classes.iter_mut() {
                    class.concerned.retain(|held| *held != carried.held);
                }
            }
        }
    }

    fn drop_plan(&mut self, id: u32) {
        let Some(plan) = self.classes[id].plan.take() else { return };
        let spreads = plan.hard.iter().chain(&plan.soft).map(|spread| spread.tally);
        let preferred = plan.preferred.iter().map(|(tally, _)| *tally);
        let terms = plan.affinity.iter().chain(&plan.anti_affinity).copied();
        for tally in spreads.chain(preferred).chain(terms) {
            if self.terms.release(tally) {
                for (_, class) in self.classes.iter_mut() {
                    class.counted_by.retain(|other| *other != tally);
                }
            }
        }
        let table = &mut self.rules[plan.rules];
        table.users -= 1;
        if table.users == 0
            && let Some(table) = self.rules.remove(plan.rules)
        {
            self.rule_ids.remove(&table.rules);
        }
    }

    /// The plan of a class, made if it has none or if what its pods are spread by has changed.
    pub(crate) fn plan(&mut self, id: u32) -> Arc<Plan> {
        let class = &self.classes[id];
        if let Some(plan) = &class.plan {
            let is_current = plan.owners == self.owners.version
                || !class.key.spec.topology_spread_constraints.is_empty()
                || self.owners.selectors(&class.key, &class.labels) == plan.default_selectors;
            if is_current {
                return plan.clone();
            }
        }
        let plan = Arc::new(self.make_plan(id));
        // The old one goes last, so that what both need is not made anew.
        self.drop_plan(id);
        let (key, labels) = (self.classes[id].key.clone(), self.classes[id].labels.clone());
        let concerned = self
            .terms
            .held
            .iter()
            .filter(|(_, held)| held.spec.matcher.matches(&key.namespace, &labels, &self.namespaces));
        self.classes[id].concerned = concerned.map(|(held, _)| held).collect();
        self.classes[id].plan = Some(plan.clone());
        plan
    }

    fn make_plan(&mut self, id: u32) -> Plan {
        let key = self.classes[id].key.clone();
        let labels = self.classes[id].labels.clone();
        let spec = &key.spec;
        let rules = key.rules();
        let required = &spec.affinity.pod_affinity.required;
        let parts: Vec<Part> =
            required.iter().map(|term| Part::of_term(term, &key.namespace, &key.labels)).collect();
        let together = Matcher { parts };
        let is_own_friend =
            !required.is_empty() && together.matches(&key.namespace, &labels, &self.namespaces);
        let affinity =
            required.iter().map(|term| self.tally(together.clone(), &term.topology_key, None)).collect();
        let anti = &spec.affinity.pod_anti_affinity;
        let anti_affinity = anti
            .required
            .iter()
            .map(|term| self.tally(key.matcher(term), &term.topology_key, None))
            .collect();
        let preferred = spec.affinity.pod_affinity.preferred.iter().map(|term| (term, 1));
        let preferred = preferred.chain(anti.preferred.iter().map(|term| (term, -1)));
        let preferred = preferred
            .map(|(term, sign)| {
                let weight = i64::from(term.weight) * sign;
                let term = &term.pod_affinity_term;
                (self.tally(key.matcher(term), &term.topology_key, None), weight)
            })
            .collect();
        let default_selectors = self.owners.selectors(&key, &labels);
        let (hard, soft) = self.spreads(&key, &labels, &rules, &default_selectors);
        let names = rules.names().map(|names| names.into_iter().map(str::to_owned).collect());
        Plan {
            rules: self.rule_table(rules),
            names,
            affinity,
            is_own_friend,
            anti_affinity,
            preferred,
            hard,
            soft,
            soft_needs_all: !spec.topology_spread_constraints.is_empty(),
            images: images(spec),
            wants_most_free_memory: key.wants_most_free_memory(),
            default_selectors,
            owners: self.owners.version,
        }
    }

    /// Constraints that must hold, and those that should.
    fn spreads(
        &mut self,
        key: &ClassKey,
        labels: &Labels,
        rules: &NodeRules,
        default_selectors: &[LabelSelector],
    ) -> (Vec<Spread>, Vec<Spread>) {
        let own = &key.spec.topology_spread_constraints;
        let defaults: Vec<wire::SpreadConstraint>;
        let constraints = if !own.is_empty() {
            own
        } else if default_selectors.is_empty() {
            return (Vec::new(), Vec::new());
        } else {
            defaults = [(HOSTNAME, 3), (ZONE, 5)].map(|(key, skew)| default_constraint(key, skew)).into();
            &defaults
        };
        let mut made = [Vec::new(), Vec::new()];
        for (list, action) in made.iter_mut().zip(["DoNotSchedule", "ScheduleAnyway"]) {
            let same: Vec<_> = constraints.iter().filter(|c| c.when_unsatisfiable == action).collect();
            let topologies: Vec<u32> = same.iter().map(|c| self.topology(&c.topology_key)).collect();
            for (constraint, topology) in same.iter().zip(&topologies) {
                let selectors = if own.is_empty() {
                    default_selectors.to_vec()
                } else {
                    let mut selectors = vec![parse(&constraint.label_selector)];
                    selectors.extend(keyed(&constraint.match_label_keys, &key.labels, "In"));
                    selectors
                };
                let honours = |policy: &Option<String>, default: bool| {
                    policy.as_deref().map_or(default, |policy| policy == "Honor")
                };
                let counts_itself = selectors.iter().all(|selector| selector.matches(labels));
                // A selector that leaves nothing out counts nothing, as upstream has it.
                let selectors = if selectors.iter().all(LabelSelector::is_everything) {
                    vec![LabelSelector::nothing()]
                } else {
                    selectors
                };
                let scope = Scope {
                    topologies: if own.is_empty() { vec![*topology] } else { topologies.clone() },
                    rules: honours(&constraint.node_affinity_policy, true).then(|| NodeRules {
                        selector: rules.selector.clone(),
                        affinity: wire::NodeAffinity {
                            required: rules.affinity.required.clone(),
                            preferred: Vec::new(),
                        },
                        ..NodeRules::default()
                    }),
                    tolerations: honours(&constraint.node_taints_policy, false)
                        .then(|| rules.tolerations.clone()),
                };
                let matcher = Matcher::one(Part::in_namespace(&key.namespace, selectors));
                list.push(Spread {
                    tally: self.tally(matcher, &constraint.topology_key, Some(scope)),
                    topology: *topology,
                    max_skew: i64::from(constraint.max_skew),
                    min_domains: u32::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
                    counts_itself,
                    is_by_host: constraint.topology_key == HOSTNAME,
                });
            }
        }
        let [hard, soft] = made;
        (hard, soft)
    }

    fn topology(&mut self, key: &str) -> u32 {
        let nodes = self.nodes.list.iter().enumerate().filter(|(_, node)| node.exists);
        self.terms.topology(key, nodes.map(|(id, node)| (id as NodeId, &node.facts.labels)))
    }

    fn tally(&mut self, matcher: Matcher, key: &str, scope: Option<Scope>) -> u32 {
        let topology = self.topology(key);
        let (id, is_new) = self.terms.ask(TallySpec { matcher, topology, scope });
        if is_new {
            let matcher = &self.terms.tallies[id].spec.matcher;
            for (_, class) in self.classes.iter_mut() {
                if matcher.matches(&class.key.namespace, &class.labels, &self.namespaces) {
                    class.counted_by.push(id);
                }
            }
        }
        id
    }

    fn rule_table(&mut self, rules: NodeRules) -> u32 {
        if let Some(id) = self.rule_ids.get(&rules) {
            self.rules[*id].users += 1;
            return *id;
        }
        let rules = Arc::new(rules);
        let mut table = RuleTable {
            compiled: rules.compile(),
            rules: rules.clone(),
            verdicts: Vec::new(),
            preferences: Vec::new(),
            users: 1,
        };
        for (id, node) in self.nodes.list.iter().enumerate() {
            table.look_at(id as NodeId, node);
        }
        let id = self.rules.insert(table);
        self.rule_ids.insert(rules, id);
        id
    }

    /// Tells the classes that a new held term is about.
    fn tell_concerned(&mut self, id: u32) {
        let matcher = &self.terms.held[id].spec.matcher;
        for (_, class) in self.classes.iter_mut() {
            if class.plan.is_some() && matcher.matches(&class.key.namespace, &class.labels, &self.namespaces)
            {
                class.concerned.push(id);
            }
        }
    }

    /// After namespaces changed their labels: who matches what is decided again.
    pub(super) fn match_again(&mut self) {
        self.generation += 1;
        self.answers.clear();
        let mut is_needed = false;
        for (_, tally) in self.terms.tallies.iter_mut() {
            if tally.spec.matcher.looks_at_namespaces() {
                tally.built = None;
                is_needed = true;
            }
        }
        is_needed |= self.terms.held.iter().any(|(_, held)| held.spec.matcher.looks_at_namespaces());
        if !is_needed {
            return;
        }
        for (_, class) in self.classes.iter_mut() {
            let matches =
                |matcher: &Matcher| matcher.matches(&class.key.namespace, &class.labels, &self.namespaces);
            let tallies = self.terms.tallies.iter().filter(|(_, tally)| matches(&tally.spec.matcher));
            class.counted_by = tallies.map(|(id, _)| id).collect();
            if class.plan.is_some() {
                let held = self.terms.held.iter().filter(|(_, held)| matches(&held.spec.matcher));
                class.concerned = held.map(|(id, _)| id).collect();
            }
        }
    }

    /// Makes the counts that a decision about a class needs hold.
    pub(crate) fn refresh(&mut self, class: u32, plan: &Plan) {
        let spreads = plan.hard.iter().chain(&plan.soft).map(|spread| spread.tally);
        let preferred = plan.preferred.iter().map(|(tally, _)| *tally);
        for tally in spreads.chain(preferred).chain(plan.affinity.iter().chain(&plan.anti_affinity).copied())
        {
            if !self.terms.tallies[tally].is_fresh(self.terms.epochs) {
                self.rebuild_tally(tally);
            }
        }
        for index in 0..self.classes[class].concerned.len() {
            let held = self.classes[class].concerned[index];
            if !self.terms.held[held].is_fresh(self.terms.epochs) {
                self.rebuild_held(held);
            }
        }
    }

    fn rebuild_tally(&mut self, id: u32) {
        let epochs = self.terms.epochs;
        let topologies = &self.terms.topologies;
        let tally = &mut self.terms.tallies[id];
        let topology = &topologies[tally.spec.topology as usize];
        tally.counts = vec![0; topology.domains()];
        tally.total = 0;
        tally.built = Some(epochs);
        if let Some(scope) = &tally.spec.scope {
            let rules = scope.rules.as_ref().map(NodeRules::compile);
            let tolerations = scope.tolerations.as_ref().map(|tolerations| {
                NodeRules { tolerations: tolerations.clone(), ..NodeRules::default() }.compile()
            });
            let is_eligible = |id: usize, node: &super::nodes::Node| {
                node.exists
                    && scope.topologies.iter().all(|t| topologies[*t as usize].domain(id as u32) != u32::MAX)
                    && rules.as_ref().is_none_or(|rules| rules.selects(&node.facts))
                    && tolerations.as_ref().is_none_or(|rules| rules.tolerates_all(&node.facts.taints))
            };
            let nodes = self.nodes.list.iter().enumerate();
            tally.eligible = nodes.map(|(id, node)| is_eligible(id, node)).collect();
            tally.present = vec![0; topology.domains()];
            for (id, is_eligible) in tally.eligible.iter().enumerate() {
                let domain = topology.domain(id as u32);
                if *is_eligible && domain != u32::MAX {
                    tally.present[domain as usize] += 1;
                }
            }
        }
        for node in &self.nodes.order {
            let domain = topology.domain(*node);
            for pod in &self.nodes.list[*node as usize].pods {
                let pod = &self.pods[*pod];
                if self.classes[pod.class].counted_by.contains(&id) {
                    tally.add(*node, domain, pod.is_going, 1);
                }
            }
        }
    }

    fn rebuild_held(&mut self, id: u32) {
        let held = &mut self.terms.held[id];
        let topology = &self.terms.topologies[held.spec.topology as usize];
        held.refusing.clear();
        held.weight.clear();
        (held.refusing_total, held.weighing_total) = (0, 0);
        held.built = Some(self.terms.epochs);
        for node in &self.nodes.order {
            let domain = topology.domain(*node);
            for pod in &self.nodes.list[*node as usize].pods {
                for carried in &self.classes[self.pods[*pod].class].carried {
                    if carried.held == id {
                        held.add(domain, carried.refuses, carried.weight, 1);
                    }
                }
            }
        }
    }
}

fn default_constraint(key: &str, max_skew: i32) -> wire::SpreadConstraint {
    wire::SpreadConstraint {
        max_skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..wire::SpreadConstraint::default()
    }
}

/// The images of a pod as nodes name them.
fn images(spec: &wire::PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let name = |image: &String| match (image.rfind(':'), image.rfind('/')) {
        (Some(colon), slash) if slash.is_none_or(|slash| colon > slash) => image.clone(),
        _ => format!("{image}:latest"),
    };
    containers.map(|container| name(&container.image)).collect()
}
