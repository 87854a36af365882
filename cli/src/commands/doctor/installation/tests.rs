//! Each mistake in an installation is one finding with its cure, and a sound installation has none.
#![allow(clippy::unwrap_used)]

use jiff::SignedDuration;

use super::*;
use crate::commands::doctor::findings::Unread;

const OURS: &str = "0.1.0 (commit abc)";
const DIGEST: &str = "5a9e27b6c0f1d3846c7e90a1b2d4f8350617a9cbde42f37081e5b6c4d9a0f213";
const POLICY: &str = r#"{"Statement": [{"Sid": "AccountDecidesByIam", "Effect": "Allow", "Action": "kms:*",
    "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Resource": "*"}]}"#;

fn now() -> Timestamp {
    "2026-11-26T12:00:00Z".parse().unwrap()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn denied<T>(operation: &str) -> Read<T> {
    Err(Unread {
        why: format!("{operation} of it failed: AccessDenied"),
        help: format!("allow {operation}"),
        denied: true,
    })
}

fn bucket(about: &'static str) -> BucketRead {
    BucketRead {
        about,
        name: "b".to_owned(),
        versioned: Ok(true),
        closed: Ok(true),
        encryption: Ok(Encryption { algorithm: "AES256".to_owned(), key: None }),
        tells: Some(Ok(true)),
    }
}

fn sound() -> InstallationRead {
    let parameters = map(&[
        ("MaintainerArns", "arn:aws:iam::123456789012:role/admin"),
        ("AlarmTopicArn", "arn:aws:sns:eu-west-1:123456789012:alarms"),
        ("PrivateDomains", "internal"),
        ("ManagedPolicyArns", ""),
        ("Approval", "auto"),
    ]);
    InstallationRead {
        stack_name: "slipway".to_owned(),
        stack: Ok(InstalledStack {
            status: "UPDATE_COMPLETE".to_owned(),
            reason: None,
            changed_at: Some(now()),
            parameters,
            outputs: map(&[(RELEASE, OURS)]),
            tags: BTreeMap::new(),
            protected: false,
        }),
        ours: OURS.to_owned(),
        buckets: vec![bucket("asset bucket"), bucket("spec bucket")],
        rules: Some(Ok(vec![RuleRead {
            id: "Asked".to_owned(),
            bus: "slipway".to_owned(),
            name: "slipway-Asked-1".to_owned(),
            enabled: Ok(Some(true)),
            targets: Ok(1),
        }])),
        schedules: Some(vec![ScheduleRead {
            id: "DailyScan".to_owned(),
            name: "slipway-DailyScan-1".to_owned(),
            schedule: Ok(Some(InstalledSchedule {
                enabled: true,
                expression: "cron(23 4 * * ? *)".to_owned(),
            })),
        }]),
        alarms: None,
        queues: vec![QueueRead {
            output: "ScanDeadLettersUrl".to_owned(),
            url: "https://q".to_owned(),
            depth: Ok(Some(0)),
        }],
        key: Some(KeyRead {
            arn: "arn:key".to_owned(),
            key: Ok(Some(InstalledKey { enabled: true, state: "Enabled".to_owned() })),
            rotated: Ok(true),
            policy: Ok(POLICY.to_owned()),
            usable: Ok(()),
        }),
        agent: Some(AgentRead {
            published: Ok([(Architecture::Arm64, DIGEST.to_owned())].into()),
            stored: Ok(vec![Listed {
                key: keys::agent(DIGEST),
                etag: String::new(),
                size: 1,
                modified: now() - SignedDuration::from_hours(72),
            }]),
        }),
    }
}

/// The findings that are not ok, as `level about: message | help`.
fn wrong(read: &InstallationRead) -> Vec<String> {
    let all = findings(read, now());
    all.iter()
        .filter(|one| one.level != Level::Ok)
        .map(|one| {
            format!(
                "{} {}: {} | {}",
                one.level.word(),
                one.about,
                one.message,
                one.help.as_deref().unwrap_or("NO CURE")
            )
        })
        .collect()
}

#[test]
fn a_sound_installation_has_no_finding_that_needs_anybody() {
    let read = sound();
    assert_eq!(wrong(&read), Vec::<String>::new());
    let all = findings(&read, now());
    assert_eq!(all.len(), 10, "{all:?}");
    assert!(all.iter().any(|one| one.message == "arm64: 5a9e27b6c0f1, published 3 d ago"), "{all:?}");
}

/// What is changed in a sound installation; the words of the one finding.
type Case = (fn(&mut InstallationRead), &'static [&'static str]);

fn stack(read: &mut InstallationRead) -> &mut InstalledStack {
    read.stack.as_mut().unwrap()
}

fn set(read: &mut InstallationRead, parameter: &str, value: &str) {
    stack(read).parameters.insert(parameter.to_owned(), value.to_owned());
}

fn rule(read: &mut InstallationRead) -> &mut RuleRead {
    &mut read.rules.as_mut().unwrap().as_mut().unwrap()[0]
}

