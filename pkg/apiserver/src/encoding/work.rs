//! A body whose pieces are made by others, as it is sent.

use super::workers::Workers;
use crate::auth::User;
use crate::budget::{Budget, Share, holder};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::io::{Error, Result};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// An answer that is made piece by piece.
pub trait Pieces: Send {
    /// About how much memory the next piece takes.
    fn cost(&self) -> usize;

    /// The next piece; none after the last.
    fn next_piece(&mut self) -> Option<Result<Bytes>>;
}

/// Who makes pieces, and at whose cost.
pub struct Maker {
    workers: Workers,
    budget: Arc<Budget>,
    user: Arc<User>,
    holder: Arc<str>,
}

/// A body in the making.
pub struct Work(State);

enum State {
    Ready(Box<dyn Pieces>, Arc<Maker>),
    Making(BoxFuture<'static, (State, Option<Result<Bytes>>)>),
    Over,
}

/// A piece, charged until it is sent.
struct Charged {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Maker {
    /// For this user.
    pub fn new(workers: Workers, budget: Arc<Budget>, user: &Arc<User>) -> Maker {
        Maker { workers, budget, holder: holder(user).into(), user: user.clone() }
    }

    async fn make(self: Arc<Maker>, mut pieces: Box<dyn Pieces>) -> (State, Option<Result<Bytes>>) {
        let (mut share, cost) = (self.budget.share(&self.user), pieces.cost());
        share.grow(cost).await;
        let made = self.workers.run(&self.holder, move || {
            let piece = pieces.next_piece();
            (pieces, piece)
        });
        match made.await {
            Some((pieces, Some(Ok(bytes)))) => {
                share.must_grow(bytes.len().saturating_sub(cost));
                let piece = Bytes::from_owner(Charged { bytes, _share: share });
                (State::Ready(pieces, self), Some(Ok(piece)))
            }
            Some((_, end)) => (State::Over, end),
            None => (State::Over, Some(Err(Error::other("an answer could not be encoded")))),
        }
    }
}

impl Work {
    /// These pieces.
    pub fn new(pieces: impl Pieces + 'static, maker: Arc<Maker>) -> Work {
        Work(State::Ready(Box::new(pieces), maker))
    }

    /// The same pieces, changed on their way.
    pub fn map<P: Pieces + 'static>(self, change: impl FnOnce(Box<dyn Pieces>) -> P) -> Work {
        match self.0 {
            State::Ready(pieces, maker) => Work::new(change(pieces), maker),
            begun => Work(begun),
        }
    }

    /// The next piece, when it is made.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let State::Ready(..) = self.0
            && let State::Ready(pieces, maker) = std::mem::replace(&mut self.0, State::Over)
        {
            self.0 = State::Making(Box::pin(maker.make(pieces)));
        }
        let State::Making(making) = &mut self.0 else { return Poll::Ready(None) };
        let (state, piece) = ready!(making.as_mut().poll(cx));
        self.0 = state;
        Poll::Ready(piece)
    }
}
