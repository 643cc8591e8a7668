//! Messages lost, doubled, mixed up, delayed, connections cut, over both transports: 200 seeds, and 5,000 with `SOAK=1`;
//! `SEED=n` is one of them.

use crate::between::Between;
use crate::follower::{Follower, change};
use testing::{Engine, RedisServer, TestServer};

/// Informers at once, each with its own seed.
const AT_ONCE: u64 = 50;
const CHANGES: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_messages_nothing_is_missed_or_repeated() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match (number("SEED"), number("SOAK")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(_)) => 0..5000,
        (None, None) => 0..200,
    };
    let redis = RedisServer::start();
    let config = redis.config("kube-apiserver");
    let server = TestServer::start_with(Engine::Embedded, |told| told.redis = Some(config)).await;
    let mut from = seeds.start;
    while from < seeds.end {
        let until = seeds.end.min(from + AT_ONCE);
        run(&server, &redis, from..until).await;
        from = until;
    }
}

async fn run(server: &TestServer, redis: &RedisServer, seeds: std::ops::Range<u64>) {
    let client = server.admin();
    // The reference, over HTTP alone: the same suite, the other transport.
    let reference = Follower::start(client.clone(), None).await;
    let mut followers = Vec::new();
    for seed in seeds.clone() {
        let between = Between::start(redis.port(), seed).await;
        let config = redis.config_at("kube-controller-manager", between.port);
        let follower = Follower::start(client.clone(), Some(config)).await;
        followers.push((format!("SEED={seed} over Redis"), follower, between));
        let between = Between::cutting(server.address(), seed).await;
        let cut = server.kubeconfig(between.address(), &format!("follower-{seed}"), &["system:masters"]);
        let cut = client::connect(Some(&cut), "follower").await.expect("a client");
        followers.push((format!("SEED={seed} over HTTP"), Follower::start(cut, None).await, between));
    }
    let before = reference.log();
    let mut random = fastrand::Rng::with_seed(seeds.start);
    for _ in 0..CHANGES {
        change(&client, &mut random).await;
    }
    reference.agrees("the reference", &client).await;
    for (what, follower, _) in &followers {
        follower.agrees(what, &client).await;
        follower.assert_in_order(what);
        let since = |log: crate::follower::Log| -> crate::follower::Log {
            let after = |(key, versions): (String, Vec<u64>)| {
                let known = before.get(&key).map_or(0, Vec::len);
                let versions = versions.get(known.min(versions.len())..).unwrap_or_default().to_vec();
                (key, versions)
            };
            log.into_iter().map(after).collect()
        };
        assert_eq!(since(follower.log()), since(reference.log()), "{what}: every change, each once");
    }
}
