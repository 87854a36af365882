//! Takes what has the form of a secret out of log lines. Whoever may read the answers of Run Command reads them, and that is more people than may
//! read the files of a node.
//!
//! This is for what programs log by mistake, not against whoever writes lines to get a secret out: they could encode it. A word too many is
//! removed rather than one too few.

use std::ops::Range;

use crate::words::harmless;

/// What stands in the place of a secret.
const REMOVED: &str = "(removed)";
/// What stands in the place of a line of a private key.
const KEY_REMOVED: &str = "(removed: a private key)";
/// How many lines a private key in PEM has at most: RSA with 16,384 bits has 205.
const MOST_KEY_LINES: usize = 220;

/// The lines of one writer, the oldest first, without secrets and without what does something to a terminal. They are looked at together, because
/// the journal has an entry for each line of a private key.
#[must_use]
pub(super) fn without_secrets(messages: &[&str]) -> Vec<String> {
    // A message can have several lines, if it did not come through the standard output.
    let lines: Vec<(usize, &str)> = messages
        .iter()
        .enumerate()
        .flat_map(|(message_index, message)| {
            message.split(['\n', '\r']).map(move |line| (message_index, line))
        })
        .collect();
    let keys = of_private_keys(&lines.iter().map(|(_, line)| *line).collect::<Vec<_>>());
    let mut clean: Vec<Vec<String>> = vec![Vec::new(); messages.len()];
    for ((message_index, line), is_key) in lines.into_iter().zip(keys) {
        clean[message_index].push(if is_key {
            KEY_REMOVED.to_owned()
        } else {
            line_without_secrets(&harmless(line))
        });
    }
    clean
        .into_iter()
        .map(|mut lines| {
            lines.dedup_by(|later, earlier| later == earlier && later == KEY_REMOVED);
            lines.join(" ").trim_end().to_owned()
        })
        .collect()
}

/// Which lines are of a private key in PEM (RFC 7468).
fn of_private_keys(lines: &[&str]) -> Vec<bool> {
    let mut of_key = vec![false; lines.len()];
    // How many more lines the key can have that has begun.
    let mut key_lines_left = 0_usize;
    for (place, line) in lines.iter().enumerate() {
        let names_key = line.contains("PRIVATE KEY");
        of_key[place] = key_lines_left > 0 || names_key;
        key_lines_left = key_lines_left.saturating_sub(1);
        if line.contains("-----END") {
            key_lines_left = 0;
            if names_key {
                // It may have begun before the oldest line that is shown.
                let is_of_it = |line: &str| line.trim().bytes().all(is_base64);
                for earlier in (0..place).rev().take(MOST_KEY_LINES).take_while(|one| is_of_it(lines[*one])) {
                    of_key[earlier] = true;
                }
            }
        } else if names_key && line.trim_end().ends_with("-----") {
            key_lines_left = MOST_KEY_LINES;
        }
    }
    of_key
}

/// One line, which is no part of a private key that has several.
fn line_without_secrets(line: &str) -> String {
    // The values in a Secret have names that its author chose.
    if ["\"kind\":\"Secret\"", "\\\"kind\\\":\\\"Secret\\\"", "kind: Secret"]
        .iter()
        .any(|kind| line.contains(kind))
    {
        return format!("{REMOVED}: it had a Secret");
    }
    let forms =
        [containers, named_values, after_schemes, users_of_urls, web_tokens, bootstrap_tokens, random_words];
    let mut found: Vec<Range<usize>> = forms.into_iter().flat_map(|find| find(line)).collect();
    found.retain(|range| !range.is_empty());
    found.sort_by_key(|range| range.start);
    let mut clean = String::with_capacity(line.len());
    let mut kept = 0;
    for range in found {
        // What overlaps or adjoins is one secret.
        if range.start > kept || clean.is_empty() {
            clean.push_str(&line[kept..range.start]);
            clean.push_str(REMOVED);
        }
        kept = kept.max(range.end);
    }
    clean.push_str(&line[kept..]);
    clean
}

/// The longest runs of bytes that fit. Only ASCII may fit, so they begin and end between characters.
fn runs(line: &str, fits: fn(u8) -> bool) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let mut runs = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes[at..].iter().position(|byte| !fits(*byte)).map_or(bytes.len(), |length| at + length);
        if end > at {
            runs.push(at..end);
        }
        at = end + 1;
    }
    runs
}

/// Where the run of bytes that fit ends that begins at `from`.
fn run_end(line: &str, from: usize, fits: fn(u8) -> bool) -> usize {
    from + line.as_bytes()[from..].iter().take_while(|byte| fits(**byte)).count()
}

/// The places after each `start`.
fn places<'l>(line: &'l str, start: &'static str) -> impl Iterator<Item = usize> + 'l {
    line.match_indices(start).map(move |(place, _)| place + start.len())
}

