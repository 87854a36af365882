//! The ports implemented over a directory: rendering without AWS.
//!
//! ```text
//! DIR/slipway.json        whose directory this is, and which bucket and key the templates name
//! DIR/lock.json           what the outside world decided
//! DIR/stacks/             a CloudFormation template for each stack
//! DIR/userdata/           the script of each role
//! DIR/nodes/              the configuration of each role, without secrets
//! DIR/release.json        the rendering as a whole, which `slipway plan --against DIR` compares with
//! DIR/credentials/        certificates as they are, private keys and bundles sealed under local.key
//! ```

use slipway_ports::Condition;

mod exported;
mod folder;
mod images;
mod imports;
mod keys;
mod registry;
mod workspace;

pub(crate) use exported::ExportFolder;
pub(crate) use images::{ImagePin, LocalParameters, pin};
pub(crate) use imports::LocalImports;
pub(crate) use keys::LocalKeys;
pub(crate) use registry::{LocalRegistry, stand_ins};
pub(crate) use workspace::{SiteArgs, Workspace, is_stand_in};

pub(crate) use folder::{Folder, write_atomic};

/// Whether `condition` allows a write over an object with the etag `stored`, or over none.
fn holds(condition: &Condition, stored: Option<&str>) -> bool {
    match condition {
        Condition::Absent => stored.is_none(),
        Condition::Unchanged(etag) => stored == Some(etag),
        Condition::Always => true,
    }
}
