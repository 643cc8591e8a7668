//! One call and its pod: sent once, answered once. It is sent again only if it certainly was not sent.
//!
//! A call that has begun goes on when its caller has left: its pod is busy with it all the same, and is not given another
//! call meanwhile.

use crate::answer;
use crate::controller::Shared;
use crate::definition::Definition;
use crate::fleet::{Fault, Granted, Outcome};
use crate::link::{Link, Unanswered};
use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What a pod's end was is waited for so long.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A place in a pod that is given back when this is dropped.
pub struct Seat {
    shared: Arc<Shared>,
    /// The pod.
    pub link: Arc<Link>,
    /// Whether it started while the call waited.
    pub is_cold: bool,
    outcome: Outcome,
    began: Instant,
}

impl Seat {
    /// The place that was granted.
    pub fn new(shared: Arc<Shared>, granted: Granted) -> Seat {
        let Granted { link, is_cold } = granted;
        Seat { shared, link, is_cold, outcome: Outcome::NotSent, began: Instant::now() }
    }

    fn is_answered(&mut self) {
        self.outcome = Outcome::Answered(self.began.elapsed());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.event(|fleet, now| fleet.ended(&self.link, self.outcome, now));
    }
}

/// The caller's connection, for what comes after HTTP.
#[derive(Clone)]
pub struct CallersEnd(pub OnUpgrade);

/// How sending a call went.
pub enum Sent {
    /// It was answered, or failed for good.
    Answered(Response<Body>),
    /// It was not sent: the pod is not there.
    NotSent(Request<Body>),
}

/// Sends a call to a pod, and gives back what is to be answered.
pub async fn exchange(
    seat: Seat,
    request: Request<Body>,
    definition: Arc<Definition>,
    is_source: bool,
) -> Sent {
    let (answer, answered) = oneshot::channel();
    let (tasks, shutdown) = (seat.shared.tasks.clone(), seat.shared.shutdown().clone());
    tasks.spawn(shutdown.run_until_cancelled_owned(async move {
        let sent = match is_source {
            true => to_source(seat, request, &definition).await,
            false => to_image(seat, request, &definition).await,
        };
        // Nobody may be there to hear it.
        let _ = answer.send(sent);
    }));
    let fault = || Fault::new("InternalError", "the call broke off");
    answered
        .await
        .unwrap_or_else(|_| Sent::Answered(answer::status(StatusCode::INTERNAL_SERVER_ERROR, &fault())))
}

async fn to_source(mut seat: Seat, request: Request<Body>, definition: &Definition) -> Sent {
    let timeout = definition.timeout();
    let link = seat.link.clone();
    seat.outcome = Outcome::Lost;
    let (answer, sender) = match tokio::time::timeout(timeout, link.send(request)).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(unanswered)) => return failed(seat, unanswered).await,
        Err(_) => return Sent::Answered(timed_out(definition)),
    };
    if answer.headers().contains_key(TRANSFER_ENCODING) {
        return Sent::Answered(streamed(seat, answer, sender));
    }
    let (head, body) = answer.into_parts();
    let (_, most) = definition.most_bytes();
    let left = timeout.saturating_sub(seat.began.elapsed());
    let body = match tokio::time::timeout(left, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the answer is larger than {most} bytes (limits.responseBytes)");
            return Sent::Answered(answer::status(
                StatusCode::BAD_GATEWAY,
                &Fault::new("AnswerTooLarge", message),
            ));
        }
        Ok(Err(_)) => return failed(seat, Unanswered::Broken).await,
        Err(_) => return Sent::Answered(timed_out(definition)),
    };
    seat.is_answered();
    link.keep(sender);
    Sent::Answered(match head.status {
        StatusCode::OK => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        StatusCode::UNAUTHORIZED => {
            // Somebody else's pod has its address now, or it is one of before our key changed.
            seat.outcome = Outcome::Lost;
            answer::status(
                StatusCode::BAD_GATEWAY,
                &Fault::new("StrangePod", "the function's pod does not know us"),
            )
        }
        status => answer::status(status, &Fault::said(&body)),
    })
}

