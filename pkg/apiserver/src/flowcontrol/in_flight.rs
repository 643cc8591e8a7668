//! Where a request meets what it may have to wait for: before it is worked on, and in the headers of its answer.

use super::level::{Schema, Seat};
use crate::answer::{self, Answer};
use crate::auth::User;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::handler::PermittedRequest;
use crate::server::Server;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The headers that say which schema and which level a request was of. Not by name: names would tell who is more important.
const UIDS: [HeaderName; 2] = [
    HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
    HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
];

/// A request that is worked on, until it is dropped.
pub struct Admitted<'a> {
    /// `None` where there is no priority and fairness.
    seat: Option<Seat>,
    _in_flight: InFlight<'a>,
}

/// A request that is not worked on now.
pub struct TurnedAway(Option<Arc<Schema>>);

/// A request among those that are counted.
struct InFlight<'a>(&'a AtomicI64);

/// Lets a request in as soon as it is its turn.
pub async fn admit<'a>(
    server: &'a Server,
    request: &PermittedRequest<'_>,
    seats: u32,
    deadline: Deadline,
) -> Result<Admitted<'a>, TurnedAway> {
    let (counter, most) = match request.verb {
        "get" | "head" | "list" | "watch" => {
            (&server.metrics.reads_in_flight, server.config.max_requests_in_flight)
        }
        _ => (&server.metrics.writes_in_flight, server.config.max_mutating_requests_in_flight),
    };
    let turned_away = |schema: Option<Arc<Schema>>| {
        server.metrics.rejected.fetch_add(1, Relaxed);
        TurnedAway(schema)
    };
    if server.config.enable_priority_and_fairness {
        let patience = deadline.patience(server.config.request_timeout);
        let seat = server
            .flows
            .seat(&request.attributes(), seats, patience)
            .await
            .map_err(|schema| turned_away(Some(schema)))?;
        return Ok(Admitted { seat: Some(seat), _in_flight: InFlight::one_more(counter) });
    }
    let in_flight = InFlight::one_more(counter);
    let is_limited = request.verb != "watch" && !request.user.is_in(User::MASTERS);
    if is_limited && in_flight.0.load(Relaxed) > most as i64 {
        return Err(turned_away(None));
    }
    Ok(Admitted { seat: None, _in_flight: in_flight })
}

impl Admitted<'_> {
    /// Says in the answer, also where it is an error, what the request was taken for.
    pub fn mark(&self, answer: Result<Answer>) -> Result<Answer> {
        match &self.seat {
            Some(seat) => Ok(mark(answer.unwrap_or_else(|error| answer::error(&error)), &seat.schema)),
            None => answer,
        }
    }
}

impl TurnedAway {
    /// The code of the answer.
    pub fn code(&self) -> u16 {
        StatusCode::TOO_MANY_REQUESTS.as_u16()
    }

    /// The answer, in upstream's words.
    pub fn answer(&self) -> Answer {
        let text = "Too many requests, please try again later.\n";
        let answer = answer::text(StatusCode::TOO_MANY_REQUESTS, text)
            .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
            .with_header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        match &self.0 {
            Some(schema) => mark(answer, schema),
            None => answer,
        }
    }
}

fn mark(answer: Answer, schema: &Schema) -> Answer {
    let [schema_uid, level_uid] = schema.uids.clone();
    let [of_schema, of_level] = UIDS;
    answer.with_header(of_schema, schema_uid).with_header(of_level, level_uid)
}

impl<'a> InFlight<'a> {
    fn one_more(counter: &'a AtomicI64) -> InFlight<'a> {
        counter.fetch_add(1, Relaxed);
        InFlight(counter)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
