//! Machines to try things on: `cargo run -p testing --example machines -- 2 bin/minik8s` makes two of them, with the
//! program in `/opt`. They are gone when this ends.

use std::io::Read;
use std::path::PathBuf;
use testing::{Machine, Switch};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u8 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let switch = Switch::new();
    let machines: Vec<Machine> =
        (1..=count).map(|number| Machine::boot(&switch, &format!("m{number}"), number)).collect();
    for machine in &machines {
        for file in &files {
            let name = file.file_name().expect("a file").to_string_lossy();
            std::fs::copy(file, machine.path(&format!("/opt/{name}"))).expect("the file is copied");
        }
        let command = machine.command("bash");
        let arguments: Vec<String> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        println!("{} ({}): nsenter {}", machine.name(), machine.address(), arguments.join(" "));
    }
    println!("Ctrl-D ends them.");
    let _ = std::io::stdin().read(&mut [0]);
}