async fn to_image(mut seat: Seat, request: Request<Body>, definition: &Definition) -> Sent {
    let link = seat.link.clone();
    seat.outcome = Outcome::Lost;
    let caller = request.extensions().get::<CallersEnd>().cloned();
    match tokio::time::timeout(definition.timeout(), link.send(request)).await {
        Ok(Ok((answer, sender))) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Sent::Answered(switched(seat, answer, caller, sender))
        }
        Ok(Ok((answer, sender))) => Sent::Answered(streamed(seat, answer, sender)),
        Ok(Err(unanswered)) => failed(seat, unanswered).await,
        Err(_) => Sent::Answered(timed_out(definition)),
    }
}

/// A connection that goes on in another protocol: bytes both ways, until one side ends it. The pod is busy meanwhile.
fn switched(
    mut seat: Seat,
    mut answer: Response<Incoming>,
    caller: Option<CallersEnd>,
    sender: SendRequest<Body>,
) -> Response<Body> {
    let Some(CallersEnd(caller)) = caller else {
        let fault =
            Fault::new("UnexpectedUpgrade", "the function's pod goes on in a protocol that nobody asked for");
        return answer::status(StatusCode::BAD_GATEWAY, &fault);
    };
    let pod = hyper::upgrade::on(&mut answer);
    seat.is_answered();
    let (tasks, shutdown) = (seat.shared.tasks.clone(), seat.shared.shutdown().clone());
    tasks.spawn(shutdown.run_until_cancelled_owned(async move {
        let _kept = (&seat, sender);
        if let (Ok(caller), Ok(pod)) = tokio::join!(caller, pod) {
            let (mut caller, mut pod) = (TokioIo::new(caller), TokioIo::new(pod));
            if let Err(error) = tokio::io::copy_bidirectional(&mut caller, &mut pod).await {
                tracing::debug!(%error, "a connection to a function broke");
            }
        }
    }));
    let (head, _) = answer.into_parts();
    Response::from_parts(head, Body::empty())
}

async fn failed(mut seat: Seat, unanswered: Unanswered) -> Sent {
    match unanswered {
        Unanswered::NotSent(request) => {
            // It goes, whatever became of it.
            seat.outcome = Outcome::Lost;
            Sent::NotSent(*request)
        }
        Unanswered::Broken => {
            let fault = last_words(&seat.link).await;
            Sent::Answered(answer::status(StatusCode::BAD_GATEWAY, &fault))
        }
    }
}

/// Why a pod has ended in the middle of a call.
async fn last_words(link: &Link) -> Fault {
    let mut end = link.end.subscribe();
    let said = tokio::time::timeout(LAST_WORDS, end.wait_for(Option::is_some)).await;
    match said {
        Ok(Ok(fault)) => fault.clone().expect("waited for"),
        _ => Fault::new("ConnectionClosed", "the function's pod closed the connection before it answered"),
    }
}

fn timed_out(definition: &Definition) -> Response<Body> {
    let seconds = definition.timeout().as_secs();
    let message =
        format!("function {:?} did not answer within {seconds} s (timeoutSeconds)", definition.key.name);
    answer::status(StatusCode::GATEWAY_TIMEOUT, &Fault::new("TimedOut", message))
}

/// An answer that goes on as it comes. The pod is busy until its end, or until the caller leaves.
fn streamed(seat: Seat, answer: Response<Incoming>, sender: SendRequest<Body>) -> Response<Body> {
    struct Stream {
        body: Incoming,
        seat: Seat,
        sender: Option<SendRequest<Body>>,
    }
    let (mut head, body) = answer.into_parts();
    for name in [TRANSFER_ENCODING, http::header::CONNECTION] {
        head.headers.remove(name);
    }
    let mut seat = seat;
    // A caller who leaves closes the connection, which ends the call.
    seat.is_answered();
    let has_length = head.headers.contains_key(CONTENT_LENGTH);
    let state = Stream { body, seat, sender: Some(sender) };
    let pieces = stream::unfold(state, |mut stream| async move {
        loop {
            match stream.body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    return Some((Ok::<Bytes, std::io::Error>(data), stream));
                }
                Some(Err(error)) => {
                    stream.sender = None;
                    return Some((Err(std::io::Error::other(error)), stream));
                }
                None => {
                    stream.seat.is_answered();
                    if let Some(sender) = stream.sender.take() {
                        stream.seat.link.keep(sender);
                    }
                    return None;
                }
            }
        }
    });
    let mut response = Response::from_parts(head, Body::from_stream(pieces));
    if has_length && response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}
