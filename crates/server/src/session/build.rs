use std::pin::pin;

use protocol::{Accept, BuilderMessage, Hello, PROTOCOL_VERSION, capability};
use service::{Client, Queued};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::admit::{Begun, Work};
use super::{LAST_FRAME, Session, VERSION};
use crate::advising::SampleMeter;
use crate::lifecycle::{EndedBuild, StartedBuild, overdue};
use crate::meter::Meter;
use crate::reading::Intake;
use crate::rows::RowTotals;
use crate::session_error::SessionError;

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// Runs from the Accept to the last frame.
    pub(super) async fn build(&mut self, hello: &Hello, client: &Client, begun: Begun, queued: Queued) -> EndedBuild {
        let Begun { job, spec, work, threads, reservation, remark } = begun;
        let mut build = StartedBuild::new(job, queued, &spec, reservation.bytes(), Some(hello));
        let accept = BuilderMessage::Accept(Accept {
            protocol: PROTOCOL_VERSION,
            capabilities: match &work {
                Work::Build(..) => 0,
                Work::Check(_) => capability::CHECK,
                Work::Advice(_) => capability::ADVISE | hello.capabilities & capability::OWN_TYPE,
            },
            session: self.id,
            memory_reserved: reservation.bytes(),
            threads,
            builder_version: VERSION.to_owned(),
            remark,
        });
        let intake = match work {
            Work::Build(need, storage) => {
                let totals = RowTotals::new(spec.value_type, spec.dims);
                Intake::Rows(totals, Meter::new(need, storage, reservation, self.shared.max_rows(client)))
            }
            Work::Check(blocks) => Intake::Index(blocks),
            Work::Advice(need) => {
                let totals = RowTotals::new(spec.value_type, spec.dims);
                Intake::Sample(totals, SampleMeter::new(need, reservation))
            }
        };
        let result = match self.writer.send(&accept).await {
            Ok(()) => self.drive(intake, &mut build).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            build.job.control.cancel();
            self.fail(error).await;
        }
        build.end(&result)
    }

    /// Runs both halves of the session concurrently until one of them ends.
    async fn drive(&mut self, intake: Intake, build: &mut StartedBuild) -> Result<(), SessionError> {
        let StartedBuild { job, watch, running, .. } = build;
        let stop = CancellationToken::new();
        let mut writing = pin!(self.writer.drive(&mut job.events, watch, running, &stop));
        let error = tokio::select! {
            sent = &mut writing => {
                sent?;
                return Ok(());
            }
            error = overdue(&self.shared.config, watch) => error,
            () = running.cancelled() => SessionError::Operator,
            error = self.reader.drive(intake, &job.rows, self.shared.config.listening.idle_timeout, running) => error,
            () = self.shared.stop.cancelled() => SessionError::Shutdown,
        };
        job.control.cancel();
        // Finish a partly written frame: the client can read the error only after a whole frame.
        stop.cancel();
        match timeout(LAST_FRAME, writing).await {
            // Done was the last frame, so the client has everything.
            Ok(Ok(Some(_))) => Ok(()),
            _ => Err(error),
        }
    }
}
