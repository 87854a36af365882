//! Users and groups, read from the machine's own files, because the agent may work below another root.

use std::path::Path;

use super::files::{self, Owner};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub owner: Owner,
    pub home: String,
}

pub fn user(root: &Path, name: &str) -> AgentResult<Option<User>> {
    let passwd = table(root, "/etc/passwd")?;
    let line = passwd.iter().find(|fields| fields.first().is_some_and(|first| first == name));
    Ok(line.and_then(|fields| {
        let owner = Owner { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? };
        Some(User { owner, home: fields.get(5)?.clone() })
    }))
}

/// The owner for a user and a group, each by name or number.
pub fn owner(root: &Path, user_name: &str, group_name: &str) -> AgentResult<Owner> {
    let absent = |kind: &str, name: &str| {
        AgentError::permanent(
            FailureCode::MachineAccount,
            format!("this machine has no {kind} {name:?}"),
            format!("use a {kind} that the image has, or a number"),
        )
    };
    let uid = match user_name.parse() {
        Ok(uid) => uid,
        Err(_) => user(root, user_name)?.ok_or_else(|| absent("user", user_name))?.owner.uid,
    };
    let gid = match group_name.parse() {
        Ok(gid) => gid,
        Err(_) => group(root, group_name)?.ok_or_else(|| absent("group", group_name))?,
    };
    Ok(Owner { uid, gid })
}

fn group(root: &Path, name: &str) -> AgentResult<Option<u32>> {
    let groups = table(root, "/etc/group")?;
    let line = groups.iter().find(|fields| fields.first().is_some_and(|first| first == name));
    Ok(line.and_then(|fields| fields.get(2)?.parse().ok()))
}

fn table(root: &Path, path: &str) -> AgentResult<Vec<Vec<String>>> {
    let text = files::read(&below(root, path))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect())
}
