//! Redis servers of every kind start, answer, and fail as they are told to.

mod standalone;
