//! How many pods each ReplicaSet gets: during a rolling update, and in proportion when a Deployment is scaled meanwhile.

use super::conditions::available;
use super::revision::{DESIRED, MAX};
use super::rollout::{Rollout, generation_seen, replicas, status_replicas};
use crate::int_or_percent::{self, Round};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use kube::ResourceExt;

/// How many pods there may be beyond those wanted, and how many may be missing. Not both can be none.
fn fence_posts(deployment: &Deployment) -> (i32, i32) {
    let spec = deployment.spec.clone().unwrap_or_default();
    let wanted = spec.replicas.unwrap_or(1);
    let rolling: RollingUpdateDeployment =
        spec.strategy.and_then(|strategy| strategy.rolling_update).unwrap_or_default();
    let surge = int_or_percent::of(rolling.max_surge.as_ref(), wanted, Round::Up);
    let unavailable = int_or_percent::of(rolling.max_unavailable.as_ref(), wanted, Round::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

pub fn max_surge(deployment: &Deployment) -> i32 {
    fence_posts(deployment).0
}

pub fn max_unavailable(deployment: &Deployment) -> i32 {
    fence_posts(deployment).1
}

/// How many pods a set stands for: those it should have, and those that it still has.
fn stands_for(set: &ReplicaSet) -> i32 {
    replicas(set).max(status_replicas(set))
}

impl Rollout<'_> {
    /// Sets the size of a ReplicaSet; says whether it is another.
    pub fn resize(&mut self, index: usize, size: i32) -> bool {
        if replicas(&self.sets[index]) == size {
            return false;
        }
        self.sets[index].spec.get_or_insert_default().replicas = Some(size);
        self.annotate_sizes(index);
        true
    }

    /// Notes on a ReplicaSet how many pods the Deployment wanted when it got its size: so scaling is told from rolling.
    pub fn annotate_sizes(&mut self, index: usize) {
        let most = self.wanted + self.max_surge();
        let annotations = self.sets[index].metadata.annotations.get_or_insert_default();
        annotations.insert(DESIRED.into(), self.wanted.to_string());
        annotations.insert(MAX.into(), most.to_string());
    }

    /// Whether the Deployment was scaled since its ReplicaSets got their sizes.
    pub fn was_scaled(&self) -> bool {
        let active = self.sets.iter().filter(|set| replicas(set) > 0);
        active.filter_map(|set| number(set, DESIRED)).any(|desired| desired != self.wanted)
    }

    /// The size that the new ReplicaSet may have at once.
    pub fn new_size(&self) -> i32 {
        let Some(new) = self.new else { return 0 };
        let size = replicas(&self.sets[new]);
        if !self.is_rolling() {
            return self.wanted;
        }
        if self.old().any(|set| !generation_seen(set)) {
            // How many pods that one has is not known yet; when it is, this is planned again.
            return size;
        }
        let present = self.old().map(stands_for).sum::<i32>() + size;
        let room = self.wanted + self.max_surge() - present;
        size + room.min(self.wanted - size).max(0)
    }

    /// Scales the new ReplicaSet, down to what is wanted or up as far as there is room.
    pub fn scale_new(&mut self) -> bool {
        let Some(new) = self.new else { return false };
        let size = replicas(&self.sets[new]);
        if size == self.wanted {
            return false;
        }
        let size = if size > self.wanted { self.wanted } else { self.new_size() };
        self.resize(new, size)
    }

    /// Scales the old ReplicaSets down: those that are not available first, then as many as the new ones replace.
    pub fn scale_old_down(&mut self) -> bool {
        let Some(new) = self.new.map(|new| self.sets[new].clone()) else { return false };
        let old: Vec<usize> =
            self.old_indexes().into_iter().filter(|i| replicas(&self.sets[*i]) > 0).collect();
        if old.is_empty() {
            return false;
        }
        let least = self.wanted - self.max_unavailable();
        let all: i32 = self.sets.iter().map(replicas).sum();
        let unavailable_new = replicas(&new) - available(&new).min(replicas(&new));
        let most = all - least - unavailable_new;
        if most <= 0 {
            return false;
        }
        let mut cleaned = 0;
        for index in &old {
            let set = &self.sets[*index];
            let unhealthy = (replicas(set) - available(set)).max(0).min(most - cleaned);
            let size = replicas(set) - unhealthy;
            self.resize(*index, size);
            cleaned += unhealthy;
        }
        // No set keeps more available pods than it should have.
        let present: i32 = self.sets.iter().map(|set| available(set).min(replicas(set))).sum();
        let mut surplus = (present - least).min(most - cleaned).max(0);
        let total = cleaned + surplus;
        for index in &old {
            let size = replicas(&self.sets[*index]);
            let less = size.min(surplus);
            self.resize(*index, size - less);
            surplus -= less;
        }
        total > 0
    }

    /// Scales without rolling: the one ReplicaSet that has pods, or all in proportion.
    pub fn scale(&mut self) {
        if let Some(only) = self.active_or_latest() {
            let wanted = self.wanted;
            self.resize(only, wanted);
            return;
        }
        let is_saturated = self.new_set().is_some_and(|set| {
            replicas(set) == self.wanted
                && number(set, DESIRED) == Some(self.wanted)
                && available(set) == self.wanted
        });
        if is_saturated {
            for index in self.old_indexes() {
                self.resize(index, 0);
            }
        } else if self.is_rolling() {
            self.scale_in_proportion();
        }
    }

    fn active_or_latest(&self) -> Option<usize> {
        let active: Vec<usize> = (0..self.sets.len()).filter(|i| replicas(&self.sets[*i]) > 0).collect();
        match active.as_slice() {
            [] => self.new.or_else(|| self.sets.len().checked_sub(1)),
            [only] => Some(*only),
            _ => None,
        }
    }

    fn scale_in_proportion(&mut self) {
        let mut active: Vec<usize> = (0..self.sets.len()).filter(|i| replicas(&self.sets[*i]) > 0).collect();
        let present: i32 = active.iter().map(|i| replicas(&self.sets[*i])).sum();
        let allowed = if self.wanted > 0 { self.wanted + self.max_surge() } else { 0 };
        let to_add = allowed - present;
        // The largest first; of equals, the newer one gets more, and the older one loses more.
        active.sort_by_key(|index| {
            let age = if to_add > 0 { -(*index as i64) } else { *index as i64 };
            (-replicas(&self.sets[*index]), age)
        });
        let mut sizes = Vec::new();
        let mut added = 0;
        for index in &active {
            let share = if to_add == 0 || to_add == added { 0 } else { self.share(*index) };
            let left = to_add - added;
            let share = if to_add > 0 { share.min(left) } else { share.max(left) };
            added += share;
            sizes.push(replicas(&self.sets[*index]) + share);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (index, size) in active.into_iter().zip(sizes) {
            self.resize(index, size);
            self.annotate_sizes(index);
        }
    }

    /// How many more pods a ReplicaSet gets so that it keeps its share of the Deployment.
    fn share(&self, index: usize) -> i32 {
        let set = &self.sets[index];
        let size = replicas(set);
        if self.wanted == 0 {
            return -size;
        }
        let before = number(set, MAX).filter(|most| *most > 0).or(self.status().replicas).unwrap_or(0);
        if before == 0 {
            return 0;
        }
        let most = self.wanted + self.max_surge();
        let size_now = (f64::from(size) * f64::from(most) / f64::from(before)).round();
        size_now as i32 - size
    }
}

fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.annotations().get(annotation)?.parse().ok().filter(|number| *number >= 0)
}
