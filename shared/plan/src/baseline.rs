//! What is deployed, which a plan starts from.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use slipway_core::members::{DeployedMembers, MemberPin};
use slipway_core::release::{AddonSet, NodeRole, Rendering};
use slipway_core::role::Role;

use super::skew;

/// What is deployed: the release of each stack, and the stacks and roles themselves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Baseline {
    /// The release of each existing stack.
    pub releases: BTreeMap<String, String>,
    /// Those of them that are orphaned: an earlier rollout removed them from the cluster.
    pub orphaned: BTreeSet<String>,
    /// The release whose add-ons are applied.
    pub addons: Option<String>,
    /// The stacks and roles, each from its own release. `None`: nothing was ever deployed.
    pub rendering: Option<Rendering>,
    /// The id of the release that `rendering` is as a whole; `None`: of none, or that is not known.
    pub whole: Option<String>,
    /// Other releases that some nodes of a role may have.
    pub earlier: skew::Earlier,
    /// Stacks whose creation did not succeed and that still exist, each with the release that wanted it, and what that release has of it.
    pub unfinished: BTreeMap<String, (String, Rendering)>,
    /// Members that may have joined etcd although their groups could not be created, each with the release that wanted it, and its node there.
    pub joined: BTreeMap<Role, (String, NodeRole)>,
}

impl Baseline {
    /// Assembles what is deployed: each stack and its roles, from the release of the stack. Orphaned stacks (`left`) count too, because
    /// they use exports and their kubelets talk to the API server.
    ///
    /// # Errors
    /// The release named in `deployed` or `left` that `releases` lacks.
    pub fn assemble(
        cluster: &str,
        deployed: &BTreeMap<String, String>,
        orphaned: &BTreeMap<String, String>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        let standing: BTreeMap<String, String> = orphaned
            .iter()
            .chain(deployed)
            .map(|(stack, release)| (stack.clone(), release.clone()))
            .collect();
        if standing.is_empty() {
            return Ok(Self::default());
        }
        let mut whole = Rendering {
            format: Rendering::FORMAT,
            cluster: cluster.to_owned(),
            stacks: Vec::new(),
            roles: BTreeMap::new(),
            addons: AddonSet::default(),
        };
        for (name, id) in &standing {
            let release = releases.get(id).ok_or_else(|| id.clone())?;
            whole.stacks.extend(release.stack(name).cloned());
            whole.roles.extend(
                release
                    .roles
                    .iter()
                    .filter(|(_, role)| &role.stack == name)
                    .map(|(role, node)| (role.clone(), node.clone())),
            );
        }
        whole.stacks.sort_by_key(|stack| stack.kind);
        let orphaned = orphaned.keys().filter(|stack| !deployed.contains_key(*stack)).cloned().collect();
        Ok(Self {
            releases: standing,
            orphaned,
            addons: None,
            rendering: Some(whole),
            whole: None,
            earlier: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            joined: BTreeMap::new(),
        })
    }

    /// Adds the members that may have joined etcd although their groups could not be created.
    ///
    /// # Errors
    /// The first of their releases that `releases` lacks.
    pub fn with_joined(
        mut self,
        joined: &BTreeMap<Role, String>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        for (role, id) in joined {
            let release = releases.get(id).ok_or_else(|| id.clone())?;
            let node = release.roles.get(role).map(|node| (role.clone(), (id.clone(), node.clone())));
            self.joined.extend(node);
        }
        Ok(self)
    }

    /// Adds the stacks whose creation did not succeed.
    ///
    /// # Errors
    /// The first of their releases that `releases` lacks.
    pub fn with_unfinished(
        mut self,
        unfinished: &BTreeMap<String, String>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        for (stack, id) in unfinished {
            let release = releases.get(id).ok_or_else(|| id.clone())?;
            let mut part = Rendering { addons: AddonSet::default(), ..release.clone() };
            part.stacks.retain(|one| one.name == *stack);
            part.roles.retain(|_, node| node.stack == *stack);
            self.unfinished.insert(stack.clone(), (id.clone(), part));
        }
        Ok(self)
    }

