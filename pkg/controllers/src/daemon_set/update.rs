//! Rolling updates: an old pod is deleted before its successor comes, or after it is available (surge).

use super::Step;
use super::nodes::Fit;
use crate::int_or_percent::{self, Round};
use crate::pods;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// The pod of the new version, and that of the old one.
type Versions = (Option<Arc<Pod>>, Option<Arc<Pod>>);

impl Step<'_> {
    /// How many nodes may have two pods, and how many none.
    pub fn limits(&self) -> (i32, i32) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        let Some(rolling) =
            strategy.and_then(|strategy| strategy.rolling_update.as_ref()).filter(|_| is_rolling)
        else {
            return (0, i32::from(is_rolling));
        };
        let wanted = self.fits.values().filter(|fit| **fit == Fit::Runs).count();
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let surge = int_or_percent::of(rolling.max_surge.as_ref(), wanted, Round::Up);
        let unavailable = int_or_percent::of(rolling.max_unavailable.as_ref(), wanted, Round::Up);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    /// Replaces pods of old versions, as far as the limits allow.
    pub fn update(&mut self) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        match self.limits() {
            (0, unavailable) => self.replace(unavailable),
            (surge, _) => self.surge(surge),
        }
    }

    /// The pod of the new and that of the old version on a node; `None` if there are more.
    fn versions(&self, node: &str) -> Option<Versions> {
        let pods = self.pods.get(node).into_iter().flatten().filter(|pod| !pods::is_going(pod.as_ref()));
        let (new, old): (Vec<_>, Vec<_>) = pods.cloned().partition(|pod| self.is_updated(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.into_iter().next(), old.into_iter().next()))
    }

    /// All nodes that have a pod or should have one.
    fn all_nodes(&self) -> Vec<String> {
        let runs = self.fits.iter().filter(|(_, fit)| **fit == Fit::Runs).map(|(node, _)| node);
        let mut nodes: Vec<String> = self.pods.keys().chain(runs).cloned().collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    fn replace(&mut self, most: i32) {
        let (mut unavailable, mut delete, mut candidates) = (0, Vec::new(), Vec::new());
        for node in self.all_nodes() {
            match self.versions(&node) {
                Some((Some(new), None)) => unavailable += i32::from(!self.is_available(&new)),
                Some((None, Some(old))) if !self.is_available(&old) => {
                    delete.push(old);
                    unavailable += 1;
                }
                Some((None, Some(old))) => candidates.push(old),
                _ => unavailable += 1,
            }
        }
        let left = usize::try_from(most - unavailable).unwrap_or(0);
        delete.extend(candidates.into_iter().take(left));
        self.write(Vec::new(), delete);
    }

    fn surge(&mut self, most: i32) {
        let (mut create, mut delete) = (Vec::new(), Vec::new());
        let (mut candidates, mut strays) = (Vec::new(), Vec::new());
        let (mut surging, mut available) = (0, 0);
        for node in self.all_nodes() {
            let Some((new, old)) = self.versions(&node) else {
                surging += 1;
                continue;
            };
            let counted = old.as_ref().or(new.as_ref());
            available += i32::from(counted.is_some_and(|pod| self.is_available(pod)));
            let runs = self.fits.get(&node) == Some(&Fit::Runs);
            match (new, old) {
                (_, None) => {}
                (None, Some(old)) if !self.is_available(&old) && runs => create.push(node),
                (None, Some(old)) if !self.is_available(&old) => delete.push(old),
                (None, Some(_)) if runs => candidates.push(node),
                (None, Some(old)) => strays.push(old),
                (Some(new), Some(old)) if self.is_available(&new) => delete.push(old),
                (Some(_), Some(_)) => surging += 1,
            }
        }
        let wanted = self.fits.values().filter(|fit| **fit == Fit::Runs).count();
        let deletable = usize::try_from(available).unwrap_or(0).saturating_sub(wanted);
        delete.extend(strays.into_iter().take(deletable));
        create.extend(candidates.into_iter().take(usize::try_from(most - surging).unwrap_or(0)));
        self.write(create, delete);
    }
}
