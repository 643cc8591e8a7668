//! How many seats each priority level has: what it is given, what it lends, and what it may borrow.
//!
//! ```text
//! shares of all levels ─ allot ─> nominal seats, and between what the limit moves
//! what each level wants ─ divide ─> its limit now: lent seats go to those who want them, in proportion
//! ```
//!
//! Pure. What a level lends it gets back as soon as it wants it: its limit is never less than what it wants of its own.

/// What a level's configuration says of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Its part of the server, beside the parts of the others.
    pub nominal: u32,
    /// How much of it others may have while it does not want it.
    pub lendable_percent: u32,
    /// How much of what others lend it may have; all if nothing is said.
    pub borrowing_percent: Option<u32>,
}

/// The seats of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allotment {
    /// What is its own.
    pub nominal: u32,
    /// What it never lends.
    pub least: u32,
    /// What it has if it borrows all that it may.
    pub most: u32,
}

/// What a level wants.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// What it has.
    pub allotment: Allotment,
    /// How many seats it wanted at once lately.
    pub wanted: f64,
}

/// A level that wants nothing gets something of what is left all the same.
const LEAST_WISH: f64 = 0.001;

impl Allotment {
    /// What each of these levels has of all seats. Rounded up, so that whoever has a share has a seat.
    pub fn of(total: u32, levels: &[Shares]) -> Vec<Allotment> {
        let sum: u64 = levels.iter().map(|level| u64::from(level.nominal)).sum();
        let part = |seats: u32, percent: u32| u64::from(seats) * u64::from(percent);
        let rounded = |hundredths: u64| u32::try_from((hundredths + 50) / 100).unwrap_or(u32::MAX);
        let allot = |level: &Shares| {
            let nominal = (u64::from(total) * u64::from(level.nominal)).div_ceil(sum.max(1)) as u32;
            let borrowed = level.borrowing_percent.map_or(total, |percent| rounded(part(nominal, percent)));
            Allotment {
                nominal,
                least: nominal - rounded(part(nominal, level.lendable_percent)).min(nominal),
                most: nominal.saturating_add(borrowed),
            }
        };
        levels.iter().map(allot).collect()
    }

    /// How many seats one request may take: a flow that fills its hand with the widest leaves seats to others.
    pub fn most_of_one(&self, hand_size: Option<usize>) -> u32 {
        match hand_size {
            Some(hand) => {
                self.nominal.saturating_mul(15).div_ceil(100).min(self.nominal / hand.max(1) as u32).max(1)
            }
            None => u32::MAX,
        }
    }
}

impl Wish {
    /// What the level gets in any case.
    fn least(&self) -> f64 {
        f64::from(self.allotment.least).max(self.wanted.min(self.allotment.nominal.into()))
    }

    /// What it gets if everybody gets this many times what they want.
    fn at(&self, factor: f64) -> f64 {
        let target = self.least().max(self.wanted).max(LEAST_WISH);
        (target * factor).min(self.allotment.most.into()).max(self.least())
    }
}

