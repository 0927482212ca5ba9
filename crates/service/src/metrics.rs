use std::fs;

use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use protocol::Phase;

use crate::activity::{ELEMENT_PHASES, phase_name};
use crate::certificate::now;
use crate::report::EndedReport;
use crate::{Closed, Outcome, Refusal, Role};

/// Histogram buckets in seconds for builds and phases, from milliseconds to hours.
const DURATION_BUCKETS: [f64; 15] =
    [0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0];

/// The values of the label `of` for self-recall and recall.
const QUALITIES: [&str; 2] = ["rows", "neighbors"];
/// The values of the label `type`.
const TYPES: [&str; 5] = ["vector", "halfvec", "bit", "sparsevec", "other"];

const PHASES: [Phase; 5] = [Phase::Rows, Phase::Graph, Phase::Repair, Phase::Order, Phase::Pages];

/// Prometheus metrics, in a separate registry.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    builds: IntCounterVec,
    refused: IntCounterVec,
    closed: IntCounterVec,
    elements: IntCounterVec,
    duration: HistogramVec,
    phases: HistogramVec,
    quality: HistogramVec,
    resident: IntGauge,
    open_files: IntGauge,
    /// Without a certificate it has no sample.
    certificate_expiry: IntGaugeVec,
    pub(crate) queue_wait: Histogram,
    pub(crate) active: IntGauge,
    pub(crate) queued: IntGauge,
    pub(crate) ready: IntGauge,
    pub(crate) threads: IntGauge,
    pub(crate) memory_limit: IntGauge,
    pub(crate) memory_reserved: IntGauge,
    pub(crate) tuples_received: IntCounter,
    pub(crate) pages_sent: IntCounter,
    pub(crate) pages_received: IntCounter,
    pub(crate) connections: IntGauge,
    accepted: IntCounter,
    /// For a router: seconds from the decision to start a builder until it accepts builds.
    pub builder_start: Histogram,
    /// Bytes of frames received from clients.
    pub received_bytes: IntCounter,
    /// Bytes of frames sent to clients.
    pub sent_bytes: IntCounter,
}

impl Metrics {
    /// Registers all metrics; `version` and `role` are labels of `lantern_index_build_info`.
    ///
    /// # Errors
    /// Never in practice: only for an invalid or repeated name.
    pub fn new(version: &str, role: Role) -> Result<Self, Error> {
        let r = Registry::new();
        let info = Opts::new("lantern_index_build_info", "Always 1; version and role are labels");
        add(&r, IntGauge::with_opts(info.const_label("version", version).const_label("role", role.name()))?)?.set(1);
        gauge(&r, "start_time_seconds", "When the daemon was started, in seconds since 1970")?.set(now());
        let metrics = Self {
            builds: counters(&r, "builds_total", "Builds that ended, by outcome", "outcome")?,
            refused: counters(&r, "builds_refused_total", "Builds that have never begun, by reason", "reason")?,
            closed: counters(
                &r,
                "connections_closed_total",
                "Connections closed before their request, by reason",
                "reason",
            )?,
            elements: counters(
                &r,
                "elements_processed_total",
                "Elements that builds have processed, and pages and elements that checks have, by phase: does not grow if a build makes no progress",
                "phase",
            )?,
            duration: histograms(
                &r,
                "build_duration_seconds",
                "Time from the acceptance of a build to its end",
                "type",
            )?,
            phases: histograms(&r, "build_phase_seconds", "Time that successful builds took, by phase", "phase")?,
            quality: add(
                &r,
                HistogramVec::new(
                    HistogramOpts::from(named(
                        "graph_recall",
                        "Recall of finished graphs: self-recall of sampled rows, and recall of true neighbors",
                    ))
                    .buckets(vec![0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 1.0]),
                    &["of"],
                )?,
            )?,
            queue_wait: add(
                &r,
                Histogram::with_opts(buckets("queue_wait_seconds", "Time in the queue of builds that have begun"))?,
            )?,
            builder_start: add(
                &r,
                Histogram::with_opts(buckets(
                    "builder_start_seconds",
                    "Time from a router's decision to start a builder until it is ready",
                ))?,
            )?,
            active: gauge(&r, "build_active", "Running builds")?,
            queued: gauge(&r, "queue_depth", "Builds that wait for memory or for their turn")?,
            ready: gauge(&r, "ready", "1 if the daemon accepts builds, as in /readyz")?,
            threads: gauge(&r, "threads", "Threads that build")?,
            memory_limit: gauge(&r, "memory_limit_bytes", "Memory that builds may reserve together; 0 is no limit")?,
            memory_reserved: gauge(&r, "memory_reserved_bytes", "Memory that builds have reserved")?,
            resident: gauge(&r, "memory_resident_bytes", "Resident memory of the process without mapped files")?,
            certificate_expiry: add(
                &r,
                IntGaugeVec::new(
                    named("certificate_expiry_seconds", "When the certificate expires, in seconds since 1970"),
                    &[],
                )?,
            )?,
            open_files: gauge(&r, "open_files", "Open file descriptors of the process")?,
            connections: gauge(&r, "connections", "Open connections of clients")?,
            accepted: counter(&r, "connections_total", "Connections of clients that were accepted")?,
            tuples_received: counter(&r, "tuples_received_total", "Rows received from clients")?,
            pages_sent: counter(&r, "pages_sent_total", "Index pages sent to clients")?,
            pages_received: counter(&r, "pages_received_total", "Pages of indexes to check received from clients")?,
            received_bytes: counter(&r, "received_bytes_total", "Bytes of frames received from clients")?,
            sent_bytes: counter(&r, "sent_bytes_total", "Bytes of frames sent to clients")?,
            registry: r,
        };
        metrics.show_all();
        Ok(metrics)
    }

