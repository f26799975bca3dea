//! The suite on every engine.

mod columns;
mod matrix;
mod planted;

kilit_conformance::suite! {
    memory: crate::columns::memory,
    file: crate::columns::file,
    testlease: crate::columns::testlease,
    redis: crate::columns::redis,
    redis_cluster: crate::columns::redis_cluster,
    testlease_server: crate::columns::testlease_server,
}
