use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use protocol::{Accept, BuilderMessage, Hello, PROTOCOL_VERSION, Phase, capability};
use service::{Client, Limits, Outcome, Queued, Running};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::admit::{Begun, Work};
use super::{LAST_FRAME, Session, VERSION};
use crate::Config;
use crate::end::SessionError;
use crate::ended::{CancelOnDrop, EndedBuild};
use crate::job::Job;
use crate::meter::Meter;
use crate::progress::Watch;
use crate::reading::Intake;
use crate::rows::RowTotals;

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// From the Accept to the last frame.
    pub(super) async fn build(&mut self, hello: &Hello, client: &Client, begun: Begun, queued: Queued) -> EndedBuild {
        let Begun { mut job, spec, work, reservation, remark } = begun;
        let cancel = CancelOnDrop::new(&job.control);
        let watch = Watch::new(job.control.clone());
        let stage = watch.clone();
        let running = queued.begin(reservation.bytes(), move || stage.stage());
        tracing::info!(
            value_type = spec.value_type.name(),
            metric = spec.metric.name(),
            dims = spec.dims,
            m = spec.m,
            ef_construction = spec.ef_construction,
            expected_rows = spec.expected_rows,
            memory = reservation.bytes(),
            check_blocks = hello.check.map(|check| check.blocks),
            client = ?hello.client_version,
            postgres = ?hello.server_version,
            "build started"
        );
        let accept = BuilderMessage::Accept(Accept {
            protocol: PROTOCOL_VERSION,
            capabilities: if hello.check.is_some() { capability::CHECK } else { 0 },
            session: self.id,
            memory_reserved: reservation.bytes(),
            threads: self.shared.threads(),
            builder_version: VERSION.to_owned(),
            remark,
        });
        let max_rows = Limits { rows: self.shared.config.max_rows, ..Limits::default() };
        let max_rows = client.limits.with_rows_of(&max_rows).rows;
        let intake = match work {
            Work::Build(need, storage) => {
                let totals = RowTotals::new(spec.value_type, spec.dims);
                Intake::Rows(totals, Meter::new(need, storage, reservation, max_rows))
            }
            Work::Check(blocks) => Intake::Index(blocks),
        };
        let result = match self.writer.send(&accept).await {
            Ok(()) => self.drive(intake, &mut job, &watch, &running).await,
            Err(error) => Err(error),
        };
        let (outcome, reason) = match result {
            Ok(()) => (Outcome::Succeeded, None),
            Err(error) => {
                job.control.cancel();
                self.fail(&error).await;
                (error.outcome(), Some(error.to_string()))
            }
        };
        EndedBuild::new(job, running, outcome, reason, cancel)
    }

    /// Both halves of the build at once, until one of them ends it.
    async fn drive(
        &mut self,
        intake: Intake,
        job: &mut Job,
        watch: &Watch,
        running: &Running,
    ) -> Result<(), SessionError> {
        let stop = CancellationToken::new();
        let mut writing = pin!(self.writer.drive(&mut job.events, watch, running, &stop));
        let error = tokio::select! {
            sent = &mut writing => {
                sent?;
                return Ok(());
            }
            error = overdue(&self.shared.config, watch) => error,
            () = running.cancelled() => SessionError::Operator,
            error = self.reader.drive(intake, &job.rows, self.shared.config.idle_timeout, running) => error,
            () = self.shared.stop.cancelled() => SessionError::Shutdown,
        };
        job.control.cancel();
        // The client can read our reason only after a whole frame.
        stop.cancel();
        match timeout(LAST_FRAME, writing).await {
            // The last frame was on its way already: the client has everything.
            Ok(Ok(Some(_))) => Ok(()),
            _ => Err(error),
        }
    }
}

/// Waits until a build, or its rows, take longer than they may.
async fn overdue(config: &Config, watch: &Watch) -> SessionError {
    let after = async |limit: Option<Duration>| match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    };
    let rows = async {
        after(config.max_rows_time).await;
        if watch.stage().phase != Phase::Rows {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = after(config.max_build_time) => SessionError::Overdue(config.max_build_time.unwrap_or_default()),
        () = rows => SessionError::RowsOverdue(config.max_rows_time.unwrap_or_default()),
    }
}
