use std::sync::Arc;

use pages::Estimate;
use service::Client;

use super::{Admission, NoPlace, Place};

impl Admission {
    /// Joins the queue with as many of `all` threads as the memory limit allows. `bytes` is the need with a number of threads.
    ///
    /// Each thread needs memory for the leaf that it works on. Estimates for users, and the sizes of a router's pods, assume
    /// [`Estimate::ASSUMED_THREADS`]: what fits by them must not be refused on a machine with more cores.
    pub(crate) fn enter_with(
        self: &Arc<Self>,
        all: u32,
        bytes: impl Fn(u32) -> u64,
        client: &Client,
    ) -> Result<(Place, u32), NoPlace> {
        let mut threads = all;
        loop {
            match self.enter(bytes(threads), client) {
                Err(NoPlace::Never(_) | NoPlace::BeyondClient(_)) if threads > Estimate::ASSUMED_THREADS => {
                    threads -= 1;
                }
                entered => return entered.map(|place| (place, threads)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hnsw::{BuildSpec, Metric};
    use pgvector::ValueType;
    use service::Client;

    use crate::admission::{Admission, Need};

    #[test]
    fn a_build_that_fits_by_the_estimate_is_taken_on_any_number_of_cores() {
        const ROWS: u64 = 1_000_000;
        let spec = BuildSpec::new(ValueType::Vector, Metric::L2, 1536, 16, 64);
        let bytes = |threads| Need::new(&spec, threads).at_first(ROWS);
        let client = Client::unnamed("10.0.0.1:5432".parse().unwrap());
        let entered = |limit, all| {
            let entered = Admission::new(limit, 0).enter_with(all, bytes, &client);
            entered.map(|(place, threads)| (place.bytes(), threads)).ok()
        };
        assert_eq!(entered(bytes(16), 64), Some((bytes(16), 16)));
        assert_eq!(entered(bytes(20), 64), Some((bytes(20), 20)));
        assert_eq!(entered(bytes(64), 64), Some((bytes(64), 64)));
        assert_eq!(entered(bytes(16) - 1, 64), None);
        assert_eq!(entered(bytes(8) - 1, 8), None);
    }
}