fn key(read: &mut InstallationRead) -> &mut KeyRead {
    read.key.as_mut().unwrap()
}

const CASES: &[Case] = &[
    (
        |read| stack(read).status = "UPDATE_ROLLBACK_COMPLETE".to_owned(),
        &["warning stack: the last update of slipway failed", "describe-stack-events --stack-name slipway"],
    ),
    (
        |read| stack(read).status = "UPDATE_IN_PROGRESS".to_owned(),
        &["warning stack: ", "being changed", "run this again"],
    ),
    (
        |read| stack(read).status = "UPDATE_ROLLBACK_FAILED".to_owned(),
        &["problem stack: ", "docs/upgrading.md"],
    ),
    (
        |read| drop(stack(read).outputs.remove(RELEASE)),
        &["warning release: ", "older than this command", "make package && sam deploy"],
    ),
    (
        |read| drop(stack(read).outputs.insert(RELEASE.to_owned(), "0.1.0 (commit def)".to_owned())),
        &["warning release: the installation is 0.1.0 (commit def) and this command is 0.1.0 (commit abc)"],
    ),
    (
        |read| drop(stack(read).outputs.insert(RELEASE.to_owned(), "0.0.9 (commit unknown)".to_owned())),
        &["warning release: the installation is 0.0.9"],
    ),
    (
        |read| set(read, "MaintainerArns", ""),
        &["warning parameter MaintainerArns", "--parameter-overrides MaintainerArns=ROLE-ARN"],
    ),
    (
        |read| set(read, "AlarmTopicArn", ""),
        &["warning parameter AlarmTopicArn", "notify nobody", "AlarmTopicArn=TOPIC-ARN"],
    ),
    (
        |read| set(read, "PrivateDomains", ""),
        &["warning parameter PrivateDomains: it is empty", "PrivateDomains=internal"],
    ),
    (
        |read| set(read, "PrivateDomains", "internal,com"),
        &["warning parameter PrivateDomains", "any name below com"],
    ),
    (
        |read| set(read, "ManagedPolicyArns", "arn:aws:iam::aws:policy/AdministratorAccess"),
        &[
            "warning parameter ManagedPolicyArns",
            "policy/AdministratorAccess",
            "the credentials of every cluster",
        ],
    ),
    (
        |read| read.buckets[0].versioned = Ok(false),
        &["problem asset bucket: b does not keep old versions", "put-bucket-versioning --bucket b"],
    ),
    (
        |read| read.buckets[0].closed = Ok(false),
        &["problem asset bucket: ", "public access", "put-public-access-block"],
    ),
    (
        |read| read.buckets[1].tells = Some(Ok(false)),
        &["problem spec bucket: ", "no upload of a spec is noticed", "EventBridgeConfiguration"],
    ),
    (
        |read| {
            let (algorithm, key) = ("aws:kms".to_owned(), Some("arn:theirs".to_owned()));
            read.buckets[1].encryption = Ok(Encryption { algorithm, key });
        },
        &["warning spec bucket: b is encrypted with aws:kms under arn:theirs", "put-bucket-encryption"],
    ),
    (
        |read| rule(read).enabled = Ok(Some(false)),
        &[
            "problem rule Asked: ",
            "is disabled",
            "aws events enable-rule --name slipway-Asked-1 --event-bus-name slipway",
        ],
    ),
    (|read| rule(read).enabled = Ok(None), &["problem rule Asked: ", "does not exist", "REVERT_DRIFT"]),
    (|read| rule(read).targets = Ok(0), &["problem rule Asked: ", "has no target", "REVERT_DRIFT"]),
    (|read| read.rules = Some(Ok(Vec::new())), &["problem rules: ", "has no rules", "sam deploy"]),
    (
        |read| {
            let disabled = InstalledSchedule { enabled: false, expression: String::new() };
            read.schedules.as_mut().unwrap()[0].schedule = Ok(Some(disabled));
        },
        &[
            "problem schedule DailyScan: ",
            "is disabled: no certificate is renewed",
            "update-schedule --name slipway-DailyScan-1",
        ],
    ),
    (
        |read| read.schedules.as_mut().unwrap()[0].schedule = Ok(None),
        &["problem schedule DailyScan: ", "does not exist", "REVERT_DRIFT"],
    ),
    (|read| read.schedules = Some(Vec::new()), &["problem schedule: ", "has no schedule"]),
    (
        |read| read.queues[0].depth = Ok(Some(2)),
        &[
            "problem ScanDeadLetters: about 2 messages",
            "scans that did not run",
            "receive-message --queue-url https://q",
            "slipway scan --all",
        ],
    ),
    (|read| read.queues[0].depth = Ok(None), &["problem ScanDeadLetters: ", "does not exist"]),
    (
        |read| key(read).key = Ok(Some(InstalledKey { enabled: false, state: "PendingDeletion".to_owned() })),
        &["problem key: arn:key is PendingDeletion", "cancel-key-deletion --key-id arn:key"],
    ),
    (
        |read| {
            key(read).key = Ok(Some(InstalledKey { enabled: false, state: "Disabled".to_owned() }));
            // What KMS says of a disabled key.
            key(read).usable =
                Err(Unread { why: "DisabledException".to_owned(), help: String::new(), denied: true });
        },
        &["problem key: arn:key is Disabled", "enable-key --key-id arn:key"],
    ),
    (|read| key(read).key = Ok(None), &["problem key: arn:key does not exist"]),
    (|read| key(read).rotated = Ok(false), &["warning key: ", "enable-key-rotation --key-id arn:key"]),
    (
        |read| key(read).policy = Ok(POLICY.replace(":root", ":role/admin")),
        &["problem key: the policy of arn:key does not let IAM decide", "put-key-policy --key-id arn:key"],
    ),
    (
        |read| key(read).usable = denied("kms:GenerateDataKey"),
        &["warning key: you may not seal credentials", "kms:GenerateDataKey", "renew --recover"],
    ),
    (
        |read| read.agent.as_mut().unwrap().published = Ok(BTreeMap::new()),
        &["problem agent: no node agent is published", "slipway publish-agent dist/arm64/slipway-node"],
    ),
    (
        |read| read.agent.as_mut().unwrap().stored = Ok(Vec::new()),
        &[
            "problem agent: the manifest names 5a9e27b6c0f1 for arm64",
            "does not exist",
            "slipway publish-agent",
        ],
    ),
];

