//! Where services' addresses come from: a range, or one of each family.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One range, or two of different families; the first one's family is what services have unless they ask for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    /// The first.
    pub first: IpNet,
    /// The other family's.
    pub second: Option<IpNet>,
}

impl ServiceRanges {
    /// The range of a family.
    pub fn of(&self, family: &str) -> Option<IpNet> {
        [Some(self.first), self.second].into_iter().flatten().find(|range| family_of(range.addr()) == family)
    }
}

/// As `ipFamilies` writes it.
pub fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

impl FromStr for ServiceRanges {
    type Err = String;

    /// From `10.96.0.0/12` or `10.96.0.0/12,fd00:10:96::/112`.
    fn from_str(text: &str) -> Result<ServiceRanges, String> {
        let parse = |text: &str| {
            text.trim().parse::<IpNet>().map_err(|_| format!("{text:?} is not a range: write 10.96.0.0/12"))
        };
        let (first, second) = match text.split_once(',') {
            Some((first, second)) => (parse(first)?, Some(parse(second)?)),
            None => (parse(text)?, None),
        };
        if second.is_some_and(|second| second.addr().is_ipv4() == first.addr().is_ipv4()) {
            return Err(format!("{text:?}: two ranges must be of different families"));
        }
        Ok(ServiceRanges { first, second })
    }
}

impl fmt::Display for ServiceRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.second {
            Some(second) => write!(f, "{},{second}", self.first),
            None => self.first.fmt(f),
        }
    }
}
