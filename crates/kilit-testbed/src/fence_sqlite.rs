//! A fence that is a row of SQLite, beside the rows that it guards and in the same transaction.

use kilit_core::{
    Error, ErrorKind, Fence, FenceError, FencingToken, Result, Rule, TokenSource, TokenValue, judge,
};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

/// The version of the tables. Another one is refused, never guessed at.
const VERSION: i64 = 1;

/// The fence of one open transaction. A write that it admits must be made, and committed, in that transaction: then no
/// other write comes between the comparison and the write.
///
/// Begin the transaction with [`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate): a deferred
/// one finds out only at its first write that another was faster.
#[derive(Debug)]
pub struct SqliteFence<'a>(&'a Transaction<'a>);

impl<'a> SqliteFence<'a> {
    /// Makes the fence's tables where they are missing.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) for those of another version, then SQLite's own.
    pub fn create_tables(connection: &mut Connection) -> Result<()> {
        let transaction = begin(connection)?;
        let made = transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS kilit_fence_version (version INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS kilit_fence (
                 resource BLOB PRIMARY KEY,
                 source TEXT NOT NULL,
                 token INTEGER NOT NULL CHECK (token > 0)
             ) WITHOUT ROWID;
             INSERT INTO kilit_fence_version SELECT 1 WHERE NOT EXISTS (SELECT * FROM kilit_fence_version);",
        );
        made.map_err(failed)?;
        SqliteFence(&transaction).check_version()?;
        transaction.commit().map_err(failed)
    }

    /// The fence of an open transaction.
    pub fn new(transaction: &'a Transaction<'a>) -> Self {
        Self(transaction)
    }

    /// The highest token seen for a resource.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) for what this version has not written, then SQLite's own.
    pub fn mark(&self, resource: &[u8]) -> Result<Option<FencingToken>> {
        self.check_version()?;
        let mut query = self
            .0
            .prepare_cached("SELECT source, token FROM kilit_fence WHERE resource = ?1")
            .map_err(failed)?;
        let row = query.query_row([resource], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
        let Some((source, value)) = row.optional().map_err(failed)? else { return Ok(None) };
        let value = u64::try_from(value).ok().and_then(|value| TokenValue::new(value).ok());
        match (TokenSource::new(source), value) {
            (Ok(source), Some(value)) => Ok(Some(FencingToken::new(source, value))),
            _ => Err(Error::new(ErrorKind::Incompatible, "a row of the table kilit_fence holds no token")),
        }
    }

    /// As [`Fence::admit`], without a future.
    ///
    /// # Errors
    /// As there.
    pub fn admit_now(&mut self, resource: &[u8], token: &FencingToken) -> Result<(), FenceError<Error>> {
        let recorded = self.mark(resource).map_err(FenceError::Store)?;
        let mark = judge(recorded.as_ref(), token, Rule::AtLeast)?;
        let sql = "INSERT INTO kilit_fence (resource, source, token) VALUES (?1, ?2, ?3)
                   ON CONFLICT (resource) DO UPDATE SET source = excluded.source, token = excluded.token";
        let value = i64::try_from(mark.value().get()).expect("a token is at most 2^63-1");
        self.0
            .execute(sql, params![resource, mark.source().as_str(), value])
            .map_err(|error| FenceError::Store(failed(error)))?;
        Ok(())
    }

    fn check_version(&self) -> Result<()> {
        let query =
            self.0.query_row("SELECT version FROM kilit_fence_version", [], |row| row.get::<_, i64>(0));
        match query.map_err(failed)? {
            VERSION => Ok(()),
            other => Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the fence's tables have version {other} and this is version {VERSION}: use one kilit for all"
                ),
            )),
        }
    }
}

impl Fence for SqliteFence<'_> {
    type Error = Error;

    fn admit(
        &mut self,
        resource: &[u8],
        token: &FencingToken,
    ) -> impl Future<Output = Result<(), FenceError<Error>>> + Send {
        // Done before anything awaits: SQLite blocks, and its transaction stays on this thread.
        std::future::ready(self.admit_now(resource, token))
    }
}

/// Begins a transaction that already has the write lock.
///
/// # Errors
/// SQLite's own.
pub fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)
}

/// SQLite's errors. Nothing is committed when one comes before the commit.
fn failed(error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Refused, "SQLite").with_source(error)
}

/// A small resource to guard: one value a name, in one SQLite file.
#[derive(Debug)]
pub struct Stock(Connection);

impl Stock {
    /// Opens the file at `path`, and makes it and its tables when they are not there.
    ///
    /// # Errors
    /// As [`SqliteFence::create_tables`].
    pub fn open(path: &std::path::Path) -> Result<Self> {
        let mut connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
        SqliteFence::create_tables(&mut connection)?;
        let sql =
            "CREATE TABLE IF NOT EXISTS stock (resource BLOB PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID";
        connection.execute(sql, []).map_err(failed)?;
        Ok(Self(connection))
    }

    /// Sets the value of `resource`, if its fence admits `token`.
    ///
    /// # Errors
    /// As [`SqliteFence::admit_now`]; nothing was written.
    pub fn write(
        &mut self,
        resource: &[u8],
        value: &str,
        token: &FencingToken,
    ) -> Result<(), FenceError<Error>> {
        let transaction = begin(&mut self.0).map_err(FenceError::Store)?;
        SqliteFence::new(&transaction).admit_now(resource, token)?;
        let sql = "INSERT INTO stock (resource, value) VALUES (?1, ?2)
                   ON CONFLICT (resource) DO UPDATE SET value = excluded.value";
        transaction
            .execute(sql, params![resource, value])
            .and_then(|_| transaction.commit())
            .map_err(|error| FenceError::Store(failed(error)))
    }

    /// The value of `resource`.
    ///
    /// # Errors
    /// SQLite's own.
    pub fn read(&self, resource: &[u8]) -> Result<Option<String>> {
        let sql = "SELECT value FROM stock WHERE resource = ?1";
        self.0.query_row(sql, [resource], |row| row.get(0)).optional().map_err(failed)
    }
}
