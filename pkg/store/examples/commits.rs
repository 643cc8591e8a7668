//! How many commits per second the engines do here, beside what the disk can do:
//! `cargo run -p store --example commits [etcd URL]`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{Embedded, Etcd, Expect, Store, Write};

const RUN: Duration = Duration::from_secs(2);
const VALUE_BYTES: usize = 1024;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(".")?;
    let file = File::create(dir.path().join("raw"))?;
    let embedded: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("store"))?);
    let mut stores = vec![("embedded", embedded)];
    if let Some(url) = std::env::args().nth(1) {
        stores.push(("etcd", Arc::new(Etcd::connect(&[url], None).await?)));
    }
    for writers in [1, 16, 64, 256] {
        // Side by side, since a disk that others use as well is never the same twice.
        let raw = raw(&file, writers)?;
        println!("{writers:>3} KiB append + fdatasync  {raw:>7.0}/s = {:>7.0} KiB/s", raw * writers as f64);
        for (name, store) in &stores {
            let rate = commits(store.clone(), writers).await?;
            println!("{writers:>3} writers of 1 KiB, {name:<8} {rate:>7.0} commits/s");
        }
    }
    Ok(())
}

fn raw(file: &File, kib: usize) -> std::io::Result<f64> {
    let bytes = vec![7; kib << 10];
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < RUN {
        file.write_all_at(&bytes, count * bytes.len() as u64)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

async fn commits(store: Arc<dyn Store>, writers: usize) -> Result<f64, Failure> {
    let count = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let write = |n: usize| {
        let (store, count) = (store.clone(), count.clone());
        tokio::spawn(async move {
            let key = format!("/registry/bench/{n}");
            let value = bytes::Bytes::from(vec![7; VALUE_BYTES]);
            let mut expect = Expect::Any;
            while begin.elapsed() < RUN {
                let write = Write { key: key.clone(), expect, value: Some(value.clone()) };
                expect = Expect::Revision(store.commit(vec![write]).await?);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, store::Error>(())
        })
    };
    for writer in (0..writers).map(write).collect::<Vec<_>>() {
        writer.await??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}
