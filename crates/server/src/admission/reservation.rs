use std::sync::{Arc, Mutex};

use service::{Limits, lock};

use super::queue::{Admission, Full};

/// Memory reserved for a build, and its place among running builds. Released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    admission: Arc<Admission>,
    /// The key of the build's client.
    client: Arc<str>,
    limits: Limits,
    /// `None` after the release.
    bytes: Mutex<Option<u64>>,
}

impl Reservation {
    pub(super) fn new(admission: Arc<Admission>, client: Arc<str>, limits: Limits, bytes: u64) -> Self {
        Self { admission, client, limits, bytes: Mutex::new(Some(bytes)) }
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.bytes).unwrap_or(0)
    }

    /// Grows or shrinks the reservation to `bytes`. On error it is unchanged.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), Full> {
        let mut held = lock(&self.bytes);
        let Some(before) = *held else { return Ok(()) };
        match bytes.checked_sub(before) {
            Some(more) => self.admission.grow(&self.client, &self.limits, more)?,
            None => self.admission.give_back(&self.client, before - bytes, 0),
        }
        *held = Some(bytes);
        Ok(())
    }

    /// Releases the reservation; call it once the build's memory has been freed.
    pub(crate) fn release(&self) {
        if let Some(bytes) = lock(&self.bytes).take() {
            self.admission.give_back(&self.client, bytes, 1);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}
