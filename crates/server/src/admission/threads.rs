use std::sync::Arc;

use pages::Estimate;
use service::Client;

use super::{Admission, NoPlace, Place};

impl Admission {
    /// Joins the queue with as many of `all` threads as the memory limits allow. `need` returns the need with a number of threads, `bytes`
    /// its bytes.
    ///
    /// Each thread needs memory for its leaf. Estimates for users, and the sizes of a router's pods, assume
    /// [`Estimate::ASSUMED_THREADS`]: a build that fits by these must not be refused on a machine with more cores.
    pub(crate) fn enter_with<N>(
        self: &Arc<Self>,
        all: u32,
        need: impl Fn(u32) -> N,
        bytes: impl Fn(&N) -> u64,
        client: &Client,
    ) -> Result<(Place, N), NoPlace> {
        let mut threads = all;
        loop {
            let need = need(threads);
            match self.enter(bytes(&need), client) {
                Err(NoPlace::Never(_) | NoPlace::BeyondClient(_)) if threads > Estimate::ASSUMED_THREADS => {
                    threads -= 1;
                }
                entered => return entered.map(|place| (place, need)),
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
        let need = |threads| Need::new(&spec, threads);
        let bytes = |threads| need(threads).at_first(ROWS);
        let client = Client::unnamed("10.0.0.1:5432".parse().unwrap());
        let entered = |limit, all| {
            let entered = Admission::new(limit, 0).enter_with(all, need, |need| need.at_first(ROWS), &client);
            entered.map(|(place, need)| (place.bytes(), need.threads())).ok()
        };
        assert_eq!(entered(bytes(16), 64), Some((bytes(16), 16)));
        assert_eq!(entered(bytes(20), 64), Some((bytes(20), 20)));
        assert_eq!(entered(bytes(64), 64), Some((bytes(64), 64)));
        assert_eq!(entered(bytes(16) - 1, 64), None);
        assert_eq!(entered(bytes(8) - 1, 8), None);
    }
}
