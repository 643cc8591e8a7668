//! What Redis has told one informer and it has not read yet. Bounded: who is too slow asks the API instead.

use super::metrics::METRICS;
use bus::Message;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::Notify;

const MOST: usize = 1024;
const MOST_BYTES: usize = 8 << 20;

/// Messages of one channel, for one informer.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    bytes: usize,
    is_lost: bool,
}

/// What there is to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Message(Message),
    /// Redis is gone, or there was too much to read: nothing is known of what comes in between.
    Lost,
}

impl Inbox {
    pub fn push(&self, message: Message) {
        let mut state = self.state.lock();
        state.bytes += message.object.as_ref().map_or(0, |object| object.len());
        state.messages.push_back(message);
        if state.messages.len() > MOST || state.bytes > MOST_BYTES {
            METRICS.dropped.fetch_add(state.messages.len() as u64, Relaxed);
            state.clear();
            state.is_lost = true;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Nothing is heard any more, until something is.
    pub fn lose(&self) {
        let mut state = self.state.lock();
        state.clear();
        state.is_lost = true;
        drop(state);
        self.changed.notify_one();
    }

    /// The next of it; waits for it. One reads at a time.
    pub async fn next(&self) -> Signal {
        loop {
            if let Some(signal) = self.state.lock().take() {
                return signal;
            }
            self.changed.notified().await;
        }
    }
}

impl State {
    fn take(&mut self) -> Option<Signal> {
        if std::mem::take(&mut self.is_lost) {
            return Some(Signal::Lost);
        }
        let message = self.messages.pop_front()?;
        self.bytes -= message.object.as_ref().map_or(0, |object| object.len());
        Some(Signal::Message(message))
    }

    fn clear(&mut self) {
        (self.messages, self.bytes) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bus::MessageType;

    #[tokio::test]
    async fn who_is_too_slow_loses_all_of_it_and_hears_so() {
        let (inbox, kind) = (Inbox::default(), MessageType::Bookmark);
        let tell = |revision| {
            let (epoch, sequence, after, sent_ms) = (1, 0, 0, 0);
            inbox.push(Message {
                kind,
                epoch,
                sequence,
                after,
                revision,
                sent_ms,
                key: "-".into(),
                object: None,
            });
        };
        (0..=MOST as u64).for_each(tell);
        tell(9000);
        assert_eq!(inbox.next().await, Signal::Lost);
        assert!(matches!(inbox.next().await, Signal::Message(message) if message.revision == 9000));
        inbox.lose();
        assert_eq!(inbox.next().await, Signal::Lost);
    }
}
