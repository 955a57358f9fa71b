//! Consistency levels by number and name.

use std::fmt;

use crate::Error;

/// Number of replicas that must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are those of the protocol specification")]
pub enum Consistency {
    Any = 0x0000,
    #[default]
    One = 0x0001,
    Two = 0x0002,
    Three = 0x0003,
    Quorum = 0x0004,
    All = 0x0005,
    LocalQuorum = 0x0006,
    EachQuorum = 0x0007,
    Serial = 0x0008,
    LocalSerial = 0x0009,
    LocalOne = 0x000A,
}

impl Consistency {
    /// Every level, ordered by number.
    pub const ALL: [Consistency; 11] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
    ];

    /// Returns the level with this number.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an unknown number.
    pub fn from_number(number: u16) -> Result<Consistency, Error> {
        let level = Consistency::ALL.get(number as usize).copied();
        level.ok_or(Error::OutOfRange { field: "consistency", value: i64::from(number) })
    }

    /// Returns the number of the level in a frame.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns true for the two levels of the serial phase of a conditional update.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
        })
    }
}