/// A container or a Secret as Go prints it, the container with the values of its environment: the kubelet does so when a container does not start
/// (`kuberuntime_manager.go`: "%v %+v start failed in pod %v: %v: %s"). The name of the container stays.
fn containers(line: &str) -> Vec<Range<usize>> {
    let end = line.rfind("} start failed in pod ");
    let printed = ["Container{", "ContainerCommon{", "EnvVar{", "Secret{"];
    let printed = printed.into_iter().flat_map(|start| places(line, start));
    let after_name = |from: usize| line[from..].find(',').map_or(line.len(), |length| from + length);
    printed.map(after_name).map(|from| from..end.filter(|end| *end > from).unwrap_or(line.len())).collect()
}

/// Names of secrets, in lower case and without `-`, `_` and `.`; also with something before them: `db_password`.
const SECRETS: [&str; 19] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "accesskeyid",
    "privatekey",
    "encryptionkey",
    "datakey",
    "keydata",
    "plaintext",
    "credential",
    "signature",
    "bearer",
    "jwt",
    "authorization",
];
/// Such names as are too short to be the end of another one.
const SHORT_SECRETS: [&str; 4] = ["auth", "pass", "pwd", "cookie"];

/// Whether a secret can follow that name.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name =
        name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '-' | '_' | '.'));
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    let squeezed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let squeezed = squeezed.strip_suffix('s').filter(|one| !one.ends_with('s')).unwrap_or(&squeezed);
    SHORT_SECRETS.contains(&last) || SECRETS.iter().any(|secret| squeezed.ends_with(secret))
}

/// Names of HTTP after which a whole line is secret.
fn is_of_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// Values with the name of a secret: `token=…`, `"password": "…"`, `client-key-data: …`, `--token …`, also escaped, in URLs, and percent-encoded.
fn named_values(line: &str) -> Vec<Range<usize>> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let mut found = Vec::new();
    for name in runs(line, is_of_name) {
        let word = &line[name.clone()];
        // `--user root:…` of etcdctl, `-u user:…` of curl.
        let is_user = matches!(word, "--user" | "-u" | "ETCDCTL_USER");
        if !is_secret(word) && !is_user {
            continue;
        }
        let between = Between::read(line, name.end);
        let is_flag = word.starts_with('-') && between.spaces;
        if !(between.assigns || is_flag) {
            continue;
        }
        // As in a kubeconfig.
        let is_first = line[..name.start].trim_matches([' ', '-']).is_empty();
        let end = between.value_end(line, is_of_header(word) || (is_first && between.colon_and_space));
        let value = &line[between.end..end];
        // "cannot read the token: Unauthorized": it says what is wrong.
        let is_prose = between.colon_and_space
            && word.bytes().all(|byte| byte.is_ascii_alphabetic())
            && !is_of_header(word)
            && !is_first
            && value.trim_end_matches([',', '.', ';', ':']).bytes().all(|byte| byte.is_ascii_alphabetic());
        if !is_prose && (!is_user || value.contains(':')) {
            found.push(between.end..end);
        }
    }
    found
}

/// What is between a name and its value.
#[derive(Default)]
struct Between {
    /// Where the value begins.
    end: usize,
    /// It has `=` or `:`.
    assigns: bool,
    /// It has a space.
    spaces: bool,
    /// It is `: ` alone.
    colon_and_space: bool,
    /// The quote before the value, and how many backslashes are before it.
    quote: Option<(u8, usize)>,
    /// What ends a list or an object that begins.
    closing: Option<u8>,
}

impl Between {
    fn read(line: &str, from: usize) -> Self {
        let bytes = line.as_bytes();
        let mut read = Self { end: from, ..Self::default() };
        let mut backslashes = 0;
        while let Some(&byte) = bytes.get(read.end) {
            let encoded = bytes.get(read.end..read.end + 3).unwrap_or_default().to_ascii_uppercase();
            let (means, length) = match encoded.as_slice() {
                b"%3D" => (b'=', 3),
                b"%3A" => (b':', 3),
                b"%22" => (b'"', 3),
                b"%20" => (b' ', 3),
                _ => (byte, 1),
            };
            match means {
                b'\\' => backslashes += 1,
                b'=' | b':' | b'>' => {
                    read.assigns |= means != b'>';
                    read.quote = None;
                }
                b'"' | b'\'' | b'`'
                    if read.assigns
                        && read.quote == Some((means, backslashes))
                        && !bytes.get(read.end + length).is_some_and(u8::is_ascii_alphanumeric) =>
                {
                    // An empty value: what follows is another one.
                    return Self::default();
                }
                b'"' | b'\'' | b'`' => read.quote = Some((means, backslashes)),
                b'[' => read.closing = Some(b']'),
                b'{' => read.closing = Some(b'}'),
                b' ' => read.spaces = true,
                _ => break,
            }
            if means != b'\\' {
                backslashes = 0;
            }
            read.end += length;
        }
        read.colon_and_space = bytes[from..read.end] == *b": ";
        read
    }

