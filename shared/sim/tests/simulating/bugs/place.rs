//! In which trials each mistake shows.

use slipway_sim::world::Repairers;
use slipway_sim::year::{Change, People, Surely, Trial};

use super::Bug;

/// Where to search for a mistake: the probability of faults, what people do, and the clusters with their changes, in turns.
pub(super) fn place(bug: Bug) -> (f64, People, &'static [(usize, Change)]) {
    use Change::{All, Controllers, Deadline, Members, More, Refresh, Removal, Urgent, Workers};
    match bug {
        Bug::TwoMembersAtOnce | Bug::ForgetsTheSnapshot | Bug::TakesTheLeader | Bug::TrustsWhoeverWakes => {
            (0.0, People::ByChance, &[(1, Members)])
        }
        Bug::IgnoresAlarms => (0.0, People::ByChance, &[(1, Members)]),
        Bug::BelievesEveryAnswer => (0.0, People::ByChance, &[(1, Refresh), (1, Members)]),
        Bug::BelievesStaleAnswers => (0.0, People::ByChance, &[(1, Refresh), (3, Refresh)]),
        Bug::BelievesStaleGroups => {
            (0.0, People::ByChance, &[(2, Workers), (1, Members), (2, Controllers), (0, All)])
        }
        Bug::TakesFailedForDone => (0.3, People::ByChance, &[(1, Refresh), (0, Refresh)]),
        Bug::TwoControllersAtOnce | Bug::SetsTheSizeTwice => {
            (0.0, People::ByChance, &[(2, Controllers), (3, Controllers)])
        }
        Bug::ForgetsTargets => (0.0, People::ByChance, &[(1, Controllers), (0, Controllers)]),
        Bug::StopsTheOnlyController => (0.0, People::ByChance, &[(0, Controllers), (1, Controllers)]),
        Bug::SkipsTheDrain
        | Bug::ForcesTheDrain
        | Bug::CompletesTheHookEarly
        | Bug::TwoWorkersAtOnce
        | Bug::TakesTheWrongMachine
        | Bug::DoneTooEarly => (0.0, People::ByChance, &[(2, Workers), (3, Workers)]),
        Bug::TouchesOtherRoles => (0.0, People::ByChance, &[(2, Workers), (3, Workers)]),
        Bug::ExpiresBehindAWindow => (0.0, People::ByChance, &[(8, Deadline), (9, Deadline)]),
        Bug::DrainsOnce => (0.2, People::ByChance, &[(18, Workers)]),
        Bug::DoesNotHearPauses | Bug::DoesNotHearResumes => (0.0, People::Pause, &[(1, Members), (0, All)]),
        Bug::DoesNotHearAborts => (0.001, People::Abort, &[(1, Members), (0, All)]),
        Bug::ForgetsWhomToSkip => (0.001, People::Skip, &[(0, All), (1, Members)]),
        Bug::ApprovesByItself => (0.0, People::ByChance, &[(4, Workers)]),
        Bug::IgnoresWindows => (0.0, People::ByChance, &[(5, Workers)]),
        Bug::DropsTheOutbox | Bug::SendsTwice | Bug::ReportsTwice => {
            (0.0, People::ByChance, &[(0, All), (0, Refresh)])
        }
        Bug::DropsATerminate => (0.0, People::ByChance, &[(0, Workers)]),
        Bug::BelievesTheLastSnapshot
        | Bug::KeepsTheFirstSnapshot
        | Bug::TakesTwoStepsAtOnce
        | Bug::TakesTheNetworkFirst
        | Bug::LeavesRecords
        | Bug::DoesNotHearDestroys => (0.0, People::Destroy, &[(1, Members), (2, Workers)]),
        Bug::DoesNotHearItCalledOff => (0.0, People::DestroyAndAbort, &[(0, Workers), (1, Members)]),
        Bug::EmptiesNothing | Bug::LeavesThePool => (0.0, People::ByChance, &[(1, Removal), (2, Removal)]),
        Bug::BeginsAgain => (0.001, People::Abort, &[(1, Members), (0, All)]),
        Bug::JoinsOnAnOldSnapshot => (0.001, People::Pause, &[(1, More), (2, More), (3, More)]),
        Bug::ForgetsTheCordoned => (0.001, People::Abort, &[(2, Workers), (3, Workers)]),
        Bug::WaitsForMachinesForEver => (0.001, People::ByChance, &[(1, Members), (2, Controllers)]),
        Bug::WaitsForHealthForEver | Bug::SnapshotsForEver => (0.001, People::ByChance, &[(1, Members)]),
        Bug::DrainsForEver | Bug::LacksForEver => (0.001, People::ByChance, &[(2, Workers), (3, Workers)]),
        Bug::WaitsThoughUrgent => (0.0, People::ByChance, &[(6, Urgent), (7, Urgent)]),
        Bug::SucceedsUnseen => {
            (0.3, People::ByChance, &[(0, Workers), (2, Workers), (1, Controllers), (0, All)])
        }
        Bug::ForgetsFailures => (0.3, People::ByChance, &[(1, Refresh), (3, Refresh)]),
        Bug::RepairsSeveralAtOnce | Bug::RepairsInAPartition | Bug::RepairsAtOnce => {
            (0.001, People::ByChance, &[(12, Workers), (13, Workers)])
        }
    }
}

/// What certainly goes wrong in a trial of that mistake. The mistakes of node managers are made by the world.
pub(super) fn surely(bug: Bug) -> Surely {
    let repairs = |how, silent_percent| Surely::Repairs { how, silent_percent };
    match bug {
        Bug::IgnoresAlarms => Surely::Alarm,
        Bug::DrainsForEver => Surely::Stuck,
        Bug::LacksForEver | Bug::WaitsForMachinesForEver => Surely::Starved,
        Bug::WaitsForHealthForEver => Surely::LongAlarm,
        Bug::SnapshotsForEver => Surely::NoKeys,
        Bug::RepairsSeveralAtOnce => repairs(Repairers::SeveralAtOnce, 40),
        Bug::RepairsInAPartition => repairs(Repairers::InSpiteOfPartitions, 60),
        Bug::RepairsAtOnce => repairs(Repairers::AtOnce, 1),
        _ => Surely::Nothing,
    }
}

/// The same trial without mistakes of node managers.
pub(super) fn careful(trial: Trial) -> Trial {
    let surely = match trial.surely {
        Surely::Repairs { silent_percent, .. } => Surely::Repairs { how: Repairers::Careful, silent_percent },
        other => other,
    };
    Trial { surely, ..trial }
}
