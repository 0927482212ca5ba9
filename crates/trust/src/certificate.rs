//! What is in a certificate, where webpki does not say. Nothing here decides whether a certificate is authentic.

use rustls::pki_types::CertificateDer;

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const EXTENSIONS: u8 = 0xa3;
/// The version field of a certificate of version 3; version 1 has no such field.
const VERSION_3: [u8; 5] = [0xa0, 3, INTEGER, 1, 2];
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 29, 17];
const NAME_CONSTRAINTS: [u8; 3] = [0x55, 29, 30];

/// A certificate of version 1 as one of version 3, for webpki, which reads only these. The public key is the same; the certificate's own
/// signature is not valid any more. `None` for other versions.
pub(crate) fn version_1(certificate: &[u8]) -> Option<CertificateDer<'static>> {
    let (_, whole, _) = element(certificate)?;
    let (_, body, signature) = element(whole)?;
    let is_version_1 = body.first() == Some(&INTEGER);
    is_version_1.then(|| sequence(&[&sequence(&[&VERSION_3, body]), signature]).into())
}

/// The first common name of a certificate that has no `subjectAltName`.
pub(crate) fn common_name(certificate: &[u8]) -> Option<&str> {
    if has_extension(certificate, SUBJECT_ALT_NAME) {
        return None;
    }
    // Version, serial number, algorithm, issuer, validity, subject.
    let (_, subject) = fields(certificate).filter(|&(tag, _)| tag == SEQUENCE).nth(3)?;
    let attributes = elements(subject).flat_map(|(_, set)| elements(set));
    let values = attributes.filter_map(|(_, attribute)| {
        let mut parts = elements(attribute);
        (parts.next()?.1 == COMMON_NAME).then(|| parts.next())?
    });
    let (_, name) = values.into_iter().next()?;
    str::from_utf8(name).ok()
}

/// Whether an authority limits the names for which it vouches.
pub(crate) fn constrains_names(certificate: &[u8]) -> bool {
    has_extension(certificate, NAME_CONSTRAINTS)
}

fn has_extension(certificate: &[u8], wanted: [u8; 3]) -> bool {
    let extensions = fields(certificate).filter(|&(tag, _)| tag == EXTENSIONS);
    let mut each = extensions.flat_map(|(_, list)| elements(list)).flat_map(|(_, list)| elements(list));
    each.any(|(_, extension)| elements(extension).next().is_some_and(|(_, kind)| kind == wanted))
}

/// The fields of the signed part, with their tags.
fn fields(certificate: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let signed = elements(certificate).flat_map(|(_, whole)| elements(whole)).next();
    signed.into_iter().flat_map(|(_, body)| elements(body))
}

/// The elements of DER that follow one another, up to the first one that is malformed.
fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// Tag and content of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let bytes = content.len().to_be_bytes();
    let length = &bytes[bytes.iter().take_while(|&&byte| byte == 0).count()..];
    let head = match content.len() {
        0..=0x7f => vec![SEQUENCE, content.len() as u8],
        _ => [&[SEQUENCE, 0x80 | length.len() as u8], length].concat(),
    };
    [head, content].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A certificate of version 3 without extensions as one of version 1, whose signature is not valid any more.
    pub(crate) fn without_version(certificate: &[u8]) -> Vec<u8> {
        let (_, whole, _) = element(certificate).unwrap();
        let (_, body, signature) = element(whole).unwrap();
        sequence(&[&sequence(&[body.strip_prefix(&VERSION_3).unwrap()]), signature])
    }

    #[test]
    fn lengths_of_each_form_are_read_and_malformed_ones_are_not() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let encoded = sequence(&[&content, &[]]);
            let (tag, found, rest) = element(&encoded).unwrap();
            assert_eq!((tag, found, rest), (SEQUENCE, &content[..], &[][..]));
            assert_eq!(element(&encoded[..encoded.len() - 1]), None);
        }
        for malformed in [&[][..], &[SEQUENCE], &[SEQUENCE, 0x80, 0, 0], &[SEQUENCE, 0x82, 1], &[SEQUENCE, 0xff, 0]] {
            assert_eq!(element(malformed), None);
        }
    }
}
