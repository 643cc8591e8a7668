//! One resource, from its cache to its channels.
//!
//! ```text
//! ring of events ──> Message on all:pods, and on node:<its node>:pods ──> outlet
//! ```

use super::line::Line;
use super::outlet::{Outlet, Purpose};
use super::users::NodeUsers;
use crate::registry::Resource;
use crate::server::Server;
use bus::{Channel, HEARTBEAT, Message, MessageType};
use jiff::Timestamp;
use listwatch::{Batch, Event, EventType, Object, Scope, Since, Watcher};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

/// How often channels of nodes are made and forgotten.
const CENSUS_EVERY: Duration = Duration::from_secs(30);

/// What all resources of an epoch share.
pub struct Epoch {
    /// The server whose caches these are.
    pub server: Arc<Server>,
    /// Its number.
    pub number: Revision,
    /// What names of channels begin with.
    pub cluster: String,
    /// Where messages go.
    pub outlet: Outlet,
    /// Makes users of nodes.
    pub users: NodeUsers,
    /// Up to where each resource is told.
    pub told: Mutex<BTreeMap<String, Revision>>,
}

impl Epoch {
    /// Sends a message to a channel.
    pub async fn publish(&self, channel: &Channel, message: &Message) -> bool {
        let head = message.head();
        let object = message.object.as_deref().unwrap_or_default();
        let channel = channel.name(&self.cluster);
        let mut bytes = Vec::with_capacity(96 + channel.len() + head.len() + object.len());
        let length = head.len() + object.len();
        let start = format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{channel}\r\n${length}\r\n{head}", channel.len());
        bytes.extend_from_slice(start.as_bytes());
        bytes.extend_from_slice(object);
        bytes.extend_from_slice(b"\r\n");
        self.outlet.send(bytes, Purpose::Publish).await
    }
}

/// Which part of a resource's objects has channels of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByNode {
    Nothing,
    Pods,
    Nodes,
}

struct Follower {
    epoch: Arc<Epoch>,
    resource: Arc<Resource>,
    by_node: ByNode,
    plural: String,
    lines: HashMap<Channel, Line>,
    /// Channels that nothing is known of were told up to here by others.
    base: Revision,
    /// When a channel is to say how far it is.
    next: Instant,
    next_census: Instant,
}

/// Tells the changes of a resource after a revision, until there is no way to Redis, or no resource.
pub async fn follow(epoch: Arc<Epoch>, resource: Arc<Resource>, from: Revision) {
    let kind = resource.kind.clone();
    let Some(main) = Channel::of_resource(&kind.group, &kind.plural) else { return };
    let by_node = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => ByNode::Pods,
        ("", "nodes") => ByNode::Nodes,
        _ => ByNode::Nothing,
    };
    let now = Instant::now();
    let (lines, plural) = (HashMap::from([(main.clone(), Line::new(from, now))]), kind.plural.clone());
    let mut follower =
        Follower { epoch, resource, by_node, plural, lines, base: from, next: now, next_census: now };
    let mut from = from;
    loop {
        match follower.resource.cache.watch(Scope::default(), Since::Revision(from)) {
            Ok(watcher) => {
                if !follower.run(watcher, &main).await {
                    return;
                }
                follower.epoch.server.publisher.dropped.fetch_add(1, Relaxed);
            }
            Err(listwatch::Error::Closed | listwatch::Error::Replaced) => return,
            Err(_) => {}
        }
        // What was not told is seen to be missing: the first message after it comes after a later revision.
        from = follower.resource.cache.revision();
        follower.begin_at(from, &main);
    }
}

impl Follower {
    fn begin_at(&mut self, base: Revision, main: &Channel) {
        let now = Instant::now();
        self.lines.clear();
        self.lines.insert(main.clone(), Line::new(base, now));
        (self.base, self.next, self.next_census) = (base, now, now);
    }

