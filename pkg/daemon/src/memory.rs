//! The programs' memory, and what of it only their start needs.

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set};
use std::os::unix::fs::FileExt;
use std::ptr::with_exposed_provenance_mut;
use std::time::Duration;

/// After so long a program has read its flags, made its keys and filled its caches, or has dealt with whatever happened.
const REST: Duration = Duration::from_secs(10);

/// A create makes and drops some hundred small values: it takes a third less CPU time than with the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of the allocator's option for how many milliseconds it keeps what is free; the crate has no name for it.
const PURGE_DELAY: i32 = 15;

/// The bytes by which the kernel describes a page.
const ENTRY: usize = 8;

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

/// Gives back what is free, also within what this thread keeps for its next allocations.
fn collect() {
    // SAFETY: it may be called at any time.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    unsafe {
        mi_collect(true);
    }
}

/// Once the program has started, unmaps its own code: most of it ran once. What is used again comes from the page cache,
/// a few megabytes of some twenty. A program that rests does so from time to time; one that does not keeps free memory from
/// then on, for as long as `busy` says: to give back what the next create takes costs 7 % of its time.
pub async fn release(busy: Option<Keep>) {
    let mut moments = tokio::time::interval_at(tokio::time::Instant::now() + REST, REST);
    moments.tick().await;
    let code = own_code().unwrap_or_default();
    unmap(&code);
    if let Some(time) = busy {
        return keep(&time);
    }
    loop {
        moments.tick().await;
        // Code that runs after this is mapped again.
        collect();
        unmap(&code);
    }
}

/// Where the program's file is mapped, only read, and as it is in the file.
fn own_code() -> std::io::Result<Vec<(usize, usize)>> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let pages = std::fs::File::open("/proc/self/pagemap")?;
    // SAFETY: it reads a number.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    let page =
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(std::io::Error::other)?;
    let mut ranges = Vec::new();
    for (start, end) in read_only(&maps, &program.to_string_lossy()) {
        let mut entries = vec![0; (end - start) / page * ENTRY];
        pages.read_exact_at(&mut entries, (start / page * ENTRY) as u64)?;
        ranges.extend(unchanged(start, page, &entries));
    }
    Ok(ranges)
}

fn unmap(ranges: &[(usize, usize)]) {
    for &(start, length) in ranges {
        // SAFETY: the range is of a file's mapping that nothing may write to, and of pages that nothing has written to, so
        // the kernel maps the same bytes again at the next access.
        #[expect(unsafe_code, reason = "there is no safe door to madvise")]
        let code = unsafe { libc::madvise(with_exposed_provenance_mut(start), length, libc::MADV_DONTNEED) };
        if code != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "the program's own pages stay mapped");
        }
    }
}

/// From where to where a file is mapped such that it cannot be written to.
fn read_only(maps: &str, file: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (rest.starts_with("r-") && rest.ends_with(file)).then_some((address(start)?, address(end)?))
    };
    maps.lines().filter_map(range).collect()
}

/// The ranges, as start and length, of pages that are the file's or nowhere, by their entries in `pagemap`: the linker
/// has written to some before it sealed them.
fn unchanged(start: usize, page: usize, entries: &[u8]) -> Vec<(usize, usize)> {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (n, entry) in entries.chunks_exact(ENTRY).enumerate() {
        let entry = u64::from_ne_bytes(entry.try_into().expect("chunks of this length"));
        if entry & OF_FILE == 0 && entry & (PRESENT | SWAPPED) != 0 {
            continue;
        }
        let at = start + n * page;
        match ranges.last_mut() {
            Some((start, length)) if *start + *length == at => *length += page,
            _ => ranges.push((at, page)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_may_write_to_is_released() {
        let maps = "\
00200000-0045d000 r--p 00000000 fe:00 77 /usr/bin/minik8s
0045d000-0145d000 r-xp 0025c000 fe:00 77 /usr/bin/minik8s
0146d000-0147d000 rw-p 0126c000 fe:00 77 /usr/bin/minik8s
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]
";
        let ours = [(0x20_0000, 0x45_d000), (0x45_d000, 0x145_d000)];
        assert_eq!(read_only(maps, "/usr/bin/minik8s"), ours);
    }

    #[test]
    fn pages_that_were_written_to_stay() {
        let (file, written, swapped, absent) = (0b101u64 << 61, 0b100 << 61, 0b010 << 61, 0);
        let entries = [file, absent, written, file, swapped, absent].map(u64::to_ne_bytes).concat();
        assert_eq!(unchanged(0, 10, &entries), [(0, 20), (30, 10), (50, 10)]);
    }

    #[test]
    fn a_program_goes_on_without_its_pages() {
        let ranges = own_code().unwrap();
        assert!(!ranges.is_empty());
        unmap(&ranges);
        let still: usize = own_code().unwrap().iter().map(|(_, length)| length).sum();
        assert_eq!(still, ranges.iter().map(|(_, length)| length).sum::<usize>());
    }
}
