"""Judges a service account's token as AWS would, with what is published and nothing else. By joserfc, not by us.

On stdin {"issuer", "discovery", "jwks", "token", "publicKeys"}: the address, both documents, a token, and the PEM of each key
by which kube-apiserver would make a `kid`. Prints the claims as JSON; an exception and status 1 if anything does not hold.
"""

import base64
import hashlib
import json
import sys

from cryptography.hazmat.primitives import serialization
from joserfc import jwt
from joserfc.jwk import KeySet

AUDIENCE = "sts.amazonaws.com"


def key_id(pem: str) -> str:
    """As kube-apiserver computes it: pkg/serviceaccount/jwt.go, keyIDFromPublicKey."""
    key = serialization.load_pem_public_key(pem.encode())
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def main() -> None:
    told = json.load(sys.stdin)
    discovery, keys = json.loads(told["discovery"]), json.loads(told["jwks"])
    assert discovery["issuer"] == told["issuer"], "the issuer is another than its address"
    assert discovery["jwks_uri"] == told["issuer"] + "/openid/v1/jwks", discovery["jwks_uri"]
    for field in ("response_types_supported", "subject_types_supported", "id_token_signing_alg_values_supported"):
        assert discovery[field], field
    assert sorted(key["kid"] for key in keys["keys"]) == sorted(map(key_id, told["publicKeys"])), "other keys' ids"
    assert all("d" not in key for key in keys["keys"]), "a private key"

    algorithms = discovery["id_token_signing_alg_values_supported"]
    assert set(algorithms) == {key["alg"] for key in keys["keys"]}, algorithms
    token = jwt.decode(told["token"], KeySet.import_key_set(keys), algorithms=algorithms)
    rules = jwt.JWTClaimsRegistry(iss={"essential": True, "value": told["issuer"]}, aud={"essential": True, "value": AUDIENCE})
    rules.validate(token.claims)
    json.dump(token.claims, sys.stdout)


if __name__ == "__main__":
    main()
