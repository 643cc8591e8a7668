//! The block of ours in the node's `/etc/hosts`: names of DNS objects and ingresses, which lead to the node itself.

use std::io;
use std::net::IpAddr;
use std::path::Path;

const BEGIN: &str = "# BEGIN minik8s: hosts of DNS objects and ingresses";
const END: &str = "# END minik8s";

/// Makes the file's block say this, and nothing else different. No names: no block.
pub fn update(path: &Path, address: Option<IpAddr>, names: &[String]) -> io::Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let new = with_block(&old, address, names);
    if new == old {
        return Ok(());
    }
    // In place, since the file is often a mount, which cannot be renamed over.
    std::fs::write(path, new)
}

fn with_block(text: &str, address: Option<IpAddr>, names: &[String]) -> String {
    let ours: Vec<String> = address
        .iter()
        .flat_map(|address| names.iter().map(move |name| format!("{address} {name}")))
        .collect();
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let mut rest = lines.as_slice();
    while let [line, after @ ..] = rest {
        rest = after;
        if line.trim() == BEGIN {
            rest = &after[length_of_block(after, &ours)..];
        } else {
            out += line;
            out.push('\n');
        }
    }
    if !ours.is_empty() {
        out += &format!("{BEGIN}\n{}\n{END}\n", ours.join("\n"));
    }
    out
}

/// How many of the lines after a beginning are ours. Somebody may have removed the end, and may have written below: then
/// only what is written again is surely ours, and what else there is stays.
fn length_of_block(after: &[&str], ours: &[String]) -> usize {
    let is = |line: &&str, what: &str| line.trim() == what;
    let end = after.iter().position(|line| is(line, BEGIN) || is(line, END));
    match end.filter(|end| is(&after[*end], END)) {
        Some(end) => end + 1,
        None => after.iter().take_while(|line| ours.iter().any(|own| is(line, own))).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_changes() {
        let address = Some("192.168.1.1".parse().unwrap());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mine = "127.0.0.1 localhost\n# mine\n10.0.0.1 other\n";
        let one = with_block(mine, address, &names(&["a.example"]));
        assert_eq!(one, format!("{mine}{BEGIN}\n192.168.1.1 a.example\n{END}\n"));
        let two = with_block(&one, address, &names(&["a.example", "b.example"]));
        assert_eq!(two, format!("{mine}{BEGIN}\n192.168.1.1 a.example\n192.168.1.1 b.example\n{END}\n"));
        assert_eq!(with_block(&two, address, &[]), mine);
        assert_eq!(with_block(&two, None, &names(&["a.example"])), mine);
    }

    #[test]
    fn without_its_end_a_block_takes_nobodys_lines_with_it() {
        let address = Some("192.168.1.1".parse().unwrap());
        let names = ["a.example".to_owned()];
        let block = format!("{BEGIN}\n192.168.1.1 a.example\n{END}\n");
        let check = |text: &str, names: &[String], expected: &str| {
            assert_eq!(with_block(text, address, names), expected, "{text}");
        };
        let endless =
            format!("127.0.0.1 localhost\n{BEGIN}\n192.168.1.1 a.example\n10.0.0.1 other\n\n# mine\n");
        let others = "127.0.0.1 localhost\n10.0.0.1 other\n\n# mine\n";
        check(&endless, &names, &format!("{others}{block}"));
        // With the end of another one, too.
        check(&format!("{endless}{block}"), &names, &format!("{others}{block}"));
        // Nobody knows any more whose this was.
        check(&format!("{BEGIN}\n192.168.1.1 gone.example\n"), &[], "192.168.1.1 gone.example\n");
        check(&format!("{others}{END}\n"), &[], &format!("{others}{END}\n"));
    }
}
