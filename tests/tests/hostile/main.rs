//! A builder may say anything at any time: the statement ends with words that help, PostgreSQL goes on, nothing is left behind.

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
