//! The checks of the installation's alarms: they exist, notify somebody, and none is raised.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_aws::InstalledAlarm;
use slipway_core::words::count;
use slipway_spec::allowed::DEPLOY;

use super::findings::{Finding, Read, ok, problem, recreate_help, unknown, warning};

/// The alarms of the installation's stack.
#[derive(Debug)]
pub(super) struct AlarmsRead {
    /// The name of each, by its name in the template.
    pub(super) wanted: BTreeMap<String, String>,
    /// Those that exist.
    pub(super) found: Read<Vec<InstalledAlarm>>,
    /// The topic that they have to notify. `None`: the installation names none, which is a finding of its parameter.
    pub(super) topic: Option<String>,
}

/// The alarm that counts daily scans. It is raised from its creation until the first one, since a day without data breaches it.
const SCANS: &str = "ScanSilentAlarm";
/// The daily scan runs within this time after a deployment.
const FIRST_SCAN: SignedDuration = SignedDuration::from_hours(25);

/// The findings about the alarms of the stack `stack`. `changed_at`: when the stack was created or updated last.
pub(super) fn of_alarms(
    stack: &str,
    read: &AlarmsRead,
    changed_at: Option<Timestamp>,
    now: Timestamp,
) -> Vec<Finding> {
    let is_new = changed_at.is_some_and(|at| now.duration_since(at) < FIRST_SCAN);
    let found = match &read.found {
        Ok(found) => found,
        Err(unread) => return vec![unknown("alarms", unread)],
    };
    let mut all = Vec::new();
    for (id, name) in &read.wanted {
        let about = format!("alarm {id}");
        let Some(alarm) = found.iter().find(|alarm| alarm.name == *name) else {
            let message = format!("{name} does not exist: nobody is notified of what it monitors");
            all.push(problem(about, message, recreate_help(stack)));
            continue;
        };
        if let Some(topic) = &read.topic {
            if !alarm.enabled {
                all.push(problem(
                    about.clone(),
                    format!("the actions of {name} are disabled: it notifies nobody"),
                    format!("aws cloudwatch enable-alarm-actions --alarm-names {name}"),
                ));
            } else if !alarm.actions.contains(topic) {
                let message = format!("{name} does not notify {topic}, the installation's AlarmTopicArn");
                all.push(problem(about.clone(), message, recreate_help(stack)));
            }
        }
        if alarm.state == "ALARM" && id == SCANS && is_new {
            all.push(warning(
                about,
                "it is raised until the daily scan has run once since the installation was deployed"
                    .to_owned(),
                "look again tomorrow".to_owned(),
            ));
        } else if alarm.state == "ALARM" {
            all.push(problem(about, format!("it is raised: {}", alarm.reason), alarm.description.clone()));
        }
    }
    if read.wanted.is_empty() {
        let message = "the installation's stack has no alarm: its template is older than this command";
        all.push(problem("alarms", message, format!("make package && {DEPLOY}")));
    }
    if all.is_empty() {
        let tells = if read.topic.is_some() { ", and each notifies the topic" } else { "" };
        let number = count(read.wanted.len(), "alarm");
        all.push(ok("alarms", format!("{number}, none is raised{tells}")));
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::commands::doctor::findings::{Level, Unread};

    const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:alarms";

    fn sound() -> AlarmsRead {
        AlarmsRead {
            wanted: [("ScanErrorsAlarm".to_owned(), "slipway-ScanErrorsAlarm-1".to_owned())].into(),
            found: Ok(vec![InstalledAlarm {
                name: "slipway-ScanErrorsAlarm-1".to_owned(),
                description: "The scan function keeps failing".to_owned(),
                enabled: true,
                actions: vec![TOPIC.to_owned()],
                state: "INSUFFICIENT_DATA".to_owned(),
                reason: "Unchecked: Initial alarm creation".to_owned(),
            }]),
            topic: Some(TOPIC.to_owned()),
        }
    }

    fn alarm(read: &mut AlarmsRead) -> &mut InstalledAlarm {
        &mut read.found.as_mut().unwrap()[0]
    }

    /// What is changed in sound alarms; the words of the one finding.
    type Case = (fn(&mut AlarmsRead), Level, &'static [&'static str]);

    const CASES: &[Case] = &[
        (|_| {}, Level::Ok, &["1 alarm, none is raised, and each notifies the topic"]),
        (|read| read.topic = None, Level::Ok, &["1 alarm, none is raised"]),
        (
            |read| {
                (read.topic, alarm(read).actions) = (None, Vec::new());
            },
            Level::Ok,
            &["1 alarm"],
        ),
        (|read| read.found = Ok(Vec::new()), Level::Problem, &["does not exist", "REVERT_DRIFT"]),
        (
            |read| alarm(read).actions.clear(),
            Level::Problem,
            &["does not notify arn:aws:sns", "REVERT_DRIFT"],
        ),
        (|read| alarm(read).enabled = false, Level::Problem, &["are disabled", "enable-alarm-actions"]),
        (
            |read| alarm(read).state = "ALARM".to_owned(),
            Level::Problem,
            &["it is raised: Unchecked", "The scan function keeps failing"],
        ),
        (|read| read.wanted.clear(), Level::Problem, &["has no alarm", "make package"]),
        (
            |read| {
                let help = "allow cloudwatch:DescribeAlarms".to_owned();
                read.found = Err(Unread { why: "denied".to_owned(), help, denied: true });
            },
            Level::Unknown,
            &["not checked: denied", "allow cloudwatch:DescribeAlarms"],
        ),
    ];

    #[test]
    fn each_mistake_of_an_alarm_is_one_finding_with_its_cure() {
        for (change, level, expected) in CASES {
            let mut read = sound();
            change(&mut read);
            let now = Timestamp::UNIX_EPOCH;
            let [finding] = &of_alarms("slipway", &read, Some(now), now)[..] else {
                panic!("{expected:?}: {read:?}")
            };
            assert_eq!(finding.level, *level, "{finding:?}");
            let shown = format!("{} | {}", finding.message, finding.help.as_deref().unwrap_or("-"));
            for words in *expected {
                assert!(shown.contains(words), "{words}: {shown}");
            }
        }
    }

    /// CloudWatch counts missing data as the alarm says, from its creation on ("Configuring how CloudWatch alarms treat missing data").
    #[test]
    fn the_alarm_of_silent_scans_is_no_problem_on_the_first_day() {
        let name = "slipway-ScanSilentAlarm-1".to_owned();
        let mut read = sound();
        read.wanted = [(SCANS.to_owned(), name.clone())].into();
        alarm(&mut read).name = name;
        alarm(&mut read).state = "ALARM".to_owned();
        let deployed = Timestamp::UNIX_EPOCH;
        for (after, level) in [(24, Level::Warning), (25, Level::Problem)] {
            let now = deployed + SignedDuration::from_hours(after);
            let [finding] = &of_alarms("slipway", &read, Some(deployed), now)[..] else { panic!("{read:?}") };
            assert_eq!(finding.level, level, "{finding:?}");
        }
        assert_eq!(of_alarms("slipway", &read, None, deployed)[0].level, Level::Problem);
        read.wanted = [("ScanErrorsAlarm".to_owned(), alarm(&mut read).name.clone())].into();
        assert_eq!(
            of_alarms("slipway", &read, Some(deployed), deployed)[0].level,
            Level::Problem,
            "another one"
        );
    }
}
