//! The guard and its keeper over an engine that the tests script.

mod acquire;
mod keeper;
mod lifecycle;
mod script;
mod session;
