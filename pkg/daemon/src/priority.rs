//! Threads that others go before.

/// Of two threads that both want a core, the other one gets three quarters of it.
const NICENESS: libc::c_int = 5;

/// From now on this thread gets a core after those that answer requests.
pub fn yield_to_others() {
    // SAFETY: it takes numbers; on Linux, 0 means this thread.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
    if code != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "a thread keeps its priority");
    }
}
