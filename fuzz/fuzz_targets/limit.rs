//! How long reading may take, whatever is read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// 100 ms on a megabyte of anything: a function's invocation must not hang on an upload.
const LIMIT: Duration = Duration::from_millis(100);

/// What this thread has worked so far: a machine that is busy with other things makes nothing slow.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("time does not run backwards")
}

/// Runs `read`, and fails if it takes too long three times in a row: once may be a page's that was not there yet.
pub fn in_time<T>(length: usize, read: impl Fn() -> T) -> T {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let begun = worked();
        let read = read();
        least = least.min(worked() - begun);
        if least <= LIMIT {
            return read;
        }
    }
    panic!("{length} bytes took {least:?} to read, three times");
}
