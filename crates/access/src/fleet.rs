//! Levels and attachments that several servers in front of one cluster share. The catalog of the
//! fleet decides, and the tables of this server are a copy of it.

use std::sync::atomic::Ordering::Relaxed;

use cluster::{CatalogOutcome, EntryChange};
use engine::Error;

use crate::access::Access;
use crate::catalog::{Membership, changes, edits_to};
use crate::roles::Edit;

impl Access {
    /// Returns true if the levels are those of a fleet.
    pub(crate) fn is_in_fleet(&self) -> bool {
        self.shared.membership.get().is_some()
    }

    /// Takes over the catalog of the fleet, if it has changed. On core 0. Does nothing without a
    /// fleet.
    ///
    /// # Errors
    /// An entry is not valid here, such as an option of a later version; or all levels would exceed
    /// their memory. All levels stay as they were.
    pub async fn adopt_catalog(&self) -> Result<(), Error> {
        let Some(membership) = self.shared.membership.get() else { return Ok(()) };
        if membership.adopted.load(Relaxed) == membership.fleet.catalog().number {
            return Ok(());
        }
        let _guard = self.take_change_lock().await;
        self.adopt().await
    }

    /// Does the same. The caller holds the lock of changes.
    async fn adopt(&self) -> Result<(), Error> {
        let Some(membership) = self.shared.membership.get() else { return Ok(()) };
        let catalog = membership.fleet.catalog();
        let before = self.snapshot();
        let edits = edits_to(&before.roles, &self.shared.levels.catalog(), &catalog)?;
        self.check_bytes(&before.roles, &edits)?;
        self.write(edits).await?;
        membership.adopted.store(catalog.number, Relaxed);
        Ok(())
    }

    /// Makes planned edits in the catalog of the fleet, and then here. False: the catalog has
    /// changed, and the edits have to be planned again. The caller holds the lock of changes.
    ///
    /// # Errors
    /// The catalog cannot be changed now; or the tables of this server cannot be.
    pub(crate) async fn share_and_write(&self, edits: Vec<Edit>) -> Result<bool, Error> {
        let changes = changes(&edits);
        let Some(membership) = self.shared.membership.get().filter(|_| !changes.is_empty()) else {
            return self.write(edits).await.map(|()| true);
        };
        match self.share(membership, changes).await? {
            CatalogOutcome::Applied(number) => {
                self.write(edits).await?;
                membership.adopted.store(number, Relaxed);
                Ok(true)
            }
            CatalogOutcome::Outdated => self.adopt().await.map(|()| false),
        }
    }

    /// Reads the catalog of the fleet, and takes it over. False: it has not changed, or there is no
    /// fleet. The caller holds the lock of changes.
    ///
    /// # Errors
    /// The catalog cannot be read now; or the tables of this server cannot be changed.
    pub(crate) async fn read_catalog(&self) -> Result<bool, Error> {
        let Some(membership) = self.shared.membership.get() else { return Ok(false) };
        match self.share(membership, Vec::new()).await? {
            CatalogOutcome::Applied(_) => Ok(false),
            CatalogOutcome::Outdated => self.adopt().await.map(|()| true),
        }
    }

    async fn share(
        &self,
        membership: &Membership,
        changes: Vec<EntryChange>,
    ) -> Result<CatalogOutcome, Error> {
        let outcome = membership.fleet.change(membership.adopted.load(Relaxed), changes).await;
        outcome.map_err(|reason| {
            Error::Server(format!("The service levels of all fronts cannot be changed now: {reason}"))
        })
    }
}
