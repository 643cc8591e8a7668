//! What pods that are gone have written, as long as there is room: the latest of each function.

use client::Key;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

/// So much is kept of a function, and of all of them together.
const MOST_OF_FUNCTION: usize = 256 << 10;
const MOST_OF_ALL: usize = 16 << 20;
/// So much is kept of a pod.
pub const MOST_OF_POD: usize = 64 << 10;

/// The log of a pod that is gone.
struct Log {
    pod: String,
    text: String,
    /// Which of all it was.
    number: u64,
}

/// What pods that are gone have written.
#[derive(Default)]
pub struct Logs {
    of: HashMap<Key, VecDeque<Log>>,
    bytes: usize,
    next: u64,
}

impl Logs {
    /// A pod goes, and has written this; each line begins with its time.
    pub fn add(&mut self, function: &Key, pod: &str, mut text: String) {
        if text.len() > MOST_OF_POD {
            // The last lines, whole.
            let from = text.len() - MOST_OF_POD;
            let from = text.as_bytes()[from..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(text.len(), |at| from + at + 1);
            text.drain(..from);
        }
        let own = self.of.entry(function.clone()).or_default();
        if let Some(at) = own.iter().position(|log| log.pod == pod) {
            self.bytes -= own.remove(at).map_or(0, |log| log.text.len());
        }
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        own.push_back(Log { pod: pod.to_owned(), text, number: self.next });
        self.next += 1;
        while own.iter().map(|log| log.text.len()).sum::<usize>() > MOST_OF_FUNCTION {
            self.bytes -= own.pop_front().map_or(0, |log| log.text.len());
        }
        while self.bytes > MOST_OF_ALL {
            let oldest =
                self.of.values_mut().filter(|logs| !logs.is_empty()).min_by_key(|logs| logs[0].number);
            let Some(oldest) = oldest else { break };
            self.bytes -= oldest.pop_front().map_or(0, |log| log.text.len());
        }
        self.of.retain(|_, logs| !logs.is_empty());
    }

    /// A function is gone.
    pub fn forget(&mut self, function: &Key) {
        self.bytes -= self.of.remove(function).into_iter().flatten().map(|log| log.text.len()).sum::<usize>();
    }

    /// What is kept of a function: each line with its pod before it.
    pub fn of(&self, function: &Key) -> String {
        let mut page = String::new();
        for log in self.of.get(function).into_iter().flatten() {
            for line in log.text.lines() {
                let _ = writeln!(page, "{} {line}", log.pod);
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_each_function_is_kept_and_no_more_than_there_is_room_for() {
        let mut logs = Logs::default();
        let (one, other) = (Key::new("a", "one"), Key::new("a", "other"));
        logs.add(&one, "p1", "t first\n".into());
        logs.add(&one, "p1", "t first\nt second\n".into());
        assert_eq!(logs.of(&one), "p1 t first\np1 t second\n");
        let large = format!("t {}\nt last\n", "x".repeat(MOST_OF_POD));
        logs.add(&one, "p2", large);
        assert!(logs.of(&one).ends_with("\np2 t last\n") && logs.of(&one).len() < 100);
        let line = format!("t {}\n", "x".repeat(MOST_OF_POD - 3));
        for pod in 0..10 {
            logs.add(&other, &format!("p{pod}"), line.clone());
        }
        assert!(logs.of(&other).starts_with("p6 "), "four of them fit");
        for function in 0..100 {
            let key = Key::new("b", format!("f{function}"));
            (0..4).for_each(|pod| logs.add(&key, &format!("p{pod}"), line.clone()));
        }
        assert!(logs.bytes <= MOST_OF_ALL && logs.of(&one).is_empty());
        logs.forget(&Key::new("b", "f99"));
        let held: usize = logs.of.values().flatten().map(|log| log.text.len()).sum();
        assert_eq!(logs.bytes, held);
    }
}
