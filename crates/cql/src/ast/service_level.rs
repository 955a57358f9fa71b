//! Statements about service levels.

use super::OptionList;

/// `CREATE SERVICE LEVEL`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateServiceLevel {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH`. May be empty.
    pub options: OptionList,
}

/// `ALTER SERVICE LEVEL`.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterServiceLevel {
    /// Its name.
    pub name: String,
    /// `WITH`, at least one option.
    pub options: OptionList,
}

/// `DROP SERVICE LEVEL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropServiceLevel {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
}

/// `ATTACH SERVICE LEVEL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachServiceLevel {
    /// The level.
    pub level: String,
    /// The role.
    pub role: String,
}

/// `LIST … SERVICE LEVEL …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListServiceLevels {
    /// `LIST SERVICE LEVEL name`.
    One(String),
    /// `LIST ALL SERVICE LEVELS`.
    All,
    /// `LIST ATTACHED SERVICE LEVEL OF role`.
    AttachedTo(String),
    /// `LIST ALL ATTACHED SERVICE LEVELS`.
    AllAttached,
    /// `LIST EFFECTIVE SERVICE LEVEL OF role`.
    EffectiveOf(String),
}
