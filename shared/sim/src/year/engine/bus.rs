//! Which function an event wakes, by the rules of `infra/template.yaml`.

use jiff::{SignedDuration, Timestamp};
use slipway_core::event::Event;
use slipway_core::pin::Pin;
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::rendering::UpgradeOrder;
use slipway_flows::rollout::{Interruption, Waker};

use super::{DAY_S, Engine, Happening, REDRIVEN};
use crate::world::{Outgoing, Service};
use crate::year::account::Woken;
use crate::year::rates::Trouble;

impl Engine<'_> {
    /// While something is open, the function is woken again: a tick is armed, or an event is on its way.
    pub(super) fn is_woken_again(&mut self, now: Timestamp) {
        if self.with_world(|world| !world.schedules().is_empty()) {
            return;
        }
        let Some(open) = self.checker.open() else { return };
        // Lost events are not in the queue; events in the queue are retried, and end in a dead-letter queue if all retries fail.
        let comes = self.queue.values().any(|happening| match happening {
            Happening::Invoke { who, .. } => match who {
                Woken::Rollout(_)
                | Woken::Stack(_)
                | Woken::Group(_)
                | Woken::Interruption(_)
                | Woken::Command(_) => true,
                Woken::Spec(_) | Woken::Credentials | Woken::Pins(_) | Woken::Scans | Woken::Scan(_) => false,
            },
            Happening::Person(_)
            | Happening::Death { .. }
            | Happening::Alarm { .. }
            | Happening::Strike(_)
            | Happening::Disarm
            | Happening::Daily => false,
        });
        if !comes {
            self.checker.wrong(now, "P8", format!("{open} is open, and nothing wakes the rollout function"));
        }
    }

    /// All retries of an event failed. It is in the function's dead-letter queue, even if AWS did not promise to deliver it
    /// (`DeadLetterQueue` of the functions in `infra/template.yaml`). A person redrives it, or nobody does; then the daily `Looked` event
    /// wakes the function for whatever is open.
    pub(super) fn lies_there(&mut self, who: Woken, durable: bool) {
        self.tally.dead_letters += 1;
        let unredriven = (self.faults * self.rates.rate_of(Trouble::Unredriven)).min(0.5);
        if unredriven > 0.0 && self.random.chance(unredriven) {
            self.transcript.push((self.now(), format!("nobody redrives {who:?}")));
            let wait = SignedDuration::from_secs(self.random.seconds(0, DAY_S));
            let waker = Woken::Rollout(Waker::Look);
            return self.after(wait, Happening::Invoke { who: waker, tried: 0, durable: true });
        }
        self.after(REDRIVEN, Happening::Invoke { who, tried: 0, durable });
    }

    /// How long an outage of EventBridge delays an event. Scheduler invokes functions itself.
    pub(super) fn held_up(&self, who: &Woken) -> SignedDuration {
        let by_scheduler = matches!(who, Woken::Rollout(Waker::Tick) | Woken::Scans);
        let until = self.with_world(|world| world.down_until(Service::Bus)).filter(|_| !by_scheduler);
        until.map_or(SignedDuration::ZERO, |until| until.duration_since(self.now()))
    }

    /// A report of a rollout comes once, as long as every invocation has run from its start to its end, one after the other.
    fn reports_once(&mut self, event: &Event, now: Timestamp) {
        let Ok(mut report) = serde_json::to_value(event) else { return };
        let fields = report.get_mut("detail").and_then(|detail| detail.as_object_mut());
        let id = fields.and_then(|fields| fields.remove("id"));
        let Some(id) = id.as_ref().and_then(|id| id.as_str()) else { return };
        let (ids, last) = &mut self.reported;
        let is_new = ids.insert(id.to_owned());
        if !self.torn && (!is_new || last.as_ref() == Some(&report)) {
            self.checker.wrong(now, "P8", format!("a report is published twice: {report}"));
        }
        *last = Some(report);
    }

    pub(super) fn published(&mut self, event: &Event, now: Timestamp) {
        self.tally.events += 1;
        self.reports_once(event, now);
        let said = |self_: &mut Self, what: &str, message: &str| {
            self_.transcript.push((now, format!("bus: {what}: {message}")));
        };
        let who = match event {
            Event::RolloutRequested(_) => Woken::Rollout(Waker::Event),
            Event::CertificateRenewed(renewed) => {
                said(self, "certificates renewed", &renewed.certificates.join(", "));
                Woken::Credentials
            }
            Event::ScanRequested(asked) => match &asked.cluster {
                Some(_) => {
                    // The same event starts the daily check of the rollout function.
                    self.send(Woken::Rollout(Waker::Look), true);
                    Woken::Scan(RenewalRequest::default())
                }
                None => Woken::Scans,
            },
            Event::RenewalRequested(asked) => {
                let everything = asked.certificates.is_empty();
                Woken::Scan(RenewalRequest {
                    certificates: asked.certificates.clone(),
                    everything,
                    at: Some(now),
                })
            }
            Event::UpgradeRequested(asked) => Woken::Pins(UpgradeOrder {
                pins: if asked.pins.is_empty() { Pin::ALL.into() } else { asked.pins.clone() },
                back_to: asked.back_to.clone(),
                at: now,
            }),
            Event::RolloutSucceeded(report) => {
                said(self, "rollout succeeded", &report.message);
                if !self.scans {
                    return;
                }
                Woken::Scan(RenewalRequest::default())
            }
            Event::RolloutFailed(report) => return said(self, "rollout failed", &report.message),
            Event::RolloutAborted(report) => return said(self, "rollout aborted", &report.message),
            Event::RolloutSuperseded(report) => return said(self, "rollout superseded", &report.message),
            Event::RolloutStarted(started) => return said(self, "rollout started", &started.plan),
            Event::RolloutStep(report) => return said(self, "step", &report.message),
            Event::RolloutWaiting(report) => return said(self, "waiting", &report.message),
            Event::RolloutPaused(report) => return said(self, "paused", &report.message),
            Event::OrderIgnored(report) => return said(self, "order ignored", &report.message),
            Event::ClusterDestroyed(gone) => return said(self, "cluster destroyed", &gone.message),
            Event::PlanReady(plan) => return said(self, "plan", &plan.summary),
            Event::SpecRejected(rejected) => {
                return said(self, "spec rejected", &rejected.diagnostics.join("; "));
            }
            Event::CertificateExpiring(one) => return said(self, "expiring", &one.message),
            Event::RenewalFailed(one) => return said(self, "renewal failed", &one.message),
            Event::PlanUnchanged(_)
            | Event::RolloutApproved(_)
            | Event::RolloutPause(_)
            | Event::RolloutResume(_)
            | Event::RolloutAbort(_)
            | Event::RolloutSkip(_)
            | Event::DestroyRequested(_) => return,
        };
        self.send(who, true);
    }
}

