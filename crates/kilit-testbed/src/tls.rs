//! Certificates for servers in tests, good and bad ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// What is wrong with a server's certificate, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCert {
    /// Nothing: signed by the authority, for `localhost` and 127.0.0.1.
    Good,
    /// It is for another host.
    WrongHost,
    /// It was valid until the year 2001.
    Expired,
    /// It is signed by itself.
    SelfSigned,
}

/// A certificate authority that exists for one test.
#[derive(Debug)]
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

/// A server's certificate and its private key, in PEM, and the authority to check it by.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// The private key.
    pub key: String,
    /// The file with the authority's certificate.
    pub ca: PathBuf,
}

impl TestCa {
    /// Makes one.
    pub fn new() -> Self {
        let mut params = params(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kilit test authority");
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("a file in the temporary directory");
        Self { issuer, dir }
    }

    /// The file with its certificate, for clients. It is gone when this is dropped.
    pub fn pem(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Makes a server's certificate.
    pub fn server(&self, cert: ServerCert) -> Identity {
        let mut params = match cert {
            ServerCert::WrongHost => params(&["other.example"]),
            _ => params(&["localhost", "127.0.0.1"]),
        };
        if cert == ServerCert::Expired {
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        }
        let key = key();
        let signed = match cert {
            ServerCert::SelfSigned => params.self_signed(&key),
            _ => params.signed_by(&key, &self.issuer),
        };
        Identity { cert: signed.expect("a certificate").pem(), key: key.serialize_pem(), ca: self.pem() }
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl Identity {
    /// Writes `cert.pem` and `key.pem` into `dir`.
    pub(crate) fn write(&self, dir: &Path) {
        for (name, text) in [("cert.pem", &self.cert), ("key.pem", &self.key)] {
            fs::write(dir.join(name), text).expect("a file in the server's directory");
        }
    }
}

fn params(hosts: &[&str]) -> CertificateParams {
    CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())
        .expect("names of hosts")
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key pair")
}
