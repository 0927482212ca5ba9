//! Which graphs are built and searched, in which order?

use std::sync::Arc;

use distance::Kernel;
use hnsw::{Control, EngineKind, Phase, Pool};
use pgvector::ValueType;

use crate::choice::{Choice, Measured, Tried};
use crate::exact::Limit;
use crate::growth::Growth;
use crate::held_out::held_out;
use crate::plan::{self, Plan, REFINED};
use crate::trial::{Candidate, Form, Trial};
use crate::values::Values;
use crate::{AdviseError, Question, exact, least_rows, most_queries, rank};

/// Curves that show the growth continue until misses fall to this share of what the target allows.
const FURTHER: f64 = 0.5;

/// Useful indexes, and all candidates that were tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Useful choices, best first.
    pub choices: Vec<Choice>,
    /// Every candidate that was tried.
    pub tried: Vec<Tried>,
    /// Rows of the largest graphs.
    pub rows: usize,
    /// Queries that were searched for.
    pub queries: usize,
}

/// What all trials have in common.
pub(crate) struct Context<'a> {
    pub(crate) question: &'a Question,
    /// The rows in the column's type, prepared for the metric.
    pub(crate) rows: &'a Values,
    pub(crate) queries: &'a Values,
    /// The rows in random order: a graph of n rows has the first n.
    pub(crate) order: &'a [u32],
    pub(crate) kernel: Kernel,
    pub(crate) engine: EngineKind,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) control: &'a Control,
}

/// Builds candidate indexes of `rows`, and searches them for `queries`, or for held-out rows if `queries` is empty.
///
/// # Errors
/// [`AdviseError::TooFew`], [`AdviseError::NoQueries`], [`AdviseError::TooFewQueries`], [`AdviseError::Unsupported`], and
/// [`AdviseError::Build`] if a build fails or is cancelled.
pub fn advise(
    question: &Question,
    rows: Values,
    queries: Values,
    engine: EngineKind,
    pool: &Arc<Pool>,
    control: &Control,
) -> Result<Advice, AdviseError> {
    let given = !queries.is_empty();
    // The cast in the index's expression is of the values as they are in the column, not yet normalised.
    let fit_halfvec = question.value_type != ValueType::Vector
        || rows.fit_halfvec(question.metric) && queries.fit_halfvec(question.metric);
    let received = rows.len().max(1) as f64;
    let (rows, mut queries) = (rows.prepared(question.metric), queries.prepared(question.metric));
    // By cosine, pgvector does not index values of norm zero. (It indexes their binary codes, ten rows per element; that is ignored here.)
    let question =
        &Question { rows: (question.rows as f64 * rows.len() as f64 / received).round() as u64, ..*question };
    if given && queries.is_empty() {
        return Err(AdviseError::NoQueries);
    }
    let least = least_rows(question.k);
    if (rows.len() as u64) < least {
        return Err(AdviseError::TooFew { rows: rows.len() as u64, least });
    }
    let mut order = shuffled(rows.len(), question.seed);
    if queries.is_empty() {
        let built = Plan::new(order.len(), rows.mean_len(), pool.threads(), question.k).sizes[2];
        let spare = order.len() - built;
        queries = held_out(question, &rows, &mut order, question.held_out(), spare);
    } else if queries.len() > most_queries(question.k) {
        let _ = queries.split_off(most_queries(question.k));
    }
    let (k, target, least) = (question.k, question.target, question.least_queries());
    if queries.len() < least {
        return Err(AdviseError::TooFewQueries { queries: queries.len(), k, target, least });
    }
    let kernel = exact::kernel_of(question, &rows)?;
    let plan = Plan::new(order.len(), rows.mean_len(), pool.threads(), k);
    order.truncate(plan.sizes[2]);
    let context = Context { question, rows: &rows, queries: &queries, order: &order, kernel, engine, pool, control };
    let mut forms = Vec::new();
    for value_type in plan::types(question) {
        if value_type == ValueType::HalfVec && !fit_halfvec {
            continue;
        }
        forms.extend(Form::new(&context, value_type).map(|form| (value_type, form)));
    }
    if forms.is_empty() {
        let Question { value_type, dims, metric, .. } = *question;
        return Err(AdviseError::Unsupported { value_type, dims, metric });
    }
    let types: Vec<ValueType> = forms.iter().map(|(value_type, _)| *value_type).collect();
    control.progress().enter(Phase::Graph, 1 + plan.steps(&types) as u64);
    let limits = pool.run(|| exact::limits(&rows, &order, &queries, kernel, question, &plan.sizes, control))?;
    control.progress().add(1);
    let trials = Trials { context: &context, plan: &plan, limits: &limits, types: &types, forms: &forms };
    let measured = trials.measured()?;
    Ok(Advice {
        choices: trials.ranked(&measured),
        tried: measured.iter().map(|measured| measured.tried(question)).collect(),
        rows: order.len(),
        queries: queries.len(),
    })
}

