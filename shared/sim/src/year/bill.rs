//! What Slipway itself costs: its calls and its functions, by AWS' list prices. Machines, balancers and volumes are the cluster's.

use std::collections::BTreeMap;

use crate::mortal::Billed;

/// Dollars of eu-west-1, as AWS lists them in November 2026.
pub mod prices {
    /// Of S3: a `GET` or a `HEAD`.
    pub const S3_READ: f64 = 0.000_000_4;
    /// Of S3: a `PUT` or a `LIST`.
    pub const S3_WRITE: f64 = 0.000_005;
    /// An event on a bus of one's own.
    pub const EVENT: f64 = 0.000_001;
    /// A call of KMS.
    pub const KMS: f64 = 0.000_003;
    /// An invocation of EventBridge Scheduler.
    pub const SCHEDULE: f64 = 0.000_001;
    /// A metric of one's own, for each hour in which it is written.
    pub const METRIC_HOUR: f64 = 0.30 / 720.0;
    /// A Lambda function's invocation.
    pub const INVOCATION: f64 = 0.000_000_2;
    /// A Lambda function's gigabyte for a second, on arm64.
    pub const GIGABYTE_SECOND: f64 = 0.000_013_333_4;
}

/// What a function has: 256 MB.
const GIGABYTES: f64 = 0.25;
/// A cluster has so many. Those of single certificates, in their last 60 days, come on top.
const METRICS: f64 = 4.0;
/// How long a call of AWS takes, and what an invocation does besides, in seconds: nobody waits in a simulated world, so that
/// these are assumed, and rather long.
const CALL_S: f64 = 0.030;
const INVOCATION_S: f64 = 0.050;

/// What was used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Calls, by how AWS bills them.
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
