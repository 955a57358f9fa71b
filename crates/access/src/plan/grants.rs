//! GRANT and REVOKE of permissions. The actor needs AUTHORIZE on the resource and every permission
//! that it grants or revokes.

use cql::ast::{Grant, Permission, Permissions};
use engine::Error;

use super::Planner;
use crate::resource::{PermissionSet, Resource};
use crate::roles::Edit;

impl Planner<'_> {
    pub(super) fn grant(&self, statement: &Grant) -> Result<Vec<Edit>, Error> {
        let (resource, permissions) = self.check_grant(statement)?;
        Ok(vec![Edit::Permit { role: statement.grantee.as_str().into(), resource, permissions }])
    }

    pub(super) fn revoke(&self, statement: &Grant) -> Result<Vec<Edit>, Error> {
        let (resource, permissions) = self.check_grant(statement)?;
        Ok(vec![Edit::Forbid { role: statement.grantee.as_str().into(), resource, permissions }])
    }

    fn check_grant(&self, statement: &Grant) -> Result<(Resource, PermissionSet), Error> {
        let resource = Resource::of(&statement.resource, self.keyspace, self.table_id)?;
        let permissions = match &statement.permissions {
            Permissions::All => resource.applicable(),
            Permissions::Some(permissions) => PermissionSet::of(permissions),
        };
        self.require_role(&statement.grantee)?;
        if !self.exists(&resource) {
            return Err(Error::Invalid(format!("Resource {resource} doesn't exist")));
        }
        if let Some(permission) = permissions.without(resource.applicable()).iter().next() {
            let permission = permission.name();
            let applicable = names(resource.applicable());
            return Err(Error::Invalid(format!(
                "expected one of {applicable} on {resource}, got {permission}"
            )));
        }
        Ok((resource, permissions))
    }

    pub(crate) fn exists(&self, resource: &Resource) -> bool {
        match resource {
            Resource::Role(role) => self.roles.get(role).is_some(),
            Resource::ServiceLevel(level) => self.levels.get(level).is_some(),
            Resource::AllKeyspaces | Resource::AllRoles | Resource::AllServiceLevels => true,
            data => (self.has_data)(data),
        }
    }
}

fn names(permissions: PermissionSet) -> String {
    permissions.iter().map(Permission::name).collect::<Vec<_>>().join(", ")
}
