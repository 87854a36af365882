//! Waiting reasons in words.

use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;

use super::{
    Asks, Boot, ChangeSetWaits, Comes, Departs, Detail, HeldBy, HeldPod, HowFar, Idle, Kept, Many,
    ObservedParts, StackWaits, Waits, WorkersWait,
};
use slipway_core::words::{count, moment};

/// Several reasons, separated by `; `.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            one.fmt(f)?;
        }
        Ok(())
    }
}

/// The bootstrap states of booting machines.
pub(crate) struct Boots<'a>(pub(crate) &'a [Boot]);

impl Display for Boots<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no machine boots");
        }
        for (at, boot) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} boots", boot.machine)?;
            if let Detail(Some(step)) = &boot.step {
                write!(f, " ({step})")?;
            }
            if let Some(failure) = &boot.failure {
                write!(f, ": {failure}")?;
            }
        }
        Ok(())
    }
}

/// The wait for a maintenance window.
struct Window(Option<Timestamp>);

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("waits for the next maintenance window")?;
        match self.0.map(moment) {
            Some(from) => write!(
                f,
                ", or until {from}: from then on certificates expire so soon that the rollout ignores windows"
            ),
            None => Ok(()),
        }
    }
}

impl Display for Waits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => why.fmt(f),
            Self::Look(what) => what.fmt(f),
            Self::Boot(comes, boots) => write!(f, "{comes}: {}", Boots(boots)),
            Self::SecondLook(Many::One) => f.write_str("verifies that its machine is as planned"),
            Self::SecondLook(Many::Several) => f.write_str("verifies that its machines are as planned"),
            Self::Window { at_most_until } => Window(*at_most_until).fmt(f),
            Self::AnotherTry(why) => {
                write!(f, "retries in a few minutes, because the last attempt failed: {why}")
            }
            Self::Snapshot => f.write_str("waits for a snapshot"),
            Self::Answers(whose) => whose.fmt(f),
            Self::Dangers(dangers) => write!(f, "waits: {}", List(dangers)),
            Self::Serves(gaps) => write!(f, "waits until the cluster serves: {}", List(gaps)),
            Self::Leader => f.write_str("moves leadership to another member"),
            Self::Replaced => f.write_str("is replaced"),
            Self::Credentials(whom) => match whom.as_slice() {
                [] => f.write_str("installs its new credentials"),
                [one] => write!(f, "{one} installs its new credentials"),
                _ => write!(f, "{} machines install their new credentials", whom.len()),
            },
            Self::MemberRemoval => f.write_str("is removed from the membership"),
            Self::MemberThatStays => f.write_str("waits for a member that remains"),
            Self::Uncordon(id) => write!(f, "uncordons {id}"),
            Self::ControllerLeaves => f.write_str("waits until a controller is terminated"),
            Self::OneMoreController => f.write_str("launches an additional controller"),
            Self::Departure(departs) => departs.fmt(f),
            Self::Workers(waits) => waits.fmt(f),
            Self::Removal { departs, idle, empty: Detail((empty, of)) } => {
                List(departs).fmt(f)?;
                if let Some(idle) = idle {
                    idle.fmt(f)?;
                }
                write!(f, " ({empty} of {of} empty)")
            }
            Self::Kept(kept) => kept.fmt(f),
            Self::Standby { group, machine } => {
                write!(f, "{machine} of {group} is out of service (Standby), and may have pods")
            }
            Self::StackBusy(status) => {
                write!(f, "CloudFormation is at work on its stack ({status})")
            }
            Self::DeletionBegins { emptied: true } => {
                f.write_str("its machines are empty, and its stack is deleted")
            }
            Self::DeletionBegins { emptied: false } => f.write_str("its stack is deleted"),
            Self::Deletion { machines: Detail(machines), kept } => {
                write!(f, "CloudFormation deletes its stack ({} left)", count(*machines, "machine"))?;
                match kept {
                    Some(kept) => write!(f, "; {kept}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Display for ObservedParts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "looks at its machine",
            Self::Machines => "looks at its machines",
            Self::MachinesAndStack => "looks at its machines and its stack",
        })
    }
}

