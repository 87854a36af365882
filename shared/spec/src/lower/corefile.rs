//! Parts of CoreDNS' configuration that a spec adds. CoreDNS exits on what it cannot read, and no pod resolves names.

use super::Lowering;
use crate::path::Path;

/// What `coredns -plugins` of 1.14.6 lists, and `import` (coredns.io/manual, "Configuration").
const DIRECTIVES: &str = "acl any auto autopath azure bind bufsize cache cancel chaos clouddns debug dns64 dnssec dnstap dynupdate erratic \
    errors etcd file forward geoip grpc grpc_server header health hosts https https3 import k8s_external kubernetes loadbalance local log \
    loop metadata minimal multisocket nomad nsid on pprof prometheus proxyproto quic ready reload rewrite root route53 secondary shed sign \
    siit template timeouts tls trace transfer tsig view whoami";

impl Lowering<'_, '_, '_> {
    /// Lines of a server block, or whole server blocks if `blocks`.
    pub(super) fn corefile(&mut self, text: &str, blocks: bool, path: &Path) {
        let mut depth = 0_i32;
        for tokens in text.lines().map(tokens) {
            let directive = tokens.first().filter(|word| !matches!(word.as_str(), "{" | "}"));
            if let Some(word) = directive.filter(|_| depth == i32::from(blocks))
                && !DIRECTIVES.split_whitespace().any(|known| known == word)
            {
                let help = self.report.nearest(word, DIRECTIVES.split_whitespace()).map_or_else(
                    || "check that the image has this plugin: CoreDNS does not start with one that it does not know".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("`{word}` is not a plugin of CoreDNS that is known here");
                self.report.warning("corefile", path, message, help);
            }
            for token in &tokens {
                depth += match token.as_str() {
                    "{" => 1,
                    "}" => -1,
                    _ => 0,
                };
                if depth < 0 {
                    break;
                }
            }
            if depth < 0 {
                break;
            }
        }
        if depth != 0 {
            let what =
                if depth > 0 { "a block is not closed" } else { "a block is closed that was not opened" };
            let message =
                format!("{what}: CoreDNS could not read its configuration, and no pod would resolve names");
            let help = "end each line that opens a block with ` {`, and close it by a line with `}` alone";
            self.report.error("corefile", path, message, help);
        }
    }
}

/// The words of a line, without a comment (coredns/caddy, `caddyfile/lexer.go`).
fn tokens(line: &str) -> Vec<String> {
    let (mut tokens, mut token, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            '#' if !quoted && token.is_empty() => break,
            _ if letter.is_whitespace() && !quoted => {
                if !token.is_empty() {
                    tokens.push(std::mem::take(&mut token));
                }
            }
            _ => token.push(letter),
        }
    }
    if !token.is_empty() {
        tokens.push(token);
    }
    tokens
}