/// The inputs of all measurements.
struct Trials<'a> {
    context: &'a Context<'a>,
    plan: &'a Plan,
    limits: &'a [Vec<Limit>],
    types: &'a [ValueType],
    forms: &'a [(ValueType, Form<'a>)],
}

impl Trials<'_> {
    fn measured(&self) -> Result<Vec<Measured>, AdviseError> {
        let mut measured = Vec::new();
        let mut of_vector = None;
        for (value_type, form) in self.forms {
            let known = of_vector.filter(|_| !plan::shows_growth(*value_type, self.types));
            let growth = match known {
                Some(growth) => growth,
                None => {
                    let (reference, growth) = self.reference(*value_type, form)?;
                    measured.push(reference);
                    growth
                }
            };
            if *value_type == ValueType::Vector {
                of_vector = Some(growth);
            }
            let reference = known.map(|_| plan::reference(*value_type));
            for candidate in reference.into_iter().chain(plan::others(*value_type)) {
                measured.push(self.measure(form, candidate, self.plan.others, growth)?);
            }
        }
        // Measure advised candidates again on a graph of another size: the largest or, if that was measured first, the smallest.
        let largest = self.plan.sizes.len() - 1;
        let mut left = REFINED;
        while left > 0 {
            let ranked = self.ranked(&measured);
            let advised = |choice: &Choice| measured.iter().position(|measured| measured.candidate.is(choice));
            let Some(at) = ranked.iter().filter_map(advised).find(|&at| !measured[at].refined) else { break };
            let (candidate, growth) = (measured[at].candidate, measured[at].growth);
            let form = self.forms.iter().find(|(value_type, _)| *value_type == candidate.value_type);
            let Some((_, form)) = form else { break };
            let again = self.measure(form, candidate, if self.plan.others == largest { 0 } else { largest }, growth)?;
            let mut both = [measured[at].clone(), again];
            both.sort_by_key(|measured| measured.rows);
            // For shorter lists than the reference's, `ef_search` may have to grow faster.
            let growth = growth.at_least(self.context.question, &both.each_ref().map(Measured::searched));
            let [_, larger] = both;
            measured[at] = Measured { growth, refined: true, ..larger };
            left -= 1;
        }
        self.context.control.progress().add(left as u64);
        Ok(measured)
    }

    fn ranked(&self, measured: &[Measured]) -> Vec<Choice> {
        let threads = u32::try_from(self.context.pool.threads()).unwrap_or(u32::MAX);
        let (question, table_value) = (self.context.question, self.context.rows.mean_len());
        let choices = measured.iter().map(|measured| measured.choice(question, threads, table_value));
        rank::best_first(question, choices.collect())
    }

    /// Measures a type's reference on graphs of all sizes, and the growth that they show.
    fn reference(&self, value_type: ValueType, form: &Form<'_>) -> Result<(Measured, Growth), AdviseError> {
        let (context, candidate) = (self.context, plan::reference(value_type));
        let (mut searched, mut largest) = (Vec::new(), None);
        for (&rows, limits) in self.plan.sizes.iter().zip(self.limits) {
            let trial = Trial::build(context, form, candidate, rows, limits)?;
            searched.push((rows, trial.curves(FURTHER)?));
            largest = Some(trial);
            context.control.progress().add(1);
        }
        let graphs: Vec<_> = searched.iter().map(|(rows, curves)| curves.searched(*rows)).collect();
        let growth = Growth::of(context.question, &graphs);
        let ((_, curves), trial) = searched.pop().zip(largest).expect("there are three sizes");
        Ok((Measured { refined: true, ..trial.measured(curves, growth)? }, growth))
    }

    /// Measures a candidate on a graph of one size.
    fn measure(
        &self,
        form: &Form<'_>,
        candidate: Candidate,
        size: usize,
        growth: Growth,
    ) -> Result<Measured, AdviseError> {
        let trial = Trial::build(self.context, form, candidate, self.plan.sizes[size], &self.limits[size])?;
        let curves = trial.curves(1.0)?;
        self.context.control.progress().add(1);
        trial.measured(curves, growth)
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    for last in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = ((u128::from(state) * (last as u128 + 1)) >> 64) as usize;
        order.swap(last, at);
    }
    order
}