impl Display for Comes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("waits for its machine"),
            Self::Successor => f.write_str("waits for its new machine"),
            Self::Earlier => f.write_str("waits for a machine that was launched before the change"),
            Self::OneMore => f.write_str("waits for the additional controller"),
            Self::First(1) => f.write_str("waits for 1 additional machine"),
            Self::First(more) => write!(f, "waits for {more} additional machines"),
        }
    }
}

impl Display for Asks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Members => "checks the health of all members",
            Self::MembersLeft => "checks the health of the remaining members",
            Self::Controllers => "checks the health of all controllers",
            Self::OtherControllers => "checks the health of the other controllers",
            Self::Cluster => "checks whether the whole cluster serves",
        })
    }
}

impl Display for Departs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { machine, how } = self;
        match how {
            HowFar::Drains(Some(HeldBy::Pods(pods))) => {
                write!(f, "drains {machine}, which waits for {}", List(pods))
            }
            HowFar::Drains(Some(HeldBy::Failure(why))) => {
                write!(f, "drains {machine} again, because the last attempt failed: {why}")
            }
            HowFar::Drains(None) => write!(f, "drains {machine}"),
            HowFar::Leaves => write!(f, "waits for {machine} to leave"),
            HowFar::Empty => write!(f, "{machine} is empty"),
            HowFar::Interrupted => write!(f, "{machine} is empty, and EC2 interrupts it"),
            HowFar::Stays => write!(f, "uncordons {machine}"),
            HowFar::StaysCordoned(why) => write!(
                f,
                "{machine} stays cordoned, because uncordoning it failed ({why}). Slipway tries again every ten minutes; or run \
                 `/var/lib/slipway/slipway-node uncordon {machine}` on a controller"
            ),
        }
    }
}

impl Display for HeldBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(pods) => List(pods).fmt(f),
            Self::Failure(why) => why.fmt(f),
        }
    }
}

impl Display for HeldPod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pod, self.why.0)
    }
}

impl Display for WorkersWait {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.departs.iter().map(ToString::to_string).collect();
        words.extend(self.in_all.map(|Detail(all)| format!("and others, {all} in total")));
        words.extend(
            self.whole.as_ref().map(|boots| format!("waits until all its machines serve: {}", Boots(boots))),
        );
        words.extend(self.idle.as_ref().map(ToString::to_string));
        write!(f, "{} ({} done)", words.join("; "), self.done.0)
    }
}

impl Display for Idle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerSpec => f.write_str("gives way to a newer spec"),
            Self::Window { at_most_until } => Window(*at_most_until).fmt(f),
            Self::NoRoom { group, max } => write!(
                f,
                "waits for room: no machine of the pool may be missing, and {group} may have at most {max}"
            ),
            Self::Others => f.write_str("waits for the drains of other machines"),
        }
    }
}

impl Display for Kept {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { group, machine } = self;
        write!(
            f,
            "{group} retains {machine}, which was not drained: it is drained and terminated first. If that does not succeed, drain its node \
             (`kubectl drain`), then run `aws autoscaling terminate-instance-in-auto-scaling-group --instance-id {machine} --no-should-decrement-desired-capacity`"
        )
    }
}

impl Display for StackWaits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn => f.write_str("waits for its turn"),
            Self::ChangeSet(waits) => waits.fmt(f),
            Self::AtWork(Some(status)) => write!(f, "CloudFormation is at work ({status})"),
            Self::AtWork(None) => f.write_str("CloudFormation is at work"),
            Self::SecondLook(Some(status)) => {
                write!(f, "CloudFormation says {status}, which may be an earlier state")
            }
            Self::SecondLook(None) => f.write_str("CloudFormation's answer may be an earlier state"),
            Self::Starts => f.write_str("CloudFormation is about to start"),
            Self::Executes => f.write_str("executing the change set"),
            Self::Wreck => f.write_str("deleting what an earlier failed creation left"),
            Self::CreationCancelled => f.write_str("its creation was cancelled, so it is deleted"),
            Self::NotBegun => f.write_str("was not begun"),
            Self::Done(Some(status)) => status.fmt(f),
            Self::Done(None) => f.write_str("done"),
            Self::NothingToChange => f.write_str("nothing to change"),
            Self::Failed(why) => why.fmt(f),
        }
    }
}

