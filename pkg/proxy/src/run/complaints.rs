//! Tells the owners of DNS objects and ingresses what is wrong with them: an event for each trouble when it begins. All nodes
//! see the same, so one of them speaks.

use crate::gateway::Troubles;
use client::{EventType, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::HashMap;

/// What has been said.
pub struct Complaints {
    recorder: Recorder,
    /// By the objects' uids.
    said: HashMap<String, Troubles>,
}

impl Complaints {
    /// Nothing yet.
    pub fn new(recorder: Recorder) -> Complaints {
        Complaints { recorder, said: HashMap::new() }
    }

    /// These are all objects, with what is wrong with them now.
    pub fn tell(&mut self, objects: impl Iterator<Item = (ObjectReference, Troubles)>) {
        let mut now = HashMap::new();
        for (object, troubles) in objects.filter(|(_, troubles)| !troubles.is_empty()) {
            let uid = object.uid.clone().unwrap_or_default();
            let said = self.said.remove(&uid).unwrap_or_default();
            for (reason, message) in troubles.difference(&said) {
                self.recorder.event(object.clone(), EventType::Warning, *reason, message);
            }
            now.insert(uid, troubles);
        }
        self.said = now;
    }

    /// Somebody else speaks.
    pub fn be_silent(&mut self) {
        self.said.clear();
    }
}
