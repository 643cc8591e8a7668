//! The programs' memory, and what of it only their start needs.

use libmimalloc_sys::{mi_option_get, mi_option_set};
use std::ptr::with_exposed_provenance_mut;
use std::time::Duration;

/// After so long a program has read its flags, made its keys and filled its caches, or has dealt with whatever happened.
const REST: Duration = Duration::from_secs(10);

/// A create makes and drops some hundred small values: it takes a third less CPU time than with the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of the allocator's option for how many milliseconds it keeps what is free; the crate has no name for it.
const PURGE_DELAY: i32 = 15;

/// How long free memory is kept, in milliseconds.
pub struct Keep(std::ffi::c_long);

/// From now on free memory is given back at once: a program that comes to rest after a burst, as all do after their
/// start, would hold on to what it took. Returns how long it was kept.
pub fn give_back_at_once() -> Keep {
    // SAFETY: it reads a number.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    let before = unsafe { mi_option_get(PURGE_DELAY) };
    keep(&Keep(0));
    Keep(before)
}

fn keep(time: &Keep) {
    // SAFETY: it sets a number, which may be done at any time.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    unsafe {
        mi_option_set(PURGE_DELAY, time.0);
    }
}

/// Once the program has started, unmaps its own code: most of it ran once. What is used again comes from the page cache,
/// a few megabytes of some twenty. A program that rests does so from time to time; one that does not keeps free memory from
/// then on, for as long as `busy` says: to give back what the next create takes costs 7 % of its time.
pub async fn release(busy: Option<Keep>) {
    let mut moments = tokio::time::interval_at(tokio::time::Instant::now() + REST, REST);
    moments.tick().await;
    let mappings = own_code();
    unmap(&mappings);
    if let Some(time) = busy {
        return keep(&time);
    }
    loop {
        moments.tick().await;
        unmap(&mappings);
    }
}

/// Where the program's file is mapped and only read.
fn own_code() -> Vec<(usize, usize)> {
    let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") else { return Vec::new() };
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return Vec::new() };
    read_only(&smaps, &program.to_string_lossy())
}

fn unmap(mappings: &[(usize, usize)]) {
    for &(start, length) in mappings {
        // SAFETY: the range is a mapping of a file that nothing may write to and nothing has written to, so the kernel
        // maps the same bytes again at the next access.
        #[expect(unsafe_code, reason = "there is no safe door to madvise")]
        let code = unsafe { libc::madvise(with_exposed_provenance_mut(start), length, libc::MADV_DONTNEED) };
        if code != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "the program's own pages stay mapped");
        }
    }
}

/// Where a file is mapped, in memory and of which length, such that it cannot be written to and has not been: the linker
/// seals pages after it has changed them.
fn read_only(smaps: &str, file: &str) -> Vec<(usize, usize)> {
    let mut mappings = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some(range) = header(line, file) {
            current = range;
        } else if let Some(anonymous) = line.strip_prefix("Anonymous:")
            && let Some(range) = current.take()
            && anonymous.trim() == "0 kB"
        {
            mappings.push(range);
        }
    }
    mappings
}

/// Whether a line begins a mapping; and its range, if it is one of the file that is only read.
fn header(line: &str, file: &str) -> Option<Option<(usize, usize)>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let is_read_only = rest.starts_with("r-") && rest.ends_with(file);
    Some(is_read_only.then_some((start, end - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_has_written_to_is_released() {
        let smaps = "\
00200000-0045d000 r--p 00000000 fe:00 77 /usr/bin/minik8s
Size:               2420 kB
Anonymous:             0 kB
0045d000-0145d000 r-xp 0025c000 fe:00 77 /usr/bin/minik8s
Anonymous:             0 kB
0145d000-0146d000 r--p 0125c000 fe:00 77 /usr/bin/minik8s
Anonymous:             8 kB
0146d000-0147d000 rw-p 0126c000 fe:00 77 /usr/bin/minik8s
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
";
        let ours = vec![(0x20_0000, 0x25_d000), (0x45_d000, 0x100_0000)];
        assert_eq!(read_only(smaps, "/usr/bin/minik8s"), ours);
    }

    #[test]
    fn a_program_goes_on_without_its_pages() {
        let mappings = own_code();
        assert!(!mappings.is_empty());
        unmap(&mappings);
        assert_eq!(own_code(), mappings);
    }
}
