//! TLS by rustls on ring, with the server's certificate and host name verified.

use std::{fs, io, path::Path, sync::Arc};

use kilit_core::{Error, Result, TlsFiles};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the files.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self> {
        // Named, since a process may have another provider as its default, or two and none.
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::invalid("TLS cannot be set up").with_source(error))?;
        let builder = if files.verify {
            builder.with_root_certificates(roots(files.ca.as_deref())?)
        } else {
            tracing::warn!("tls_verify=false: whoever answers is believed to be the server");
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        };
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, key_der)
                    .map_err(|error| Error::invalid("settings cert and key do not fit").with_source(error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts a connection to `host`.
    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}

/// What is wrong with the server's certificate, where that is why there is no connection. No second try would help.
pub(crate) fn distrust(error: &io::Error) -> Option<String> {
    use rustls::CertificateError as Bad;
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(why) = error else { return None };
    Some(match why {
        Bad::Expired | Bad::ExpiredContext { .. } => "has expired".to_owned(),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "is not valid yet; is this machine's clock right?".to_owned()
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "is for another host; name the server as its certificate does".to_owned()
        }
        Bad::UnknownIssuer => "is signed by no authority that is known; name one with ca=FILE".to_owned(),
        other => format!("is not accepted: {other}"),
    })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unreadable(file, error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match roots.is_empty() {
        true => {
            Err(Error::invalid("no certificate authority is known to this system; name one with ca=FILE"))
        }
        false => Ok(roots),
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = fs::read(file).map_err(|error| unreadable(file, error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
    match all.map_err(|error| unreadable(file, error))? {
        none if none.is_empty() => {
            Err(Error::invalid(format!("{} holds no certificate in PEM", file.display())))
        }
        all => Ok(all),
    }
}

fn unreadable(file: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid(format!("cannot read {}", file.display())).with_source(error)
}

/// Believes whoever answers: only on the user's explicit wish.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
