//! Steps that take a moment, shown as they go: live on a terminal, a line each elsewhere.
//!
//! ```text
//! ✓ certs         made ca.crt and 4 more in /etc/kubernetes/pki (0.1 s)
//! ⠙ kubelet       waiting for the node
//! ```

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How wide the names of steps are.
const NAME_WIDTH: usize = 14;
/// Shorter steps do not say how long they took.
const WORTH_TELLING: Duration = Duration::from_millis(100);

/// One step, from its beginning to its end.
pub struct Progress {
    name: String,
    bar: ProgressBar,
    is_terminal: bool,
    began: Instant,
}

impl Progress {
    /// Begins a step: `what` says what is being done.
    pub fn begin(name: &str, what: &str) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if is_terminal {
            let style = ProgressStyle::with_template("{spinner:.cyan} {prefix:.bold} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bar.set_style(style);
            bar.set_prefix(pad(name));
            bar.set_message(what.to_owned());
            bar.enable_steady_tick(Duration::from_millis(80));
        }
        Progress { name: name.to_owned(), bar, is_terminal, began: Instant::now() }
    }

    /// Says what is being done now.
    pub fn update(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// The step is done: `what` says what was done.
    pub fn done(self, what: &str) {
        self.end("✓", "\u{1b}[32m", what);
    }

    /// The step was not done, and that is fine.
    pub fn skipped(self, why: &str) {
        self.end("-", "\u{1b}[2m", why);
    }

    /// The step failed; the error itself is shown by whoever ends the program.
    pub fn failed(self) {
        self.end("✗", "\u{1b}[31m", "failed");
    }

    fn end(self, sign: &str, colour: &str, what: &str) {
        let took = self.began.elapsed();
        let time =
            if took >= WORTH_TELLING { format!(" ({:.1} s)", took.as_secs_f64()) } else { String::new() };
        self.bar.finish_and_clear();
        if self.is_terminal {
            eprintln!(
                "{colour}{sign}\u{1b}[0m \u{1b}[1m{}\u{1b}[0m {what}\u{1b}[2m{time}\u{1b}[0m",
                pad(&self.name)
            );
        } else {
            eprintln!("[{}] {what}{time}", self.name);
        }
    }
}

fn pad(name: &str) -> String {
    format!("{name:<NAME_WIDTH$}")
}
