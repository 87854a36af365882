//! `Fn::Cidr`.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The blocks of `[ipBlock, count, hostBits]`, `count` of them, beginning with the lowest.
pub(super) fn blocks(arguments: &[String]) -> Result<Vec<String>, String> {
    let wrong = |what: &str| format!("Template error: Fn::Cidr {what}");
    let (block, count, bits) = match arguments {
        [block, count] => (block, count, "8"),
        [block, count, bits] => (block, count, bits.as_str()),
        _ => return Err(wrong("requires an IP block, a count and the bits of a host")),
    };
    let block: Ipv4Net =
        block.parse().map_err(|_| wrong(&format!("does not model the block {block}: IPv4 alone")))?;
    let count: u32 = count.parse().map_err(|_| wrong("requires a count that is an integer"))?;
    let bits: u8 = bits.parse().map_err(|_| wrong("requires host bits that are an integer"))?;
    let prefix = 32_u8.checked_sub(bits).filter(|prefix| *prefix >= block.prefix_len() && bits < 32);
    let prefix =
        prefix.ok_or_else(|| wrong(&format!("cannot make blocks of {bits} host bits in {block}")))?;
    let room = 1_u64 << (prefix - block.prefix_len());
    if count == 0 || count > 256 || u64::from(count) > room {
        return Err(wrong(&format!("cannot make {count} blocks of /{prefix} in {block}")));
    }
    let start = u32::from(block.network());
    Ok((0..count).map(|index| format!("{}/{prefix}", Ipv4Addr::from(start + (index << bits)))).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn blocks_are_cut_from_the_lowest_address() {
        let cut = |text: &str| blocks(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(cut("10.0.0.0/16 3 8").unwrap(), ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]);
        assert_eq!(cut("192.168.0.0/24 2 5").unwrap(), ["192.168.0.0/27", "192.168.0.32/27"]);
        assert!(cut("10.0.0.0/24 9 5").unwrap_err().contains("9 blocks"));
        assert!(cut("10.0.0.0/24 1 9").is_err());
    }
}
