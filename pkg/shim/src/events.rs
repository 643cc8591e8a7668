//! What happens to tasks, told to containerd in the order in which it happens. Told again while containerd is away; what
//! does not fit meanwhile is forgotten, oldest first, since a containerd that comes back asks.

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use containerd_shim_protos::protobuf::{Message, MessageField};
use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim_async::{Client, EventsClient};
use containerd_shim_protos::ttrpc::context;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

const MOST_UNTOLD: usize = 4096;
const AGAIN: Duration = Duration::from_millis(200);
const ANSWERED: Duration = Duration::from_secs(5);

/// The door to containerd's events.
#[derive(Clone)]
pub struct Events {
    queue: Arc<Queue>,
}

struct Queue {
    untold: Mutex<VecDeque<Envelope>>,
    has_more: Notify,
    namespace: String,
}

impl Events {
    /// Tells them there, from now on.
    pub fn to(address: String, namespace: String) -> Self {
        let queue = Arc::new(Queue { untold: Mutex::default(), has_more: Notify::new(), namespace });
        tokio::spawn(tell(queue.clone(), address));
        Events { queue }
    }

    /// Something happened: what containerd calls it, and the event.
    pub fn tell<M: Message>(&self, topic: &str, kind: &str, event: &M) {
        let Ok(value) = event.write_to_bytes() else { return };
        let any = Any { type_url: format!("containerd.events.{kind}"), value, ..Any::default() };
        let envelope = Envelope {
            timestamp: MessageField::some(timestamp(crate::keeper::now_ns())),
            namespace: self.queue.namespace.clone(),
            topic: topic.to_owned(),
            event: MessageField::some(any),
            ..Envelope::default()
        };
        if let Ok(mut untold) = self.queue.untold.lock() {
            if untold.len() >= MOST_UNTOLD {
                untold.pop_front();
            }
            untold.push_back(envelope);
        }
        self.queue.has_more.notify_one();
    }
}

/// A moment, as containerd has it.
pub fn timestamp(at_ns: u64) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(at_ns / 1_000_000_000).unwrap_or_default(),
        nanos: i32::try_from(at_ns % 1_000_000_000).unwrap_or_default(),
        ..Timestamp::default()
    }
}

async fn tell(queue: Arc<Queue>, address: String) {
    let mut client: Option<EventsClient> = None;
    loop {
        let first = queue.untold.lock().ok().and_then(|untold| untold.front().cloned());
        let Some(envelope) = first else {
            queue.has_more.notified().await;
            continue;
        };
        let connected = match client.take() {
            Some(client) => Some(client),
            None => Client::connect(&address).await.ok().map(EventsClient::new),
        };
        let Some(connected) = connected else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let request = containerd_shim_protos::api::ForwardRequest {
            envelope: MessageField::some(envelope.clone()),
            ..Default::default()
        };
        if connected.forward(context::with_duration(ANSWERED), &request).await.is_err() {
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        client = Some(connected);
        if let Ok(mut untold) = queue.untold.lock()
            && untold.front() == Some(&envelope)
        {
            untold.pop_front();
        }
    }
}
