//! Time zones, from the system's files.

use api::kinds::batch::times;
use jiff::tz::TimeZone;
use std::path::Path;

const ZONES: &str = "/usr/share/zoneinfo";

/// A time zone by its name.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    zone_in(Path::new(ZONES), name)
}

/// A time zone by its name, where the system's files are in this folder.
pub fn zone_in(files: &Path, name: &str) -> Result<TimeZone, String> {
    // Only of what is a name is there a file to be read.
    times::zone(name, None)?;
    times::zone(name, std::fs::read(files.join(name)).ok().as_deref())
}
