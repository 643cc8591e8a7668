//! What was typed so far, and what is wanted next. Pure.

use clap::{Arg, Command};

/// A command line up to the cursor.
pub struct Typed<'a> {
    /// The command it is of.
    pub command: &'a Command,
    /// The names of that command, such as `rollout status`.
    pub path: Vec<&'a str>,
    /// Flags with their values.
    pub flags: Vec<(&'a str, String)>,
    /// Words that are neither flags nor commands.
    pub words: Vec<String>,
    /// What the word under the cursor begins with; for `--flag=x` that is `x`.
    pub begun: String,
    /// What stands before that in the same word.
    pub before: String,
    /// What is wanted.
    pub wanted: Wanted<'a>,
}

/// What may stand under the cursor.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A command below this one.
    Commands,
    /// A flag.
    Flags,
    /// The value of a flag, by its long name.
    Value(&'a Arg),
    /// A word.
    Word,
    /// Behind `--` everything is somebody else's.
    Nothing,
}

/// Reads what was typed; the last word is the one under the cursor.
pub fn read<'a>(command: &'a Command, words: &[String]) -> Typed<'a> {
    let (last, before) = words.split_last().map_or(("", [].as_slice()), |(last, rest)| (last.as_str(), rest));
    let mut typed = Typed {
        command,
        path: Vec::new(),
        flags: Vec::new(),
        words: Vec::new(),
        begun: last.to_owned(),
        before: String::new(),
        wanted: Wanted::Word,
    };
    let mut waits: Option<&Arg> = None;
    for word in before {
        if let Some(flag) = waits.take() {
            typed.flags.push((name(flag), word.clone()));
        } else if word == "--" {
            typed.wanted = Wanted::Nothing;
            return typed;
        } else if word.starts_with('-') && word.len() > 1 {
            match (find(typed.command, word), word.split_once('=')) {
                (Some(flag), Some((_, value))) => typed.flags.push((name(flag), value.to_owned())),
                (Some(flag), None) if takes_value(flag) => waits = Some(flag),
                (Some(flag), None) => typed.flags.push((name(flag), String::new())),
                (None, _) => {}
            }
        } else if let Some(below) = typed.command.find_subcommand(word) {
            typed.command = below;
            typed.path.push(below.get_name());
        } else {
            typed.words.push(word.clone());
        }
    }
    if let Some(flag) = waits {
        typed.wanted = Wanted::Value(flag);
    } else if let (Some((flag, value)), true) = (last.split_once('='), last.starts_with("--")) {
        if let Some(found) = find(typed.command, flag) {
            typed.wanted = Wanted::Value(found);
            typed.begun = value.to_owned();
            typed.before = format!("{flag}=");
        } else {
            typed.wanted = Wanted::Nothing;
        }
    } else if last.starts_with('-') {
        typed.wanted = Wanted::Flags;
    } else if typed.words.is_empty() && typed.command.has_subcommands() {
        typed.wanted = Wanted::Commands;
    }
    typed
}

impl Typed<'_> {
    /// A flag's value.
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }
}

fn name(flag: &Arg) -> &str {
    flag.get_long().unwrap_or_default()
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_action().takes_values() && !flag.is_require_equals_set()
}

fn find<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let word = word.split('=').next().unwrap_or_default();
    let is = |flag: &&Arg| match word.strip_prefix("--") {
        Some(long) => flag.get_long_and_visible_aliases().is_some_and(|own| own.contains(&long)),
        None => word
            .strip_prefix('-')
            .is_some_and(|short| flag.get_short().is_some_and(|own| own.to_string() == short)),
    };
    command.get_arguments().find(is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_typed_says_what_is_wanted() {
        let mut command = crate::Cli::command();
        command.build();
        let check = |line: &str, path: &str, words: &[&str], wanted: &str, begun: &str| {
            let typed_words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let typed = read(&command, &typed_words);
            let found = match typed.wanted {
                Wanted::Value(flag) => name(flag).to_owned(),
                wanted => format!("{wanted:?}"),
            };
            assert_eq!((typed.path.join(" ").as_str(), found.as_str()), (path, wanted), "{line}");
            assert_eq!(
                (typed.words.as_slice(), typed.begun.as_str()),
                (words.map_strings().as_slice(), begun),
                "{line}"
            );
        };
        check("", "", &[], "Commands", "");
        check("ge", "", &[], "Commands", "ge");
        check("get po", "get", &[], "Word", "po");
        check("-n a get pods ", "get", &["pods"], "Word", "");
        check("get pods -n ku", "get", &["pods"], "namespace", "ku");
        check("get pods --namespace=ku", "get", &["pods"], "namespace", "ku");
        check("get -A --no", "get", &[], "Flags", "--no");
        check("rollout st", "rollout", &[], "Commands", "st");
        check("rollout status de", "rollout status", &[], "Word", "de");
        check("exec web -- sh -", "exec", &["web"], "Nothing", "-");
    }

    trait Strings {
        fn map_strings(&self) -> Vec<String>;
    }

    impl Strings for &[&str] {
        fn map_strings(&self) -> Vec<String> {
            self.iter().map(|word| (*word).to_owned()).collect()
        }
    }
}
