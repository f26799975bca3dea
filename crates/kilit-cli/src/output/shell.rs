//! Lock names as a shell takes them.

use kilit::LockName;

/// One word of a shell: typed back, it is the same name. Nothing in it is obeyed by a terminal.
pub(crate) fn word(name: &LockName) -> String {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-/@%+,".contains(byte);
    match name.as_str() {
        Some(text) if bytes.iter().all(plain) => text.to_owned(),
        Some(text) if text.chars().all(is_printable) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => format!("$'{}'", bytes.iter().map(escaped).collect::<String>()),
    }
}

/// The argument that gives the name to `kilit`.
pub(crate) fn argument(name: &LockName) -> String {
    let dashes = if name.as_bytes().starts_with(b"-") { "--name=" } else { "" };
    format!("{dashes}{}", word(name))
}

fn is_printable(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1
}

fn escaped(byte: &u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        // Always three digits, so that a digit that follows is not taken for one of them.
        _ => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_a_shell_needs_it() {
        for (name, quoted) in [
            (&b"backup"[..], "backup"),
            (b"a/b%2F", "a/b%2F"),
            (b"my job", "'my job'"),
            (b"it's", r"'it'\''s'"),
            ("é".as_bytes(), "'é'"),
            (b"~", "'~'"),
            (b"\x1b[2J1", r"$'\033[2J1'"),
            (b"\n'\\\xff1", r"$'\012\'\\\3771'"),
            ("a\u{202e}b".as_bytes(), r"$'a\342\200\256b'"),
        ] {
            assert_eq!(word(&LockName::new(name).unwrap()), quoted);
        }
        assert_eq!(argument(&LockName::new("-x y").unwrap()), "--name='-x y'");
        assert_eq!(argument(&LockName::new("x").unwrap()), "x");
    }
}
