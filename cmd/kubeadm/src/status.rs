//! What of a cluster is on a machine and how it is. Pure: what was seen becomes a table, and for whatever does not work its
//! last words and what to do.
//!
//! ```text
//! services, manifests, containers, logs, the API ──seen──> Part { state, detail } ──> table
//!                                                    not good ──> Trouble { last words, advice }
//! ```

use jiff::Timestamp;
use std::path::Path;

/// A container that was made this recently after another had ended may end as that one did.
const SETTLED_S: i64 = 20;

/// How a part of the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// Not yet, or not any more.
    Bad,
}

/// A part of the cluster on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// How it is, in a word.
    pub word: String,
    /// What else there is to say of it.
    pub detail: String,
    /// Whether that is good.
    pub state: State,
    /// What it said last, if it does not work.
    pub last_words: Vec<String>,
    /// What to do, if it does not work.
    pub advice: String,
}

impl Part {
    /// A part that works.
    pub fn good(name: &str, word: &str, detail: impl Into<String>) -> Part {
        Part {
            name: name.to_owned(),
            word: word.to_owned(),
            detail: detail.into(),
            state: State::Good,
            last_words: Vec::new(),
            advice: String::new(),
        }
    }

    /// A part that does not.
    pub fn bad(name: &str, word: &str, detail: impl Into<String>, advice: impl Into<String>) -> Part {
        Part { state: State::Bad, advice: advice.into(), ..Part::good(name, word, detail) }
    }

    /// With what it said last.
    pub fn saying(self, last_words: Vec<String>) -> Part {
        Part { last_words, ..self }
    }
}

/// A static pod's container as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The kubelet has made none.
    Nothing,
    /// It runs since then, and has been started so often.
    Runs { since: Timestamp, starts: u32 },
    /// It has ended with this code, and has been started so often.
    Ended { code: i32, starts: u32 },
}

/// A static pod.
pub fn static_pod(name: &str, manifest: &Path, seen: &Seen, last_words: Vec<String>, now: Timestamp) -> Part {
    let file = manifest.display();
    let again = format!("mend {file} if it is at fault there: the kubelet starts it anew by itself");
    let times = |starts: u32| if starts == 1 { "once".to_owned() } else { format!("{starts} times") };
    match *seen {
        Seen::Nothing => Part::bad(name, "not started", "", format!("the kubelet's log says why ({file})")),
        Seen::Ended { code, starts } => {
            Part::bad(name, "ended", format!("exit code {code}, started {}", times(starts)), again)
                .saying(last_words)
        }
        Seen::Runs { since, starts } => {
            let runs_s = now.duration_since(since).as_secs();
            let detail = format!("for {}, started {}", age(runs_s), times(starts));
            match starts > 1 && runs_s < SETTLED_S {
                true => Part::bad(name, "restarted", detail, again).saying(last_words),
                false => Part::good(name, "running", detail),
            }
        }
    }
}

/// As people read it.
fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{} s", seconds.max(0)),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The last lines of a log, without what the runtime puts before each of them.
pub fn last_lines(log: &str, count: usize) -> Vec<String> {
    let text = |line: &str| -> String {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(_), Some("stdout" | "stderr"), Some("F" | "P"), rest) => {
                rest.unwrap_or_default().to_owned()
            }
            _ => line.to_owned(),
        }
    };
    let lines: Vec<String> = log.lines().map(text).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// The whole page.
pub fn page(parts: &[Part]) -> String {
    let mut rows = vec![["PART", "STATE", "DETAIL"].map(str::to_owned).to_vec()];
    rows.extend(parts.iter().map(|part| vec![part.name.clone(), part.word.clone(), part.detail.clone()]));
    let mut text = cli::table(&rows);
    for part in parts.iter().filter(|part| part.state == State::Bad) {
        text.push_str(&format!("\n{}: {}\n", part.name, part.advice));
        if !part.last_words.is_empty() {
            text.push_str("  its last words:\n");
        }
        for line in &part.last_words {
            text.push_str(&format!("    {}\n", cli::plain(line)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).expect("a time")
    }

    #[test]
    fn a_static_pod_is_good_when_it_stays() {
        let check = |seen: Seen, word: &str, state: State| {
            let part = static_pod("etcd", Path::new("/m/etcd.yaml"), &seen, vec!["panic".into()], at(60));
            assert_eq!((part.word.as_str(), part.state), (word, state), "{seen:?}");
            assert_eq!(part.last_words.is_empty(), state == State::Good || seen == Seen::Nothing, "{seen:?}");
        };
        check(Seen::Nothing, "not started", State::Bad);
        check(Seen::Ended { code: 2, starts: 7 }, "ended", State::Bad);
        check(Seen::Runs { since: at(59), starts: 1 }, "running", State::Good);
        check(Seen::Runs { since: at(0), starts: 3 }, "running", State::Good);
        check(Seen::Runs { since: at(59), starts: 3 }, "restarted", State::Bad);
    }

    #[test]
    fn the_page_says_what_does_not_work_why_and_what_to_do() {
        let words = vec!["error: unexpected argument '--bogus' found".to_owned(), "\u{1b}[2J".to_owned()];
        let seen = Seen::Ended { code: 2, starts: 5 };
        let parts = [
            Part::good("kubelet", "running", "process 7"),
            static_pod("kube-scheduler", Path::new("/m/kube-scheduler.yaml"), &seen, words, at(0)),
        ];
        let expected = "PART             STATE     DETAIL\n\
                        kubelet          running   process 7\n\
                        kube-scheduler   ended     exit code 2, started 5 times\n\
                        \n\
                        kube-scheduler: mend /m/kube-scheduler.yaml if it is at fault there: the kubelet starts it anew by itself\n\
                        \x20 its last words:\n\
                        \x20   error: unexpected argument '--bogus' found\n\
                        \x20   ^[[2J\n";
        assert_eq!(page(&parts), expected);
    }

    #[test]
    fn logs_are_read_without_the_runtimes_words() {
        let log = "2026-01-01T00:00:00.0Z stderr F first\n2026-01-01T00:00:00.0Z stdout F a b  c\n\n2026-01-01T00:00:00.0Z stderr F \nplain\n";
        assert_eq!(last_lines(log, 2), ["a b  c", "plain"]);
        assert_eq!(last_lines(log, 9).len(), 3);
        assert_eq!(last_lines("", 3), [""; 0]);
    }

    #[test]
    fn ages_are_short() {
        assert_eq!([5, 119, 120, 7200, 172_800].map(age), ["5 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