impl Display for ChangeSetWaits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requesting => "asking for a change set",
            Self::Made => "the change set was requested",
            Self::Making => "CloudFormation is creating the change set",
            Self::Anew => "somebody else changed the stack; creating a new change set",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(machine: &str, step: Option<&str>, failure: Option<&str>) -> Boot {
        let failure = failure.map(|why| Detail(why.to_owned()));
        Boot { machine: machine.to_owned(), step: Detail(step.map(str::to_owned)), failure }
    }

    fn credentials(whom: &[&str]) -> Waits {
        Waits::Credentials(whom.iter().map(|id| (*id).to_owned()).collect())
    }

    #[test]
    fn several_are_told_one_after_the_other_and_one_without_anything_between() {
        let pods = ["a", "b", "c"].map(|pod| pod.to_owned());
        let all = [&pods[..0], &pods[..1], &pods].map(|some| List(some).to_string());
        assert_eq!(all, ["", "a", "a; b; c"]);
        let boots =
            [boot("i-1", Some("kubelet"), None), boot("i-2", None, Some("no disk")), boot("i-3", None, None)];
        let all = [&boots[..0], &boots[..1], &boots].map(|some| Boots(some).to_string());
        let three = "i-1 boots (kubelet), i-2 boots: no disk, i-3 boots";
        assert_eq!(all, ["no machine boots", "i-1 boots (kubelet)", three]);
    }

    #[test]
    fn each_wait_of_nodes_is_told_in_words_of_its_own() {
        let kept = Kept { group: "c-pool-a".to_owned(), machine: "i-1".to_owned() };
        for (waits, words) in [
            (Waits::Look(ObservedParts::Machine), "looks at its machine"),
            (Waits::Look(ObservedParts::Machines), "looks at its machines"),
            (Waits::Look(ObservedParts::MachinesAndStack), "looks at its machines and its stack"),
            (Waits::Answers(Asks::Members), "checks the health of all members"),
            (Waits::Answers(Asks::MembersLeft), "checks the health of the remaining members"),
            (Waits::Answers(Asks::Controllers), "checks the health of all controllers"),
            (Waits::Answers(Asks::OtherControllers), "checks the health of the other controllers"),
            (Waits::Answers(Asks::Cluster), "checks whether the whole cluster serves"),
            (credentials(&[]), "installs its new credentials"),
            (credentials(&["i-1"]), "i-1 installs its new credentials"),
            (credentials(&["i-1", "i-2"]), "2 machines install their new credentials"),
            (
                Waits::Kept(kept),
                "c-pool-a retains i-1, which was not drained: it is drained and terminated first. If that does not succeed, drain its node \
                 (`kubectl drain`), then run `aws autoscaling \
                 terminate-instance-in-auto-scaling-group --instance-id i-1 --no-should-decrement-desired-capacity`",
            ),
        ] {
            assert_eq!(waits.to_string(), words);
        }
    }

    #[test]
    fn how_far_a_change_set_is_is_told_in_words() {
        for (waits, words) in [
            (ChangeSetWaits::Requesting, "asking for a change set"),
            (ChangeSetWaits::Made, "the change set was requested"),
            (ChangeSetWaits::Making, "CloudFormation is creating the change set"),
            (ChangeSetWaits::Anew, "somebody else changed the stack; creating a new change set"),
        ] {
            assert_eq!(StackWaits::ChangeSet(waits).to_string(), words);
        }
    }
}
