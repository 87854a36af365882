//! The VPC: one bridge in this process's network namespace. Its names and addresses are AWS'.

use std::io;
use std::net::Ipv4Addr;
use std::process::Stdio;

use tokio::process::Command;

/// The bridge.
pub const BRIDGE: &str = "vpc";
/// As in a VPC: the first address of the range is the router, the second the resolver.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// See [`ROUTER`].
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The load balancer in front of the API.
pub const BALANCER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
/// Where instances ask about themselves.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Lays the bridge. Once in a namespace.
///
/// # Errors
/// If `ip` fails: there is no namespace of our own, or no root.
pub async fn lay() -> io::Result<()> {
    for line in [
        "link set lo up".to_owned(),
        format!("link add {BRIDGE} type bridge"),
        format!("link set {BRIDGE} up"),
        format!("addr add {ROUTER}/16 dev {BRIDGE}"),
        format!("addr add {RESOLVER}/16 dev {BRIDGE}"),
        format!("addr add {BALANCER}/16 dev {BRIDGE}"),
        format!("addr add {METADATA}/32 dev {BRIDGE}"),
        // DHCP's answers go to everybody.
        format!("route add 255.255.255.255/32 dev {BRIDGE}"),
    ] {
        ip(&line).await?;
    }
    Ok(())
}

/// A network card's other end, in the bridge.
///
/// # Errors
/// If `ip` fails.
pub async fn plug(tap: &str) -> io::Result<()> {
    ip(&format!("tuntap add {tap} mode tap")).await?;
    ip(&format!("link set {tap} master {BRIDGE} up")).await
}

/// Takes it away again.
///
/// # Errors
/// If `ip` fails.
pub async fn unplug(tap: &str) -> io::Result<()> {
    ip(&format!("link delete {tap}")).await
}

/// A machine's hardware address, from which its IP address can be told.
#[must_use]
pub fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The address that belongs to a hardware address of [`mac`].
#[must_use]
pub fn address(mac: [u8; 6]) -> Option<Ipv4Addr> {
    let [2, 0, a, b, c, d] = mac else { return None };
    Some(Ipv4Addr::new(a, b, c, d))
}

async fn ip(line: &str) -> io::Result<()> {
    let output = Command::new("ip").args(line.split(' ')).stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {line}: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_tells_its_machines_address() {
        let address_of = Ipv4Addr::new(10, 0, 32, 200);
        assert_eq!(mac(address_of), "02:00:0a:00:20:c8");
        assert_eq!(address([2, 0, 10, 0, 32, 200]), Some(address_of));
        assert_eq!(address([0x52, 0x54, 0, 0, 0, 1]), None, "another's");
    }
}
