//! Measures the memory of the released functions in the embedded AWS over ten uploads.

use std::time::Duration;

use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome};
use slipway_tests::world::Settings;

use crate::{Anyhow, PRODUCTION};

/// The number of uploads; each changes something.
const UPLOADS: u32 = 10;

/// Prints the peak memory of the render function over ten uploads, and the duration of an invocation.
pub(crate) async fn memory() -> Anyhow<()> {
    let slipway = Installation::start(&Settings::default()).await?;
    let world = slipway.world();
    let mark = world.observer().mark();
    for upload in 0..UPLOADS {
        let text = PRODUCTION.replacen("maxSize: 10", &format!("maxSize: {}", 11 + upload), 1);
        world.upload("SpecBucket", "clusters/production/cluster.yaml", text.into_bytes()).await?;
        if !world.settle(Duration::from_millis(300), Duration::from_secs(60)).await {
            return Err("the embedded AWS does not come to rest".into());
        }
    }
    let (mut peak_kib, mut times_ms) = (0, Vec::new());
    for seen in world.observer().since(mark) {
        if let Observed::Finished { attempt, outcome, duration_ms, max_rss_kib } = seen.what
            && attempt.function.contains("render")
        {
            if !matches!(outcome, Outcome::Answered(_)) {
                return Err(format!("the render function failed: {outcome:?}").into());
            }
            peak_kib = max_rss_kib.max(peak_kib);
            times_ms.push(duration_ms);
        }
    }
    times_ms.sort_unstable();
    let median_ms = times_ms.get(times_ms.len() / 2).copied().unwrap_or_default();
    let peak = format!("render function, peak memory over {UPLOADS} uploads");
    println!("{peak:<58} {:>8.1} MiB  target ≤ 32 MiB", f64::from(u32::try_from(peak_kib)?) / 1024.0);
    println!("{:<58} {median_ms:>8} ms   (moto answers, in Python)", "    one invocation, median");
    Ok(())
}
