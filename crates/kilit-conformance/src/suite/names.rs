//! Lock names: the same bytes are the same lock, other bytes another, on every engine.

use std::collections::HashSet;

use kilit_core::{ErrorKind, LockName, Note};

use super::support::{claim, grip};
use crate::Subject;

/// Names that one store or another treats in its own way: separators, dots, control characters, line ends, patterns,
/// escapes, composed and decomposed letters, planes that stores refuse, bytes that are not UTF-8, hash tags, lengths
/// around limits, names that differ in case or late, words of the stores and of kilit itself, options of the command,
/// and pairs that collide under weak hashes.
pub fn table() -> Vec<LockName> {
    let mut table: Vec<Vec<u8>> = [
        "a", "A", "a/b", "a//b", "/a", "a/", "a/..", "a/./b", ".", "..", "...", "a.b", "%2E", "%2E%2E", "../a",
        "\0", "a\0", "a\0b", "\x01", "\x7f", "\u{85}", "a\r\nSET x 1\r\n", "a\n", "a\r", " ", "a ", " a", "a b",
        "\t", "'", "\"", "a;b", "a%2Fb", "%", "%%", "%2", "%sha256-", "*", "?", "a*", "\\", "$HOME", "`id`",
        "\u{e9}", "e\u{301}", "\u{1f512}", "\u{e000}", "\u{fffd}", "\u{fff0}", "\u{2028}", "{", "}", "{}", "{a}",
        "a}b", "{a", "}{", "zookeeper", "/zookeeper/x", "__kilit", ".kilit", "kilit", "kilit:token", "token",
        "counter", "lock", "fence", "-n", "--help", "--", "-", "plumless", "buckeroo", "job-139467",
        "job-232812", "0", "1", "con", "nul", ".lock", "a.lock", "~", "#", "a=b", "a:b", "a,b",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    table.extend([vec![0xff], vec![0xfe], vec![0xff, 0xfe], vec![b'a', 0x80], vec![0xc0, 0x80], vec![0xed, 0xa0, 0x80]]);
    for len in [63, 64, 65, 128, 200, 255, 256, 511, 512] {
        table.push(vec![b'x'; len]);
    }
    // Different after that byte, and only in case, and with bytes that take three when they are encoded.
    for len in [63, 64, 255, 511] {
        table.push([&vec![b'x'; len][..], b"y"].concat());
        table.push([&vec![b'x'; len][..], b"Y"].concat());
    }
    table.push("/".repeat(512).into_bytes());
    table.push("/".repeat(511).into_bytes());
    // What a long name is hashed to must be no other name.
    table.push(LockName::new([b'/'; 512]).expect("a name").encoded_within(200).into_bytes());
    table.iter().map(|name| LockName::new(name).expect("1 to 512 bytes")).collect()
}

/// Each is held, then busy, then shown, then free.
pub async fn each_is_a_lock(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    for name in table() {
        let [mine, other] = [&a, &b].map(|party| party.mutex(name.clone()).with(subject.terms()).expect("in range"));
        let guard = mine.try_acquire().await.unwrap_or_else(|error| panic!("{name} is free: {error}"));
        let error = other.try_acquire().await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::Busy, "{name}: {error}");
        assert!(error.to_string().chars().all(|c| !c.is_control()), "{error:?}");
        let status = b.inspect(Some(&name)).await.expect("the engine is well");
        assert!(status.len() == 1 && status[0].name == name && status[0].holders.len() == 1, "{status:?}");
        guard.release().await.expect("it was held");
        let guard = other.try_acquire().await.unwrap_or_else(|error| panic!("{name} is free: {error}"));
        guard.release().await.expect("it was held");
    }
}

/// All at once: no two are the same lock, and the list shows each.
pub async fn all_pairs_differ(subject: &Subject) {
    let party = subject.party().await;
    let (table, mut guards) = (table(), Vec::new());
    assert_eq!(table.iter().collect::<HashSet<_>>().len(), table.len(), "the table lists a name twice");
    for name in &table {
        let mutex = party.mutex(name.clone()).with(subject.terms()).expect("in range");
        guards.push(mutex.try_acquire().await.unwrap_or_else(|error| panic!("{name} is another lock: {error}")));
    }
    let all = party.inspect(None).await.expect("the engine is well");
    let shown: HashSet<_> = all.iter().filter(|lock| lock.is_held()).map(|lock| &lock.name).collect();
    let missing: Vec<_> = table.iter().filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
}

/// Names and notes are refused before an engine sees them, so the words are the same everywhere.
pub async fn refusals_are_the_same_everywhere(subject: &Subject) {
    let empty = LockName::new("").expect_err("an empty name");
    assert_eq!(empty.to_string(), "a lock name is empty; it must have 1 to 512 bytes");
    for len in [513, 4096, 1_100_000, 10_000_000] {
        let error = LockName::new(vec![b'x'; len]).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("a lock name has {len} bytes; it must have 1 to 512: shorten it, or use a hash of it");
        assert_eq!(error.to_string(), text);
    }
    for note in ["a\nb".to_owned(), "x".repeat(257), "x".repeat(1_000_000)] {
        assert_eq!(Note::new(note).expect_err("a bad note").kind(), ErrorKind::Invalid);
    }
    // What is allowed at the edge is stored and shown.
    let party = subject.party().await;
    for note in [String::new(), "x".repeat(256), "é\u{1f512} \"quoted\" 'too' \\ % {}".to_owned()] {
        let mut mine = claim("noted", kilit_core::Share::EXCLUSIVE);
        std::sync::Arc::make_mut(&mut mine).note = Note::new(note.clone()).expect("a good note");
        assert!(grip(&party, &mine).await);
        let status = super::support::status(&party, "noted").await;
        assert_eq!(status.holders[0].note.as_deref().unwrap_or_default(), note, "{status:?}");
        party.engine().release(&mine).await.expect("the engine is well");
    }
}
