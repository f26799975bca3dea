//! redis.conf.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::tls::Identity;

/// Writes the settings of a server or sentinel at this port, for its first start: when it is started again it goes by
/// what it has written there itself.
pub(super) fn write(port: u16, dir: &Path, tls: Option<&Identity>, lines: &[String]) -> PathBuf {
    let path = dir.join(format!("{port}.conf"));
    if !path.exists() {
        let (socket, listens) = (socket(dir), listens(port, dir, tls));
        let text = format!(
            "bind 127.0.0.1\ndir {}\nunixsocket {}\nuser testbed on nopass ~* &* +@all\n{listens}\n{}\n",
            dir.display(),
            socket.display(),
            lines.join("\n"),
        );
        fs::write(&path, text).expect("a file in the server's directory");
    }
    path
}

/// The unix socket that is for the testbed.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn listens(port: u16, dir: &Path, tls: Option<&Identity>) -> String {
    let Some(tls) = tls else { return format!("port {port}") };
    tls.write(dir);
    format!(
        "port 0\ntls-port {port}\ntls-cert-file cert.pem\ntls-key-file key.pem\ntls-ca-cert-file {}\n\
         tls-auth-clients no\ntls-replication yes",
        tls.ca.display()
    )
}