    /// Where the value ends. `to_the_end`: at the end of the line, unless it is quoted.
    fn value_end(&self, line: &str, to_the_end: bool) -> usize {
        let bytes = line.as_bytes();
        let mut backslashes = 0;
        for (place, byte) in bytes.iter().enumerate().skip(self.end) {
            let ends = match (self.closing, self.quote) {
                (Some(closing), _) => *byte == closing,
                (None, Some((quote, before))) => *byte == quote && backslashes <= before,
                (None, None) if to_the_end => false,
                (None, None) => {
                    // A quote inside a word belongs to it.
                    let is_quote = matches!(byte, b'"' | b'\'')
                        && !bytes.get(place + 1).is_some_and(u8::is_ascii_alphanumeric);
                    byte.is_ascii_whitespace()
                        || is_quote
                        || *byte == b'&'
                        || bytes[place..].starts_with(b"%26")
                }
            };
            if ends {
                // The backslashes before a closing quote belong to it.
                return if *byte == b'"' { (place - backslashes).max(self.end) } else { place };
            }
            backslashes = if *byte == b'\\' { backslashes + 1 } else { 0 };
        }
        line.len()
    }
}

/// What follows the name of a scheme of HTTP's authentication (RFC 9110, RFC 6750, RFC 7617).
fn after_schemes(line: &str) -> Vec<Range<usize>> {
    const SCHEMES: [&str; 3] = ["bearer", "basic", "negotiate"];
    let mut found = Vec::new();
    for scheme in runs(line, |byte| byte.is_ascii_alphanumeric()) {
        let word = line[scheme.clone()].to_ascii_lowercase();
        if !SCHEMES.iter().any(|scheme| word.ends_with(scheme)) {
            continue;
        }
        let between = Between::read(line, scheme.end);
        if !between.spaces {
            continue;
        }
        let is_of_value = |byte: u8| {
            !byte.is_ascii_whitespace()
                && byte.is_ascii()
                && !matches!(byte, b'"' | b'\'' | b',' | b';' | b'&' | b'\\')
        };
        let end = run_end(line, between.end, is_of_value);
        // "basic authentication", "Bearer token": no credentials have lower-case letters alone.
        let value = line[between.end..end].trim_end_matches([':', '.', ')']);
        if !value.bytes().skip(1).all(|byte| byte.is_ascii_lowercase()) {
            found.push(between.end..end);
        }
    }
    found
}

/// The user and password of a URL.
fn users_of_urls(line: &str) -> Vec<Range<usize>> {
    let is_of_authority = |byte: u8| {
        !byte.is_ascii_whitespace() && byte.is_ascii() && !matches!(byte, b'/' | b'"' | b'\'' | b'?' | b'#')
    };
    places(line, "://")
        .filter_map(|from| {
            let authority = &line[from..run_end(line, from, is_of_authority)];
            authority.rfind('@').map(|length| from..from + length)
        })
        .collect()
}

/// Characters of base64 in its forms, of its percent-encoding, and of what joins several of them.
fn is_of_token(byte: u8) -> bool {
    is_base64(byte) || matches!(byte, b'.' | b'-' | b'_' | b'%' | b'~')
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// JSON Web Tokens, and other JSON in base64: `eyJ` is `{"` (RFC 7519).
fn web_tokens(line: &str) -> Vec<Range<usize>> {
    const SHORTEST: usize = 20;
    let tokens = line.match_indices("eyJ").map(|(from, _)| from..run_end(line, from, is_of_token));
    tokens.filter(|token| token.len() >= SHORTEST).collect()
}

/// Bootstrap tokens: `[a-z0-9]{6}\.[a-z0-9]{16}` (Kubernetes documentation, "Authenticating with Bootstrap Tokens").
fn bootstrap_tokens(line: &str) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    line.match_indices('.')
        .filter_map(|(dot, _)| {
            let token = dot.checked_sub(6)?..dot + 17;
            let [id, secret] = [bytes.get(token.start..dot)?, bytes.get(dot + 1..token.end)?];
            let next = bytes.get(token.end);
            // Longer labels are those of a name in DNS.
            let is_one = id.iter().all(fits)
                && secret.iter().all(fits)
                && !token.start.checked_sub(1).is_some_and(|before| fits(&bytes[before]))
                && !next.is_some_and(u8::is_ascii_alphanumeric)
                && !(next == Some(&b'.') && bytes.get(token.end + 1).is_some_and(u8::is_ascii_alphanumeric));
            is_one.then_some(token)
        })
        .collect()
}

/// Long words of base64 that nobody chose: keys, session tokens, lines of PEM. Digests and ids are in lower case, and names that people choose
/// have shorter parts or no digits. Of random secrets with 40 characters one in a hundred is not recognised.
fn random_words(line: &str) -> Vec<Range<usize>> {
    const SHORTEST: usize = 32;
    const SHORTEST_PART: usize = 16;
    let is_mixed = |part: &[u8]| {
        part.len() >= SHORTEST_PART
            && part.iter().any(u8::is_ascii_uppercase)
            && part.iter().any(u8::is_ascii_lowercase)
    };
    let is_random = |word: &Range<usize>| {
        let word = &line.as_bytes()[word.clone()];
        word.len() >= SHORTEST
            && word.iter().filter(|byte| byte.is_ascii_digit()).count() >= 2
            && word.split(|byte| !byte.is_ascii_alphanumeric()).any(is_mixed)
    };
    runs(line, |byte| is_of_token(byte) && byte != b'.').into_iter().filter(is_random).collect()
}

#[cfg(test)]
mod tests;
