//! Machines to try things on: `cargo run -p testing --example machines -- 2`. They are gone when this ends.

use std::io::Read;
use testing::{Machine, Switch};

fn main() {
    let count: u8 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let switch = Switch::new();
    let machines: Vec<Machine> =
        (1..=count).map(|number| Machine::boot(&switch, &format!("m{number}"), number)).collect();
    for machine in &machines {
        let command = machine.command("bash");
        let arguments: Vec<String> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        println!("{} ({}): nsenter {}", machine.name(), machine.address(), arguments.join(" "));
    }
    println!("Ctrl-D ends them.");
    let _ = std::io::stdin().read(&mut [0]);
}
