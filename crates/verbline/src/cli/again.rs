//! Asks a run repeatedly. The run hangs up on a client that is idle for a minute, and on one that
//! makes room for another, so that the next question may need another connection.

use std::io;
use std::path::PathBuf;

use verbline_operate::client::{Client, ClientError};
use verbline_operate::protocol::Hello;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Again {
    path: PathBuf,
    /// `None` if the last answer was late or wrong: a later one can't be told from it.
    client: Option<Client>,
    hello: Hello,
}

impl Again {
    /// Starts with the connection over which the run gave its hello.
    pub(super) fn new(client: Client, hello: Hello) -> Again {
        Again { path: client.path().to_owned(), client: Some(client), hello }
    }

    /// Asks over the existing connection, or over a new one.
    ///
    /// # Errors
    /// The run does not answer, or refuses. [`ClientError::Unreachable`]: that run no longer
    /// listens.
    pub(super) fn ask<T>(&mut self, ask: impl Fn(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(mut client) = self.client.take() {
            match ask(&mut client) {
                // The run has hung up, as a run that was stopped for some time does when it goes
                // on.
                Err(ClientError::Unreachable { .. }) => {}
                told => return self.keep(client, told),
            }
        }
        let mut client = Client::connect(&self.path)?;
        let hello = client.hello()?;
        // Another process in a container may have the same number.
        if (hello.pid, hello.since_unix_ms) != (self.hello.pid, self.hello.since_unix_ms) {
            let source = io::Error::new(io::ErrorKind::NotFound, "another run listens there now");
            return Err(ClientError::Unreachable { path: self.path.clone(), source });
        }
        let told = ask(&mut client);
        self.keep(client, told)
    }

    /// Keeps the connection for the next question, unless an answer may still arrive on it.
    fn keep<T>(&mut self, client: Client, told: Result<T, ClientError>) -> Result<T, ClientError> {
        self.client = told.is_ok().then_some(client);
        told
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A run that hangs up after each of these numbers of answers; behind its third connection is
    /// another run.
    fn hangs_up(listener: UnixListener, answers: &[u64]) {
        for (connection, answers) in answers.iter().enumerate() {
            let mut client = BufReader::new(listener.accept().unwrap().0);
            for id in 1..=*answers {
                client.read_line(&mut String::new()).unwrap();
                let since = if connection == 2 { 9 } else { 7 };
                let hello = format!(
                    r#"{{"app":"a","plan":"p","pid":1,"version":"0","since_unix_ms":{since},"state":"running"}}"#
                );
                writeln!(client.get_mut(), r#"{{"verbline":1,"id":{id},"hello":{hello}}}"#).unwrap();
            }
        }
    }

    #[test]
    fn a_run_that_has_hung_up_is_asked_over_another_connection_and_another_run_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let run = std::thread::spawn(move || hangs_up(listener, &[1, 3, 1]));
        let mut client = Client::connect(&path).unwrap();
        let hello = client.hello().unwrap();
        let mut again = Again::new(client, hello.clone());
        assert_eq!(again.ask(Client::hello).unwrap(), hello);
        assert_eq!(again.ask(Client::hello).unwrap(), hello);
        let error = again.ask(Client::hello).unwrap_err();
        assert!(error.to_string().ends_with("another run listens there now"), "{error}");
        run.join().unwrap();
        assert!(matches!(again.ask(Client::hello), Err(ClientError::Unreachable { .. })));
    }
}
