//! Values in, findings out.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use slipway_aws::{Difference, DifferenceKind, DriftStatus};

use super::*;

const PLANE: usize = 0;
const POOL: usize = 1;

/// A resource as CloudFormation shows it where nothing was changed.
fn in_sync(logical_id: &str, kind: &str, expected: Value) -> ResourceDrift {
    ResourceDrift {
        logical_id: logical_id.to_owned(),
        kind: kind.to_owned(),
        physical_id: format!("{}-1", logical_id.to_lowercase()),
        status: DriftStatus::InSync,
        reason: None,
        expected: Some(expected),
        differences: Vec::new(),
    }
}

/// A stack with a group, a launch template and a security group.
fn stack(name: &str, kind: StackKind, role: Role, (min, most, max): (u32, u32, u32)) -> StackRead {
    let group = format!("{name}-nodes");
    let template = json!({"Resources": {
        "Nodes": {"Type": GROUP, "Properties": {"AutoScalingGroupName": group}},
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {}},
        "Door": {"Type": "AWS::EC2::SecurityGroup", "Properties": {}},
    }});
    let body = template.to_string();
    let tags = BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]);
    let logical_id = "Nodes".to_owned();
    let nodes = GroupSize { min, max: most };
    let wanted = StackInRelease {
        kind,
        sha256: sha256_hex(body.as_bytes()),
        template,
        template_key: format!("clusters/c/templates/{name}/1.json"),
        tags: tags.clone(),
        groups: vec![GroupInRelease { name: group.clone(), logical_id, role, min, max, nodes }],
    };
    let used = json!({"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"}});
    let drifts = vec![
        in_sync("Nodes", GROUP, used),
        in_sync("Template", "AWS::EC2::LaunchTemplate", json!({})),
        in_sync("Door", "AWS::EC2::SecurityGroup", json!({})),
    ];
    let template = Some(("lt-1".to_owned(), "7".to_owned()));
    let settings = GroupSettings { min, max, desired: min, template, suspended: BTreeSet::new() };
    StackRead {
        name: name.to_owned(),
        release: "r1".to_owned(),
        wanted: Some(wanted),
        template_url: Some("https://assets.example/1.json".to_owned()),
        standing: Some(Standing {
            status: "UPDATE_COMPLETE".to_owned(),
            protected: false,
            tags,
            template: body,
            drift: Drift::Looked { drifts, failure: None },
            groups: BTreeMap::from([(group, settings)]),
        }),
    }
}

/// A cluster that nobody has touched: a controller, whose group has room for one more, and a pool of 2 to 5 with a surge of one.
fn untouched() -> ClusterRead {
    ClusterRead {
        cluster: "c".to_owned(),
        region: "eu-west-1".to_owned(),
        course: Course::Settled,
        stacks: vec![
            stack("c-control-plane", StackKind::ControlPlane, Role::Controller, (1, 1, 2)),
            stack("c-pool-a", StackKind::Pool, Role::Pool("a".to_owned()), (2, 5, 6)),
        ],
    }
}

fn standing(read: &mut ClusterRead, stack: usize) -> &mut Standing {
    read.stacks[stack].standing.as_mut().unwrap()
}

fn group(read: &mut ClusterRead, stack: usize) -> &mut GroupSettings {
    standing(read, stack).groups.values_mut().next().unwrap()
}

fn drifts(read: &mut ClusterRead, stack: usize) -> &mut Vec<ResourceDrift> {
    let Drift::Looked { drifts, .. } = &mut standing(read, stack).drift else {
        panic!("nothing was looked at")
    };
    drifts
}

fn difference(path: &str, expected: &str, actual: &str, kind: DifferenceKind) -> Difference {
    let side = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Difference { path: path.to_owned(), expected: side(expected), actual: side(actual), kind }
}

/// Drift detection says that a resource of the pool was changed.
fn modified(read: &mut ClusterRead, index: usize, differences: Vec<Difference>) {
    let drift = &mut drifts(read, POOL)[index];
    (drift.status, drift.differences) = (DriftStatus::Modified, differences);
}

