//! What a verb of `slipway-node` prints when it fails: a [`VerbFailure`] with a [`FailureCode`].
//!
//! The agent and the simulator write only codes of that list. A reader also accepts codes of newer agents: [`Word::Other`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Word;

/// A verb's failure, printed under the key `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct VerbFailure {
    /// The kind of failure, for programs.
    pub code: Word<FailureCode>,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub help: String,
    /// Whether a retry may succeed although nothing was changed in between.
    #[serde(default)]
    pub transient: bool,
}

impl VerbFailure {
    /// A failure that may pass by itself.
    #[must_use]
    pub fn transient(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: Word::Known(code), message: message.into(), help: help.into(), transient: true }
    }

    /// A failure that a person must resolve.
    #[must_use]
    pub fn permanent(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { transient: false, ..Self::transient(code, message, help) }
    }

    /// The message, with its help in parentheses.
    #[must_use]
    pub fn with_help(&self) -> String {
        if self.help.is_empty() { self.message.clone() } else { format!("{} ({})", self.message, self.help) }
    }

    /// Whether it has that code.
    #[must_use]
    pub fn is(&self, code: FailureCode) -> bool {
        self.code == Word::Known(code)
    }
}

/// Defines [`FailureCode`]: each code with the word that is printed and its meaning.
macro_rules! failure_codes {
    ($($variant:ident = $word:literal, $meaning:literal;)+) => {
        /// The kinds of failure that a verb of `slipway-node` has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FailureCode {
            $(
                #[doc = $meaning]
                #[serde(rename = $word)]
                $variant,
            )+
        }

        impl FailureCode {
            /// All of them, in the order of their words.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word that is printed.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

failure_codes! {
    AwsDenied = "aws.denied", "AWS denies a call; the help names the statement that allows it.";
    AwsMissing = "aws.missing", "Something that a call to AWS names does not exist.";
    AwsRefused = "aws.refused", "AWS refuses a call as invalid.";
    AwsUnreachable = "aws.unreachable", "AWS did not answer, throttled the call or failed.";
    BootstrapAddress = "bootstrap.address", "The metadata service names no usable address of this machine.";
    BootstrapInput = "bootstrap.input", "What the user data wrote to this machine cannot be read.";
    BootstrapStep = "bootstrap.step", "A step was run for a role that does not have it.";
    BootstrapZone = "bootstrap.zone", "`node.json` names no hosted zone for a member's record.";
    CommandAbsent = "command.absent", "The image lacks a program that is needed.";
    CommandFailed = "command.failed", "A program of the machine failed or could not be started.";
    ConfigUnreadable = "config.unreadable", "The node's configuration or `node.json` is missing or cannot be read.";
    CredentialsDamaged = "credentials.damaged", "The bundle of credentials was decrypted, but its content is not a bundle.";
    CredentialsDigest = "credentials.digest", "The given digest of credentials is not a valid digest.";
    CredentialsFiles = "credentials.files", "Files of credentials cannot be written.";
    CredentialsFormat = "credentials.format", "The bundle of credentials has a format that this agent does not know.";
    CredentialsMissing = "credentials.missing", "The asset bucket has no bundle of that digest.";
    CredentialsPath = "credentials.path", "The bundle of credentials holds a file outside of its folders.";
    CredentialsUnreadable = "credentials.unreadable", "A certificate or key of this node cannot be read.";
    CustomFile = "custom.file", "One of `customFiles` cannot be written as the spec says.";
    DrainAnnotation = "drain.annotation", "An annotation of a drain that should contain a time does not.";
    DrainNoNode = "drain.no-node", "The cluster has no node of that name.";
    EtcdDisk = "etcd.disk", "The volume of etcd has too little free space for what was asked.";
    EtcdNoLeader = "etcd.no-leader", "The etcd cluster has no leader.";
    EtcdNoOtherVoter = "etcd.no-other-voter", "No other voter is fit to lead.";
    EtcdNotAMember = "etcd.not-a-member", "This node is not an etcd member.";
    EtcdRefused = "etcd.refused", "etcd refuses the call.";
    EtcdRelease = "etcd.release", "This release of etcd must not do what was asked.";
    EtcdRemoveSelf = "etcd.remove-self", "A member was asked to remove itself.";
    EtcdUnhealthy = "etcd.unhealthy", "A member may not pause, because it or another member is not healthy.";
    EtcdUnreachable = "etcd.unreachable", "etcd does not answer.";
    HttpAuthorities = "http.authorities", "This system has no public certificate authorities.";
    HttpClient = "http.client", "No HTTP client can be made.";
    JoinData = "join.data", "The member has run before, but its data is not on this machine.";
    JoinEndpoints = "join.endpoints", "The configuration names no member to join.";
    KubernetesCredentials = "kubernetes.credentials", "The kubeconfig of this controller cannot be read.";
    KubernetesRefused = "kubernetes.refused", "The API server refuses the call.";
    KubernetesUnavailable = "kubernetes.unavailable", "The API server does not answer, throttled the call or failed.";
    LeaveFiles = "leave.files", "Manifests of static pods cannot be moved away.";
    LeaveNoMajority = "leave.no-majority", "The cluster would have no majority without this member.";
    LeaveUnreadable = "leave.unreadable", "The configuration of this node cannot be read when it is to leave.";
    LeaveWorker = "leave.worker", "A worker does not complete its own terminate hook.";
    MachineAccount = "machine.account", "This machine has no such user or group.";
    MachineFiles = "machine.files", "Files of this machine cannot be written.";
    ManageAddons = "manage.addons", "The rendered add-ons cannot be read.";
    ManageAws = "manage.aws", "AWS refuses what `manage` must know of the instances.";
    ManageLedger = "manage.ledger", "The record of the applied objects cannot be read.";
    ManageRepair = "manage.repair", "What is known of workers that are not Ready cannot be read or kept.";
    ManageUnknownKind = "manage.unknown-kind", "The API server does not know the kind of an add-on's object.";
    ManageUnreadable = "manage.unreadable", "The configuration of a controller cannot be read.";
    NodeUnhealthy = "node.unhealthy", "A component of this node is not healthy yet.";
    RefreshEtcdUnhealthy = "refresh.etcd-unhealthy", "etcd must be restarted, and its other members are not well enough for that.";
    RefreshFiles = "refresh.files", "Files that `refresh` keeps cannot be written.";
    RefreshKubelet = "refresh.kubelet", "The credentials are in force, and the kubelet got no new certificate in time.";
    RefreshManifest = "refresh.manifest", "The manifest of a static pod is missing or cannot be read.";
    RefreshNotServed = "refresh.not-served", "The new certificates were not served in time; the old ones are in force again.";
    RefreshReadAtStart = "refresh.read-at-start", "A process must be restarted for these credentials, and that was not allowed.";
    RefreshRestart = "refresh.restart", "A process that was restarted did not become healthy again.";
    RestoreDamaged = "restore.damaged", "The snapshot is not whole.";
    RestoreFiles = "restore.files", "Files of a restore cannot be written.";
    RestoreInterrupted = "restore.interrupted", "An earlier restore was interrupted after it had put the previous data aside.";
    RestoreMembers = "restore.members", "The members to restore do not name this one.";
    RestoreProgram = "restore.program", "etcd's own restore failed.";
    RestoreRevisionBump = "restore.revision-bump", "Revisions would be raised by no more than at an earlier restore.";
    RestoreRunning = "restore.running", "Something still runs etcd on the data that are to be replaced.";
    RestoreStart = "restore.start", "etcd was started with the restored data and does not stay up.";
    RestoreToken = "restore.token", "The token was used before.";
    RestoreTwins = "restore.twins", "Two snapshots have that time.";
    RestoreWrongSnapshot = "restore.wrong-snapshot", "The snapshot is not the one that it should be, or may be another one.";
    SnapshotBusy = "snapshot.busy", "On this machine a snapshot is being taken or restored, or etcd is being defragmented.";
    SnapshotCorrupt = "snapshot.corrupt", "etcd found that the data of its members differ, so a snapshot may be of damaged data.";
    SnapshotFiles = "snapshot.files", "The sealed snapshot cannot be written to the disk or read from it.";
    SnapshotNames = "snapshot.names", "Others took a snapshot in each of the last seconds, so that no name was free.";
    SnapshotPanic = "snapshot.panic", "The agent failed unexpectedly while it opened the snapshot.";
    SnapshotReadBack = "snapshot.read-back", "The object in the bucket differs from what was uploaded.";
    SnapshotSize = "snapshot.size", "The snapshot is larger than S3 takes in one call.";
    SoftwareCannotRun = "software.cannot-run", "A program that was installed does not run on this image.";
    SoftwareDigest = "software.digest", "What was downloaded has another SHA-256.";
    SoftwareLayout = "software.layout", "An archive does not contain the expected files.";
    SoftwareMissing = "software.missing", "A program is neither downloaded nor in the image.";
    SoftwareUnpack = "software.unpack", "An archive cannot be unpacked.";
    SoftwareUnreachable = "software.unreachable", "Software cannot be downloaded.";
    SoftwareUnwritable = "software.unwritable", "Software cannot be written to the disk.";
    StorageAbsent = "storage.absent", "The machine has no instance store, and its pool uses one.";
    Usage = "usage", "The verb or its options are wrong.";
    VolumeAbsent = "volume.absent", "A volume or its device is not there.";
    VolumeAmbiguous = "volume.ambiguous", "Several volumes have the tags of this member's volume.";
    VolumeArray = "volume.array", "An array lacks disks or does not run yet.";
    VolumeAttaching = "volume.attaching", "The volume is being attached.";
    VolumeBusy = "volume.busy", "Another instance has the volume.";
    VolumeDamaged = "volume.damaged", "The file system on a volume is damaged.";
    VolumeDevice = "volume.device", "The device of an attached volume is not there.";
    VolumeFileSystem = "volume.file-system", "The configuration names a file system that this agent does not make.";
    VolumeForeign = "volume.foreign", "A volume holds something that Slipway did not write.";
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
