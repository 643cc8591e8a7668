//! From lines of a file to what the client sees. Pure.
//!
//! A line is `time stream tag text`; the tag `P` says that the text goes on in the next line of that stream.

use super::options::Options;
use jiff::Timestamp;

/// Decides about lines, one after the other.
pub struct Filter {
    since: Option<Timestamp>,
    timestamps: bool,
    stream: Option<&'static str>,
    /// How much may still be said.
    left: Option<u64>,
    /// Whether what was said last ended in the middle of a line.
    in_line: bool,
}

/// Whether there is more to say.
#[derive(Debug, PartialEq, Eq)]
pub enum More {
    /// Go on.
    Yes,
    /// Enough was said.
    No,
}

/// A line of a log file.
struct Line<'a> {
    time: &'a str,
    stream: &'a str,
    is_partial: bool,
    text: &'a [u8],
}

impl Filter {
    /// As the options say.
    pub fn new(options: &Options, now: Timestamp) -> Filter {
        Filter {
            since: options.since.map(|since| since.at(now)),
            timestamps: options.timestamps,
            stream: options.stream,
            left: options.limit_bytes,
            in_line: false,
        }
    }

    /// Adds what a line (without its end) says to `said`.
    pub fn line(&mut self, line: &[u8], said: &mut Vec<u8>) -> More {
        let Some(line) = parse(line) else { return More::Yes };
        if self.stream.is_some_and(|stream| stream != line.stream) {
            return More::Yes;
        }
        let is_old = |since: Timestamp| line.time.parse::<Timestamp>().is_ok_and(|time| time < since);
        if self.since.is_some_and(is_old) {
            return More::Yes;
        }
        if self.timestamps && !self.in_line {
            let time = line.time.parse::<Timestamp>().map(|time| format!("{time:.9} "));
            self.say(time.unwrap_or_default().as_bytes(), said);
        }
        self.say(line.text, said);
        if !line.is_partial {
            self.say(b"\n", said);
        }
        self.in_line = line.is_partial;
        if self.left == Some(0) { More::No } else { More::Yes }
    }

    fn say(&mut self, bytes: &[u8], said: &mut Vec<u8>) {
        let most = self
            .left
            .map_or(bytes.len(), |left| bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        said.extend_from_slice(&bytes[..most]);
        self.left = self.left.map(|left| left - most as u64);
    }
}

/// What is not in the format is not of the container.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    let (time, stream, tag) = (word()?, word()?, word()?);
    let text = parts.next().unwrap_or_default();
    matches!(stream, "stdout" | "stderr").then(|| Line {
        time,
        stream,
        is_partial: tag.split(':').next() == Some("P"),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::logs::options::Since;

    const FILE: &str = "2024-01-01T00:00:00.1Z stdout F one
2024-01-01T00:00:01.000000002Z stderr P tw
2024-01-01T00:00:01.000000003Z stderr F o
garbage
2024-01-01T00:00:02Z stdout F\x20
2024-01-01T00:00:03Z stdout F three  3";

    fn check(options: Options, expected: &str) {
        let now = "2024-01-01T00:00:04Z".parse().unwrap();
        let mut filter = Filter::new(&options, now);
        let mut said = Vec::new();
        for line in FILE.lines() {
            if filter.line(line.as_bytes(), &mut said) == More::No {
                break;
            }
        }
        assert_eq!(String::from_utf8(said).unwrap(), expected, "{options:?}");
    }

    #[test]
    fn lines_are_joined_chosen_and_cut() {
        let options = Options::default;
        check(options(), "one\ntwo\n\nthree  3\n");
        check(Options { stream: Some("stderr"), ..options() }, "two\n");
        check(Options { limit_bytes: Some(6), ..options() }, "one\ntw");
        check(Options { since: Some(Since::Seconds(2)), ..options() }, "\nthree  3\n");
        check(
            Options { since: Some(Since::Time("2024-01-01T00:00:03Z".parse().unwrap())), ..options() },
            "three  3\n",
        );
        check(
            Options { timestamps: true, ..options() },
            "2024-01-01T00:00:00.100000000Z one\n2024-01-01T00:00:01.000000002Z two\n\
             2024-01-01T00:00:02.000000000Z \n2024-01-01T00:00:03.000000000Z three  3\n",
        );
    }
}
