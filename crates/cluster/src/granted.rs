//! Roles granted to a role, as the cluster lists them.

use schema::names::always_quoted;
use wire::{ColumnSpec, Envelope, Query, Request, Response, Version};

use crate::Refusal;
use crate::front::Front;
use crate::role::Role;

/// Roles that one role may be granted, at most. Others are ignored.
const GRANTED_MAX: usize = 1000;

/// A role of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterRole {
    /// Its name.
    pub name: String,
    /// True if it may log in.
    pub can_login: bool,
    /// True if it is a superuser itself.
    pub is_superuser: bool,
}

impl Front {
    /// Asks a node for a role and all roles granted to it, directly or indirectly, over a
    /// connection of the role `of`. Every role may list its own.
    ///
    /// # Errors
    /// [`Refusal::Answered`] with the node's own ERROR, or another reason.
    pub async fn granted_roles(
        &self,
        of: &std::rc::Rc<Role>,
        version: Version,
        role: &str,
    ) -> Result<Vec<ClusterRole>, Refusal> {
        let text = format!("LIST ROLES OF {}", always_quoted(role));
        let answer =
            self.ask(of, version, &Request::Query(Query { text: &text, ..Query::default() })).await?;
        listed(&answer).ok_or(Refusal::Answered(answer))
    }
}

/// Returns the roles in an answer. `None`: it is another answer.
fn listed(answer: &Envelope) -> Option<Vec<ClusterRole>> {
    let Response::Rows(rows) = answer.response().ok()? else { return None };
    let columns = rows.metadata.columns.as_ref()?.decode().ok()?;
    let place = |name: &str| columns.iter().position(|column: &ColumnSpec<'_>| column.name == name);
    let (name, is_superuser, can_login) = (place("role")?, place("super")?, place("login")?);
    let is_true = |cell: Option<&[u8]>| cell.is_some_and(|cell| cell == [1]);
    let role = |row: Vec<Option<&[u8]>>| {
        Some(ClusterRole {
            name: std::str::from_utf8(row[name]?).ok()?.to_owned(),
            can_login: is_true(row[can_login]),
            is_superuser: is_true(row[is_superuser]),
        })
    };
    rows.iter().take(GRANTED_MAX).map(role).collect()
}
