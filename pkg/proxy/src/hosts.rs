//! The block of ours in the node's `/etc/hosts`: names of DNS objects and ingresses, which lead to the node itself.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

const BEGIN: &str = "# BEGIN minik8s: hosts of DNS objects and ingresses";
const END: &str = "# END minik8s";

/// Makes the file's block say this, and nothing else different. No names: no block.
pub fn update(path: &Path, address: Option<IpAddr>, names: &[String]) -> io::Result<()> {
    // Where it leads, if it is a link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let new = with_block(&old, address, names);
    let mut half = path.clone().into_os_string();
    half.push(".minik8s");
    let half = Path::new(&half);
    let replaced = if new == old { Ok(()) } else { replace(&path, half, &new) };
    // Who is killed leaves it.
    let _ = std::fs::remove_file(half);
    replaced
}

/// Replaces the file whole: whoever is killed meanwhile, or finds the disk full, leaves all of the old one.
fn replace(path: &Path, half: &Path, text: &str) -> io::Result<()> {
    match write_like(path, half, text).and_then(|()| std::fs::rename(half, path)) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(error),
        // A mount cannot be renamed over. Nothing is taken away before all is written.
        Err(_) => {
            let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)
        }
        done => done,
    }
}

/// Writes another file, which whoever may read the first may read as well.
fn write_like(first: &Path, other: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(other)?;
    if let Ok(like) = std::fs::metadata(first) {
        file.set_permissions(like.permissions())?;
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
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
    fn whoever_reads_finds_the_lines_of_others_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("hosts"), dir.path().join("link"));
        std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
        std::os::unix::fs::symlink("hosts", &link).unwrap();
        let address = Some("192.168.1.1".parse().unwrap());
        let names: Vec<String> = (0..50).map(|number| format!("name-{number}.example")).collect();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for number in 0..500 {
                    update(&link, address, &names[..number % names.len()]).unwrap();
                }
                update(&link, None, &[]).unwrap();
            });
            while !writes.is_finished() {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(text.starts_with("127.0.0.1 localhost\n"), "{text:?}");
            }
        });
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "127.0.0.1 localhost\n");
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("hosts"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left");
    }

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