/// The limit of each level: all seats, in proportion to what is wanted and within the bounds of each. Where the least of
/// all is more than there is, each gets its least.
pub fn divide(total: u32, wishes: &[Wish]) -> Vec<u32> {
    let sum = |factor: f64| wishes.iter().map(|wish| wish.at(factor)).sum::<f64>();
    let (mut low, mut high) = (0.0, f64::from(total) / LEAST_WISH);
    // What is given grows with the factor, so it is found by halving; by then the two are as good as equal.
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if sum(middle) <= f64::from(total) {
            low = middle;
        } else {
            high = middle;
        }
    }
    wishes.iter().map(|wish| wish.at(low).round() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(nominal: u32, lendable_percent: u32, borrowing_percent: Option<u32>) -> Shares {
        Shares { nominal, lendable_percent, borrowing_percent }
    }

    #[test]
    fn seats_are_given_by_shares() {
        let check = |total: u32, levels: &[Shares], expected: &[(u32, u32, u32)]| {
            let found: Vec<_> =
                Allotment::of(total, levels).iter().map(|a| (a.nominal, a.least, a.most)).collect();
            assert_eq!(found, expected);
        };
        // What upstream's clusters have: system, node-high, leader-election, workload-high and -low, global-default, catch-all.
        let usual = [(30, 33), (40, 25), (10, 0), (40, 50), (100, 90), (20, 50), (5, 0)];
        check(
            600,
            &usual.map(|(shares, lendable)| level(shares, lendable, None)),
            &[
                (74, 50, 674),
                (98, 73, 698),
                (25, 25, 625),
                (98, 49, 698),
                (245, 24, 845),
                (49, 24, 649),
                (13, 13, 613),
            ],
        );
        check(10, &[level(1, 100, Some(0)), level(0, 0, Some(50))], &[(10, 0, 10), (0, 0, 0)]);
        check(10, &[level(0, 0, None)], &[(0, 0, 10)]);
        check(
            10,
            &[level(u32::MAX, 100, Some(u32::MAX)), level(1, 100, Some(200))],
            &[(10, 0, 429_496_740), (1, 0, 3)],
        );
        check(0, &[level(5, 50, None)], &[(0, 0, 0)]);
    }

    #[test]
    fn lent_seats_go_to_those_who_want_them() {
        let levels = [level(50, 100, None), level(30, 50, None), level(20, 0, Some(50))];
        let allotments = Allotment::of(100, &levels);
        let check = |wanted: [f64; 3], expected: [u32; 3]| {
            let wishes: Vec<Wish> = allotments
                .iter()
                .zip(wanted)
                .map(|(allotment, wanted)| Wish { allotment: *allotment, wanted })
                .collect();
            assert_eq!(divide(100, &wishes), expected, "{wanted:?}");
        };
        // Whoever wants all gets what others lend, and no more than that.
        check([1000.0, 0.0, 0.0], [65, 15, 20]);
        check([0.0, 1000.0, 0.0], [0, 80, 20]);
        check([0.0, 0.0, 1000.0], [0, 70, 30]);
        // Each gets back what it wants of its own.
        check([1000.0, 30.0, 20.0], [50, 30, 20]);
        check([50.0, 1000.0, 20.0], [50, 30, 20]);
        check([1000.0, 1000.0, 1000.0], [50, 30, 20]);
        check([10.0, 1000.0, 5.0], [10, 70, 20]);
        // Two that want more share it in proportion to that.
        let idle = Wish { allotment: Allotment { nominal: 60, least: 0, most: 100 }, wanted: 0.0 };
        let busy = |wanted| Wish { allotment: Allotment { nominal: 20, least: 20, most: 100 }, wanted };
        assert_eq!(divide(100, &[idle, busy(100.0), busy(300.0)]), [0, 25, 75]);
    }

    #[test]
    fn nobody_gets_more_than_there_is_nor_less_than_their_own() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let levels: Vec<Shares> = (0..1 + random(12))
                .map(|_| {
                    level(
                        random(100) as u32,
                        random(101) as u32,
                        Some(random(300) as u32).filter(|p| *p < 200),
                    )
                })
                .collect();
            let total = 1 + random(1000) as u32;
            let wishes: Vec<Wish> = Allotment::of(total, &levels)
                .iter()
                .map(|allotment| Wish { allotment: *allotment, wanted: random(2000) as f64 })
                .collect();
            let limits = divide(total, &wishes);
            for (wish, limit) in wishes.iter().zip(&limits) {
                assert!(
                    f64::from(*limit) >= wish.least().floor() && *limit <= wish.allotment.most,
                    "{wish:?} {limit}"
                );
            }
            let (sum, least): (u32, f64) = (limits.iter().sum(), wishes.iter().map(Wish::least).sum());
            assert!(f64::from(sum) <= f64::from(total).max(least) + limits.len() as f64, "{sum} of {total}");
        }
    }

    #[test]
    fn one_request_takes_a_part() {
        let of = |nominal: u32| Allotment { nominal, ..Allotment::default() };
        assert_eq!(of(245).most_of_one(Some(6)), 37);
        assert_eq!(of(49).most_of_one(Some(6)), 8);
        assert_eq!(of(12).most_of_one(Some(6)), 2);
        assert_eq!(of(1).most_of_one(Some(8)), 1);
        assert_eq!(of(0).most_of_one(Some(8)), 1);
        assert_eq!(of(13).most_of_one(None), u32::MAX);
    }
}
