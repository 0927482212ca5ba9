//! A malicious builder may send anything at any time: the statement fails with a helpful message,
//! PostgreSQL survives, and nothing is left over.

mod answer;
mod checker;
mod corrupt;
mod endless;
mod fake;
mod fallback;
mod flood;
mod frames;
mod layout;
mod max_rate;
mod queue;
mod reports;
mod router;
mod scene;
mod slow;
mod texts;
mod token;
