//! What is special about the command on Redis.

mod doctor;
mod leftovers;
mod operators;
mod outages;
mod rights;
mod secrets;
mod systems;
mod urls;
