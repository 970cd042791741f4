//! Request and response over TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use super::gauge::Gauge;
use super::limits::{End, Limits, is_pause};
use super::transfer::Exchange;
use crate::error::LabError;

/// One end of a connection, and its calls so far.
struct Talk<'a> {
    limits: &'a Limits<'a>,
    socket: &'a TcpStream,
    calls: u64,
    /// Bytes of requests that were sent or received whole.
    bytes: u64,
}

impl<'a> Talk<'a> {
    fn new(limits: &'a Limits<'a>, socket: &'a TcpStream) -> Self {
        Self {
            limits,
            socket,
            calls: 0,
            bytes: 0,
        }
    }

    fn write(&mut self, message: &[u8]) -> Result<(), LabError> {
        let (mut done, idle) = (0, Instant::now());
        while done < message.len() {
            self.calls += 1;
            match self.socket.write(&message[done..]) {
                Ok(0) => return Err(LabError::Answer("write of 0 bytes")),
                Ok(len) => done += len,
                Err(error) if is_pause(&error) => {
                    self.limits.check("tcp send", idle, self.bytes)?;
                }
                Err(error) => return Err(LabError::os("send (tcp)", &error)),
            }
        }
        Ok(())
    }

    /// Reads a whole message; false if the stream ended before its first byte.
    fn read(&mut self, message: &mut [u8]) -> Result<bool, LabError> {
        let (mut done, idle) = (0, Instant::now());
        while done < message.len() {
            self.calls += 1;
            match self.socket.read(&mut message[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(LabError::Answer("a message without its end")),
                Ok(len) => done += len,
                Err(error) if is_pause(&error) => {
                    self.limits.check("tcp receive", idle, self.bytes)?;
                }
                Err(error) => return Err(LabError::os("recv (tcp)", &error)),
            }
        }
        Ok(true)
    }

    fn end(&self) -> End {
        End {
            bytes: self.bytes,
            calls: self.calls,
            elapsed: self.limits.start.elapsed(),
            ..End::default()
        }
    }
}

/// The client: it sends requests until the time is over. An amount of bytes is one of requests, and
/// rounded up to whole ones.
pub(super) fn request(
    limits: &Limits<'_>,
    exchange: Exchange,
    stream: u32,
    socket: &TcpStream,
    gauge: &Gauge,
) -> Result<End, LabError> {
    let goal = limits.transfer.share(stream).unwrap_or(u64::MAX);
    let (request, mut response) = (vec![0; exchange.request], vec![0; exchange.response]);
    let mut talk = Talk::new(limits, socket);
    let mut transactions = 0;
    while talk.bytes < goal && !limits.ends(talk.bytes) {
        talk.write(&request)?;
        talk.bytes += request.len() as u64;
        if !talk.read(&mut response)? {
            return Err(LabError::Answer("the server closed the connection"));
        }
        transactions += 1;
        gauge.set(talk.bytes, talk.calls);
        gauge.set_transactions(transactions);
        limits.check_call("tcp exchange", transactions, talk.bytes)?;
    }
    socket
        .shutdown(Shutdown::Write)
        .map_err(LabError::from_io("shutdown"))?;
    Ok(talk.end())
}

/// The server: it responds until the client closes.
pub(super) fn serve(
    limits: &Limits<'_>,
    exchange: Exchange,
    socket: &TcpStream,
    gauge: &Gauge,
) -> Result<End, LabError> {
    let (mut request, response) = (vec![0; exchange.request], vec![0; exchange.response]);
    let mut talk = Talk::new(limits, socket);
    let mut transactions = 0;
    while talk.read(&mut request)? {
        talk.bytes += request.len() as u64;
        talk.write(&response)?;
        transactions += 1;
        gauge.set(talk.bytes, talk.calls);
        limits.check_call("tcp exchange", transactions, talk.bytes)?;
    }
    Ok(talk.end())
}
