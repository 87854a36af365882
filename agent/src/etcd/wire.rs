//! Answers of etcd's gateway, in versions 3.4 to 3.7: 64-bit numbers are strings, and zero values are left out.

use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Header {
    #[serde(deserialize_with = "number")]
    pub cluster_id: u64,
    /// The member that answered.
    #[serde(deserialize_with = "number")]
    pub member_id: u64,
    #[serde(deserialize_with = "number")]
    pub revision: u64,
}

/// `maintenance/status`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    pub header: Header,
    pub version: String,
    /// Bytes of the database file.
    #[serde(deserialize_with = "number")]
    pub db_size: u64,
    #[serde(deserialize_with = "number")]
    pub db_size_in_use: u64,
    /// Since 3.6.
    #[serde(deserialize_with = "number")]
    pub db_size_quota: u64,
    /// 0: no leader.
    #[serde(deserialize_with = "number")]
    pub leader: u64,
    #[serde(deserialize_with = "number")]
    pub raft_index: u64,
    #[serde(deserialize_with = "number")]
    pub raft_applied_index: u64,
    #[serde(deserialize_with = "number")]
    pub raft_term: u64,
    pub is_learner: bool,
    pub errors: Vec<String>,
}

/// `cluster/member/list`, and the calls that change the members.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Members {
    pub header: Header,
    /// The added member.
    pub member: Option<Member>,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Member {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
    /// Empty until the member has started once.
    pub name: String,
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// None until the member has started once.
    #[serde(rename = "clientURLs")]
    pub client_urls: Vec<String>,
    #[serde(rename = "isLearner")]
    pub is_learner: bool,
}

/// `maintenance/alarm`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Alarms {
    pub alarms: Vec<Alarm>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Alarm {
    #[serde(rename = "memberID", deserialize_with = "number")]
    pub member: u64,
    /// `NOSPACE` or `CORRUPT`.
    #[serde(rename = "alarm")]
    pub kind: String,
}

/// A line of `maintenance/snapshot`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Piece {
    pub result: Option<Blob>,
    pub error: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Blob {
    /// Base64.
    pub blob: String,
    #[serde(deserialize_with = "number")]
    pub remaining_bytes: u64,
}

/// An id as etcd's own tools print it.
#[must_use]
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(from)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn answers_of_old_and_new_gateways_read_the_same() {
        let old = r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","raft_term":"2"},
            "version":"3.4.23","dbSize":"20480","leader":"10276657743932975437","raftIndex":"4","raftTerm":"2",
            "raftAppliedIndex":"4","dbSizeInUse":"16384"}"#;
        let old: Status = serde_json::from_str(old).unwrap();
        assert_eq!((old.header.member_id, old.leader), (10276657743932975437, 10276657743932975437));
        assert_eq!((old.is_learner, old.db_size_quota, old.raft_index), (false, 0, 4));
        let new = r#"{"header":{},"version":"3.6.16","dbSizeQuota":"2147483648","isLearner":true,"storageVersion":"3.6.0",
            "downgradeInfo":{},"errors":["etcdserver: no leader"]}"#;
        let new: Status = serde_json::from_str(new).unwrap();
        assert_eq!((new.leader, new.db_size_quota, new.is_learner), (0, 2_147_483_648, true));
        assert_eq!(new.errors, ["etcdserver: no leader"]);
        let alarms: Alarms =
            serde_json::from_str(r#"{"alarms":[{"memberID":"1","alarm":"NOSPACE"}]}"#).unwrap();
        assert_eq!(alarms.alarms, [Alarm { member: 1, kind: "NOSPACE".to_owned() }]);
        assert_eq!(hex(10276657743932975437), "8e9e05c52164694d");
    }
}
