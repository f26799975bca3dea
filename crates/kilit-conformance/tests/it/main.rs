//! The suite on every engine.

mod columns;
mod matrix;
mod planted;

kilit_conformance::suite! {
    memory: crate::columns::memory,
    file: crate::columns::file,
    testlease: crate::columns::testlease,
    testlease_server: crate::columns::testlease_server,
}
