//! Commands of others: programs named `kubectl-NAME` on the PATH.

use anyhow::{Result, bail};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "kubectl-";

/// What can be done with plugins.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show those on the PATH.
    List {
        /// Only their names.
        #[arg(long)]
        name_only: bool,
    },
}

/// Shows.
pub fn run(command: &Command) -> Result<()> {
    let Command::List { name_only } = command;
    let (mut seen, mut warnings): (Vec<PathBuf>, usize) = (Vec::new(), 0);
    let mut warn = |text: String| {
        eprintln!("  - warning: {text}");
        warnings += 1;
    };
    for path in folders().iter().flat_map(|folder| plugins_in(folder)) {
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        if seen.is_empty() && !name_only {
            println!("The following compatible plugins are available:\n");
        }
        println!("{}", if *name_only { name.display() } else { path.display() });
        if !is_executable(&path) {
            warn(format!("{} identified as a kubectl plugin, but it is not executable", path.display()));
        }
        if let Some(first) = seen.iter().find(|own| own.file_name() == path.file_name()) {
            warn(format!(
                "{} is overshadowed by a similarly named plugin: {}",
                path.display(),
                first.display()
            ));
        }
        seen.push(path);
    }
    if seen.is_empty() {
        bail!("unable to find any kubectl plugins in your PATH");
    }
    match warnings {
        0 => Ok(()),
        1 => bail!("one plugin warning was found"),
        warnings => bail!("{warnings} plugin warnings were found"),
    }
}

/// Becomes the plugin that the arguments mean, if none of our own commands is meant and there is one; the program's
/// own name is the first argument.
pub fn become_plugin(arguments: &[OsString], own: &clap::Command) {
    let words: Vec<&str> = arguments
        .iter()
        .skip(1)
        .map_while(|argument| argument.to_str().filter(|word| !word.starts_with('-')))
        .collect();
    let is_own = match words.as_slice() {
        [] | ["help" | "__complete" | "__completeNoDesc", ..] | ["create"] => true,
        ["create", second, ..] => {
            own.find_subcommand("create").is_none_or(|create| create.find_subcommand(second).is_some())
        }
        [first, ..] => own.find_subcommand(first).is_some(),
    };
    if is_own {
        return;
    }
    let Some((path, count)) = find(&words, &folders()) else { return };
    let error = std::process::Command::new(&path).args(arguments.iter().skip(1 + count)).exec();
    eprintln!("error: {}: {error}", path.display());
    std::process::exit(1);
}

/// The program with the longest name that the words make, and how many of them.
fn find(words: &[&str], folders: &[PathBuf]) -> Option<(PathBuf, usize)> {
    let names = words.iter().map(|word| word.replace('-', "_")).collect::<Vec<_>>();
    let least = if words.first() == Some(&"create") { 2 } else { 1 };
    (least..=words.len()).rev().find_map(|count| {
        let name = format!("{PREFIX}{}", names[..count].join("-"));
        let path = folders.iter().map(|folder| folder.join(&name)).find(|path| is_executable(path))?;
        Some((path, count))
    })
}

fn folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn plugins_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_plugin = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
            && !path.is_dir()
    };
    let mut plugins: Vec<PathBuf> = entries.filter(is_plugin).collect();
    plugins.sort();
    plugins
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_meant() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["kubectl-foo", "kubectl-foo-bar", "kubectl-create-foo", "kubectl-a_b"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "").expect("a file");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a program");
        }
        std::fs::write(folder.path().join("kubectl-text"), "").expect("a file");
        let check = |line: &str, expected: Option<(&str, usize)>| {
            let words: Vec<&str> = line.split(' ').collect();
            let found = find(&words, &[folder.path().to_owned()]);
            let expected = expected.map(|(name, count)| (folder.path().join(name), count));
            assert_eq!(found, expected, "{line}");
        };
        check("foo", Some(("kubectl-foo", 1)));
        check("foo bar baz", Some(("kubectl-foo-bar", 2)));
        check("foo baz", Some(("kubectl-foo", 1)));
        check("create foo", Some(("kubectl-create-foo", 2)));
        check("a-b", Some(("kubectl-a_b", 1)));
        check("text", None);
    }
}
