use kilit_core::{Error, ErrorKind, Fence, FenceError, FencingToken, Refused, TokenSource, TokenValue};
use kilit_testbed::{
    fence_sqlite::{SqliteFence, Stock, begin},
    tempdir,
};
use rusqlite::Connection;

fn token(source: &str, value: u64) -> FencingToken {
    FencingToken::new(TokenSource::new(source).unwrap(), TokenValue::new(value).unwrap())
}

fn is_stale(result: Result<(), FenceError<Error>>) -> bool {
    matches!(result, Err(FenceError::Refused(Refused::Stale { .. })))
}

#[test]
fn a_stale_write_is_refused_and_changes_nothing() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("stock.db");
    let mut stock = Stock::open(&path).unwrap();
    stock.write(b"apples", "old", &token("file:a", 1)).unwrap();
    Stock::open(&path).unwrap().write(b"apples", "new", &token("file:a", 2)).unwrap();
    assert!(is_stale(stock.write(b"apples", "late", &token("file:a", 1))));
    stock.write(b"apples", "newer", &token("file:a", 2)).unwrap();
    stock.write(b"pears", "other", &token("file:a", 1)).unwrap();
    assert_eq!(stock.read(b"apples").unwrap().unwrap(), "newer");
    assert_eq!(stock.read(b"plums").unwrap(), None);
}

#[test]
fn another_source_is_wrong_not_stale() {
    let dir = tempdir().unwrap();
    let mut stock = Stock::open(&dir.path().join("stock.db")).unwrap();
    stock.write(b"apples", "1", &token("file:a", 1)).unwrap();
    let refused = stock.write(b"apples", "2", &token("file:b", 2)).unwrap_err();
    assert!(matches!(refused, FenceError::Refused(Refused::WrongSource { .. })), "{refused}");
}

#[test]
fn tokens_keep_every_digit() {
    let dir = tempdir().unwrap();
    let mut stock = Stock::open(&dir.path().join("stock.db")).unwrap();
    for value in [(1 << 53) + 1, TokenValue::MAX] {
        stock.write(b"x", "", &token("a", value)).unwrap();
        assert!(is_stale(stock.write(b"x", "", &token("a", value - 1))));
    }
}

#[tokio::test]
async fn a_rollback_takes_the_mark_along() {
    let mut connection = Connection::open_in_memory().unwrap();
    SqliteFence::create_tables(&mut connection).unwrap();
    for commit in [false, true] {
        let transaction = begin(&mut connection).unwrap();
        SqliteFence::new(&transaction).admit(b"x", &token("a", 5)).await.unwrap();
        assert_eq!(SqliteFence::new(&transaction).mark(b"x").unwrap(), Some(token("a", 5)));
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        let transaction = begin(&mut connection).unwrap();
        let older = SqliteFence::new(&transaction).admit(b"x", &token("a", 4)).await;
        assert_eq!(older.is_err(), commit);
        transaction.rollback().unwrap();
    }
}

#[test]
fn other_versions_are_refused() {
    let mut connection = Connection::open_in_memory().unwrap();
    SqliteFence::create_tables(&mut connection).unwrap();
    connection.execute("UPDATE kilit_fence_version SET version = 2", []).unwrap();
    let error = SqliteFence::create_tables(&mut connection).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let transaction = begin(&mut connection).unwrap();
    let admitted = SqliteFence::new(&transaction).admit_now(b"x", &token("a", 1));
    assert!(matches!(admitted, Err(FenceError::Store(error)) if error.kind() == ErrorKind::Incompatible));
}