/// A finding in one line: its level, what it is about, its message, its differences and its help.
fn line(finding: &Finding) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let differences: Vec<String> = finding
        .differences
        .iter()
        .map(|one| format!("[{} {} -> {}]", one.property, side(&one.expected), side(&one.actual)))
        .collect();
    let help = finding.help.clone().unwrap_or_default();
    format!(
        "{} {}: {} {} | {help}",
        finding.level.word(),
        finding.about,
        finding.message,
        differences.join(" ")
    )
}

fn lines(read: &ClusterRead) -> Vec<String> {
    findings(read).iter().map(line).collect()
}

type Change = fn(&mut ClusterRead);

/// What was done to the cluster, and the words of the only finding about it.
const CASES: &[(Change, &[&str])] = &[
    // Drift detection.
    (
        |read| modified(read, 2, vec![difference("/GroupDescription", "a", "b", DifferenceKind::NotEqual)]),
        &[
            "differs c-pool-a Door (AWS::EC2::SecurityGroup): somebody changed it: door-1",
            "[/GroupDescription a -> b]",
            "--stack-name c-pool-a --change-set-name revert-drift --change-set-type UPDATE --use-previous-template --deployment-mode REVERT_DRIFT",
            "--region eu-west-1",
        ],
    ),
    (
        |read| {
            modified(
                read,
                2,
                vec![difference("/SecurityGroupIngress/1", "", "{\"FromPort\":22}", DifferenceKind::Added)],
            );
        },
        &[
            "[/SecurityGroupIngress/1 nothing -> {\"FromPort\":22}]",
            "unless what was added are AWS' own default values",
        ],
    ),
    (
        |read| drifts(read, POOL)[2].status = DriftStatus::Deleted,
        &["differs c-pool-a Door", "somebody deleted it: door-1", "REVERT_DRIFT"],
    ),
    (
        |read| {
            let drift = &mut drifts(read, POOL)[2];
            (drift.status, drift.reason) = (DriftStatus::Unknown, Some("not authorized".to_owned()));
        },
        &["unknown c-pool-a Door", "could not be read: not authorized", "docs/cli.md, Permissions"],
    ),
    (
        |read| drop(drifts(read, POOL).remove(2)),
        &["note c-pool-a: drift detection does not look at Door (AWS::EC2::SecurityGroup)"],
    ),
    (
        |read| {
            let Drift::Looked { failure, .. } = &mut standing(read, POOL).drift else { panic!() };
            *failure = Some("internal".to_owned());
        },
        &["unknown c-pool-a: the drift detection failed: internal"],
    ),
    (
        |read| standing(read, POOL).drift = Drift::NotInTime,
        &["unknown c-pool-a: its resources are not compared", "not ended in time", "--minutes"],
    ),
    (
        |read| standing(read, POOL).drift = Drift::SomebodyElses,
        &["unknown c-pool-a: ", "somebody else's drift detection"],
    ),
    (
        |read| standing(read, POOL).drift = Drift::Refused("no".to_owned()),
        &["unknown c-pool-a: its resources are not compared: no"],
    ),
    (
        |read| {
            let standing = standing(read, POOL);
            (standing.status, standing.drift) = ("UPDATE_IN_PROGRESS".to_owned(), Drift::NotNow);
        },
        &["unknown c-pool-a: ", "it is UPDATE_IN_PROGRESS, and no rollout is open", "describe-stack-events"],
    ),
    (
        |read| {
            let standing = standing(read, POOL);
            (standing.status, standing.drift) = ("UPDATE_FAILED".to_owned(), Drift::NotNow);
        },
        &["unknown c-pool-a: ", "detects no drift in that status", "docs/runbook.md"],
    ),
    // Stacks.
    (
        |read| read.stacks[POOL].standing = None,
        &[
            "differs c-pool-a: there is no stack c-pool-a, and it was rolled out",
            "Slipway compares releases",
            "create-stack --stack-name c-pool-a --template-url https://assets.example/1.json",
            "'Key=slipway:cluster,Value=c'",
        ],
    ),
    (
        |read| {
            read.stacks[POOL].standing = None;
            read.stacks[POOL].wanted.as_mut().unwrap().kind = StackKind::Etcd;
        },
        &["there is no stack c-pool-a", "the data of etcd went with it"],
    ),
    (
        |read| read.stacks[POOL].wanted = None,
        &["unknown c-pool-a: not compared: the release r1", "clusters/c/releases/r1.json"],
    ),
    (
        |read| standing(read, POOL).template = "{\"Resources\":{}}".to_owned(),
        &[
            "differs c-pool-a: somebody deployed another template",
            "[template (SHA-256) ",
            "update-stack --stack-name c-pool-a",
        ],
    ),
    (
        |read| {
            let tags = &mut standing(read, POOL).tags;
            tags.insert("slipway:cluster".to_owned(), "d".to_owned());
            tags.insert("team".to_owned(), "x".to_owned());
        },
        &[
            "differs c-pool-a: somebody changed the tags",
            "[tag slipway:cluster c -> d] [tag team nothing -> x]",
        ],
    ),
    // Groups.
    (
        |read| (group(read, POOL).min, group(read, POOL).max) = (0, 9),
        &[
            "differs c-pool-a group c-pool-a-nodes: its sizes are not those",
            "[MinSize 2 -> 0] [MaxSize 6 -> 9]",
            "--auto-scaling-group-name c-pool-a-nodes --min-size 2 --max-size 6 --region eu-west-1",
            "write it into the spec",
        ],
    ),
    (
        |read| group(read, POOL).desired = 6,
        &["[DesiredCapacity 2 to 5 -> 6]", "--desired-capacity 5", "through its terminate hook"],
    ),
    (
        |read| (group(read, POOL).min, group(read, POOL).desired) = (0, 0),
        &["[MinSize 2 -> 0] [DesiredCapacity 2 to 5 -> 0]", "--desired-capacity 2"],
    ),
    (
        |read| group(read, PLANE).desired = 2,
        &[
            "differs c-control-plane group c-control-plane-nodes: ",
            "[DesiredCapacity 1 -> 2]",
            "the next rollout of the controllers drains and removes the surplus one: do not lower",
        ],
    ),
    (
        |read| group(read, POOL).suspended = ["AZRebalance", "Launch"].map(str::to_owned).into(),
        &[
            "has suspended AZRebalance, Launch: no lost machine is replaced",
            "resume-processes --auto-scaling-group-name c-pool-a-nodes --scaling-processes AZRebalance Launch",
        ],
    ),
    (
        |read| group(read, POOL).template = Some(("lt-1".to_owned(), "8".to_owned())),
        &[
            "it uses another launch template, or another version, than its stack",
            "[LaunchTemplate lt-1 version 7 -> lt-1 version 8]",
            "--launch-template 'LaunchTemplateId=lt-1,Version=7'",
        ],
    ),
    (
        |read| standing(read, POOL).groups.clear(),
        &["differs c-pool-a group c-pool-a-nodes: Auto Scaling has no such group", "REVERT_DRIFT"],
    ),
];

