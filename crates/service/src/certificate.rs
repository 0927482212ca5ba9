//! Dates and names of certificates.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Seconds per day.
const DAY: i64 = 86_400;
/// Certificates that expire sooner cause a warning in the log.
const WARN: i64 = 14 * DAY;

/// A certificate's validity, from and to, in seconds since 1970; `None` if it cannot be read.
#[must_use]
pub fn validity(certificate: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// The current time in seconds since 1970, as in certificates.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// Why a certificate with these dates is not valid at `now`; `None` if it is. All in seconds since 1970.
pub(crate) fn fault_of_dates((from, to): (i64, i64), now: i64) -> Option<String> {
    match now {
        now if now > to => Some(format!("expired {} ago", days(now - to))),
        now if now < from => Some(format!("is not valid yet: it will be in {}", days(from - now))),
        _ => None,
    }
}

/// A warning about a certificate with these dates, if it is invalid at `now` or expires soon.
pub(crate) fn warning_of_dates(dates: (i64, i64), now: i64) -> Option<String> {
    let left = dates.1 - now;
    fault_of_dates(dates, now).or_else(|| (left < WARN).then(|| format!("expires in {}", days(left))))
}

fn days(seconds: i64) -> String {
    match seconds / DAY {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

/// The name that a client's certificate is for: its common name, or else the first DNS name or e-mail address.
#[must_use]
pub fn subject_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let common = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let alternative = || {
        let names = &certificate.subject_alternative_name().ok()??.value.general_names;
        names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => Some(*name),
            _ => None,
        })
    };
    common.or_else(alternative).filter(|name| !name.is_empty()).map(crate::printable)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::{DAY, fault_of_dates, subject_name, validity, warning_of_dates};

    #[test]
    fn a_certificate_is_good_from_its_first_to_its_last_second() {
        let fault = |now| fault_of_dates((10 * DAY, 20 * DAY), now);
        assert_eq!([fault(10 * DAY), fault(20 * DAY)], [None, None]);
        assert_eq!(fault(20 * DAY + 1).unwrap(), "expired less than a day ago");
        assert_eq!(fault(21 * DAY).unwrap(), "expired 1 day ago");
        assert_eq!(fault(8 * DAY).unwrap(), "is not valid yet: it will be in 2 days");
        let warning = |now| warning_of_dates((10 * DAY, 50 * DAY), now);
        assert_eq!(warning(36 * DAY), None);
        assert_eq!(warning(47 * DAY).unwrap(), "expires in 3 days");
        assert_eq!(warning(51 * DAY).unwrap(), "expired 1 day ago");
    }

    #[test]
    fn names_and_dates_are_read() {
        let mut params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 9, 9);
        params.not_after = rcgen::date_time_ymd(2001, 9, 10);
        params.distinguished_name = rcgen::DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(validity(certificate.der()), Some((999_993_600, 1_000_080_000)));
        assert_eq!(subject_name(certificate.der()).as_deref(), Some("client.example"));
        params.distinguished_name.push(DnType::CommonName, "tenant-a");
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(subject_name(certificate.der()).as_deref(), Some("tenant-a"));
        assert_eq!(subject_name(&b"no certificate".as_slice().into()), None);
    }
}
