use anyhow::Context;
use service::Limits;

use crate::args::NewToken;
use crate::failure::Failure;
use crate::print;

/// Makes a token; prints it, the line for the daemon's token file, and the setting for the database.
pub fn new(arguments: &NewToken) -> Result<(), Failure> {
    let token = service::NewToken::generate().context("cannot make a token")?;
    let NewToken { ref name, builds, waiting, memory, rows } = *arguments;
    let limits = Limits {
        builds: builds.unwrap_or(0),
        waiting: waiting.unwrap_or(0),
        memory: memory.unwrap_or(0),
        rows: rows.unwrap_or(0),
    };
    let line = token.line(name, &limits);
    let secret = token.secret();
    let text = format!(
        "The token of {name}, which nothing else shows again:\n  {secret}\n\n\
         A line for the daemon's --token-file, which is read again at SIGHUP:\n  {line}\n\n\
         On the database's machine, put the token into a file that only PostgreSQL's account can read, and name this file in postgresql.conf:\n  \
         hnsw.external_index_token_file = '/etc/postgresql/builder.token'\n"
    );
    print(text)
}
