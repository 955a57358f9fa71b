//! Cells of the server's own tables.

use std::net::IpAddr;

use bytes::Bytes;

pub(crate) fn text(value: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value.as_bytes()))
}

pub(crate) fn int(value: i32) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&value.to_be_bytes()))
}

pub(crate) fn bigint(value: i64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&value.to_be_bytes()))
}

pub(crate) fn uuid(id: uuid::Uuid) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(id.as_bytes()))
}

pub(crate) fn inet(ip: IpAddr) -> Option<Bytes> {
    Some(match ip {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    })
}
