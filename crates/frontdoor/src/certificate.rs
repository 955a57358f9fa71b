//! Fields of an X.509 certificate (RFC 5280) that the TLS library does not return. These are the
//! common name of its subject, and the hash for channel binding.
//!
//! ```text
//!   Certificate  SEQUENCE ── to be signed  SEQUENCE ── [0] version, serial number, algorithm, issuer,
//!                         │                            validity, subject …
//!                         ├─ algorithm     SEQUENCE ── object identifier, parameters
//!                         └─ signature
//!   subject      SEQUENCE ── SET ── SEQUENCE ── object identifier, value
//! ```

use der::asn1::{AnyRef, ObjectIdentifier};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

/// Longest common name in bytes. A longer one cannot be a role's name.
const NAME_BYTES_MAX: usize = 255;

const COMMON_NAME: &str = "2.5.4.3";
/// RSASSA-PSS (RFC 4055). Its parameters name the hash.
const PSS: &str = "1.2.840.113549.1.1.10";
/// SHA-1, the default hash of RSASSA-PSS.
const SHA_1: &str = "1.3.14.3.2.26";

/// Returns the common name of a certificate's subject. `None`: it has none or several, or one that
/// cannot be a role's name.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let to_be_signed = parts(whole(certificate)?)?.into_iter().next()?;
    let mut fields = parts(to_be_signed)?.into_iter().peekable();
    fields.next_if(|field| is_context(field, 0));
    let mut names = Vec::new();
    for set in parts(fields.nth(4)?)? {
        for attribute in parts(set)? {
            let attribute = parts(attribute)?;
            if identifier(*attribute.first()?)? == COMMON_NAME {
                names.push(text(*attribute.get(1)?)?);
            }
        }
    }
    match names.as_slice() {
        [name] if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0') => {
            Some((*name).to_owned())
        }
        _ => None,
    }
}

/// Returns the hash of a certificate for channel binding of type `tls-server-end-point` (RFC 5929,
/// section 4.1). The hash function is that of the certificate's signature. SHA-256 replaces MD5 and
/// SHA-1.
///
/// `None`: the signature has no hash function, for instance Ed25519. The RFC does not define this
/// case.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = parts(*parts(whole(certificate)?)?.get(1)?)?;
    let signature = identifier(*algorithm.first()?)?;
    let algorithm = if signature == PSS { pss_hash(algorithm.get(1).copied())? } else { signature };
    Some(match algorithm.as_str() {
        // MD5 and SHA-1 first, with RSA, with ECDSA, and alone.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.10045.4.1"
        | SHA_1
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.3.2"
        | "2.16.840.1.101.3.4.2.1" => Sha256::digest(certificate).to_vec(),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" | "2.16.840.1.101.3.4.2.4" => {
            Sha224::digest(certificate).to_vec()
        }
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => {
            Sha384::digest(certificate).to_vec()
        }
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => {
            Sha512::digest(certificate).to_vec()
        }
        _ => return None,
    })
}

/// Returns the hash function in the parameters of RSASSA-PSS.
fn pss_hash(parameters: Option<AnyRef<'_>>) -> Option<String> {
    let Some(parameters) = parameters else { return Some(SHA_1.to_owned()) };
    let Some(hash) = parts(parameters)?.into_iter().find(|field| is_context(field, 0)) else {
        return Some(SHA_1.to_owned());
    };
    let algorithm = parts(*parts(hash)?.first()?)?;
    identifier(*algorithm.first()?)
}

fn whole(bytes: &[u8]) -> Option<AnyRef<'_>> {
    AnyRef::from_der(bytes).ok()
}

/// Returns the elements of a sequence or set.
fn parts(value: AnyRef<'_>) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(value.value()).ok()?;
    let mut all = Vec::new();
    while !reader.is_finished() {
        all.push(AnyRef::decode(&mut reader).ok()?);
    }
    Some(all)
}

fn is_context(value: &AnyRef<'_>, number: u32) -> bool {
    value.tag().is_context_specific() && value.tag().number().value() == number
}

fn identifier(value: AnyRef<'_>) -> Option<String> {
    let is_identifier = value.tag() == Tag::ObjectIdentifier;
    is_identifier.then(|| ObjectIdentifier::from_bytes(value.value()).ok())?.map(|known| known.to_string())
}

/// Returns a string value that is ASCII or UTF-8.
fn text(value: AnyRef<'_>) -> Option<&str> {
    let is_text = matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    is_text.then(|| std::str::from_utf8(value.value()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use std::path::Path;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls");
        CertificateDer::from_pem_file(folder.join(name)).expect("a certificate")
    }

    /// Builds the parsed part of a certificate, signed by RSASSA-PSS with these parameters.
    fn signed_with_pss(parameters: &[u8]) -> Vec<u8> {
        let pss = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";
        let algorithm = sequence(&[pss, parameters].concat());
        sequence(&[sequence(b"").as_slice(), &algorithm, b"\x03\x01\x00"].concat())
    }

    fn sequence(content: &[u8]) -> Vec<u8> {
        [&[0x30, u8::try_from(content.len()).expect("short")], content].concat()
    }

    #[test]
    fn common_name_is_read_from_the_subject() {
        assert_eq!(common_name(&certificate("client.pem")).as_deref(), Some("tls_app"));
        assert_eq!(common_name(&certificate("certificate.pem")).as_deref(), Some("fairlane tests"));
        let two = certificate("two-names.pem");
        assert_eq!(common_name(&two), None);
    }

    #[test]
    fn channel_binding_uses_the_hash_of_the_signature() {
        let ecdsa = certificate("certificate.pem");
        assert_eq!(end_point(&ecdsa), Some(Sha256::digest(&ecdsa).to_vec()));
        let default = signed_with_pss(&sequence(b""));
        assert_eq!(end_point(&default), Some(Sha256::digest(&default).to_vec()));
        let sha_512 = sequence(b"\xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03");
        let named = signed_with_pss(&sha_512);
        assert_eq!(end_point(&named), Some(Sha512::digest(&named).to_vec()));
        let ed25519 = sequence(&[sequence(b"").as_slice(), &sequence(b"\x06\x03\x2b\x65\x70")].concat());
        assert_eq!(end_point(&ed25519), None);
    }

    #[test]
    fn truncated_certificates_have_no_common_name() {
        let whole = certificate("client.pem");
        for length in 0..whole.len() {
            assert_eq!(
                (common_name(&whole[..length]), end_point(&whole[..length])),
                (None, None),
                "{length}"
            );
        }
        // No changed byte makes the parser panic.
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] ^= 0xff;
            let _ = (common_name(&changed), end_point(&changed));
        }
    }
}
