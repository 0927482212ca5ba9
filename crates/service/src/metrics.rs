use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use crate::Outcome;

/// Builds take seconds or hours.
const DURATION_BUCKETS: [f64; 13] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0];

/// The numbers that Prometheus scrapes, in a registry of their own.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    builds: IntCounterVec,
    pub(crate) active: IntGauge,
    pub(crate) duration: Histogram,
    /// Rows taken from clients.
    pub tuples_received: IntCounter,
    /// Index pages handed to clients.
    pub pages_sent: IntCounter,
    /// Bytes of frames taken from clients.
    pub received_bytes: IntCounter,
    /// Bytes of frames handed to clients.
    pub sent_bytes: IntCounter,
}

impl Metrics {
    /// Registers all metrics; `version` is shown as a label of `lantern_index_build_info`.
    ///
    /// # Errors
    /// Never in practice: only a name that is not one or is there twice.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let tuples_received = counter("lantern_index_tuples_received_total", "Rows taken from clients")?;
        let pages_sent = counter("lantern_index_pages_sent_total", "Index pages handed to clients")?;
        let received_bytes = counter("lantern_index_received_bytes_total", "Bytes of frames taken from clients")?;
        let sent_bytes = counter("lantern_index_sent_bytes_total", "Bytes of frames handed to clients")?;

        let builds =
            IntCounterVec::new(Opts::new("lantern_index_builds_total", "Builds that ended, by outcome"), &["outcome"])?;
        for outcome in Outcome::ALL {
            builds.with_label_values(&[outcome.name()]);
        }
        let active = IntGauge::new("lantern_index_build_active", "Builds under way")?;
        let duration = Histogram::with_opts(
            HistogramOpts::new("lantern_index_build_duration_seconds", "Time from the first frame to the last one")
                .buckets(DURATION_BUCKETS.to_vec()),
        )?;
        let info = IntGauge::with_opts(
            Opts::new("lantern_index_build_info", "Always 1; the version is a label").const_label("version", version),
        )?;
        info.set(1);
        registry.register(Box::new(builds.clone()))?;
        registry.register(Box::new(active.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(info))?;
        Ok(Self { registry, builds, active, duration, tuples_received, pages_sent, received_bytes, sent_bytes })
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.builds.with_label_values(&[outcome.name()]).inc();
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Never in practice: only a metric without samples.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn every_metric_is_there_from_the_start() {
        let text = Metrics::new("1.2.3").unwrap().render().unwrap();
        for line in [
            "lantern_index_builds_total{outcome=\"succeeded\"} 0",
            "lantern_index_builds_total{outcome=\"failed\"} 0",
            "lantern_index_builds_total{outcome=\"cancelled\"} 0",
            "lantern_index_builds_total{outcome=\"refused\"} 0",
            "lantern_index_build_active 0",
            "lantern_index_build_duration_seconds_count 0",
            "lantern_index_tuples_received_total 0",
            "lantern_index_pages_sent_total 0",
            "lantern_index_received_bytes_total 0",
            "lantern_index_sent_bytes_total 0",
            "lantern_index_build_info{version=\"1.2.3\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
