use super::*;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn bounds(concurrency: usize, min: usize, max: usize) -> Bounds {
    Bounds { concurrency, min, max, idle: ms(30_000) }
}

/// A function with calls of 10 ms and starts of 300 ms.
fn observed(bounds: Bounds, waiting: usize, replicas: &[(Phase, usize, u64)], now: Instant) -> Observed {
    let replica = |(phase, in_flight, age): &(Phase, usize, u64)| Replica {
        phase: *phase,
        in_flight: *in_flight,
        since: now - ms(*age),
    };
    let replicas: Vec<Replica> = replicas.iter().map(replica).collect();
    let in_flight: usize = replicas.iter().map(|replica| replica.in_flight).sum();
    Observed {
        bounds,
        waiting,
        peak: in_flight + waiting,
        replicas,
        service_time: Some(ms(10)),
        cold_start: ms(300),
        not_before: None,
    }
}

fn check(observed: &Observed, now: Instant, create: usize, remove: &[usize]) -> Option<Duration> {
    let scale = scale(observed, now);
    assert_eq!((scale.create, scale.remove.as_slice()), (create, remove), "{observed:?}");
    scale.look_again.map(|at| at.saturating_duration_since(now))
}

/// Some time after whatever the clock began with.
fn some_time() -> Instant {
    Instant::now() + Duration::from_secs(100_000)
}

use Phase::{Draining, Ready, Starting};

#[test]
fn nothing_runs_and_nothing_is_looked_at_without_calls() {
    let now = some_time();
    assert_eq!(check(&observed(bounds(1, 0, 100), 0, &[], now), now, 0, &[]), None);
}

#[test]
fn a_call_starts_a_pod_and_the_next_one_waits_for_it() {
    let now = some_time();
    let one = bounds(1, 0, 100);
    check(&observed(one, 1, &[], now), now, 1, &[]);
    check(&observed(one, 1, &[(Starting, 0, 5)], now), now, 0, &[]);
    check(&observed(one, 20, &[(Starting, 0, 5)], now), now, 0, &[]);
}

#[test]
fn a_burst_starts_as_many_pods_as_help() {
    let now = some_time();
    // 1,000 calls of 10 ms are done by 34 pods within a start; no more than eight start at once.
    check(&observed(bounds(1, 0, 100), 1000, &[], now), now, 8, &[]);
    check(&observed(bounds(1, 0, 100), 1000, &[(Starting, 0, 1); 8], now), now, 0, &[]);
    check(&observed(bounds(1, 0, 100), 1000, &[(Ready, 1, 1); 33], now), now, 1, &[]);
    check(&observed(bounds(1, 0, 3), 1000, &[], now), now, 3, &[]);
    check(&observed(bounds(1000, 0, 100), 1000, &[], now), now, 1, &[]);
}

#[test]
fn a_short_queue_is_worth_no_pod_until_calls_turn_out_to_be_long() {
    let now = some_time();
    let one = bounds(1, 0, 100);
    let looks = check(&observed(one, 1, &[(Ready, 1, 100)], now), now, 0, &[]);
    assert_eq!(looks, Some(ms(201)), "when the call under way has taken as long as a start");
    let later = now + ms(201);
    let mut long = observed(one, 1, &[(Ready, 1, 100)], now);
    check(&long, later, 1, &[]);
    // However long they take: one call is worth one pod.
    long.service_time = Some(ms(60_000));
    check(&long, later, 1, &[]);
}

#[test]
fn the_idle_pod_goes_and_never_the_busy_one() {
    let now = some_time();
    let one = bounds(1, 0, 100);
    let pods = [(Ready, 1, 90_000), (Ready, 0, 30_000), (Ready, 0, 29_000)];
    let mut seen = observed(one, 0, &pods, now);
    seen.peak = 3;
    assert_eq!(check(&seen, now, 0, &[1]), Some(ms(1000)), "until the next one is idle for long enough");
    seen.bounds.min = 3;
    check(&seen, now, 0, &[]);
}

#[test]
fn pods_that_no_moment_needed_go_although_all_had_their_turns() {
    let now = some_time();
    let mut seen = observed(bounds(1, 0, 100), 0, &[(Ready, 0, 30), (Ready, 0, 20), (Ready, 1, 10)], now);
    seen.peak = 2;
    check(&seen, now, 0, &[0]);
}

