//! Type descriptions (`[option]`) in metadata. `frozen` does not exist on the wire, except within
//! the names of classes, which describe vectors. Writing a type drops it.

use std::sync::Arc;

use schema::{CqlType, UdtType};

use crate::body::Body;
use crate::read::Reader;
use crate::{Error, TYPE_DEPTH_MAX, Version};

const CUSTOM: u16 = 0x00;
const LIST: u16 = 0x20;
const MAP: u16 = 0x21;
const SET: u16 = 0x22;
const UDT: u16 = 0x30;
const TUPLE: u16 = 0x31;

/// Protocol v4 has no id for `duration`. Servers send it as this class, and drivers recognize it.
const DURATION_CLASS: &str = "org.apache.cassandra.db.marshal.DurationType";

/// Types without parameters, with their ids.
const SIMPLE: [(u16, CqlType); 20] = [
    (0x01, CqlType::Ascii),
    (0x02, CqlType::BigInt),
    (0x03, CqlType::Blob),
    (0x04, CqlType::Boolean),
    (0x05, CqlType::Counter),
    (0x06, CqlType::Decimal),
    (0x07, CqlType::Double),
    (0x08, CqlType::Float),
    (0x09, CqlType::Int),
    (0x0B, CqlType::Timestamp),
    (0x0C, CqlType::Uuid),
    (0x0D, CqlType::Text),
    (0x0E, CqlType::Varint),
    (0x0F, CqlType::TimeUuid),
    (0x10, CqlType::Inet),
    (0x11, CqlType::Date),
    (0x12, CqlType::Time),
    (0x13, CqlType::SmallInt),
    (0x14, CqlType::TinyInt),
    (0x15, CqlType::Duration),
];

/// Appends a type description.
pub(crate) fn write(ty: &CqlType, body: &mut Body<'_>) {
    match ty {
        CqlType::Frozen(inner) => write(inner, body),
        CqlType::List(element) => {
            body.short(LIST);
            write(element, body);
        }
        CqlType::Set(element) => {
            body.short(SET);
            write(element, body);
        }
        CqlType::Map(key, value) => {
            body.short(MAP);
            write(key, body);
            write(value, body);
        }
        CqlType::Tuple(elements) => {
            body.short(TUPLE);
            body.count(elements.len(), "a tuple");
            for element in elements {
                write(element, body);
            }
        }
        CqlType::Udt(udt) => {
            body.short(UDT);
            body.string(&udt.keyspace);
            body.string(&udt.name);
            body.count(udt.fields.len(), "a user type");
            for (name, field) in &udt.fields {
                body.string(name);
                write(field, body);
            }
        }
        CqlType::Vector(..) => {
            body.short(CUSTOM);
            body.string(&ty.class_name());
        }
        CqlType::Duration if body.version() == Version::V4 => {
            body.short(CUSTOM);
            body.string(DURATION_CLASS);
        }
        simple => {
            let id = SIMPLE.iter().find(|(_, ty)| ty == simple).map(|(id, _)| *id);
            body.short(id.expect("every type without parameters is in the table"));
        }
    }
}

/// Reads a type description.
pub(crate) fn read(reader: &mut Reader<'_>, depth: usize) -> Result<CqlType, Error> {
    if depth > TYPE_DEPTH_MAX {
        return Err(Error::TypeTooDeep);
    }
    let inner = |reader: &mut Reader<'_>| read(reader, depth + 1);
    Ok(match reader.short("type")? {
        // Servers send vectors so, and durations in version 4.
        CUSTOM => {
            let class = reader.string("custom type")?;
            let unknown = |_| Error::CustomType(class.chars().take(256).collect());
            CqlType::from_class(class).map_err(unknown)?
        }
        LIST => CqlType::List(Box::new(inner(reader)?)),
        SET => CqlType::Set(Box::new(inner(reader)?)),
        MAP => CqlType::Map(Box::new(inner(reader)?), Box::new(inner(reader)?)),
        TUPLE => {
            let count = reader.count(2, "tuple elements")?;
            CqlType::Tuple((0..count).map(|_| inner(reader)).collect::<Result<_, _>>()?)
        }
        UDT => {
            let keyspace = reader.string("user type keyspace")?.to_owned();
            let name = reader.string("user type name")?.to_owned();
            let count = reader.count(4, "user type fields")?;
            let fields = (0..count)
                .map(|_| Ok((reader.string("user type field")?.to_owned(), inner(reader)?)))
                .collect::<Result<_, Error>>()?;
            CqlType::Udt(Arc::new(UdtType::new(keyspace, name, fields)))
        }
        id => match SIMPLE.iter().find(|(known, _)| *known == id) {
            Some((_, ty)) => ty.clone(),
            None => return Err(Error::OutOfRange { field: "type", value: i64::from(id) }),
        },
    })
}

/// Skips a type description, including custom types.
pub(crate) fn skip(reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
    if depth > TYPE_DEPTH_MAX {
        return Err(Error::TypeTooDeep);
    }
    match reader.short("type")? {
        CUSTOM => {
            reader.string("custom type")?;
        }
        LIST | SET => skip(reader, depth + 1)?,
        MAP => {
            skip(reader, depth + 1)?;
            skip(reader, depth + 1)?;
        }
        TUPLE => {
            for _ in 0..reader.count(2, "tuple elements")? {
                skip(reader, depth + 1)?;
            }
        }
        UDT => {
            reader.string("user type keyspace")?;
            reader.string("user type name")?;
            for _ in 0..reader.count(4, "user type fields")? {
                reader.string("user type field")?;
                skip(reader, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}
