//! What is wrong with a command line, in upstream's words: scripts and people know them.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What to say; `None` where clap's own words are printed as they are: help, and what upstream has no word for.
pub fn complaint(error: &Error, path: &[&str]) -> Option<String> {
    let command = [&["kubectl"], path].concat().join(" ");
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg).unwrap_or_default();
    let name = flag.split([' ', '=', '[']).next().unwrap_or_default();
    let see = format!("See '{command} --help' for usage.");
    Some(match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let close = match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::String(one)) => one.clone(),
                Some(ContextValue::Strings(all)) => all.join("\n\t"),
                _ => String::new(),
            };
            let hint = match close.as_str() {
                "" => String::new(),
                close => format!("\n\nDid you mean this?\n\t{close}"),
            };
            match path {
                [] => format!("error: unknown command \"{word}\" for \"kubectl\"{hint}"),
                _ => format!(
                    "error: unknown command \"{word}\"{hint}\nSee '{command} -h' for help and examples"
                ),
            }
        }
        ErrorKind::UnknownArgument if flag.starts_with("--") => {
            let close = text(ContextKind::SuggestedArg);
            let hint = close.map(|close| format!(" (did you mean {close}?)")).unwrap_or_default();
            format!("error: unknown flag: {flag}{hint}\n{see}")
        }
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            format!("error: unknown shorthand flag: '{}' in {flag}\n{see}", flag.trim_start_matches('-'))
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_none_or(|value| value.is_empty()) => {
            format!("error: flag needs an argument: {name}\n{see}")
        }
        ErrorKind::ValueValidation if name.starts_with('-') => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
            format!("error: invalid argument \"{value}\" for \"{name}\" flag{why}\n{see}")
        }
        ErrorKind::MissingRequiredArgument if name.starts_with("--") => {
            format!("error: required flag(s) \"{}\" not set", name.trim_start_matches('-'))
        }
        ErrorKind::MissingRequiredArgument => format!("error: {}", missing(path, &command)?),
        ErrorKind::InvalidValue if path == ["completion"] => {
            let shell = text(ContextKind::InvalidValue).unwrap_or_default();
            format!("error: Unsupported shell type \"{shell}\".\nSee '{command} -h' for help and examples")
        }
        _ => return None,
    })
}

/// What a command lacks without its words.
fn missing(path: &[&str], command: &str) -> Option<String> {
    let see = format!("\nSee '{command} -h' for help and examples");
    Some(match path {
        ["exec"] => "pod, type/name or --filename must be specified".to_owned(),
        ["attach"] => "at least 1 argument is required for attach".to_owned(),
        ["port-forward"] => format!("TYPE/NAME and list of ports are required for port-forward{see}"),
        ["completion"] => format!("Shell not specified.{see}"),
        ["create", ..] => format!("exactly one NAME is required, got 0{see}"),
        ["explain"] => {
            let where_to_look = "Use \"kubectl api-resources\" for a complete list of supported resources.";
            format!("You must specify the type of resource to explain. {where_to_look}")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn complaints_are_upstreams() {
        let check = |line: &str, path: &[&str], expected: &str| {
            let words = line.split(' ');
            let Err(error) = crate::Cli::try_parse_from(words) else { panic!("{line} is right") };
            assert_eq!(complaint(&error, path).as_deref(), Some(expected), "{line}: {error}");
        };
        check(
            "kubectl gett",
            &[],
            "error: unknown command \"gett\" for \"kubectl\"\n\nDid you mean this?\n\tset\n\tget",
        );
        check("kubectl xyzzy", &[], "error: unknown command \"xyzzy\" for \"kubectl\"");
        check(
            "kubectl get --nope",
            &["get"],
            "error: unknown flag: --nope\nSee 'kubectl get --help' for usage.",
        );
        check(
            "kubectl get -z",
            &["get"],
            "error: unknown shorthand flag: 'z' in -z\nSee 'kubectl get --help' for usage.",
        );
        check(
            "kubectl get --output",
            &["get"],
            "error: flag needs an argument: --output\nSee 'kubectl get --help' for usage.",
        );
        check("kubectl scale deploy/web", &["scale"], "error: required flag(s) \"replicas\" not set");
        check(
            "kubectl scale deploy/web --replicas=x",
            &["scale"],
            "error: invalid argument \"x\" for \"--replicas\" flag: invalid digit found in string\nSee 'kubectl scale --help' for usage.",
        );
    }
}