#[test]
fn each_change_by_hand_is_one_finding_with_both_sides_and_the_way_back() {
    assert_eq!(lines(&untouched()), [""; 0], "nothing was changed");
    for (change, words) in CASES {
        let mut read = untouched();
        change(&mut read);
        let lines = lines(&read);
        assert_eq!(lines.len(), 1, "{words:?}: {lines:#?}");
        for words in *words {
            assert!(lines[0].contains(words), "{words}: {lines:#?}");
        }
    }
}

#[test]
fn what_is_normal_is_no_difference() {
    let normal: &[Change] = &[
        // An autoscaler moves the desired capacity.
        |read| group(read, POOL).desired = 5,
        // Another order of keys, and white space, is the same template.
        |read| {
            let template: Value = serde_json::from_str(&standing(read, POOL).template).unwrap();
            standing(read, POOL).template = serde_json::to_string_pretty(&template).unwrap();
        },
        // A rollout that failed has left the controller that it had launched ahead, and the surge of the pool.
        |read| {
            read.course = Course::Unsettled;
            group(read, PLANE).desired = 2;
            group(read, POOL).desired = 6;
        },
        // What drift detection says of a group's sizes and launch template is compared with what is normal for them.
        |read| {
            let of = |path: &str| difference(path, "1", "2", DifferenceKind::NotEqual);
            let mixed = "/MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification/Version";
            let paths = ["/MinSize", "/MaxSize", "/DesiredCapacity", "/LaunchTemplate/Version", mixed];
            modified(read, 0, paths.map(of).into());
        },
    ];
    for (index, change) in normal.iter().enumerate() {
        let mut read = untouched();
        change(&mut read);
        assert_eq!(lines(&read), [""; 0], "{index}");
    }
}

