//! When the node is short of something: `--eviction-hard`, in upstream's words. Pure.

use crate::node::{Machine, Pressure};
use api::Quantity;
use api::quantity::Format;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Upstream's defaults.
pub const HARD: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%";

/// What is looked at. Memory comes first: who lacks it is helped first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory that can be had.
    Memory,
    /// Room on the kubelet's disk.
    Disk,
    /// Files that the kubelet's disk can hold yet.
    Inodes,
    /// Room on the disk of images; here the same disk.
    ImageDisk,
    /// Files that the disk of images can hold yet; here the same disk.
    ImageInodes,
    /// Process numbers.
    Pids,
}

const SIGNALS: [(&str, Signal); 6] = [
    ("memory.available", Signal::Memory),
    ("nodefs.available", Signal::Disk),
    ("nodefs.inodesFree", Signal::Inodes),
    ("imagefs.available", Signal::ImageDisk),
    ("imagefs.inodesFree", Signal::ImageInodes),
    ("pid.available", Signal::Pids),
];

impl Signal {
    /// What messages call it.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::Memory => "memory",
            Signal::Disk | Signal::ImageDisk => "ephemeral-storage",
            Signal::Inodes | Signal::ImageInodes => "inodes",
            Signal::Pids => "pids",
        }
    }

    /// Whether removing images helps.
    pub fn is_of_disk(self) -> bool {
        !matches!(self, Signal::Memory | Signal::Pids)
    }

    /// What is left, and of how much.
    fn seen(self, machine: &Machine) -> (u64, u64) {
        match self {
            Signal::Memory => (machine.memory_available_bytes, machine.memory_bytes),
            Signal::Disk | Signal::ImageDisk => (machine.disk_available_bytes, machine.disk_bytes),
            Signal::Inodes | Signal::ImageInodes => (machine.inodes_free, machine.inodes),
            Signal::Pids => (machine.pids.saturating_sub(machine.pids_used), machine.pids),
        }
    }
}

/// What must be left at least.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Least {
    Amount(u64),
    Percent(f64),
}

impl Least {
    fn of(self, all: u64) -> u64 {
        match self {
            Least::Amount(amount) => amount,
            Least::Percent(percent) => (all as f64 * percent / 100.0) as u64,
        }
    }
}

/// What must be left of everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds(BTreeMap<Signal, Least>);

/// A signal below its threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// Which.
    pub signal: Signal,
    /// What should be left.
    pub least: Quantity,
    /// What is.
    pub available: Quantity,
}

impl Default for Thresholds {
    fn default() -> Self {
        HARD.parse().expect("the defaults are right")
    }
}

impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Thresholds, String> {
        let mut found = BTreeMap::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let wrong = || format!("{one} is not a threshold: write {HARD}");
            let (name, value) = one.split_once('<').ok_or_else(wrong)?;
            let signal = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
            let least = match value.strip_suffix('%') {
                Some(percent) => {
                    percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Least::Percent)
                }
                None => {
                    let amount = value.parse::<Quantity>().ok();
                    amount.and_then(|amount| u64::try_from(amount.value()).ok()).map(Least::Amount)
                }
            };
            let (signal, least) = signal.zip(least).ok_or_else(wrong)?;
            if found.insert(signal, least).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        Ok(Thresholds(found))
    }
}

impl Thresholds {
    /// What must be left of something, of so much.
    pub fn least(&self, signal: Signal, all: u64) -> u64 {
        self.0.get(&signal).map_or(0, |least| least.of(all))
    }

    /// What there is too little of, the most urgent first. What is not known is not missing.
    pub fn met(&self, machine: &Machine) -> Vec<Met> {
        let binary = |value: u64| {
            Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX)).with_format(Format::BinarySi)
        };
        let below = self.0.iter().filter_map(|(signal, least)| {
            let (left, all) = signal.seen(machine);
            let least = least.of(all);
            (all > 0 && left < least).then(|| Met {
                signal: *signal,
                least: binary(least),
                available: binary(left),
            })
        });
        below.collect()
    }
}

/// When signals were last below their thresholds: a condition stays for a while, so that nothing swings.
#[derive(Debug, Default)]
pub struct Pressed(BTreeMap<Signal, Timestamp>);

impl Pressed {
    /// What the node says it is short of.
    pub fn look(&mut self, met: &[Met], now: Timestamp, stays: SignedDuration) -> Pressure {
        for met in met {
            self.0.insert(met.signal, now);
        }
        self.0.retain(|_, last| now.duration_since(*last) <= stays);
        let mut pressure = Pressure::default();
        for signal in self.0.keys() {
            match signal {
                Signal::Memory => pressure.memory = true,
                Signal::Pids => pressure.pids = true,
                _ => pressure.disk = true,
            }
        }
        pressure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            memory_bytes: 1 << 30,
            memory_available_bytes: 1 << 29,
            disk_bytes: 1000 << 20,
            disk_available_bytes: 500 << 20,
            inodes: 100,
            inodes_free: 50,
            pids: 100,
            pids_used: 10,
            ..Machine::default()
        }
    }

    #[track_caller]
    fn check(thresholds: &str, machine: &Machine, expected: &[(Signal, &str, &str)]) {
        let thresholds: Thresholds = thresholds.parse().expect("thresholds");
        let met = thresholds.met(machine);
        let found: Vec<(Signal, String, String)> =
            met.iter().map(|m| (m.signal, m.least.to_string(), m.available.to_string())).collect();
        let expected: Vec<(Signal, String, String)> =
            expected.iter().map(|(s, least, left)| (*s, (*least).into(), (*left).into())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_below_its_threshold() {
        let plenty = machine();
        check(HARD, &plenty, &[]);
        check("", &Machine::default(), &[]);
        check(HARD, &Machine::default(), &[]);
        let short = Machine {
            memory_available_bytes: 50 << 20,
            disk_available_bytes: 120 << 20,
            inodes_free: 4,
            ..machine()
        };
        check(
            HARD,
            &short,
            &[
                (Signal::Memory, "100Mi", "50Mi"),
                (Signal::Inodes, "5", "4"),
                (Signal::ImageDisk, "150Mi", "120Mi"),
                (Signal::ImageInodes, "5", "4"),
            ],
        );
        check(
            "pid.available<95%,memory.available<1Gi",
            &plenty,
            &[(Signal::Memory, "1Gi", "512Mi"), (Signal::Pids, "95", "90")],
        );
    }

    #[test]
    fn wrong_thresholds_are_refused() {
        for wrong in [
            "memory.available",
            "memory<1Gi",
            "memory.available<x",
            "nodefs.available<101%",
            "memory.available<-1",
        ] {
            assert!(wrong.parse::<Thresholds>().is_err(), "{wrong}");
        }
        assert!("pid.available<1,pid.available<2".parse::<Thresholds>().is_err());
    }

    #[test]
    fn a_condition_stays_for_a_while() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let stays = SignedDuration::from_secs(300);
        let met = |signal| vec![Met { signal, least: Quantity::default(), available: Quantity::default() }];
        let mut pressed = Pressed::default();
        let memory = Pressure { memory: true, ..Pressure::default() };
        assert_eq!(pressed.look(&[], at(0), stays), Pressure::default());
        assert_eq!(pressed.look(&met(Signal::Memory), at(10), stays), memory);
        assert_eq!(pressed.look(&[], at(300), stays), memory);
        assert_eq!(
            pressed.look(&met(Signal::ImageInodes), at(311), stays),
            Pressure { disk: true, ..Pressure::default() }
        );
    }
}
