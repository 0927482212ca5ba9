use service::report::BuilderReport;

/// The state of the pool's builders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The builders, by age.
    pub(crate) builders: Vec<BuilderState>,
}

/// One builder.
#[derive(Clone, Debug)]
pub(crate) struct BuilderState {
    pub(crate) name: String,
    pub(crate) state: &'static str,
}

impl BuilderState {
    /// The report for the status page.
    pub(crate) fn report(&self) -> BuilderReport {
        BuilderReport {
            name: self.name.clone(),
            state: self.state.to_owned(),
            builds: u32::from(matches!(self.state, "building" | "finishing")),
        }
    }
}
