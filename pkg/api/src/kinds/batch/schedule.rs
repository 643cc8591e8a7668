//! Cron schedules: `30 4 * * mon-fri`, `@daily`, `@every 1h30m`.
//!
//! Five fields (minute, hour, day of month, month, day of week), each a bit set; names, ranges, steps, lists, `*` and
//! `?` as upstream's parser takes them, with its words for what is wrong. Times are civil: whoever knows the time
//! zone turns them into moments.

use jiff::civil::DateTime;
use jiff::{SignedDuration, ToSpan};

/// When a job is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Times);

/// Why text is not a schedule, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseScheduleError(String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    Fields { minute: u64, hour: u64, day: u64, month: u64, weekday: u64, any_day: bool, any_weekday: bool },
    Every(SignedDuration),
}

/// A field: its least and greatest number, and the names from the least on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// A schedule that does not fire within these days (February 30th) never does.
const MOST_DAYS: usize = 5 * 366;

impl Schedule {
    /// Reads a schedule.
    pub fn parse(text: &str) -> Result<Schedule, ParseScheduleError> {
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => text,
        };
        if text.is_empty() {
            return Err(ParseScheduleError("empty spec string".into()));
        }
        if let Some(duration) = text.strip_prefix("@every ") {
            let every = parse_go_duration(duration)
                .map_err(|fault| ParseScheduleError(format!("failed to parse duration {text}: {fault}")))?;
            // Finer than a second is not scheduled.
            let seconds = every.as_secs().max(1);
            return Ok(Schedule(Times::Every(SignedDuration::from_secs(seconds))));
        }
        if text.starts_with('@') {
            return Err(ParseScheduleError(format!("unrecognized descriptor: {text}")));
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ParseScheduleError(format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            )));
        };
        let (minute, _) = parse_field(minute, &MINUTES).map_err(ParseScheduleError)?;
        let (hour, _) = parse_field(hour, &HOURS).map_err(ParseScheduleError)?;
        let (day, any_day) = parse_field(day, &DAYS).map_err(ParseScheduleError)?;
        let (month, _) = parse_field(month, &MONTHS).map_err(ParseScheduleError)?;
        let (weekday, any_weekday) = parse_field(weekday, &WEEKDAYS).map_err(ParseScheduleError)?;
        Ok(Schedule(Times::Fields { minute, hour, day, month, weekday, any_day, any_weekday }))
    }

    /// The first time after the given one, `None` if there is none in the next years.
    pub fn next_after(&self, after: DateTime) -> Option<DateTime> {
        let after = after.with().subsec_nanosecond(0).build().ok()?;
        let (minutes, hours) = match &self.0 {
            Times::Every(every) => return after.checked_add(*every).ok(),
            Times::Fields { minute, hour, .. } => (*minute, *hour),
        };
        let start = after.with().second(0).build().ok()?.checked_add(1.minute()).ok()?;
        let mut date = start.date();
        for _ in 0..MOST_DAYS {
            if self.fires_on(date) {
                let first_hour = if date == start.date() { start.hour() } else { 0 };
                for hour in (first_hour..24).filter(|&hour| has(hours, hour)) {
                    let same_hour = date == start.date() && hour == start.hour();
                    let first_minute = if same_hour { start.minute() } else { 0 };
                    if let Some(minute) = (first_minute..60).find(|&minute| has(minutes, minute)) {
                        return Some(date.at(hour, minute, 0, 0));
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// Whether it fires at all on a day. Where both kinds of day are restricted, either is enough.
    fn fires_on(&self, date: jiff::civil::Date) -> bool {
        let Times::Fields { day, month, weekday, any_day, any_weekday, .. } = &self.0 else { return true };
        let on_day = has(*day, date.day());
        let on_weekday = has(*weekday, date.weekday().to_sunday_zero_offset());
        let fits = if *any_day || *any_weekday { on_day && on_weekday } else { on_day || on_weekday };
        fits && has(*month, date.month())
    }
}

impl std::str::FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Schedule::parse(text)
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

/// The numbers of a list of ranges, and whether one of them is `*` or `?`.
fn parse_field(field: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let mut all = (0, false);
    for range in field.split(',').filter(|range| !range.is_empty()) {
        let (bits, star) = parse_range(range, bounds)?;
        all = (all.0 | bits, all.1 | star);
    }
    Ok(all)
}

/// `3`, `3-5`, `3-9/2`, `3/2` (from 3 to the end) or `*/2`.
fn parse_range(range: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let (ends, step) = match *range.split('/').collect::<Vec<_>>() {
        [ends] => (ends, None),
        [ends, step] => (ends, Some(parse_int(step)?)),
        _ => return Err(format!("too many slashes: {range}")),
    };
    let (start, end, star) = match *ends.split('-').collect::<Vec<_>>() {
        ["*" | "?", ..] => (bounds.min, bounds.max, step.is_none_or(|step| step <= 1)),
        [start] => {
            let start = parse_number(start, bounds)?;
            (start, if step.is_some() { bounds.max } else { start }, false)
        }
        [start, end] => (parse_number(start, bounds)?, parse_number(end, bounds)?, false),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let Bounds { min, max, .. } = *bounds;
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    let bits = (start..=end).step_by(step as usize).fold(0, |bits, number| bits | 1 << number);
    Ok((bits, star))
}

fn parse_number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named.and_then(|at| u32::try_from(at).ok()) {
        Some(at) => Ok(bounds.min + at),
        None => parse_int(text),
    }
}

fn parse_int(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // Far beyond every maximum either way.
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

/// A duration such as `1h30m` or `1.5s`, as Go reads it; what is wrong with it in its words.
pub fn parse_go_duration(text: &str) -> Result<SignedDuration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: f64 = 0.0;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        nanos += number
            * match unit {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                "" => return Err(format!("time: missing unit in duration {text:?}")),
                unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
            };
        rest = tail;
    }
    if nanos > i64::MAX as f64 {
        return Err(invalid());
    }
    let duration = SignedDuration::from_nanos(nanos as i64);
    Ok(if negative { -duration } else { duration })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_fire_when_they_say() {
        for (schedule, after, next) in [
            ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
            ("*/15 * * * *", "2026-01-01T00:46:00", "2026-01-01T01:00:00"),
            ("30 4 * * mon-fri", "2026-01-02T05:00:00", "2026-01-05T04:30:00"),
            ("0 0 1,15 * *", "2026-01-02T00:00:00", "2026-01-15T00:00:00"),
            // Restricted both ways: the 13th, or any Friday.
            ("0 0 13 * fri", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
            ("0 0 */2 * 1", "2026-01-01T00:00:00", "2026-01-03T00:00:00"),
            ("0 0 29 feb ?", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
            ("@hourly", "2026-12-31T23:00:00", "2027-01-01T00:00:00"),
            ("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
            ("@every 1h30m", "2026-01-01T00:00:10.5", "2026-01-01T01:30:10"),
            ("@every 1.5s", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
            ("10-40/10 5/6 * * *", "2026-01-01T05:40:00", "2026-01-01T11:10:00"),
        ] {
            let next: DateTime = next.parse().unwrap();
            let found = Schedule::parse(schedule).unwrap().next_after(after.parse().unwrap());
            assert_eq!(found, Some(next), "{schedule}");
        }
        let never = Schedule::parse("0 0 30 2 *").unwrap();
        assert_eq!(never.next_after("2026-01-01T00:00:00".parse().unwrap()), None);
    }

    #[test]
    fn faults_read_as_upstreams() {
        for (schedule, fault) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ] {
            assert_eq!(Schedule::parse(schedule).unwrap_err().to_string(), fault);
        }
    }
}
