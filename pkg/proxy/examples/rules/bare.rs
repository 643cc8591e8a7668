//! Rules without anybody who asks for them: by iptables-restore alone, and by what renders and compares.

use crate::{PODS, SERVICES, Scale, Times, changed, key, median, service};
use proxy::iptables::Iptables;
use proxy::rules::{self, Settings, Table};
use proxy::syncer::Syncer;
use std::time::Instant;

/// The limit: nothing but iptables-restore, of text that is ready, in the same chunks.
pub async fn restore(scale: &Scale) -> Times {
    let size = scale.services;
    let iptables = Iptables::find(&scale.iptables).await.expect("iptables");
    let settings = settings();
    let shared = shared_chains(size, &settings);
    let shared = format!("{}{}", text("nat", &shared.nat), text("filter", &shared.filter));
    let mark = "*nat\n:KUBE-HOST-MARK - [0:0]\n-A KUBE-HOST-MARK -j MARK --set-xmark 0x6000/0x6000\nCOMMIT\n";
    let chunk = if iptables.is_nft() { 50 } else { size };
    let chunks = (0..size).step_by(chunk).map(|from| {
        let services = (from..size.min(from + chunk)).map(|n| rules::port(&service(n, 0), &settings).chains);
        text("nat", &services.flatten().collect())
    });
    let texts: Vec<String> = std::iter::once(mark.to_owned()).chain(chunks).chain([shared]).collect();
    let began = Instant::now();
    for text in &texts {
        iptables.restore(text).await.expect("restored");
    }
    // The kernel checks the whole of what a packet can reach at every change.
    iptables.add_jumps().await.expect("jumps");
    let first = began.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for n in 0..scale.changes {
        let changed = changed(n, scale);
        let chains = |version: usize| rules::port(&service(changed, version), &settings).chains;
        let before = chains(0);
        // The service's own chain, and that of the endpoint that is another.
        let differs = |(name, rules): &(String, Vec<String>)| before.get(name) != Some(rules);
        let text = text("nat", &chains(n + 1).into_iter().filter(differs).collect());
        let began = Instant::now();
        iptables.restore(&text).await.expect("restored");
        times.push(began.elapsed().as_secs_f64());
    }
    Times { first, change: median(times) }
}

/// The same through all that finds out what has to be restored.
pub async fn sync(scale: &Scale) -> Times {
    let iptables = Iptables::find(&scale.iptables).await.expect("iptables");
    let mut syncer = Syncer::new(iptables, settings());
    let began = Instant::now();
    syncer.sync((0..scale.services).map(|n| (key(n), vec![service(n, 0)]))).await.expect("synced");
    let first = began.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for n in 0..scale.changes {
        let changed = changed(n, scale);
        let began = Instant::now();
        syncer.sync([(key(changed), vec![service(changed, n + 1)])]).await.expect("synced");
        times.push(began.elapsed().as_secs_f64());
    }
    Times { first, change: median(times) }
}

fn shared_chains(size: usize, settings: &Settings) -> rules::Rules {
    let rendered: Vec<_> = (0..size).map(|n| rules::port(&service(n, 0), settings)).collect();
    rules::shared(rendered.iter().flat_map(|rendered| &rendered.shared), settings)
}

fn text(table: &str, chains: &Table) -> String {
    let names: String = chains.keys().map(|name| format!(":{name} - [0:0]\n")).collect();
    let rules =
        chains.iter().flat_map(|(name, rules)| rules.iter().map(move |rule| format!("-A {name} {rule}\n")));
    format!("*{table}\n{names}{}COMMIT\n", rules.collect::<String>())
}

fn settings() -> Settings {
    Settings {
        pods: Some(PODS.parse().expect("a range")),
        service_ranges: vec![SERVICES.parse().expect("a range")],
        ..Settings::new(false)
    }
}