/// The function that an event of the world wakes, by the rules of `infra/template.yaml`, and whether AWS promises to deliver the event.
pub(super) fn woken(outgoing: &Outgoing) -> Option<(Woken, bool)> {
    let event = match outgoing {
        Outgoing::Invoke { .. } => return Some((Woken::Rollout(Waker::Tick), true)),
        Outgoing::Event(event) => event,
    };
    let detail = &event.envelope["detail"];
    let text = |pointer: &str| detail.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
    match event.envelope["source"].as_str().unwrap_or_default() {
        "aws.cloudformation" if event.detail_type == "CloudFormation Stack Status Change" => {
            let settled =
                ["_COMPLETE", "_FAILED"].iter().any(|end| text("/status-details/status").ends_with(end));
            let name = text("/stack-id").split('/').nth(1).unwrap_or_default().to_owned();
            settled.then_some((Woken::Stack(name), true))
        }
        "aws.autoscaling" => Some((Woken::Group(text("/AutoScalingGroupName").to_owned()), false)),
        "aws.ec2" if event.detail_type == "EC2 Spot Instance Interruption Warning" => {
            let notice = Interruption { instance: text("/instance-id").to_owned(), at: event.at };
            Some((Woken::Interruption(notice), false))
        }
        "aws.ssm" => {
            let over = !matches!(text("/status"), "Pending" | "Delayed" | "InProgress" | "Cancelling");
            over.then(|| (Woken::Command(text("/command-id").to_owned()), false))
        }
        _ => None,
    }
}
