//! No cell of case × engine is missing.

use std::path::Path;

#[test]
fn the_matrix_is_as_recorded() {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrix.txt");
    let engines = kilit::engines().chain(kilit_testlease::ENGINES);
    kilit_conformance::matrix::check(&record, crate::COLUMNS, engines);
}
