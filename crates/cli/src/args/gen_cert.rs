use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct GenCert {
    /// Name or address at which clients reach the builder; may be repeated
    #[arg(long, value_name = "NAME_OR_IP")]
    pub host: Vec<String>,
    /// Make a certificate with which a database authenticates to a builder (--client-ca), as client.pem and client-key.pem
    #[arg(long, conflicts_with = "host")]
    pub client: bool,
    /// Where to write cert.pem and key.pem
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with_all = ["cert", "key"])]
    pub out_dir: PathBuf,
    /// Certificate file to write
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Key file to write
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Validity in days, from now
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// If both files exist, keep them and succeed
    #[arg(long, conflicts_with = "force")]
    pub keep: bool,
}

impl GenCert {
    /// The files of the certificate and of its key.
    pub fn files(&self) -> (PathBuf, PathBuf) {
        let names = if self.client { ["client.pem", "client-key.pem"] } else { ["cert.pem", "key.pem"] };
        let [cert, key] = names.map(|name| self.out_dir.join(name));
        (self.cert.clone().unwrap_or(cert), self.key.clone().unwrap_or(key))
    }
}
