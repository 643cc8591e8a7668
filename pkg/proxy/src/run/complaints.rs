//! Tells the owners of ingresses what is wrong with them: an event for each trouble when it begins. All nodes see the same, so
//! one of them speaks.

use crate::gateway::Troubles;
use client::{EventType, Key, Recorder};
use k8s_openapi::api::networking::v1::Ingress;
use kube::Resource;
use std::collections::HashMap;

/// What has been said.
pub struct Complaints {
    recorder: Recorder,
    said: HashMap<Key, Troubles>,
}

impl Complaints {
    /// Nothing yet.
    pub fn new(recorder: Recorder) -> Complaints {
        Complaints { recorder, said: HashMap::new() }
    }

    /// These are all ingresses, with what is wrong with them now.
    pub fn tell<'a>(&mut self, ingresses: impl Iterator<Item = (&'a Ingress, Troubles)>) {
        let mut now = HashMap::new();
        for (ingress, troubles) in ingresses.filter(|(_, troubles)| !troubles.is_empty()) {
            let key = Key::of(ingress);
            for (reason, message) in troubles.iter().filter(|trouble| !self.knows(&key, trouble)) {
                self.recorder.event(ingress.object_ref(&()), EventType::Warning, *reason, message);
            }
            now.insert(key, troubles);
        }
        self.said = now;
    }

    /// Somebody else speaks.
    pub fn be_silent(&mut self) {
        self.said.clear();
    }

    fn knows(&self, key: &Key, trouble: &(&'static str, String)) -> bool {
        self.said.get(key).is_some_and(|said| said.contains(trouble))
    }
}
