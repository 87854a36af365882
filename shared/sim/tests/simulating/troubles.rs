//! What AWS and other users do in the trials really happens in them: a rate that became zero would make every seed easier, and no test fail.

use std::collections::BTreeSet;

use slipway_sim::year::{Change, Trial, Verdict};

use super::seeds::base;

/// What the transcript says when a trouble, or a fault of machines, commands and functions, happens. Late answers, late events and time that
/// passes during an invocation leave no line.
const SIGNS: [&str; 34] = [
    // Auto Scaling and EC2.
    " is silent",
    " is to be interrupted in two minutes",
    " is at a higher risk of interruption",
    "somebody has ",
    "somebody suspends ",
    "somebody protects ",
    " brings its zones into balance",
    " finds ",
    " is given up before it served",
    "nobody speaks for ",
    // CloudFormation.
    " by hand",
    "somebody deletes the change sets of ",
    "somebody continues the rollback of ",
    // Whole services, and Lambda.
    "AutoScaling is down for ",
    "CloudFormation is down for ",
    "RunCommand is down for ",
    "Storage is down for ",
    "Bus is down for ",
    "Scheduler is down for ",
    "half of all calls are throttled for ",
    "Lambda has no concurrency for ",
    "a tick finds no concurrency",
    "nobody redrives ",
    "killed",
    "another invocation is still performing",
    // Run Command, etcd and Kubernetes.
    "Systems Manager does not reach ",
    "its answer was cut",
    " do not reach ",
    " raises the alarm NOSPACE",
    "a cluster autoscaler runs",
    "workers are repaired",
    "somebody uncordons ",
    " is deleted by force",
    "a person says ",
];

#[test]
fn each_trouble_happens_in_a_few_hundred_trials() {
    let usual = (0..240).map(|seed| Trial::new(seed, 0.1));
    // Their drains use force after a while.
    let forced = (0..40).map(|seed| Trial::on(seed, 0.1, 12, Change::Workers));
    let trials: Vec<Trial> = usual.chain(forced).collect();
    let half = trials.len() / 2;
    let signs = |trials: &[Trial]| -> BTreeSet<&str> {
        let run = |trial: &Trial| trial.run(base(trial.base()), None);
        let happened = |verdict: Verdict| {
            SIGNS
                .into_iter()
                .filter(move |sign| verdict.transcript.iter().any(|(_, line)| line.contains(sign)))
        };
        trials.iter().map(run).flat_map(happened).collect()
    };
    let seen: BTreeSet<&str> = std::thread::scope(|scope| {
        let all = [&trials[..half], &trials[half..]].map(|some| scope.spawn(move || signs(some)));
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    let missing: Vec<&str> = SIGNS.into_iter().filter(|sign| !seen.contains(sign)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
