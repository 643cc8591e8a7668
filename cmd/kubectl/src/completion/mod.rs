//! What may follow on a command line that is being typed: `kubectl __complete WORDS`, which shells ask for.
//!
//! ```text
//! words ──read──> Typed{command, flags, words} ──wanted──> Wanted ──> the cluster, the kubeconfig ──> candidates
//! ```
//!
//! The answer is as upstream's scripts expect it: a candidate on each line, behind a tab what it is, and in the end a
//! colon and what the shell should do with them.

mod candidates;
mod typed;

use clap::Command;
use std::ffi::OsString;

/// Names `kubectl __complete` on the command line.
const WORD: &str = "__complete";
/// The same without what candidates are.
const WORD_ALONE: &str = "__completeNoDesc";

/// No space after the candidate: it goes on.
const NO_SPACE: u8 = 2;
/// Names of files are no candidates.
const NO_FILES: u8 = 4;

/// Shells that there is a script for.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    /// For ~/.bashrc.
    Bash,
    /// For ~/.zshrc.
    Zsh,
    /// For ~/.config/fish/completions/kubectl.fish.
    Fish,
}

impl Shell {
    /// What the shell must read.
    pub fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("kubectl.bash"),
            Shell::Zsh => include_str!("kubectl.zsh"),
            Shell::Fish => include_str!("kubectl.fish"),
        }
    }
}

/// The names of the command that the arguments are of.
pub fn path<'a>(arguments: &[OsString], command: &'a mut Command) -> Vec<&'a str> {
    command.build();
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.chain([String::new()]).collect();
    typed::read(command, &words).path
}

/// The answer, if it is a shell that asks; the program's own name is the first argument.
pub fn answer(arguments: &[OsString], command: &mut Command) -> Option<String> {
    let (asks, words) = arguments.get(1..)?.split_first()?;
    if asks != WORD && asks != WORD_ALONE {
        return None;
    }
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    command.build();
    let typed = typed::read(command, &words);
    let found = candidates::of(&typed);
    let mut answer = String::new();
    for (candidate, about) in found.all {
        answer += &candidate;
        if !about.is_empty() && asks == WORD {
            answer += "\t";
            answer += &about;
        }
        answer += "\n";
    }
    let no_space = if found.goes_on { NO_SPACE } else { 0 };
    let no_files = if found.files { 0 } else { NO_FILES };
    Some(format!("{answer}:{}\n", no_space | no_files))
}
