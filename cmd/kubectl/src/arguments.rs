//! What scripts for upstream's kubectl write and clap does not understand: `--force=true`, `--all=false`, and
//! `--user` and `--cluster` behind a command that has no such flag of its own.

use clap::{ArgAction, Command};
use std::ffi::OsString;

/// Flags of the kubeconfig whose names some commands use for something else.
const OF_KUBECONFIG: [&str; 2] = ["user", "cluster"];

/// The arguments, with `--flag=true` as `--flag` and without `--flag=false`, for flags that are on or off. What stands
/// behind `--` belongs to somebody else.
pub fn normalised(arguments: impl Iterator<Item = OsString>, command: &Command) -> Vec<OsString> {
    let mut switches = switches_of(command);
    let mut command = command;
    let (mut normal, mut first) = (Vec::new(), Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            normal.push(argument);
            normal.extend(arguments);
            break;
        }
        if let Some(rest) = text.strip_prefix("--")
            && let name = rest.split('=').next().unwrap_or_default()
            && OF_KUBECONFIG.contains(&name)
            && !command.get_arguments().any(|own| own.get_long() == Some(name))
        {
            let value = if rest.contains('=') { None } else { arguments.next() };
            first.extend([Some(argument), value].into_iter().flatten());
            continue;
        }
        if let Some(found) = (!normal.is_empty()).then(|| command.find_subcommand(text)).flatten() {
            command = found;
            switches.extend(switches_of(command));
        }
        match switched(text, &switches) {
            Some(switch) => normal.extend(switch.map(OsString::from)),
            None => normal.push(argument),
        }
    }
    let behind_name = normal.len().min(1);
    normal.splice(behind_name..behind_name, first);
    normal
}

/// What `--flag=true` and `-it=false` are without the word: the last of several letters is what it is about. The outer
/// `None`: something else.
fn switched<'a>(text: &'a str, switches: &[String]) -> Option<Option<&'a str>> {
    let (name, word) = text.split_once('=')?;
    let is_on = match word {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => return None,
    };
    let is_switch = |name: &str| switches.iter().any(|own| own == name);
    if is_switch(name) {
        return Some(is_on.then_some(name));
    }
    let letters = name.strip_prefix('-').filter(|letters| !letters.is_empty() && letters.is_ascii())?;
    if !letters.chars().all(|letter| is_switch(&format!("-{letter}"))) {
        return None;
    }
    Some(Some(if is_on { name } else { &name[..name.len() - 1] }))
}

fn switches_of(command: &Command) -> Vec<String> {
    let switches =
        command.get_arguments().filter(|argument| matches!(argument.get_action(), ArgAction::SetTrue));
    switches
        .flat_map(|argument| {
            let long = argument.get_long().map(|long| format!("--{long}"));
            long.into_iter().chain(argument.get_short().map(|short| format!("-{short}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn switches_may_say_true_and_false() {
        let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let command = Command::new("kubectl")
            .arg(switch("quiet"))
            .subcommand(
                Command::new("exec")
                    .args(
                        ["i", "t"]
                            .map(|letter| switch(letter).short(letter.chars().next().expect("a letter"))),
                    )
                    .arg(Arg::new("container").short('c')),
            )
            .subcommand(Command::new("delete").arg(switch("force")).arg(Arg::new("wait").long("wait")));
        let check = |arguments: &str, expected: &str| {
            let normal = normalised(arguments.split(' ').map(OsString::from), &command);
            assert_eq!(normal.join(std::ffi::OsStr::new(" ")).to_str(), Some(expected));
        };
        check("kubectl delete --force=true a", "kubectl delete --force a");
        check("kubectl delete --force=false --quiet=true", "kubectl delete --quiet");
        check("kubectl delete --wait=false", "kubectl delete --wait=false");
        check("kubectl delete -- --force=true", "kubectl delete -- --force=true");
        check("kubectl --force=true", "kubectl --force=true");
        check("kubectl exec -it=false a", "kubectl exec -i a");
        check("kubectl exec -it=true -i=0 -ti=T a", "kubectl exec -it -ti a");
        check("kubectl exec -ic=false -it=maybe", "kubectl exec -ic=false -it=maybe");
        check("kubectl delete a --user=me --cluster home b", "kubectl --user=me --cluster home delete a b");
    }
}
