//! CREATE, ALTER, DROP, ATTACH and DETACH SERVICE LEVEL.

use cql::ast::{AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DropServiceLevel, Permission};
use engine::Error;
use workload::{DEFAULT_LEVEL, DRIVER_LEVEL, LevelError, LevelSpec};

use super::{World, check_name};
use crate::options;
use crate::resource::Resource;
use crate::roles::Edit;

/// The error for a level that is not there.
pub(crate) fn missing(level: &str) -> Error {
    Error::Invalid(LevelError::Missing(level.into()).to_string())
}

/// `default` may not be touched.
fn not_default(level: &str, refusal: &str) -> Result<(), Error> {
    if level == DEFAULT_LEVEL {
        return Err(Error::Invalid(format!("The default service level, {level}, {refusal}")));
    }
    Ok(())
}

impl World<'_> {
    pub(super) fn create_level(&self, statement: &CreateServiceLevel) -> Result<Vec<Edit>, Error> {
        self.require(Permission::Create, &Resource::AllServiceLevels)?;
        let name = &statement.name;
        if name.starts_with('$') {
            return Err(Error::Invalid(
                "Names starting with '$' are reserved for internal tenants. Use a different name.".to_owned(),
            ));
        }
        check_name("Service level", name)?;
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
        self.levels.check(&spec).map_err(Error::Invalid)?;
        let maker = self.permit_maker(Resource::ServiceLevel(name.clone()));
        Ok([Edit::PutLevel(spec)].into_iter().chain(maker).collect())
    }

    pub(super) fn alter_level(&self, statement: &AlterServiceLevel) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        self.require(Permission::Alter, &Resource::ServiceLevel(name.clone()))?;
        not_default(name, "cannot be altered")?;
        let Some(entry) = self.levels.get(name) else { return Err(missing(name)) };
        let mut spec = entry.spec.clone();
        options::set_all(&mut spec, &statement.options)?;
        self.levels.check(&spec).map_err(Error::Invalid)?;
        Ok(vec![Edit::PutLevel(spec)])
    }

    pub(super) fn drop_level(&self, statement: &DropServiceLevel) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        let resource = Resource::ServiceLevel(name.clone());
        self.require(Permission::Drop, &resource)?;
        not_default(name, "cannot be dropped")?;
        if name == DRIVER_LEVEL {
            return Err(Error::Invalid(LevelError::BuiltIn(name.as_str().into()).to_string()));
        }
        if self.levels.get(name).is_none() {
            return if statement.if_exists { Ok(Vec::new()) } else { Err(missing(name)) };
        }
        let attached = self.roles.iter().filter(|(_, role)| role.level.as_deref() == Some(name));
        let mut edits: Vec<Edit> = attached.map(|(role, _)| Edit::Detach { role: role.clone() }).collect();
        edits.extend(self.forbid_all(&resource));
        edits.push(Edit::DropLevel(name.as_str().into()));
        Ok(edits)
    }

    pub(super) fn attach_level(&self, statement: &AttachServiceLevel) -> Result<Vec<Edit>, Error> {
        let AttachServiceLevel { level, role } = statement;
        self.require(Permission::Authorize, &Resource::ServiceLevel(level.clone()))?;
        not_default(
            level,
            "cannot be attached to a role. If you want to detach an attached service level, \
             use the DETACH SERVICE LEVEL statement",
        )?;
        if self.levels.get(level).is_none() {
            return Err(missing(level));
        }
        self.require_role(role)?;
        Ok(vec![Edit::Attach { role: role.as_str().into(), level: level.as_str().into() }])
    }

    pub(super) fn detach_level(&self, role: &str) -> Result<Vec<Edit>, Error> {
        let attached = self.roles.get(role).and_then(|role| role.level.clone());
        let resource = match &attached {
            Some(level) => Resource::ServiceLevel(level.to_string()),
            None => Resource::AllServiceLevels,
        };
        self.require(Permission::Authorize, &resource)?;
        self.require_role(role)?;
        Ok(attached.map(|_| Edit::Detach { role: role.into() }).into_iter().collect())
    }
}
