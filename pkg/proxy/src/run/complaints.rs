//! Tells the owners of DNS objects and ingresses what is wrong with them: an event for each trouble when it begins. All nodes
//! see the same, so one of them speaks. What is wrong with a node it says itself.

use crate::gateway::Troubles;
use client::{EventType, Recorder, node_reference};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::HashMap;

/// What has been said.
pub struct Complaints {
    recorder: Recorder,
    /// By the objects' uids.
    said: HashMap<String, Troubles>,
    said_of_node: Option<String>,
}

impl Complaints {
    /// Nothing yet.
    pub fn new(recorder: Recorder) -> Complaints {
        Complaints { recorder, said: HashMap::new(), said_of_node: None }
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

    /// What keeps this node from serving hosts as they are now, if anything does.
    pub fn tell_of_node(&mut self, node: &str, trouble: Option<String>) {
        if let Some(message) = &trouble
            && self.said_of_node != trouble
        {
            self.recorder.event(node_reference(node), EventType::Warning, "HostsNotServed", message);
        }
        self.said_of_node = trouble;
    }

    /// Somebody else speaks of objects.
    pub fn be_silent(&mut self) {
        self.said.clear();
    }
}
