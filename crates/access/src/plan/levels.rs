//! CREATE, ALTER, DROP, ATTACH and DETACH SERVICE LEVEL.

use cql::Statement;
use cql::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DropServiceLevel, OptionList, Permission,
};
use engine::Error;
use workload::{DEFAULT_LEVEL, DRIVER_LEVEL, LevelError, LevelSpec};

use super::{Planner, check_name};
use crate::needs::NeedKind;
use crate::options;
use crate::resource::Resource;
use crate::roles::Edit;

/// Options that have no effect on requests that nodes of a cluster work on.
const REFUSED_OPTIONS: [&str; 2] = ["io_limit", "query_limit"];

/// Returns the error for a level that does not exist.
pub(crate) fn missing_level(level: &str) -> Error {
    Error::Invalid(LevelError::Missing(level.into()).to_string())
}

/// Rejects a change of `default`.
fn not_default(level: &str, refusal: &str) -> Result<(), Error> {
    if level == DEFAULT_LEVEL {
        return Err(Error::Invalid(format!("The default service level, {level}, {refusal}")));
    }
    Ok(())
}

impl Planner<'_> {
    pub(super) fn create_level(
        &self,
        statement: &CreateServiceLevel,
        whole: &Statement,
    ) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        if name.starts_with('$') {
            return Err(Error::Invalid(
                "Names starting with '$' are reserved for internal tenants. Use a different name.".to_owned(),
            ));
        }
        check_name("Service level", name)?;
        self.check_options(&statement.options)?;
        let mut spec = LevelSpec::new(name);
        options::set_all(&mut spec, &statement.options)?;
        if statement.if_not_exists && self.levels.get(name).is_some() {
            return Ok(Vec::new());
        }
        not_default(name, "already exists and cannot be created")?;
        if self.levels.get(name).is_some() {
            return Err(Error::Invalid(LevelError::Exists(name.as_str().into()).to_string()));
        }
        if self.levels.is_full() {
            return Err(Error::Invalid(LevelError::Full.to_string()));
        }
        self.check_tag(&spec)?;
        self.check_reserve(None, &spec, whole)?;
        self.levels.check(&spec).map_err(Error::Invalid)?;
        let grant = self.permit_creator(Resource::ServiceLevel(name.clone()));
        Ok([Edit::PutLevel(spec)].into_iter().chain(grant).collect())
    }

    pub(super) fn alter_level(
        &self,
        statement: &AlterServiceLevel,
        whole: &Statement,
    ) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        not_default(name, "cannot be altered")?;
        let Some(entry) = self.levels.get(name) else { return Err(missing_level(name)) };
        self.check_options(&statement.options)?;
        let mut spec = entry.spec.clone();
        options::set_all(&mut spec, &statement.options)?;
        if spec.tag != entry.spec.tag {
            self.check_tag(&spec)?;
        }
        self.check_reserve(Some(&entry.spec), &spec, whole)?;
        self.levels.check(&spec).map_err(Error::Invalid)?;
        Ok(vec![Edit::PutLevel(spec)])
    }

    /// Refuses options that would have no effect.
    fn check_options(&self, options: &OptionList) -> Result<(), Error> {
        let refused = |name: &str| REFUSED_OPTIONS.iter().any(|refused| refused.eq_ignore_ascii_case(name));
        match options.iter().find(|(name, _)| self.cluster.is_some() && refused(name)) {
            Some((name, _)) => Err(Error::Invalid(format!(
                "'{name}' has no effect in front of a cluster, whose nodes work on the requests: leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a tag without nodes. Stored levels are not checked, so that a catalog can be read
    /// while nodes are away.
    fn check_tag(&self, spec: &LevelSpec) -> Result<(), Error> {
        let Some(tag) = &spec.tag else { return Ok(()) };
        match self.cluster {
            Some(topology) => topology.check_tag(tag).map_err(Error::Invalid),
            None => Err(Error::Invalid(
                "'tag' selects nodes of a cluster, and this server has none: leave it out".to_owned(),
            )),
        }
    }

    pub(super) fn drop_level(&self, statement: &DropServiceLevel) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        let resource = Resource::ServiceLevel(name.clone());
        not_default(name, "cannot be dropped")?;
        if name == DRIVER_LEVEL {
            return Err(Error::Invalid(LevelError::BuiltIn(name.as_str().into()).to_string()));
        }
        if self.levels.get(name).is_none() {
            return if statement.if_exists { Ok(Vec::new()) } else { Err(missing_level(name)) };
        }
        let attached = self.roles.iter().filter(|(_, role)| role.level.as_deref() == Some(name));
        let mut edits: Vec<Edit> = attached.map(|(role, _)| Edit::Detach { role: role.clone() }).collect();
        edits.extend(self.forbid_all(&resource));
        edits.push(Edit::DropLevel(name.as_str().into()));
        Ok(edits)
    }

    pub(super) fn attach_level(&self, statement: &AttachServiceLevel) -> Result<Vec<Edit>, Error> {
        let AttachServiceLevel { level, role } = statement;
        self.check_move(role)?;
        not_default(
            level,
            "cannot be attached to a role. If you want to detach an attached service level, \
             use the DETACH SERVICE LEVEL statement",
        )?;
        let Some(entry) = self.levels.get(level) else { return Err(missing_level(level)) };
        self.require_role(role)?;
        if has_guarantee(&entry.spec) {
            self.check_guarantee(role, level)?;
        }
        Ok(vec![Edit::Attach { role: role.as_str().into(), level: level.as_str().into() }])
    }

    pub(super) fn detach_level(&self, role: &str) -> Result<Vec<Edit>, Error> {
        self.check_move(role)?;
        let attached = self.roles.get(role).and_then(|role| role.level.clone());
        self.require_role(role)?;
        Ok(attached.map(|_| Edit::Detach { role: role.into() }).into_iter().collect())
    }

    /// Checks the right to change the level of a role. The change affects the statements of the
    /// role and of every role that it is granted to. The actor therefore needs ALTER or AUTHORIZE
    /// on each of them. Only superusers may change the level of superusers. Otherwise another role
    /// could give an administrator a level with a timeout of 1 ms.
    pub(super) fn check_move(&self, role: &str) -> Result<(), Error> {
        if self.is_superuser() {
            return Ok(());
        }
        for member in self.roles.members_of(role) {
            if self.roles.is_superuser(member) {
                return Err(Error::Unauthorized(format!(
                    "Only superusers can change the service level of {member}, a role with superuser status"
                )));
            }
            self.require_control(member)?;
        }
        Ok(())
    }

    /// Requires ALTER or AUTHORIZE on a role.
    fn require_control(&self, role: &str) -> Result<(), Error> {
        let resource = Resource::Role(role.to_owned());
        match self.may(Permission::Authorize, &resource) {
            true => Ok(()),
            false => self.require(Permission::Alter, &resource),
        }
    }

    /// Checks that the actor does not give itself a level with a guarantee.
    pub(super) fn check_guarantee(&self, role: &str, level: &str) -> Result<(), Error> {
        if self.is_superuser() || !self.roles.has_role(&self.actor.role, role) {
            return Ok(());
        }
        Err(Error::Unauthorized(format!(
            "Only superusers can give themselves the guarantees of service level '{level}' (cpu_min, memory_min)"
        )))
    }

    /// Checks the right to raise the guarantees of a level, which reduce the entitlement of all
    /// other levels. The actor needs ALTER on all levels. It needs superuser status if its own
    /// statements may run in the level.
    fn check_reserve(
        &self,
        old: Option<&LevelSpec>,
        new: &LevelSpec,
        statement: &Statement,
    ) -> Result<(), Error> {
        let old = old.map_or((0, 0), guarantees);
        let (cpu, memory) = guarantees(new);
        if cpu <= old.0 && memory <= old.1 || self.is_superuser() {
            return Ok(());
        }
        self.check_kind(NeedKind::ReserveLevel, statement)?;
        let own = self.roles.with_granted(&self.actor.role);
        match own.iter().find(|(_, role)| role.level.as_deref() == Some(&*new.name)) {
            Some((role, _)) => self.check_guarantee(role, &new.name),
            None => Ok(()),
        }
    }
}

/// Returns the guaranteed parts of CPU and of query memory, in ppm. The level gets them even if all
/// other levels compete.
fn guarantees(spec: &LevelSpec) -> (u32, u32) {
    (spec.cpu_min_ppm, spec.memory.min_ppm)
}

pub(super) fn has_guarantee(spec: &LevelSpec) -> bool {
    guarantees(spec) != (0, 0)
}