#[test]
fn each_mistake_in_an_installation_is_one_finding_with_its_cure() {
    for (change, expected) in CASES {
        let mut read = sound();
        change(&mut read);
        let wrong = wrong(&read);
        assert_eq!(wrong.len(), 1, "{expected:?}: {wrong:#?}");
        assert!(!wrong[0].contains("NO CURE"), "{wrong:?}");
        for words in *expected {
            assert!(wrong[0].contains(words), "{words}: {}", wrong[0]);
        }
    }
}

/// What is denied, and the operation that the finding names.
type Denied = (fn(&mut InstallationRead), &'static str);

#[test]
fn what_may_not_be_read_is_unknown_names_its_permission_and_leaves_the_other_checks() {
    let cases: [Denied; 13] = [
        (|read| read.stack = denied("cloudformation:DescribeStacks"), "cloudformation:DescribeStacks"),
        (
            |read| read.rules = Some(denied("cloudformation:ListStackResources")),
            "cloudformation:ListStackResources",
        ),
        (|read| rule(read).enabled = denied("events:DescribeRule"), "events:DescribeRule"),
        (|read| rule(read).targets = denied("events:ListTargetsByRule"), "events:ListTargetsByRule"),
        (
            |read| read.schedules.as_mut().unwrap()[0].schedule = denied("scheduler:GetSchedule"),
            "scheduler:GetSchedule",
        ),
        (|read| read.queues[0].depth = denied("sqs:GetQueueAttributes"), "sqs:GetQueueAttributes"),
        (|read| read.buckets[0].versioned = denied("s3:GetBucketVersioning"), "s3:GetBucketVersioning"),
        (
            |read| read.buckets[0].closed = denied("s3:GetBucketPublicAccessBlock"),
            "s3:GetBucketPublicAccessBlock",
        ),
        (
            |read| read.buckets[0].encryption = denied("s3:GetEncryptionConfiguration"),
            "s3:GetEncryptionConfiguration",
        ),
        (|read| read.buckets[0].tells = Some(denied("s3:GetBucketNotification")), "s3:GetBucketNotification"),
        (|read| key(read).key = denied("kms:DescribeKey"), "kms:DescribeKey"),
        (|read| key(read).policy = denied("kms:GetKeyPolicy"), "kms:GetKeyPolicy"),
        (|read| read.agent.as_mut().unwrap().stored = denied("s3:ListBucket"), "s3:ListBucket"),
    ];
    for (change, operation) in cases {
        let mut read = sound();
        change(&mut read);
        let wrong = wrong(&read);
        assert_eq!(wrong.len(), 1, "{operation}: {wrong:#?}");
        assert!(
            wrong[0].starts_with("unknown ") && wrong[0].contains(&format!("allow {operation}")),
            "{wrong:?}"
        );
        assert!(findings(&read, now()).iter().filter(|one| one.level == Level::Ok).count() > 4);
    }
}

#[test]
fn only_a_statement_for_the_whole_account_lets_iam_decide() {
    assert!(lets_iam_decide(POLICY));
    assert!(lets_iam_decide(&POLICY.replace("arn:aws:iam::123456789012:root", "123456789012")));
    for other in [
        POLICY.replace("Allow", "Deny"),
        POLICY.replace("kms:*", "kms:Decrypt"),
        POLICY.replace("\"Resource\"", "\"Condition\": {\"Bool\": {}}, \"Resource\""),
        "no policy".to_owned(),
    ] {
        assert!(!lets_iam_decide(&other), "{other}");
    }
}
