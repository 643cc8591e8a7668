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
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        match line.trim() {
            BEGIN => inside = true,
            END if inside => inside = false,
            _ if inside => {}
            _ => {
                out += line;
                out.push('\n');
            }
        }
    }
    if let Some(address) = address.filter(|_| !names.is_empty()) {
        let lines: String = names.iter().map(|name| format!("{address} {name}\n")).collect();
        out += &format!("{BEGIN}\n{lines}{END}\n");
    }
    out
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
}
