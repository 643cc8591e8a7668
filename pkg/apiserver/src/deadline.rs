//! How long a request may take: what its `timeout` parameter says, and no longer than the server allows.
//!
//! It begins when the headers are there and covers all that follows: a body that does not come, and the work. Requests
//! that last by their nature (watches, logs, streams) have none.

use crate::error::{ApiError, Result};
use crate::request::Query;
use api::kinds::batch::schedule::parse_go_duration;
use std::time::Duration;
use tokio::time::Instant;

/// When a request is given up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// The deadline of a request that begins now.
    pub fn new(query: &Query, is_long_running: bool, longest: Duration) -> Result<Deadline> {
        let limit = if is_long_running { None } else { Some(limit(query.get("timeout"), longest)?) };
        Ok(Deadline(limit.map(|limit| Instant::now() + limit)))
    }

    /// How long it may wait for its turn: a quarter of the time that is left, or of the longest where it has no end.
    pub fn patience(self, longest: Duration) -> Duration {
        self.0.map_or(longest, |end| end.saturating_duration_since(Instant::now())) / 4
    }

    /// The outcome of work, if it comes in time.
    pub async fn within<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.0 {
            Some(end) => {
                tokio::time::timeout_at(end, work).await.map_err(|_| ApiError::deadline_exceeded())?
            }
            None => work.await,
        }
    }
}

/// What a client asks for counts where it is less than what the server allows, and more than nothing.
fn limit(asked: Option<&str>, longest: Duration) -> Result<Duration> {
    let Some(text) = asked else { return Ok(longest) };
    let asked = parse_go_duration(text).map_err(|why| {
        ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    Ok(Duration::try_from(asked).ok().filter(|asked| !asked.is_zero()).unwrap_or(longest).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_ask_for_less_time_but_not_for_more() {
        let check = |asked: Option<&str>, expected: Result<u64, &str>| {
            let limit = limit(asked, Duration::from_secs(60)).map_err(|error| error.message);
            assert_eq!(limit, expected.map(Duration::from_millis).map_err(str::to_owned), "{asked:?}");
        };
        check(None, Ok(60_000));
        check(Some("32s"), Ok(32_000));
        check(Some("0s"), Ok(60_000));
        check(Some("-1s"), Ok(60_000));
        check(Some("1h"), Ok(60_000));
        check(Some("1m0.5s"), Ok(60_000));
        check(Some("10ms"), Ok(10));
        let wrong = "invalid timeout specified in the request URL - time: ";
        check(Some("x"), Err(&format!("{wrong}invalid duration \"x\"")));
        check(Some("5"), Err(&format!("{wrong}missing unit in duration \"5\"")));
    }
}
