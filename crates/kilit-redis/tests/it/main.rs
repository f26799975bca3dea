//! The Redis engine on real servers.

mod chaos;
mod cluster;
mod combined;
mod contest;
mod crowd;
mod cut_off;
mod fake;
mod leases;
mod login;
mod lost_answers;
mod peers;
mod refusals;
mod replicas;
mod runtimes;
mod scripts;
mod sentinel;
mod silence;
mod support;
mod tokens;
mod waiting;
