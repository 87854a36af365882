//! What the machines of every kind have in common besides Slipway's own: where they run, files and units of the user's.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A file that is written to every node of a role. It is not sealed, so do not put secrets into it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub(crate) struct CustomFileSpec {
    /// Where it lies, from the root.
    pub(crate) path: Option<String>,
    /// Its mode in octal digits; 0644 unless given.
    pub(crate) permissions: Option<ModeText>,
    /// Its owner, perhaps with its group: `user` or `user:group`; `root` unless given.
    pub(crate) owner: Option<String>,
    /// What is in it.
    pub(crate) content: Option<String>,
    /// What is in it, in base64; instead of `content`.
    #[serde(rename = "contentBase64")]
    pub(crate) content_base64: Option<String>,
}

/// A systemd unit on every node of a role.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct CustomUnitSpec {
    /// The unit's name, such as `proxy.service`.
    pub(crate) name: Option<String>,
    /// What is done with it once it is written; nothing unless given.
    pub(crate) command: Option<UnitCommandSpec>,
    /// Whether it is started at every boot, as its `[Install]` section says.
    pub(crate) enable: bool,
    /// Whether it lasts until the next boot only.
    pub(crate) runtime: bool,
    /// The unit itself; absent for a unit that the image has already.
    pub(crate) content: Option<String>,
    /// What changes parts of the unit.
    #[serde(rename = "drop-ins")]
    pub(crate) drop_ins: Vec<DropInSpec>,
}

/// A part of a unit.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name", "content"]))]
pub(crate) struct DropInSpec {
    /// Its name, such as `10-proxy.conf`.
    pub(crate) name: Option<String>,
    /// What is in it.
    pub(crate) content: Option<String>,
}

/// What is done with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnitCommandSpec {
    /// It is started.
    Start,
    /// It is stopped.
    Stop,
    /// It is started anew.
    Restart,
    /// It reads its configuration again.
    Reload,
    /// It is started anew if it runs.
    TryRestart,
    /// It reads its configuration again, or else is started anew.
    ReloadOrRestart,
    /// It reads its configuration again, or else is started anew if it runs.
    ReloadOrTryRestart,
}

/// `0644` or `"644"`: the digits as they stand, which is what a person means by them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct ModeText(pub(crate) String);

impl JsonSchema for ModeText {
    fn schema_name() -> Cow<'static, str> {
        "Mode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A file's mode in octal digits, such as `0644`.",
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": "^0?[0-7]{3,4}$"
        })
    }
}