#[test]
fn what_stays_is_kept_and_what_fails_is_tried_again_later() {
    let now = some_time();
    let two = bounds(1, 2, 100);
    check(&observed(two, 0, &[(Draining, 1, 5), (Ready, 0, 90_000)], now), now, 1, &[]);
    let mut failed = observed(two, 0, &[], now);
    failed.not_before = Some(now + ms(700));
    assert_eq!(check(&failed, now, 0, &[]), Some(ms(700)));
    check(&failed, now + ms(700), 2, &[]);
}

#[test]
fn calls_go_round_the_pods_that_take_one_more() {
    let now = some_time();
    let check = |pods: &[(Phase, usize, u64)], last: usize, expected: Option<usize>| {
        let replicas = observed(bounds(2, 0, 9), 0, pods, now).replicas;
        assert_eq!(route(&replicas, 2, last), expected, "{pods:?} after {last}");
    };
    let pods = [(Ready, 1, 0), (Ready, 0, 0), (Ready, 1, 0)];
    check(&pods, 0, Some(1));
    check(&pods, 1, Some(2));
    check(&pods, 2, Some(0));
    check(&[(Ready, 2, 0), (Starting, 0, 0), (Draining, 0, 0)], 0, None);
    check(&[], 0, None);
}

#[test]
fn a_peak_is_remembered_for_its_window() {
    let now = some_time();
    let mut peak = Peak::new(ms(1000), now);
    peak.saw(7, now);
    assert_eq!(peak.most(1, now + ms(400)), 7);
    assert_eq!(peak.most(1, now + ms(600)), 7);
    assert_eq!(peak.most(1, now + ms(1200)), 1);
    peak.saw(3, now + ms(1300));
    assert_eq!(peak.most(0, now + ms(9000)), 0);
}

/// A function under a load, with virtual time: calls come at their times and each takes as long as it does.
#[test]
fn a_thousand_calls_at_once_from_zero_are_served_and_nothing_is_left() {
    let begins = some_time();
    let (call, start, bounds) = (ms(10), ms(300), bounds(1, 0, 100));
    let mut now = begins;
    let (mut waiting, mut most_pods) = (1000_usize, 0);
    // Of each pod: when it is ready, and when its call ends.
    let mut pods: Vec<(Instant, Option<Instant>, Instant)> = Vec::new();
    let mut peak = Peak::new(bounds.idle, now);
    let mut last_answer = now;
    for _ in 0..100_000 {
        for pod in &mut pods {
            if pod.1.is_some_and(|ends| ends <= now) {
                (pod.1, pod.2, last_answer) = (None, now, now);
            }
            if pod.0 <= now && pod.1.is_none() && waiting > 0 {
                (pod.1, pod.2) = (Some(now + call), now);
                waiting -= 1;
            }
        }
        let replicas = pods.iter().map(|pod| Replica {
            phase: if pod.0 <= now { Ready } else { Starting },
            in_flight: usize::from(pod.1.is_some()),
            since: pod.2,
        });
        let replicas: Vec<Replica> = replicas.collect();
        let calls = waiting + replicas.iter().map(|replica| replica.in_flight).sum::<usize>();
        let seen = Observed {
            bounds,
            waiting,
            replicas,
            service_time: Some(call),
            cold_start: start,
            peak: peak.most(calls, now),
            not_before: None,
        };
        let plan = scale(&seen, now);
        pods.extend((0..plan.create).map(|_| (now + start, None, now)));
        let mut remove = plan.remove;
        remove.sort_unstable();
        for at in remove.iter().rev() {
            pods.remove(*at);
        }
        most_pods = most_pods.max(pods.len());
        if waiting == 0 && pods.is_empty() {
            break;
        }
        now += ms(5);
    }
    assert!(waiting == 0 && pods.is_empty(), "{waiting} calls and {} pods are left", pods.len());
    assert!(last_answer - begins < ms(3000), "{:?}", last_answer - begins);
    assert!(most_pods <= 34, "{most_pods}");
    assert!(now - begins < ms(65_000), "{:?}", now - begins);
}
