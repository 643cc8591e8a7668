use super::*;
use std::collections::BTreeSet;

const QUEUING: Queuing = Queuing { queues: 64, hand_size: 6, length_limit: 50 };

/// A set whose requests are numbers, at a time that only the test moves.
struct Bench {
    set: QueueSet<u32>,
    now: Instant,
    executing: HashMap<u32, Seated>,
    waiting: HashMap<u32, Ticket>,
    /// In the order in which they got their seats.
    seated: Vec<u32>,
    refused: Vec<(u32, Refusal)>,
}

impl Bench {
    fn new(queuing: Option<Queuing>, limit: u32) -> Bench {
        let now = Instant::now();
        Bench {
            set: QueueSet::new(queuing, limit),
            now,
            executing: HashMap::new(),
            waiting: HashMap::new(),
            seated: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn arrive(&mut self, request: u32, flow: u64, seats: u32) {
        match self.set.arrive(flow, seats, self.now, || (request, ())) {
            Arrival::Seated(seated) => {
                self.seated.push(request);
                self.executing.insert(request, seated);
            }
            Arrival::Queued(ticket, (), given) => {
                self.waiting.insert(request, ticket);
                self.give(given);
            }
            Arrival::Refused(why) => self.refused.push((request, why)),
        }
        self.check();
    }

    fn finish(&mut self, request: u32) {
        let seated = self.executing.remove(&request).expect("it has its seats");
        let given = self.set.finish(seated, self.now);
        self.give(given);
        self.check();
    }

    fn leave(&mut self, request: u32) {
        let ticket = self.waiting.remove(&request).expect("it waits");
        let (has_left, given) = self.set.leave(ticket, self.now);
        assert!(has_left);
        self.give(given);
        self.check();
    }

    fn limit(&mut self, limit: u32) {
        let given = self.set.set_limit(limit, self.now);
        self.give(given);
    }

    fn give(&mut self, given: Vec<(u32, Seated)>) {
        for (request, seated) in given {
            self.waiting.remove(&request).expect("it waited");
            self.seated.push(request);
            self.executing.insert(request, seated);
        }
    }

    /// What must be so whatever has happened.
    fn check(&self) {
        let set = &self.set;
        let taken: u64 = self.executing.values().map(|seated| u64::from(seated.seats)).sum();
        assert_eq!(
            (set.seats_taken, set.executing, set.waiting),
            (taken, self.executing.len(), self.waiting.len())
        );
        let in_queues = |count: fn(&Queue<u32>) -> u64| set.queues.values().map(count).sum::<u64>();
        assert_eq!(in_queues(|queue| queue.waiting.len() as u64), set.waiting as u64);
        assert_eq!(in_queues(|queue| queue.seats_wanted), set.seats_wanted);
        assert!(
            set.queues.values().all(|queue| queue.executing + queue.waiting.len() > 0),
            "no idle queue has a state"
        );
        assert!(set.next().is_none(), "nobody waits for a seat that is free");
    }

    /// Finishes all, and looks whether everybody has had a seat.
    fn drain(mut self) -> Vec<u32> {
        self.limit(self.set.limit.max(1));
        while let Some(request) = self.executing.keys().min().copied() {
            self.pass(1);
            self.finish(request);
        }
        assert!(self.waiting.is_empty() && self.set.queues.is_empty(), "{} still wait", self.waiting.len());
        assert_eq!(self.set.progress, 0.0, "time begins anew");
        self.seated
    }
}

#[test]
fn seats_are_given_until_there_are_none() {
    let mut bench = Bench::new(None, 3);
    bench.arrive(1, 0, 1);
    bench.arrive(2, 0, 2);
    bench.arrive(3, 0, 1);
    assert_eq!((&bench.seated[..], &bench.refused[..]), (&[1, 2][..], &[(3, Refusal::ConcurrencyLimit)][..]));
    bench.finish(1);
    bench.arrive(4, 0, 2);
    bench.arrive(5, 0, 1);
    assert_eq!((&bench.seated[..], bench.refused.len()), (&[1, 2, 5][..], 2));
    bench.drain();
}

#[test]
fn a_level_without_seats_holds_its_requests() {
    let mut bench = Bench::new(Some(QUEUING), 0);
    bench.arrive(1, 0, 1);
    assert!(bench.seated.is_empty());
    bench.limit(1);
    assert_eq!(bench.seated, [1]);
    let mut bench = Bench::new(None, 0);
    bench.arrive(1, 0, 1);
    assert_eq!(bench.refused, [(1, Refusal::ConcurrencyLimit)]);
}

#[test]
fn queues_have_an_end() {
    let mut bench = Bench::new(Some(Queuing { queues: 1, hand_size: 1, length_limit: 2 }), 1);
    (1..=4).for_each(|request| bench.arrive(request, 0, 1));
    assert_eq!(bench.refused, [(4, Refusal::QueueFull)]);
    bench.leave(2);
    bench.arrive(5, 0, 1);
    assert_eq!(bench.drain(), [1, 3, 5]);
}

#[test]
fn a_wide_request_gets_all_seats_and_is_not_passed_by_for_ever() {
    let mut bench = Bench::new(Some(QUEUING), 4);
    bench.arrive(0, 1, 1);
    bench.arrive(1000, 2, 9);
    let mut next = 0;
    while !bench.seated.contains(&1000) {
        // Others ask for less, and never stop.
        next += 1;
        assert!(next < 100, "{:?}", bench.seated);
        bench.arrive(next, 3, 1);
        bench.pass(3);
        let first = *bench.executing.keys().min().unwrap();
        bench.finish(first);
    }
    assert_eq!(bench.executing.keys().collect::<Vec<_>>(), [&1000], "alone");
    bench.drain();
}

#[test]
fn who_stands_in_the_way_and_leaves_lets_others_in() {
    let mut bench = Bench::new(Some(Queuing { queues: 1, hand_size: 1, length_limit: 50 }), 8);
    bench.arrive(1, 0, 2);
    bench.arrive(2, 0, 6);
    bench.arrive(3, 0, 2);
    assert_eq!(bench.seated, [1]);
    bench.leave(2);
    assert_eq!(bench.seated, [1, 3]);
    bench.drain();
}

#[test]
fn limits_may_change_at_any_time() {
    let mut bench = Bench::new(Some(Queuing { queues: 100, hand_size: 1, length_limit: 50 }), 10);
    (0..30).for_each(|request| bench.arrive(request, request.into(), 1));
    bench.limit(2);
    assert_eq!(bench.seated.len(), 10);
    for request in 0..8 {
        bench.finish(request);
        assert_eq!(bench.seated.len(), 10, "more have seats than there are");
    }
    bench.finish(8);
    assert_eq!(bench.seated.len(), 11);
    bench.set.set_queuing(Some(Queuing { queues: 1, hand_size: 1, length_limit: 1 }));
    bench.limit(5);
    assert_eq!(bench.seated.len(), 14);
    bench.set.set_queuing(None);
    bench.arrive(100, 0, 1);
    assert_eq!(bench.refused, [(100, Refusal::ConcurrencyLimit)]);
    assert_eq!(bench.drain().len(), 30, "those that wait already get their turn");
}

#[test]
fn requests_that_do_not_end_leave_seats_to_others() {
    let mut bench = Bench::new(Some(QUEUING), 40);
    (0..200).for_each(|request| bench.arrive(request, 1, 1));
    assert_eq!(bench.seated.len(), 30, "three quarters of the seats, of which each of its queues has some");
    bench.arrive(200, 1, 40);
    for others in 1000..1005 {
        let flow = u64::from(others).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bench.arrive(others, flow, 1);
        assert_eq!(bench.seated.last(), Some(&others));
        bench.finish(others);
    }
    assert_eq!(bench.drain().len(), 206);
}

#[test]
fn a_hand_is_made_of_different_queues_and_all_of_them_are_dealt() {
    let mut dealt = BTreeSet::new();
    for flow in 0..2000_u64 {
        let mut hand = [0; 6];
        let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hand: BTreeSet<usize> = deal(hash, 64, &mut hand).iter().copied().collect();
        assert_eq!(hand.len(), 6);
        assert!(hand.iter().all(|queue| *queue < 64));
        dealt.extend(hand);
    }
    assert_eq!(dealt.len(), 64);
    let mut all = [0; 3];
    let mut orders = BTreeSet::new();
    for hash in 0..6 {
        orders.insert(deal(hash, 3, &mut all).to_vec());
    }
    assert_eq!(orders.len(), 6, "every order of a whole deck");
}

#[test]
fn wrong_layouts_do_no_harm() {
    for (queues, hand_size) in [(0, 0), (1, 9), (5, 100), (10_000_000, 2)] {
        let mut bench = Bench::new(Some(Queuing { queues, hand_size, length_limit: 1 }), 1);
        (0..100).for_each(|request| bench.arrive(request, u64::MAX / (1 + u64::from(request)), 1));
        assert!(bench.set.queues.len() <= 100);
        bench.drain();
    }
}

/// One flow has many requests waiting; another comes with one at a time, and waits for no more than one of each queue that
/// the flood fills.
#[test]
fn a_flood_does_not_hold_up_who_asks_for_little() {
    let mut bench = Bench::new(Some(QUEUING), 4);
    (0..200).for_each(|request| bench.arrive(request, 1, 1));
    assert_eq!(bench.refused.len(), 0, "six queues of fifty");
    for round in 0..80 {
        let first = *bench.executing.keys().min().unwrap();
        bench.pass(10);
        bench.finish(first);
        if round < 60 {
            // It is not known yet how long they take.
            continue;
        }
        let modest = 1000 + round;
        bench.arrive(modest, 0x00de_adbe_efca_fe77, 1);
        let before = bench.seated.len();
        while !bench.seated.contains(&modest) {
            let first = *bench.executing.keys().min().unwrap();
            bench.pass(10);
            bench.finish(first);
        }
        assert!(
            bench.seated.len() - before <= 7,
            "round {round}: {} came first",
            bench.seated.len() - before
        );
        bench.pass(10);
        bench.finish(modest);
    }
    bench.drain();
}

#[test]
fn requests_that_take_longer_than_expected_are_charged_for_it() {
    // Two flows, each with queues of its own; the requests of the second take ten times as long.
    let (mut slow, mut quick) = (0, 0);
    let mut bench = Bench::new(Some(Queuing { queues: 2, hand_size: 1, length_limit: 1000 }), 1);
    (0..900).for_each(|request| bench.arrive(request, u64::from(request % 2), 1));
    for _ in 0..400 {
        let request = *bench.executing.keys().next().unwrap();
        let (time, count) = if request % 2 == 1 { (20, &mut slow) } else { (2, &mut quick) };
        *count += 1;
        bench.pass(time);
        bench.finish(request);
    }
    let ratio = f64::from(quick) / f64::from(slow);
    assert!((8.0..12.0).contains(&ratio), "{quick} quick ones, {slow} slow ones");
}

#[test]
fn what_was_wanted_is_forgotten_slowly() {
    let mut bench = Bench::new(None, 2);
    (0..5).for_each(|request| bench.arrive(request, 0, 1));
    assert_eq!(bench.set.wanted(Duration::ZERO), 3.0, "one more than there are, although nobody waits");
    bench.finish(0);
    bench.finish(1);
    bench.set.wanted(Duration::ZERO);
    assert_eq!(bench.set.wanted(HALF_LIFE), 1.5);
    assert_eq!(bench.set.wanted(HALF_LIFE), 0.75);
}

/// Flows of all sorts, for some seconds, as a seed decides: nobody is lost, seats are never given twice, and whoever asks
/// for no more than a fair part hardly waits.
#[test]
fn whatever_comes_is_treated_fairly() {
    let seeds = if std::env::var_os("SOAK").is_some() { 100 } else { 5 };
    (1..=seeds).for_each(simulate);
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// What a simulated client does next.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Arrives { flow: u64 },
    Finishes { request: u32 },
    GivesUp { request: u32 },
}

fn simulate(seed: u64) {
    const FLOODS: u64 = 3;
    const FLOWS: u64 = 10;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let hashes: Vec<u64> = (0..FLOWS).map(|_| random.below(u64::MAX)).collect();
    // So many queues that hands hardly share any.
    let mut bench = Bench::new(Some(Queuing { queues: 512, ..QUEUING }), 20);
    let began = bench.now;
    let mut events: BTreeMap<(u64, u32), Happens> = BTreeMap::new();
    let mut next = 0;
    let mut at = |events: &mut BTreeMap<(u64, u32), Happens>, time: u64, what: Happens| {
        next += 1;
        events.insert((time, next), what);
    };
    (0..FLOWS).for_each(|flow| at(&mut events, 1 + flow, Happens::Arrives { flow }));
    let (mut requests, mut served, mut waited) = (Vec::new(), [0_u64; FLOWS as usize], Vec::new());
    while let Some(((time, _), event)) = events.pop_first() {
        if time > 5_000 {
            break;
        }
        bench.now = began + Duration::from_millis(time);
        let seated = bench.seated.len();
        match event {
            Happens::Arrives { flow } => {
                let request = requests.len() as u32;
                requests.push((flow, time));
                bench.arrive(request, hashes[flow as usize], 1 + u32::from(random.below(20) == 0) * 4);
                let pause = if flow < FLOODS { 1 } else { 100 + random.below(100) };
                at(&mut events, time + pause, Happens::Arrives { flow });
                if flow < FLOODS && random.below(50) == 0 {
                    at(&mut events, time + random.below(100), Happens::GivesUp { request });
                }
            }
            Happens::Finishes { request } => bench.finish(request),
            Happens::GivesUp { request } if bench.waiting.contains_key(&request) => bench.leave(request),
            Happens::GivesUp { .. } => {}
        }
        for request in bench.seated[seated..].iter().copied() {
            let (flow, arrived) = requests[request as usize];
            served[flow as usize] += 1;
            if flow >= FLOODS {
                waited.push(time - arrived);
            }
            at(&mut events, time + 5 + random.below(60), Happens::Finishes { request });
        }
    }
    assert!(bench.refused.iter().all(|(request, _)| requests[*request as usize].0 < FLOODS), "seed {seed}");
    let floods = &served[..FLOODS as usize];
    let (least, most) = (floods.iter().min().unwrap(), floods.iter().max().unwrap());
    assert!(most - least < most / 4, "seed {seed}: floods were served {floods:?} times");
    waited.sort_unstable();
    let (half, nearly_all) = (waited[waited.len() / 2], waited[waited.len() * 99 / 100]);
    assert!(
        half <= 20 && nearly_all <= 500,
        "seed {seed}: half waited {half} ms, nearly all {nearly_all} ms"
    );
    bench.drain();
}
