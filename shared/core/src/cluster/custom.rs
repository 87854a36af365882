//! Files and systemd units of the user's, on the nodes of one role.

use serde::{Deserialize, Serialize};

/// What is written to every node of a role besides Slipway's own files. Files are sorted by path and units by name, so that their order
/// in the spec changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Custom {
    /// `customFiles`, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<CustomFile>,
    /// `customSystemdUnits`, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<CustomUnit>,
}

impl Custom {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.units.is_empty()
    }
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomFile {
    /// From the root, without `..`, `.` and double slashes.
    pub path: String,
    /// Four octal digits, such as `0644`.
    pub mode: String,
    /// A user's name or number.
    pub user: String,
    /// A group's name or number.
    pub group: String,
    /// What is in it.
    #[serde(flatten)]
    pub content: Content,
}

/// The content of a file. Valid text is always stored as text, so that switching between `content` and `contentBase64` in the spec
/// replaces no node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// As text.
    #[serde(rename = "content")]
    Text(String),
    /// Bytes that are no text, in standard base64 with padding.
    #[serde(rename = "contentBase64")]
    Base64(String),
}

/// A systemd unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomUnit {
    /// With its suffix, such as `.service`.
    pub name: String,
    /// The `systemctl` verb to run once everything is written, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether it is enabled.
    pub enable: bool,
    /// Whether it is written to `/run` instead of `/etc`.
    pub runtime: bool,
    /// The unit file. `None`: the image has the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `drop-ins`, by name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub drop_ins: Vec<DropIn>,
}

/// A drop-in of a unit, in `<unit>.d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DropIn {
    /// Ends in `.conf`.
    pub name: String,
    /// What is in it.
    pub content: String,
}
