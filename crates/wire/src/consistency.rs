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

    /// Returns the name of the level in CQL.
    pub fn name(self) -> &'static str {
        match self {
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
        }
    }

    /// Returns the number of the level in a frame.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns the level of one datacenter to use instead. `None`: this one depends on one
    /// datacenter only, if it has replicas for ONE.
    pub fn in_one_datacenter(self) -> Option<Consistency> {
        match self {
            Consistency::LocalQuorum
            | Consistency::LocalOne
            | Consistency::LocalSerial
            | Consistency::One => None,
            Consistency::Any => Some(Consistency::LocalOne),
            Consistency::Serial => Some(Consistency::LocalSerial),
            Consistency::Two
            | Consistency::Three
            | Consistency::Quorum
            | Consistency::All
            | Consistency::EachQuorum => Some(Consistency::LocalQuorum),
        }
    }

    /// Returns true for the two levels of the serial phase of a conditional update.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_consistency_names_one_that_passes() {
        let mut passing = 0;
        for consistency in Consistency::ALL {
            match consistency.in_one_datacenter() {
                Some(expected) => assert_eq!(expected.in_one_datacenter(), None, "{consistency}"),
                None => passing += 1,
            }
        }
        assert_eq!(passing, 4, "LOCAL_QUORUM, LOCAL_ONE, LOCAL_SERIAL and ONE");
        assert_eq!(Consistency::Quorum.in_one_datacenter(), Some(Consistency::LocalQuorum));
        assert_eq!(Consistency::Serial.in_one_datacenter(), Some(Consistency::LocalSerial));
    }
}
