//! Our own shim beside runc: containerd alone with either, in turns, so that both have the same moments of the machine.

use crate::alone::Alone;
use crate::{DELETED, MANY, TOGETHER, median, names, rounds};
use bench::process;
use bench::table::Row;
use std::path::Path;
use std::process::{Child, Command};
use testing::Containerd;

/// Loops that each keep a processor busy.
const BUSY: usize = 4;

/// What one of the two takes: seconds.
#[derive(Default)]
struct Times {
    one: Vec<f64>,
    removed: Vec<f64>,
    busy: Vec<f64>,
    together: Vec<f64>,
    deleted: Vec<f64>,
}

struct Loops(Vec<Child>);

impl Loops {
    fn start() -> Loops {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh runs");
        Loops((0..BUSY).map(|_| busy()).collect())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The table's rows.
pub async fn rows(program: &Path, quick: bool) -> Vec<Row> {
    let containerd = Containerd::start();
    let sides = [Alone::new(&containerd, Some(program)).await, Alone::new(&containerd, None).await];
    let mut times = [Times::default(), Times::default()];
    for name in names("one", 0..rounds(quick) * 2) {
        for (side, times) in sides.iter().zip(&mut times) {
            times.one.push(side.start(std::slice::from_ref(&name)).await);
            times.removed.push(side.remove(std::slice::from_ref(&name)).await);
        }
    }
    for name in names("busy", 0..rounds(quick)) {
        for (side, times) in sides.iter().zip(&mut times) {
            let loops = Loops::start();
            times.busy.push(side.start(std::slice::from_ref(&name)).await);
            drop(loops);
            side.remove(std::slice::from_ref(&name)).await;
        }
    }
    for _ in 0..3 {
        for (side, times) in sides.iter().zip(&mut times) {
            times.together.push(side.start(&names("many", 0..TOGETHER)).await);
            side.start(&names("many", TOGETHER..DELETED)).await;
            times.deleted.push(side.remove(&names("many", 0..DELETED)).await);
        }
    }
    let memory = |namespace: &str| -> f64 {
        let shims = containerd.shims(namespace).into_iter();
        shims.filter_map(|pid| process::memory(u32::try_from(pid).ok()?).ok()).map(|(pss, _)| pss / 1e6).sum()
    };
    let mut sizes = vec![(0, [memory("alone-shim"), memory("alone")])];
    for (count, range) in [(TOGETHER, 0..TOGETHER), (MANY, TOGETHER..MANY)] {
        if count == MANY && quick {
            break;
        }
        for side in &sides {
            side.start(&names("size", range.clone())).await;
        }
        sizes.push((count, [memory("alone-shim"), memory("alone")]));
    }
    for side in &sides {
        side.remove(&names("size", 0..MANY)).await;
    }
    let mut time = |what: &str, of: fn(&mut Times) -> &mut Vec<f64>| {
        let [ours, runc] = times.each_mut().map(|times| median(std::mem::take(of(times))));
        row(what.to_owned(), "s", ours, runc)
    };
    let mut rows: Vec<Row> = vec![
        time("pause and container (median)", |times| &mut times.one),
        time("both removed (median)", |times| &mut times.removed),
        time("the pair beside four busy loops (median)", |times| &mut times.busy),
        time("30 at once (median of 3)", |times| &mut times.together),
        time("34 removed at once (median of 3)", |times| &mut times.deleted),
    ];
    rows.extend(
        sizes.into_iter().map(|(count, [ours, runc])| {
            row(format!("shims of {count} pods: memory (PSS)"), "MB", ours, runc)
        }),
    );
    rows
}

fn row(what: String, unit: &'static str, ours: f64, runc: f64) -> Row {
    Row { what, unit, ours: Some(ours), floor: Some((runc, "runc")).filter(|_| runc > 0.0), peer: None }
}
