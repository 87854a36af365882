//! How long reading may take, whatever is read.

use std::time::{Duration, Instant};

/// 100 ms on a megabyte of anything: a function's invocation must not hang on an upload.
const LIMIT: Duration = Duration::from_millis(100);

/// Runs `read`, and fails if it takes too long three times in a row: once may be the machine's fault.
pub fn in_time<T>(length: usize, read: impl Fn() -> T) -> T {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let read = read();
        least = least.min(begun.elapsed());
        if least <= LIMIT {
            return read;
        }
    }
    panic!("{length} bytes took {least:?} to read, three times");
}
