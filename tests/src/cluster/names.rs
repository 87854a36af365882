//! The VPC's resolver: DNS over UDP, as much of it as machines and pods ask for.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::network::{BALANCER, RESOLVER, ROUTER};
use super::state::State;

const HEADER: usize = 12;
/// Seconds for which an answer may be kept.
const TTL_S: u32 = 5;

/// The name of the mirror of registries and publishers.
pub const MIRROR: &str = "mirror.slipway.test";

/// Answers on the resolver's address, until the task is dropped.
///
/// # Errors
/// If the port cannot be had.
pub async fn serve(state: Arc<State>) -> io::Result<JoinHandle<()>> {
    let socket = UdpSocket::bind((RESOLVER, 53)).await?;
    Ok(tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer(&buffer[..length], |name| addresses(&state, name)) {
                // What is lost is asked again.
                let _ = socket.send_to(&answer, peer).await;
            }
        }
    }))
}

/// What `name` resolves to; `None`: there is no such name.
fn addresses(state: &State, name: &str) -> Option<Vec<Ipv4Addr>> {
    if name == MIRROR {
        return Some(vec![ROUTER]);
    }
    if state.api_names().iter().any(|api| api == name) || name.contains(".elb.") {
        return Some(vec![BALANCER]);
    }
    if let Some(found) = state.record(name) {
        return Some(found);
    }
    if let Some(address) = state.address_by_name(name) {
        return Some(vec![address]);
    }
    name.ends_with(".amazonaws.com").then(|| vec![ROUTER])
}

/// The answer to a question for addresses; an empty one to other questions of a name that exists.
fn answer(question: &[u8], find: impl Fn(&str) -> Option<Vec<Ipv4Addr>>) -> Option<Vec<u8>> {
    let (name, end) = name_at(question)?;
    let kind = u16::from_be_bytes(question.get(end..end + 2)?.try_into().ok()?);
    let found = find(&name);
    let code: u8 = if found.is_some() { 0 } else { 3 };
    // An A record.
    let found = if kind == 1 { found.unwrap_or_default() } else { Vec::new() };
    let mut answer = question[..2].to_vec();
    answer.extend([0x85, 0x80 | code, 0, 1, 0, u8::try_from(found.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(question.get(HEADER..end + 4)?);
    for address in found {
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1]);
        answer.extend(TTL_S.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// The name that is asked for, in lower case, and where it ends.
fn name_at(question: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), HEADER);
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels.join("."), at)),
            1..=63 => labels.push(String::from_utf8_lossy(question.get(at..at + length)?).to_lowercase()),
            // A question points nowhere.
            _ => return None,
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn query(name: &str, kind: u8) -> Vec<u8> {
        let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len()).unwrap());
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        question
    }

    #[test]
    fn a_name_has_its_addresses_or_none_or_does_not_exist() {
        let find = |name: &str| (name == "etcd-0.example.com").then(|| vec![Ipv4Addr::new(10, 0, 1, 2)]);
        let found = answer(&query("ETCD-0.example.com", 1), find).unwrap();
        assert_eq!((found[3] & 15, found[7]), (0, 1));
        assert!(found.ends_with(&[0, 4, 10, 0, 1, 2]));
        let none = answer(&query("etcd-0.example.com", 28), find).unwrap();
        assert_eq!((none[3] & 15, none[7]), (0, 0), "it has no IPv6 address");
        assert_eq!(answer(&query("example.com", 1), find).unwrap()[3] & 15, 3);
        assert_eq!(answer(&[0; 12], find), None);
        assert_eq!(answer(&[7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0], find), None);
    }
}
