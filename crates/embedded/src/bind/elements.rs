//! Collections and user types that are not frozen. Each element is a cell of its own, identified by
//! a path. This module has the paths, and converts values to elements and back. It neither reads
//! nor writes storage.
//!
//! ```text
//! set     path: the member, in key encoding                  value: empty
//! map     path: the key, in key encoding                     value: the value
//! list    path: 16 bytes that sort by position (see below)   value: the element
//! udt     path: the field's number, u16 big-endian           value: the field
//! ```
//!
//! Paths compare as bytes, so elements have the order that CQL shows. A list path consists of:
//!
//! 1. a timestamp in microseconds, encoded so that bytes sort,
//! 2. a number within the write,
//! 3. the core and a random part, which distinguish concurrent appends on several cores.
//!
//! For prepended elements the timestamp is mirrored about a reference: the later the write, the
//! further to the front. The only limit on the number of elements is the protocol's. A row is read
//! and merged as a whole, so collections should stay well under the 16 MiB of one write.

use std::cell::Cell;

use engine::Error;
use schema::{CqlType, value};

/// Reference about which the timestamps of prepended elements are mirrored, in microseconds:
/// 2010-01-01, before every write.
const MIRROR_US: i64 = 1_262_304_000_000_000;

/// Elements assembled in one work unit, at about 50 ns each.
const SHOWN_PER_UNIT: u32 = 2;

/// Element: its path, and its value or `None` if it is deleted.
pub(crate) type Element = (Vec<u8>, Option<Vec<u8>>);

/// Paths for new list elements, ascending in the order of the requests.
#[derive(Debug)]
pub(crate) struct ListPaths {
    now_us: i64,
    count: Cell<u32>,
    unique: u32,
}

impl ListPaths {
    /// Returns paths for one write at `now_us`, a timestamp that no other write of the core has.
    /// `unique` differs between cores.
    pub(crate) fn new(now_us: i64, unique: u32) -> ListPaths {
        ListPaths { now_us, count: Cell::new(0), unique }
    }

    fn next(&self, us: i64) -> Vec<u8> {
        let number = self.count.replace(self.count.get() + 1);
        let sortable = (us as u64) ^ (1 << 63);
        let parts = [&sortable.to_be_bytes()[..], &number.to_be_bytes(), &self.unique.to_be_bytes()];
        parts.concat()
    }

    /// Returns a path after all existing elements.
    fn back(&self) -> Vec<u8> {
        self.next(self.now_us)
    }

    /// Returns a path before all existing elements.
    fn front(&self) -> Vec<u8> {
        self.next(2 * MIRROR_US - self.now_us)
    }
}

/// Returns the path of a set member or map key.
pub(crate) fn path_of(ty: &CqlType, part: &[u8]) -> Result<Vec<u8>, Error> {
    let part_type = match ty {
        CqlType::Map(key, _) => &**key,
        CqlType::Set(element) => &**element,
        other => return Err(Error::Server(format!("{other} has no elements with keys"))),
    };
    let mut path = Vec::with_capacity(part.len() + 2);
    value::encode_key_part(part_type, part, false, &mut path).map_err(|e| Error::Invalid(e.to_string()))?;
    Ok(path)
}

/// Splits a checked value into elements; those of a list get paths at its end.
pub(crate) fn of_value(ty: &CqlType, bytes: &[u8], paths: &ListPaths) -> Result<Vec<Element>, Error> {
    let mut out = Vec::new();
    match ty {
        CqlType::List(_) => {
            for element in value::elements(bytes) {
                out.push((paths.back(), Some(element.map_err(damaged)?.to_vec())));
            }
        }
        CqlType::Set(_) => {
            for member in value::elements(bytes) {
                out.push((path_of(ty, member.map_err(damaged)?)?, Some(Vec::new())));
            }
        }
        CqlType::Map(..) => {
            for pair in value::pairs(bytes) {
                let (key, value) = pair.map_err(damaged)?;
                out.push((path_of(ty, key)?, Some(value.to_vec())));
            }
        }
        _ => {
            for (at, field) in value::components(bytes).enumerate() {
                if let Some(field) = field.map_err(damaged)? {
                    out.push(((at as u16).to_be_bytes().to_vec(), Some(field.to_vec())));
                }
            }
        }
    }
    lanes::count(out.len() as u32);
    Ok(out)
}

/// Splits a list value into elements with paths at the front of a list, in their order.
pub(crate) fn prepended(bytes: &[u8], paths: &ListPaths) -> Result<Vec<Element>, Error> {
    let elements = value::elements(bytes);
    lanes::count(elements.count_left().min(bytes.len() as u64 / 4) as u32);
    elements.map(|element| Ok((paths.front(), Some(element.map_err(damaged)?.to_vec())))).collect()
}

/// Returns deletions of the members of a set, or of the map entries with these keys; `bytes` are a
/// set.
pub(crate) fn without(ty: &CqlType, bytes: &[u8]) -> Result<Vec<Element>, Error> {
    lanes::count(value::elements(bytes).count_left().min(bytes.len() as u64 / 4) as u32);
    value::elements(bytes).map(|part| Ok((path_of(ty, part.map_err(damaged)?)?, None))).collect()
}

