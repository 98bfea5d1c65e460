//! The recorded answers of the real sendmail (`bench/oracle`): corpus, answers in a form to compare, documented
//! differences.

pub mod answer;
pub mod corpus;
pub mod differences;
