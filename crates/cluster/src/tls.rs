//! Encryption to nodes: authorities that sign their certificates, and the front's own certificate.
//!
//! The certificate of a node must be valid for the address at which it serves clients, or else for
//! one host name that all nodes have. Nodes are known by address only, and a name that DNS returns
//! for an address proves nothing. No setting switches this check off.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use frontdoor::{ClientFiles, TlsClient};

/// Files for connections to nodes, all in PEM, and the name in the nodes' certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTlsFiles {
    /// Certificates of the authorities.
    pub authority: PathBuf,
    /// Certificate of the front, for nodes that request one, and its private key.
    pub own: Option<OwnCertificate>,
    /// Host name for which the certificates of all nodes must be valid. `None`: each for the
    /// address of its node.
    pub name: Option<String>,
}

/// Files of the front's own certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnCertificate {
    /// The certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// TLS to nodes, which all cores and the control thread share.
#[derive(Debug)]
pub struct NodeTls {
    files: NodeTlsFiles,
    /// Content of the files. Each new connection reads it.
    current: ArcSwap<TlsClient>,
}

impl NodeTls {
    /// Reads the files. Blocks on I/O.
    ///
    /// # Errors
    /// A text with the file and the problem.
    pub fn from_files(files: NodeTlsFiles) -> Result<Arc<NodeTls>, String> {
        let current = ArcSwap::from_pointee(read(&files)?);
        Ok(Arc::new(NodeTls { files, current }))
    }

    /// Reads the files again. Blocks on I/O. New connections use the new content, open ones keep
    /// the old. The control thread opens its connections anew.
    ///
    /// # Errors
    /// Those of [`NodeTls::from_files`]. The previous content stays in use.
    pub fn reload(&self) -> Result<(), String> {
        self.current.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// Returns the paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = self.files.own.iter().flat_map(|own| [&own.certificate, &own.key]);
        std::iter::once(&self.files.authority).chain(own).map(PathBuf::as_path)
    }

    pub(crate) fn current(&self) -> Arc<TlsClient> {
        self.current.load_full()
    }
}

fn read(files: &NodeTlsFiles) -> Result<TlsClient, String> {
    let own = files.own.as_ref();
    let own = own.map(|own| ClientFiles { certificate: &own.certificate, key: &own.key });
    match &files.name {
        Some(name) => TlsClient::from_files_for(name, &files.authority, own),
        None => TlsClient::from_files(&files.authority, own),
    }
}