    /// What is compared with `new`: an unfinished stack that `new` does not have is removed like any other. One that it has is created.
    pub(super) fn compared_with(&self, new: &Rendering) -> Cow<'_, Self> {
        let gone = self.unfinished.iter().filter(|(stack, _)| new.stack(stack).is_none());
        let gone: Vec<_> = gone.map(|(stack, (_, part))| (stack.clone(), part)).collect();
        if gone.is_empty() && self.joined.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut whole = self.clone();
        let Some(rendering) = &mut whole.rendering else { return Cow::Borrowed(self) };
        for (stack, part) in gone {
            rendering.stacks.extend(part.stacks.iter().cloned());
            rendering.roles.extend(part.roles.iter().map(|(role, node)| (role.clone(), node.clone())));
            whole.orphaned.insert(stack);
        }
        rendering.stacks.sort_by_key(|stack| stack.kind);
        Cow::Owned(whole.with_members_to_remove(new))
    }

    /// Without the members that have lost their groups: they run nothing.
    pub(super) fn without_joined(&self) -> Cow<'_, Self> {
        if self.joined.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        if let Some(rendering) = &mut other.rendering {
            rendering.roles.retain(|role, _| !self.joined.contains_key(role));
        }
        Cow::Owned(other)
    }

    /// With the joined members that `new` does not have among its roles: they are removed like any other.
    pub(super) fn with_members_to_remove(mut self, new: &Rendering) -> Self {
        let gone = self.joined.iter().filter(|(role, _)| !new.roles.contains_key(*role));
        let gone: Vec<_> = gone.map(|(role, (_, node))| (role.clone(), node.clone())).collect();
        if let Some(rendering) = &mut self.rendering {
            rendering.roles.extend(gone);
        }
        self
    }

    /// Adds the add-ons of the release `addons`, which are applied.
    ///
    /// # Errors
    /// That release, if `releases` lacks it.
    pub fn with_addons(
        self,
        addons: Option<&str>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        let Some(id) = addons else { return Ok(self) };
        let addons = &releases.get(id).ok_or_else(|| id.to_owned())?.addons;
        let rendering = self.rendering.map(|whole| Rendering { addons: addons.clone(), ..whole });
        Ok(Self { addons: Some(id.to_owned()), rendering, ..self })
    }

    /// Adds the roles some of whose nodes may have other releases.
    ///
    /// # Errors
    /// The first of these releases that `releases` lacks.
    pub fn with_earlier(
        mut self,
        earlier: &BTreeMap<Role, BTreeSet<String>>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        for (role, ids) in earlier {
            for id in ids {
                let node = releases.get(id).ok_or_else(|| id.clone())?.roles.get(role).cloned();
                self.earlier.entry(role.clone()).or_default().insert(id.clone(), node);
            }
        }
        Ok(self)
    }

    /// Looks for the release that is deployed as a whole, whose id [`plan`] then need not compute.
    #[must_use]
    pub fn with_release_id(mut self, releases: &BTreeMap<String, Rendering>) -> Self {
        let whole = releases.iter().find(|(_, release)| self.rendering.as_ref() == Some(*release));
        self.whole = whole.map(|(id, _)| id.clone());
        self
    }

    /// A baseline in which every stack is at one release; `None`: nothing is deployed.
    #[must_use]
    pub fn single_release(release: Option<Rendering>) -> Self {
        let Some(release) = release else { return Self::default() };
        let id = release.id();
        let releases = release.stacks.iter().map(|stack| (stack.name.clone(), id.clone())).collect();
        let addons = (!release.addons.digest.is_empty()).then(|| id.clone());
        Self {
            releases,
            orphaned: BTreeSet::new(),
            addons,
            rendering: Some(release),
            whole: Some(id),
            earlier: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            joined: BTreeMap::new(),
        }
    }

    /// Which etcd members are deployed. `in_progress`: a rollout is in progress, which may be creating members that are not recorded yet.
    #[must_use]
    pub fn etcd(&self, in_progress: bool) -> DeployedMembers {
        let roles = self.rendering.iter().flat_map(|rendering| &rendering.roles);
        let members: BTreeMap<u32, MemberPin> = roles
            .filter_map(|(role, node)| Some((role.member()?, node.member.as_ref()?.pin.clone())))
            .collect();
        match (members.is_empty(), in_progress) {
            (false, _) => DeployedMembers::Members(members),
            (true, true) => DeployedMembers::InProgress,
            (true, false) => DeployedMembers::Nothing,
        }
    }
}