    /// Records a finished graph's self-recall and recall.
    pub(crate) fn graph_quality(&self, shares: [Option<f64>; 2]) {
        for (of, share) in QUALITIES.iter().zip(shares) {
            share.into_iter().for_each(|share| self.quality.with_label_values(&[of]).observe(share));
        }
    }

    /// Initialises every label: a counter that appears only with its first event would hide this event from rates.
    fn show_all(&self) {
        for outcome in Outcome::ALL {
            self.builds.with_label_values(&[outcome.name()]);
        }
        for refusal in Refusal::ALL {
            self.refused.with_label_values(&[refusal.name()]);
        }
        for closed in Closed::ALL {
            self.closed.with_label_values(&[closed.name()]);
        }
        for of in QUALITIES {
            self.quality.with_label_values(&[of]);
        }
        for name in TYPES {
            self.duration.with_label_values(&[name]);
        }
        for phase in ELEMENT_PHASES {
            self.elements.with_label_values(&[phase_name(phase)]);
        }
        for phase in PHASES {
            self.phases.with_label_values(&[phase_name(phase)]);
        }
    }

    /// Counts a client's connection, which is open until the value is dropped.
    #[must_use]
    pub fn connection(&self) -> OpenConnection {
        self.accepted.inc();
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    /// Counts a connection that was closed before its request.
    pub(crate) fn closed(&self, why: Closed) {
        self.closed.with_label_values(&[why.name()]).inc();
    }

    /// Counts elements in the phases graph, repair and order.
    pub(crate) fn elements(&self, counts: [u64; 3]) {
        for (phase, count) in ELEMENT_PHASES.into_iter().zip(counts) {
            self.elements.with_label_values(&[phase_name(phase)]).inc_by(count);
        }
    }

    /// Elements processed so far in the phase graph.
    pub(crate) fn graph_elements(&self) -> u64 {
        self.elements.with_label_values(&[phase_name(Phase::Graph)]).get()
    }

    pub(crate) fn set_certificate_expiry(&self, at: Option<i64>) {
        at.into_iter().for_each(|at| self.certificate_expiry.with_label_values(&[] as &[&str]).set(at));
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.builds.with_label_values(&[outcome.name()]).inc();
    }

    pub(crate) fn refused(&self, reason: Refusal) {
        self.count(Outcome::Refused);
        self.refused.with_label_values(&[reason.name()]).inc();
    }

    pub(crate) fn ended(&self, build: &EndedReport) {
        self.count(build.outcome);
        let name = TYPES.into_iter().find(|name| *name == build.subject.value_type).unwrap_or("other");
        self.duration.with_label_values(&[name]).observe(build.seconds);
        if build.outcome == Outcome::Succeeded {
            let spent = build.phases;
            let spent = [spent.rows, spent.graph, spent.repair, spent.order, spent.pages];
            // A router does not see the phases of redirected builds and of Lantern's clients: all their time is in the first phase.
            let seen = build.has_made_pages() && spent[1..].iter().any(|&seconds| seconds > 0.0);
            for (phase, seconds) in PHASES.into_iter().zip(spent).filter(|_| seen) {
                self.phases.with_label_values(&[phase_name(phase)]).observe(seconds);
            }
        }
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Never in practice: only a metric without samples.
    pub fn render(&self) -> Result<String, Error> {
        self.resident.set(i64::try_from(resident_bytes()).unwrap_or(i64::MAX));
        // Minus one for the directory itself, which is open while it is read.
        self.open_files.set(fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as i64 - 1));
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// An open connection of a client.
#[derive(Debug)]
pub struct OpenConnection(IntGauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Resident bytes of this process without mapped files, as the system can reclaim their pages; 0 if unknown.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = ["RssAnon:", "RssShmem:"].iter().filter_map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kilobytes.sum::<u64>().saturating_mul(1024)
}

/// Processor seconds that all threads of this process have used.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C, Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(format!("lantern_index_{name}"), help)
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, Error> {
    add(registry, IntCounter::with_opts(named(name, help))?)
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> Result<IntCounterVec, Error> {
    add(registry, IntCounterVec::new(named(name, help), &[label])?)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, Error> {
    add(registry, IntGauge::with_opts(named(name, help))?)
}

fn histograms(registry: &Registry, name: &str, help: &str, label: &str) -> Result<HistogramVec, Error> {
    add(registry, HistogramVec::new(buckets(name, help), &[label])?)
}

fn buckets(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(named(name, help)).buckets(DURATION_BUCKETS.to_vec())
}

#[cfg(test)]
mod tests {
    use super::Metrics;
    use crate::{Closed, Refusal};

    #[test]
    fn counters_start_at_zero_with_all_labels() {
        let text = Metrics::new("1.2.3", crate::Role::Builder).unwrap().render().unwrap();
        for line in [
            "lantern_index_builds_total{outcome=\"succeeded\"} 0",
            "lantern_index_builds_total{outcome=\"failed\"} 0",
            "lantern_index_builds_total{outcome=\"cancelled\"} 0",
            "lantern_index_builds_total{outcome=\"refused\"} 0",
            "lantern_index_builds_refused_total{reason=\"memory\"} 0",
            "lantern_index_connections_closed_total{reason=\"tls\"} 0",
            "lantern_index_build_active 0",
            "lantern_index_queue_depth 0",
            "lantern_index_build_duration_seconds_count{type=\"halfvec\"} 0",
            "lantern_index_build_phase_seconds_count{phase=\"graph\"} 0",
            "lantern_index_queue_wait_seconds_count 0",
            "lantern_index_elements_processed_total{phase=\"order\"} 0",
            "lantern_index_tuples_received_total 0",
            "lantern_index_pages_sent_total 0",
            "lantern_index_pages_received_total 0",
            "lantern_index_received_bytes_total 0",
            "lantern_index_sent_bytes_total 0",
            "lantern_index_build_info{role=\"builder\",version=\"1.2.3\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn events_are_counted_by_reason() {
        let metrics = Metrics::new("0", crate::Role::Builder).unwrap();
        metrics.refused(Refusal::Memory);
        metrics.closed(Closed::Tls);
        let text = metrics.render().unwrap();
        for line in [
            "lantern_index_builds_total{outcome=\"refused\"} 1",
            "lantern_index_builds_refused_total{reason=\"memory\"} 1",
            "lantern_index_connections_closed_total{reason=\"tls\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        assert!(value("lantern_index_memory_resident_bytes").unwrap() >= 4096);
        assert!(value("lantern_index_open_files").unwrap() >= 3);
    }
}
