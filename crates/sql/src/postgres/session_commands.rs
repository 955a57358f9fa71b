//! Statements about the session itself: transactions (which change only the session's state, since
//! SQL is read-only), settings, and prepared statements.

use datafusion::arrow::array::RecordBatch;
use pgwire::messages::response::{CommandComplete, TransactionStatus};

use crate::failure::Failure;
use crate::postgres::connection::ClientConnection;
use crate::postgres::error::RequestError;
use crate::postgres::output::{Shape, texts};
use crate::postgres::session::Session;
use crate::postgres::settings::Settings;
use crate::postgres::statement::SessionCommand;

impl Session {
    /// Executes a statement about the session itself.
    pub(crate) fn run_command(
        &mut self,
        connection: &mut ClientConnection,
        command: &SessionCommand,
    ) -> Result<(), RequestError> {
        let mut tag = command.tag().to_owned();
        match command {
            SessionCommand::Begin => self.transaction = TransactionStatus::Transaction,
            SessionCommand::Commit | SessionCommand::Rollback => {
                // A failed transaction is rolled back, even by COMMIT.
                if self.transaction == TransactionStatus::Error {
                    tag = "ROLLBACK".to_owned();
                }
                self.transaction = TransactionStatus::Idle;
                self.close_portals();
            }
            SessionCommand::Set(name, value) => self.set(connection, name, value.as_deref())?,
            SessionCommand::Show(name) => {
                let (name, value) = self.show(name)?;
                self.put_texts(connection, &Shape::text(name), &[vec![value]])?;
            }
            SessionCommand::ShowAll => {
                let (rows, shape) = self.all_settings();
                self.put_texts(connection, &shape, &rows)?;
            }
            SessionCommand::ResetAll => self.settings = Settings::new(self.here.front.is_some()),
            SessionCommand::Discard => {
                self.settings = Settings::new(self.here.front.is_some());
                self.prepared.clear();
                self.close_portals();
            }
            SessionCommand::Deallocate(Some(name)) => drop(self.prepared.remove(name)),
            SessionCommand::Deallocate(None) => self.prepared.clear(),
            SessionCommand::CloseAll => self.close_portals(),
            SessionCommand::Nothing(_) => {}
        }
        Ok(connection.put(&CommandComplete::new(tag))?)
    }

    pub(crate) fn set(
        &mut self,
        connection: &mut ClientConnection,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), RequestError> {
        if name.eq_ignore_ascii_case("service_level")
            && let Some(level) = value.filter(|level| !level.is_empty())
        {
            self.here.access.effective_using(&self.login, level)?;
        }
        if let Some((name, value)) = self.settings.set(name, value)? {
            connection.put_parameter(name, &value)?;
        }
        Ok(())
    }

    /// Returns the name and value of a setting. Two names are read-only and not stored as
    /// settings.
    pub(crate) fn show(&self, name: &str) -> Result<(&'static str, String), Failure> {
        match name {
            "session_authorization" => Ok(("session_authorization", self.login.role().to_string())),
            "service_level" => Ok(("service_level", self.effective()?.level.name().to_string())),
            _ => self.settings.show(name),
        }
    }

    pub(crate) fn all_settings(&self) -> (Vec<Vec<String>>, Shape) {
        let rows = self.settings.all().map(|(name, value)| vec![name.to_owned(), value.to_owned()]);
        (rows.collect(), Shape::texts(&["name", "setting"]))
    }

    fn put_texts(
        &self,
        connection: &mut ClientConnection,
        shape: &Shape,
        rows: &[Vec<String>],
    ) -> Result<(), RequestError> {
        self.put_rows(connection, shape, texts(rows)?)
    }

    pub(crate) fn put_rows(
        &self,
        connection: &mut ClientConnection,
        shape: &Shape,
        batch: RecordBatch,
    ) -> Result<(), RequestError> {
        let mut rows = shape.rows(shape.convert(batch)?);
        let mut output = connection.take_output();
        let mut encoded = Ok(true);
        while let Ok(true) = encoded {
            encoded = rows.encode_next(&mut output);
        }
        connection.give_output(output);
        encoded?;
        Ok(())
    }
}