/// Assembles a value from live elements in the order of their paths; `None` if there are none.
pub(crate) fn to_value<'e>(
    ty: &CqlType,
    elements: impl Iterator<Item = (&'e [u8], &'e [u8])>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut out = Vec::new();
    let (mut count, mut walked) = (0_u32, 0);
    if !matches!(ty, CqlType::Udt(_)) {
        out.extend_from_slice(&[0; 4]);
    }
    for (path, value) in elements {
        walked += 1;
        match ty {
            CqlType::List(_) => push(&mut out, value),
            CqlType::Set(member) => push_key(&mut out, member, path)?,
            CqlType::Map(key, _) => {
                push_key(&mut out, key, path)?;
                push(&mut out, value);
            }
            _ => {
                let at = path.try_into().map(u16::from_be_bytes).map_err(|_| stored("a field's number"))?;
                // Fields that are null have no element.
                (count..u32::from(at)).for_each(|_| out.extend_from_slice(&(-1_i32).to_be_bytes()));
                count = u32::from(at);
                push(&mut out, value);
            }
        }
        count += 1;
    }
    lanes::count(walked / SHOWN_PER_UNIT);
    if count == 0 {
        return Ok(None);
    }
    match ty {
        CqlType::Udt(udt) => {
            (count as usize..udt.fields.len()).for_each(|_| out.extend_from_slice(&(-1_i32).to_be_bytes()));
        }
        _ => out[..4].copy_from_slice(&count.to_be_bytes()),
    }
    Ok(Some(out))
}

fn push(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
    out.extend_from_slice(value);
}

fn push_key(out: &mut Vec<u8>, ty: &CqlType, mut path: &[u8]) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    value::decode_key_part(ty, false, &mut path, out).map_err(|_| stored("an element's key"))?;
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Returns one element of a value: the value at a map key, or the set member if it exists.
pub(crate) fn value_at_key<'v>(ty: &CqlType, bytes: &'v [u8], key: &[u8]) -> Option<&'v [u8]> {
    match ty.thawed() {
        CqlType::Map(of, _) => value::pairs(bytes)
            .filter_map(Result::ok)
            .find(|(k, _)| value::compare(of, k, key).is_eq())
            .map(|(_, v)| v),
        CqlType::Set(of) => value::elements(bytes)
            .filter_map(Result::ok)
            .find(|member| value::compare(of, member, key).is_eq()),
        _ => None,
    }
}

fn damaged(error: schema::ValueError) -> Error {
    Error::Invalid(error.to_string())
}

fn stored(what: &str) -> Error {
    Error::Server(format!("{what} in storage is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> CqlType {
        CqlType::parse(text, &|_| None).expect("a type")
    }

    /// Splits a value into elements and assembles it again from elements in another order.
    fn check(text: &str, bytes: &[u8], expected: Option<&str>) {
        let ty = ty(text);
        let paths = ListPaths::new(1_700_000_000_000_000, 7);
        let mut elements = of_value(&ty, bytes, &paths).expect("elements");
        elements.sort();
        let live = elements.iter().filter_map(|(path, value)| Some((&path[..], value.as_deref()?)));
        let value = to_value(&ty, live).expect("a value");
        assert_eq!(value.map(|bytes| value::to_text(&ty, &bytes)).as_deref(), expected);
    }

    #[test]
    fn values_survive_splitting_into_elements() {
        let int = |n: i32| n.to_be_bytes();
        let parts = [int(7), int(-1), int(3)];
        let of = |parts: &[[u8; 4]]| value::encode_list(parts.iter().map(|p| &p[..]));
        check("list<int>", &of(&parts), Some("[7, -1, 3]"));
        check("set<int>", &of(&parts), Some("{-1, 3, 7}"));
        check("list<int>", &of(&[]), None);
        check("set<int>", &of(&[]), None);
        let pairs = [("b", int(1)), ("", int(2))];
        let map = value::encode_map(pairs.iter().map(|(k, v)| (k.as_bytes(), &v[..])));
        check("map<text, int>", &map, Some("{'': 2, 'b': 1}"));
    }

    #[test]
    fn lists_grow_at_both_ends() {
        let list = |parts: &[&str]| {
            value::encode_list(parts.iter().map(|p| p.as_bytes()).collect::<Vec<_>>().into_iter())
        };
        let mut all = Vec::new();
        for now in [1_700_000_000_000_000, 1_700_000_000_000_001] {
            let paths = ListPaths::new(now, 0);
            all.extend(of_value(&ty("list<text>"), &list(&["x", "y"]), &paths).expect("elements"));
            all.extend(prepended(&list(&["a", "b"]), &paths).expect("elements"));
        }
        all.sort();
        let live = all.iter().map(|(path, value)| (&path[..], value.as_deref().expect("live")));
        let value = to_value(&ty("list<text>"), live).expect("a value").expect("one");
        assert_eq!(value::to_text(&ty("list<text>"), &value), "['a', 'b', 'a', 'b', 'x', 'y', 'x', 'y']");
    }
}
