//! Numbers that may be given as a share: `2` or `25%`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a share that is no whole number goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the larger.
    Up,
    /// To the smaller.
    Down,
}

/// The number, or the share of a total; zero where nothing is given.
pub fn of(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|share| share.parse().ok()).unwrap_or(0);
            let hundredths = percent * i64::from(total);
            let share = match round {
                Round::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) != 0),
                Round::Down => hundredths.div_euclid(100),
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_as_asked() {
        let percent = IntOrString::String("25%".into());
        assert_eq!(of(Some(&percent), 10, Round::Up), 3);
        assert_eq!(of(Some(&percent), 10, Round::Down), 2);
        assert_eq!(of(Some(&percent), 8, Round::Up), 2);
        assert_eq!(of(Some(&IntOrString::Int(4)), 8, Round::Up), 4);
        assert_eq!(of(None, 8, Round::Up), 0);
    }
}
