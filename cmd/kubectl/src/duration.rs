//! Durations as Go writes them: `10s`, `1h30m`, `500ms`, `1.5h`; a bare number is seconds.

use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Understands a duration.
pub fn parse(text: &str) -> Result<Duration> {
    let wrong = || format!("invalid duration {text:?}: expected such as 30s, 10m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').with_context(wrong)?;
        let number: f64 = rest[..digits].parse().with_context(wrong)?;
        let after = &rest[digits..];
        let units = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let seconds = match &after[..units] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => bail!(wrong()),
        };
        total += Duration::try_from_secs_f64(number * seconds).with_context(wrong)?;
        rest = &after[units..];
    }
    if text.is_empty() { bail!(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let check =
            |text: &str, seconds: f64| assert_eq!(parse(text).expect(text).as_secs_f64(), seconds, "{text}");
        check("10m", 600.0);
        check("1h30m", 5400.0);
        check("0s", 0.0);
        check("0", 0.0);
        check("250ms", 0.25);
        check("1.5h", 5400.0);
        for wrong in ["", "1d", "h", "1.2.3s", "s1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