#[test]
fn other_properties_of_a_group_are_those_of_drift_detection() {
    let mut read = untouched();
    let cooldown = difference("/Cooldown", "300", "60", DifferenceKind::NotEqual);
    modified(&mut read, 0, vec![difference("/MaxSize", "6", "9", DifferenceKind::NotEqual), cooldown]);
    group(&mut read, POOL).max = 9;
    let lines = lines(&read);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("[/Cooldown 300 -> 60]") && !lines[0].contains("MaxSize"), "{lines:#?}");
    assert!(lines[1].contains("[MaxSize 6 -> 9]"), "{lines:#?}");
}

#[test]
fn what_an_open_rollout_changes_is_not_compared_and_the_rest_is() {
    let mut read = untouched();
    read.course = Course::Rolling;
    let busy = standing(&mut read, PLANE);
    (busy.status, busy.drift) = ("UPDATE_IN_PROGRESS".to_owned(), Drift::NotNow);
    group(&mut read, PLANE).desired = 2;
    standing(&mut read, POOL).template = "{}".to_owned();
    group(&mut read, POOL).template = Some(("lt-1".to_owned(), "8".to_owned()));
    let all = findings(&read);
    assert!(all.iter().all(|finding| finding.level == Level::Note), "{:#?}", lines(&read));
    let lines_of = lines(&read);
    assert!(lines_of[0].contains("a rollout is open"), "{lines_of:#?}");
    assert!(
        lines_of.iter().any(|line| line.contains("UPDATE_IN_PROGRESS, which the open rollout waits for"))
    );
    // Whoever suspends a process, or opens a door, is not the rollout.
    group(&mut read, POOL).suspended = ["Terminate".to_owned()].into();
    modified(&mut read, 2, vec![difference("/VpcId", "a", "b", DifferenceKind::NotEqual)]);
    let differ = findings(&read).into_iter().filter(|finding| finding.level == Level::Differs).count();
    assert_eq!(differ, 2, "{:#?}", lines(&read));
}

#[test]
fn a_deleted_group_is_told_once_and_a_lost_volume_is_said_to_be_one() {
    let mut read = untouched();
    drifts(&mut read, POOL)[0].status = DriftStatus::Deleted;
    standing(&mut read, POOL).groups.clear();
    assert_eq!(lines(&read).len(), 1, "{:#?}", lines(&read));
    let mut read = untouched();
    let volume = &mut drifts(&mut read, POOL)[2];
    (volume.status, volume.kind) = (DriftStatus::Deleted, "AWS::EC2::Volume".to_owned());
    assert!(lines(&read)[0].contains("the data of that etcd member went with it"), "{:#?}", lines(&read));
}

#[test]
fn termination_protection_is_a_note_as_soon_as_one_stack_has_it() {
    let mut read = untouched();
    standing(&mut read, PLANE).protected = true;
    let all = lines(&read);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(
        all[0].starts_with("note c-control-plane: termination protection is on: `slipway destroy` stops")
    );
    assert!(all[1].starts_with("note c-pool-a: termination protection is off, and on for other stacks"));
    assert!(
        all[1]
            .contains("update-termination-protection --enable-termination-protection --stack-name c-pool-a")
    );
}
