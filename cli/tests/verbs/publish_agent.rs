//! `slipway publish-agent`, as far as it comes without AWS: which files are agents.

use crate::{Place, snapshot};

/// An ELF header with these fields, and `length` bytes in all.
fn program(class: u8, kind: u8, machine: u16, sections: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    bytes[16] = kind;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[40..48].copy_from_slice(&sections.to_le_bytes());
    bytes[58..62].copy_from_slice(&[64, 0, 2, 0]);
    bytes.resize(length, 0);
    bytes
}

#[test]
fn what_is_no_agent_is_refused_by_name() {
    let place = Place::new();
    place.write("good", program(2, 3, 62, 64, 192));
    for (name, bytes, words) in [
        ("empty", Vec::new(), "is empty"),
        ("script", b"#!/bin/sh\nexit 0\n".to_vec(), "is a script"),
        ("text", b"slipway-node".to_vec(), "is not a program for Linux"),
        ("narrow", program(1, 3, 3, 0, 64), "is a 32-bit program"),
        ("odd", program(7, 3, 62, 0, 64), "is no 64-bit little-endian program"),
        ("object", program(2, 1, 62, 64, 192), "is not a program, but another kind of ELF file"),
        ("riscv", program(2, 3, 243, 64, 192), "is for an unsupported processor (ELF machine 243)"),
        ("header", program(2, 3, 62, 0, 63), "is cut off"),
        ("half", program(2, 3, 62, 64, 191), "is cut off"),
        ("endless", program(2, 3, 62, u64::MAX, 192), "is cut off"),
        ("twin", program(2, 2, 62, 0, 64), "and good are both for x86_64"),
    ] {
        place.write(name, bytes);
        // All are looked at before AWS is asked anything: here is none.
        let run = place.run(&format!("publish-agent good {name}"));
        assert_eq!(run.code, 1, "{name}: {}", run.output());
        assert!(run.stderr.contains(&format!("{name} {words}")), "{name}: {}", run.output());
    }
    let run = place.run("publish-agent nothing");
    assert_eq!(run.code, 3, "{}", run.output());
    assert_eq!(place.run("publish-agent").code, 2);
    snapshot!(place.run("publish-agent riscv"));
}

#[test]
fn whoever_names_no_region_is_told_so() {
    let place = Place::new();
    place.write("good", program(2, 3, 183, 64, 192));
    let run = place.run("publish-agent good --output json");
    assert_eq!(run.code, 2, "{}", run.output());
    assert!(run.json()["error"]["message"].as_str().unwrap().contains("region"), "{}", run.output());
}
