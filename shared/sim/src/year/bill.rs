//! The cost of Slipway itself: its calls and its functions, at AWS' list prices. Machines, load balancers and volumes belong to the
//! cluster.

use std::collections::BTreeMap;

use crate::mortal::Billed;

/// Prices in dollars in eu-west-1, as AWS lists them in November 2026.
pub mod prices {
    /// An S3 `GET` or `HEAD`.
    pub const S3_READ: f64 = 0.000_000_4;
    /// An S3 `PUT` or `LIST`.
    pub const S3_WRITE: f64 = 0.000_005;
    /// An event on a custom bus.
    pub const EVENT: f64 = 0.000_001;
    /// A call to KMS.
    pub const KMS: f64 = 0.000_003;
    /// An invocation of EventBridge Scheduler.
    pub const SCHEDULE: f64 = 0.000_001;
    /// A custom metric, per hour in which it is written.
    pub const METRIC_HOUR: f64 = 0.30 / 720.0;
    /// A Lambda function's invocation.
    pub const INVOCATION: f64 = 0.000_000_2;
    /// A gigabyte-second of a Lambda function on arm64.
    pub const GIGABYTE_SECOND: f64 = 0.000_013_333_4;
}

/// The memory of a function: 256 MB.
const GIGABYTES: f64 = 0.25;
/// The number of metrics of a cluster. Single certificates have additional ones in their last 60 days.
const METRICS: f64 = 4.0;
/// The assumed duration in seconds of a call to AWS, and of everything else in an invocation. Nothing takes time in the simulated world;
/// these values are rather high.
const CALL_S: f64 = 0.030;
const INVOCATION_S: f64 = 0.050;

/// The usage of Slipway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Calls by their kind for AWS' bill.
    pub calls: BTreeMap<Billed, u64>,
    /// Events on the bus.
    pub events: u64,
    /// Scans that wrote a cluster's metrics.
    pub scans: u64,
    /// Invocations of functions.
    pub invocations: u64,
    /// Of them, by Scheduler: the daily scan, and the ticks of rollouts.
    pub scheduled: u64,
}

/// What it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bill {
    /// Lambda.
    pub lambda: f64,
    /// S3's requests.
    pub s3: f64,
    /// KMS' requests.
    pub kms: f64,
    /// EventBridge, with Scheduler.
    pub events: f64,
    /// CloudWatch, for a cluster's own metrics.
    pub metrics: f64,
}

impl Usage {
    /// Its price in dollars.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of a year's calls are far below 2^52")]
    pub fn bill(&self) -> Bill {
        let count = |billed| self.calls.get(&billed).copied().unwrap_or_default() as f64;
        let calls: f64 = self.calls.values().map(|calls| *calls as f64).sum();
        let busy_s = self.invocations as f64 * INVOCATION_S + calls * CALL_S;
        Bill {
            lambda: self.invocations as f64 * prices::INVOCATION
                + busy_s * GIGABYTES * prices::GIGABYTE_SECOND,
            s3: count(Billed::S3Read) * prices::S3_READ + count(Billed::S3Write) * prices::S3_WRITE,
            kms: count(Billed::Kms) * prices::KMS,
            events: self.events as f64 * prices::EVENT + self.scheduled as f64 * prices::SCHEDULE,
            metrics: self.scans as f64 * METRICS * prices::METRIC_HOUR,
        }
    }
}

impl Bill {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.lambda + self.s3 + self.kms + self.events + self.metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_is_the_sum_of_what_was_called_at_its_price() {
        let calls = BTreeMap::from([
            (Billed::S3Read, 1_000_000),
            (Billed::S3Write, 100_000),
            (Billed::Kms, 1_000_000),
            (Billed::Free, 900_000),
        ]);
        let bill =
            Usage { calls, events: 500_000, scans: 720, invocations: 1_000_000, scheduled: 500_000 }.bill();
        assert!((bill.s3 - 0.9).abs() < 1e-9, "{bill:?}");
        assert!((bill.kms - 3.0).abs() < 1e-9, "{bill:?}");
        assert!((bill.events - 1.0).abs() < 1e-9, "{bill:?}");
        assert!((bill.metrics - 1.2).abs() < 1e-9, "{bill:?}");
        // 50,000 s of invocations and 90,000 s of calls, at a quarter of a gigabyte.
        assert!((bill.lambda - (0.2 + 140_000.0 * 0.25 * 0.000_013_333_4)).abs() < 1e-9, "{bill:?}");
        assert!((bill.total() - (bill.lambda + 4.9 + 1.2)).abs() < 1e-9, "{bill:?}");
        assert!(Usage::default().bill().total().abs() < 1e-12);
    }
}
