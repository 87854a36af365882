#!/usr/bin/env bash
# Prints the folder of the certificate authority that the virtual machines of `make cluster` trust, and nobody else: it vouches for the
# stand-ins of AWS, of registries and of publishers. Made once, beside the image that trusts it.
set -euo pipefail
home=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/authority
mkdir -p "$home"
exec 9>"$home/lock"
flock 9
if [ ! -e "$home/authority.pem" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=authority of Slipway's tests" \
        -keyout "$home/authority-key.pem" -out "$home/draft.pem" 2>/dev/null
    mv "$home/draft.pem" "$home/authority.pem"
fi
echo "$home"
