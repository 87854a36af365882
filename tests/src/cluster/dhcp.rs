//! DHCP (RFC 2131), as much of it as a machine in a VPC meets: one lease for each card, told by the card's own address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::network::{RESOLVER, ROUTER, address};

const SERVER: u16 = 67;
const CLIENT: u16 = 68;
/// Where options begin, after the magic cookie.
const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// As EC2: an hour.
const LEASE_S: u32 = 3_600;

/// Answers on the VPC's bridge, until the task is dropped.
///
/// # Errors
/// If the port cannot be had.
pub async fn serve(domain: String) -> io::Result<JoinHandle<()>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, SERVER)).await?;
    socket.set_broadcast(true)?;
    Ok(tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((length, _)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer(&buffer[..length], &domain) {
                // What is lost is asked again.
                let _ = socket.send_to(&answer, SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT)).await;
            }
        }
    }))
}

/// The answer to a message; `None`: there is none to it.
fn answer(asked: &[u8], domain: &str) -> Option<Vec<u8>> {
    if asked.len() < OPTIONS || asked[0] != 1 || asked[236..OPTIONS] != COOKIE {
        return None;
    }
    let mac: [u8; 6] = asked[28..34].try_into().ok()?;
    let leased = address(mac)?;
    // DISCOVER is answered by OFFER, REQUEST by ACK.
    let kind = match option(&asked[OPTIONS..], 53)? {
        [1] => 2,
        [3] => 5,
        _ => return None,
    };
    let mut answer = vec![0; OPTIONS];
    answer[0] = 2;
    answer[1..8].copy_from_slice(&asked[1..8]);
    // The flags, so that it is sent to everybody.
    answer[10..12].copy_from_slice(&asked[10..12]);
    answer[16..20].copy_from_slice(&leased.octets());
    answer[20..24].copy_from_slice(&ROUTER.octets());
    answer[28..44].copy_from_slice(&asked[28..44]);
    answer[236..OPTIONS].copy_from_slice(&COOKIE);
    let mut add = |code: u8, value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap_or_default();
        answer.extend([code, length]);
        answer.extend(&value[..length.into()]);
    };
    add(53, &[kind]);
    add(54, &ROUTER.octets());
    add(51, &LEASE_S.to_be_bytes());
    add(1, &[255, 255, 0, 0]);
    add(3, &ROUTER.octets());
    add(6, &RESOLVER.octets());
    add(15, domain.as_bytes());
    answer.push(255);
    Some(answer)
}

/// The value of an option.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        match *options {
            [0, ref rest @ ..] => options = rest,
            [255, ..] | [] | [_] => return None,
            [code, length, ref rest @ ..] => {
                let value = rest.get(..length.into())?;
                if code == wanted {
                    return Some(value);
                }
                options = &rest[value.len()..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn message(kind: u8, mac: [u8; 6]) -> Vec<u8> {
        let mut message = vec![0; OPTIONS];
        message[0] = 1;
        message[28..34].copy_from_slice(&mac);
        message[236..OPTIONS].copy_from_slice(&COOKIE);
        message.extend([0, 12, 2, b'h', b'i', 53, 1, kind, 255]);
        message
    }

    #[test]
    fn a_card_is_offered_and_given_the_address_that_it_bears() {
        for (asked, answered) in [(1, 2), (3, 5)] {
            let found = answer(&message(asked, [2, 0, 10, 0, 1, 9]), "eu-west-1.compute.internal").unwrap();
            assert_eq!(found[16..20], [10, 0, 1, 9]);
            assert_eq!(option(&found[OPTIONS..], 53).unwrap(), [answered]);
            assert_eq!(option(&found[OPTIONS..], 6).unwrap(), RESOLVER.octets());
        }
        assert_eq!(answer(&message(1, [0; 6]), "x"), None, "a card of somebody else's");
        assert_eq!(answer(&message(7, [2, 0, 10, 0, 1, 9]), "x"), None, "a release");
        assert_eq!(answer(b"short", "x"), None);
    }
}
