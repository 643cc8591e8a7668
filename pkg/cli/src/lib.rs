//! What kubectl and kubeadm share: tables, progress, the terminal.
//!
//! Nothing here talks to a cluster: it only shows things to people, on a terminal or in a pipe.

mod elastic;
mod plain;
mod progress;
mod table;

pub use elastic::elastic;
pub use plain::plain;
pub use progress::Progress;
pub use table::table;

/// How many lines and columns the terminal has.
pub fn terminal_size() -> (usize, usize) {
    let (lines, columns) = console::Term::stdout().size();
    (usize::from(lines), usize::from(columns))
}

/// As a shell tells that a program ended because nobody read on.
const NOBODY_READS: i32 = 128 + 13;

/// Ends the program quietly when its reader has seen enough (`kubectl get pods | head`): `println!` panics then.
pub fn end_with_the_reader() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>();
        if said.is_some_and(|said| said.starts_with("failed printing to stdout: Broken pipe")) {
            std::process::exit(NOBODY_READS);
        }
        before(panic);
    }));
}
