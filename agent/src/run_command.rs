//! The agent of Systems Manager on this machine: the only way in which commands reach it.

use crate::machine::File;

/// The units that images have: of the package, and of the snap that Ubuntu has.
const UNITS: [&str; 2] = ["amazon-ssm-agent.service", "snap.amazon-ssm-agent.amazon-ssm-agent.service"];

/// Its own unit waits for a quarter of an hour before it starts again, and names no OOM score, so on a machine without memory it is among the
/// first to be killed (amazon-ssm-agent `packaging/linux/amazon-ssm-agent.service`, issues 204 and 580; EKS does the same as this:
/// amazon-eks-ami PR 2618). The score counts from its next start on.
pub(crate) fn files() -> Vec<File> {
    let drop_in = "[Service]\nOOMScoreAdjust=-900\nRestart=always\nRestartSec=10\n";
    let path = |unit: &str| format!("/etc/systemd/system/{unit}.d/50-slipway.conf");
    UNITS.map(|unit| File::public(path(unit), drop_in)).into()
}
