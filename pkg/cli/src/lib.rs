//! What kubectl and kubeadm share: tables, progress, the terminal.
//!
//! Nothing here talks to a cluster: it only shows things to people, on a terminal or in a pipe.

mod elastic;
mod progress;
mod table;

pub use elastic::elastic;
pub use progress::Progress;
pub use table::table;

/// How many lines and columns the terminal has.
pub fn terminal_size() -> (usize, usize) {
    let (lines, columns) = console::Term::stdout().size();
    (usize::from(lines), usize::from(columns))
}
