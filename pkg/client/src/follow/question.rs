//! What is followed: the objects under a path of the API, and where Redis tells of them. Pure.

use api::selector::{FieldSelector, LabelSelector, Lookup};
use bus::{Channel, Message, MessageType};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The objects under a path, or those of them that are selected.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Such as `/apis/apps/v1/deployments`.
    pub path: String,
    /// Labels that they have.
    pub labels: Option<String>,
    /// Fields that they have.
    pub fields: Option<String>,
}

/// Where Redis tells of what is asked for, and which of it that is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    pub channel: Channel,
    /// What objects of this version begin with, somewhere in their first bytes.
    pub api_version: String,
    labels: LabelSelector,
    /// Of the fields that [`Sieve`] knows.
    fields: FieldSelector,
}

/// What of an object selectors may be about.
#[derive(Deserialize, Default)]
struct Sieve {
    #[serde(default)]
    metadata: SieveMetadata,
    #[serde(default)]
    status: SieveStatus,
}

#[derive(Deserialize, Default)]
struct SieveMetadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
struct SieveStatus {
    #[serde(default)]
    phase: Option<String>,
}

impl Lookup for Sieve {
    fn look_up(&self, name: &str) -> Option<&str> {
        (name == "status.phase").then(|| self.status.phase.as_deref().unwrap_or_default())
    }
}

impl Question {
    /// Where Redis tells of it. None: only the API knows, as of what is in one namespace, or has one name.
    pub(super) fn subject(&self) -> Option<Subject> {
        let (api_version, group, plural) = match self.path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", version, plural] => (version.to_owned(), "", plural),
            ["", "apis", group, version, plural] => (format!("{group}/{version}"), group, plural),
            _ => return None,
        };
        let labels = LabelSelector::parse(self.labels.as_deref().unwrap_or_default()).ok()?;
        let fields = FieldSelector::parse(self.fields.as_deref().unwrap_or_default()).ok()?;
        let subject = |channel, fields| Subject { channel, api_version, labels, fields };
        if let [term] = fields.terms()
            && term.equal
        {
            let of_node =
                matches!((plural, &*term.field), ("pods", "spec.nodeName") | ("nodes", "metadata.name"));
            let channel = Channel::of_node(&term.value, plural).filter(|_| of_node && group.is_empty())?;
            return Some(subject(channel, FieldSelector::everything()));
        }
        if fields.terms().iter().any(|term| &*term.field != "status.phase") {
            return None;
        }
        Some(subject(Channel::of_resource(group, plural)?, fields))
    }
}

impl Subject {
    /// What a message is to who asked: `None` is nothing to them. What was one of theirs may be so no more.
    pub(super) fn sift(&self, message: &Message) -> Option<MessageType> {
        if self.labels.is_everything() && self.fields.is_everything() {
            return Some(message.kind);
        }
        let object = message.object.as_deref().unwrap_or_default();
        let sieve: Sieve = serde_json::from_slice(object).unwrap_or_default();
        let labels = sieve.metadata.labels.clone().unwrap_or_default();
        let is_theirs = self.labels.matches(&labels) && self.fields.matches(&sieve);
        match (message.kind, is_theirs) {
            (kind, true) => Some(kind),
            (MessageType::Added, false) => None,
            (_, false) => Some(MessageType::Deleted),
        }
    }

    /// Whether an object is of the version that was asked for.
    pub(super) fn is_of_version(&self, object: &[u8]) -> bool {
        let head = &object[..object.len().min(512)];
        let wanted = format!("\"apiVersion\":\"{}\"", self.api_version);
        head.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn subject(path: &str, labels: &str, fields: &str) -> Option<Subject> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Question { path: path.to_owned(), labels: some(labels), fields: some(fields) }.subject()
    }

    #[test]
    fn each_question_has_its_channel_or_is_for_the_api_alone() {
        let check = |path: &str, fields: &str, expected: Option<&str>| {
            let channel = subject(path, "", fields).map(|subject| subject.channel.name("c"));
            assert_eq!(channel.as_deref(), expected, "{path} {fields}");
        };
        check("/api/v1/pods", "", Some("c:all:pods"));
        check("/apis/apps/v1/deployments", "", Some("c:all:deployments.apps"));
        check("/api/v1/pods", "spec.nodeName=n1", Some("c:node:n1:pods"));
        check("/api/v1/nodes", "metadata.name=n1", Some("c:node:n1:nodes"));
        check("/api/v1/pods", "status.phase!=Succeeded,status.phase!=Failed", Some("c:all:pods"));
        check("/api/v1/pods", "metadata.name=a", None);
        check("/api/v1/secrets", "metadata.name=a", None);
        check("/api/v1/pods", "spec.nodeName=*", None);
        check("/api/v1/namespaces/default/configmaps", "", None);
    }

    #[test]
    fn what_is_selected_is_sifted_here() {
        let check = |labels: &str, fields: &str, kind, object: &'static str, expected| {
            let subject = subject("/api/v1/pods", labels, fields).expect("a channel");
            let object = Some(Bytes::from_static(object.as_bytes()));
            let (epoch, sequence, after, revision, sent_ms) = (1, 1, 1, 1, 1);
            let message =
                Message { kind, epoch, sequence, after, revision, sent_ms, key: "a".into(), object };
            assert_eq!(subject.sift(&message), expected, "{labels} {fields} {message:?}");
        };
        use MessageType::{Added, Deleted, Modified};
        let labelled = r#"{"metadata":{"labels":{"app":"web"}}}"#;
        check("app", "", Added, labelled, Some(Added));
        check("app=db", "", Added, labelled, None);
        check("app=db", "", Modified, labelled, Some(Deleted));
        let living = "status.phase!=Succeeded,status.phase!=Failed";
        check("", living, Modified, r#"{"status":{"phase":"Running"}}"#, Some(Modified));
        check("", living, Modified, r#"{"status":{"phase":"Failed"}}"#, Some(Deleted));
        check("", living, Added, "{}", Some(Added));
    }

    #[test]
    fn an_object_of_another_version_is_not_taken() {
        let subject = subject("/apis/autoscaling/v1/horizontalpodautoscalers", "", "").expect("a channel");
        assert!(
            !subject.is_of_version(br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","#)
        );
        assert!(
            subject.is_of_version(br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","#)
        );
    }
}