    /// False: there is no way to Redis any more. True: the watcher was too slow, or the cache was read anew.
    async fn run(&mut self, mut watcher: Watcher, main: &Channel) -> bool {
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(Batch::Events(events)) => {
                        for event in events {
                            if !self.tell(&event, main).await {
                                return false;
                            }
                        }
                    }
                    Ok(Batch::InitialEventsEnd(_)) => {}
                    Err(listwatch::Ended::Closed) => return false,
                    Err(_) => return true,
                },
                () = tokio::time::sleep_until(self.next) => {
                    if !self.mark(&mut watcher).await {
                        return false;
                    }
                }
            }
        }
    }

    async fn tell(&mut self, event: &Event, main: &Channel) -> bool {
        let object = &event.object;
        if !self.send(main, kind_of(event.kind), event, object).await {
            return false;
        }
        let (node, kind) = match self.by_node {
            ByNode::Nothing => return true,
            ByNode::Nodes => {
                if !self.epoch.users.changed(&self.epoch.outlet, event).await {
                    return false;
                }
                (object.name().to_owned(), kind_of(event.kind))
            }
            ByNode::Pods => {
                let node =
                    |object: &Object| self.resource.cache.field(object, "spec.nodeName").map(str::to_owned);
                let Some(now) = node(object).filter(|node| !node.is_empty()) else { return true };
                let was_there =
                    event.previous.as_ref().is_some_and(|before| node(before).as_ref() == Some(&now));
                let kind = match event.kind {
                    EventType::Modified if !was_there => MessageType::Added,
                    kind => kind_of(kind),
                };
                (now, kind)
            }
        };
        match Channel::of_node(&node, &self.plural) {
            Some(channel) => self.send(&channel, kind, event, object).await,
            None => true,
        }
    }

    async fn send(&mut self, channel: &Channel, kind: MessageType, event: &Event, object: &Object) -> bool {
        let now = Instant::now();
        let line = match self.lines.get_mut(channel) {
            Some(line) => line,
            None => self.lines.entry(channel.clone()).or_insert_with(|| Line::new(self.base, now)),
        };
        let (sequence, after) = line.tell(event.revision, now);
        self.next = self.next.min(line.due);
        let is_told = !self.is_secret();
        let message = Message {
            kind,
            epoch: self.epoch.number,
            sequence,
            // Objects of one commit have one revision.
            after: after.min(event.revision),
            revision: event.revision,
            sent_ms: now_ms(),
            key: object.path().to_string(),
            object: is_told.then(|| object.json()),
        };
        self.epoch.publish(channel, &message).await
    }

    fn is_secret(&self) -> bool {
        crate::storage::is_secret(&self.resource.kind)
    }

    /// Says how far those channels are that have been quiet for a while.
    async fn mark(&mut self, watcher: &mut Watcher) -> bool {
        let now = Instant::now();
        let Some(revision) = watcher.revision() else {
            self.next = now + HEARTBEAT;
            return true;
        };
        self.epoch.told.lock().insert(self.resource.kind.prefix(), revision);
        if now >= self.next_census && self.by_node != ByNode::Nothing {
            self.take_census(revision, now);
        }
        let mut due = Vec::new();
        for (channel, line) in &mut self.lines {
            if line.due <= now {
                let (sequence, after) = line.mark(now);
                due.push((channel.clone(), sequence, after));
            }
        }
        let next = self.lines.values().map(|line| line.due).min();
        self.next = next.unwrap_or(now + CENSUS_EVERY);
        if self.by_node != ByNode::Nothing {
            self.next = self.next.min(self.next_census);
        }
        for (channel, sequence, after) in due {
            let message = bookmark(self.epoch.number, sequence, after, revision.max(after));
            if !self.epoch.publish(&channel, &message).await {
                return false;
            }
        }
        true
    }

    /// Each node has its channels, and those of nodes that are gone are forgotten.
    fn take_census(&mut self, revision: Revision, now: Instant) {
        self.next_census = now + CENSUS_EVERY;
        let nodes = self.epoch.server.registry.built_in("", "nodes").objects(None);
        let channels: HashSet<Channel> =
            nodes.iter().filter_map(|node| Channel::of_node(node.name(), &self.plural)).collect();
        let before = self.lines.len();
        self.lines.retain(|channel, _| matches!(channel, Channel::All(_)) || channels.contains(channel));
        if self.lines.len() < before {
            // Should one come back, what was told on its channel is not known any more.
            self.base = self.base.max(revision);
        }
        for channel in channels {
            let base = self.base;
            self.lines.entry(channel).or_insert_with(|| Line::new(base, now));
        }
    }
}

/// How far a channel, or all of them, are.
pub fn bookmark(epoch: Revision, sequence: u64, after: Revision, revision: Revision) -> Message {
    let (key, sent_ms) = ("-".to_owned(), now_ms());
    Message { kind: MessageType::Bookmark, epoch, sequence, after, revision, sent_ms, key, object: None }
}

fn kind_of(kind: EventType) -> MessageType {
    match kind {
        EventType::Added => MessageType::Added,
        EventType::Modified => MessageType::Modified,
        EventType::Deleted => MessageType::Deleted,
    }
}

fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}
