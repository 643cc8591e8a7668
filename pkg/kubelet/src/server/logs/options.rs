//! What of a log is wanted.

use crate::server::answer::Refusal;
use crate::server::route::Query;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

/// Upstream's `PodLogOptions`, as far as it concerns the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Go on as it grows, until the container ends.
    pub follow: bool,
    /// Of the container before this one.
    pub previous: bool,
    /// With the time before each line.
    pub timestamps: bool,
    /// Only the end.
    pub tail_lines: Option<u64>,
    /// No more than this.
    pub limit_bytes: Option<u64>,
    /// Only what is not older.
    pub since: Option<Since>,
    /// Only what was written there; `None`: both.
    pub stream: Option<&'static str>,
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Since {
    /// A moment.
    Time(Timestamp),
    /// Before now.
    Seconds(i64),
}

impl Since {
    /// The moment.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Since::Time(time) => time,
            Since::Seconds(seconds) => {
                now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

impl Options {
    /// From a query.
    pub fn parse(query: &Query) -> Result<Options, Refusal> {
        let undecodable =
            || (StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#.to_owned());
        let invalid = || (StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#.to_owned());
        let int = |name: &str| query.get(name).map(str::parse::<i64>).transpose().map_err(|_| undecodable());
        let tail = int("tailLines")?;
        let limit = int("limitBytes")?;
        let seconds = int("sinceSeconds")?;
        let time =
            query.get("sinceTime").map(str::parse::<Timestamp>).transpose().map_err(|_| undecodable())?;
        let is_wrong = tail.is_some_and(|tail| tail < 0)
            || limit.is_some_and(|limit| limit < 1)
            || seconds.is_some_and(|seconds| seconds < 1)
            || (seconds.is_some() && time.is_some());
        if is_wrong {
            return Err(invalid());
        }
        let stream = match query.get("stream") {
            None | Some("All") => None,
            Some("Stdout") => Some("stdout"),
            Some("Stderr") => Some("stderr"),
            Some(_) => return Err(invalid()),
        };
        if stream.is_some() && tail.is_some() {
            return Err(invalid());
        }
        Ok(Options {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail_lines: tail.and_then(|tail| u64::try_from(tail).ok()),
            limit_bytes: limit.and_then(|limit| u64::try_from(limit).ok()),
            since: time.map(Since::Time).or(seconds.map(Since::Seconds)),
            stream,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |query: &str, expected: Result<Options, u16>| {
            let found = Options::parse(&Query::parse(query)).map_err(|(code, _)| code.as_u16());
            assert_eq!(found, expected, "{query}");
        };
        check("", Ok(Options::default()));
        check(
            "follow=true&previous=1&timestamps=true&limitBytes=5&sinceSeconds=7",
            Ok(Options {
                follow: true,
                previous: true,
                timestamps: true,
                limit_bytes: Some(5),
                since: Some(Since::Seconds(7)),
                ..Options::default()
            }),
        );
        check("tailLines=0&stream=All", Ok(Options { tail_lines: Some(0), ..Options::default() }));
        check("stream=Stderr", Ok(Options { stream: Some("stderr"), ..Options::default() }));
        check("tailLines=x", Err(400));
        check("sinceTime=yesterday", Err(400));
        check("tailLines=-1", Err(422));
        check("limitBytes=0", Err(422));
        check("sinceSeconds=0", Err(422));
        check("sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z", Err(422));
        check("stream=Stdout&tailLines=1", Err(422));
        check("stream=neither", Err(422));
    }
}
