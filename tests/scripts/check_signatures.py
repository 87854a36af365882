"""Signs requests once more with botocore, AWS' own library, and says which signatures differ.

Standard input: a JSON list of {method, url, headers, body (base64), secret, token}, as a server received them. Prints one line a
difference; status 1 if there is any, or if nothing was given.
"""

import base64
import datetime
import json
import re
import sys

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SCHEME = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)")


def expected(request: dict) -> tuple[str, str]:
    headers = {name.lower(): value for name, value in request["headers"].items()}
    access_key, _, region, service, signed, signature = SCHEME.fullmatch(headers["authorization"]).groups()
    again = AWSRequest(
        method=request["method"],
        url=request["url"],
        headers={name: headers[name] for name in signed.split(";")},
        data=base64.b64decode(request["body"]),
    )
    again.context["payload_signing_enabled"] = headers.get("x-amz-content-sha256") != "UNSIGNED-PAYLOAD"
    again.context["timestamp"] = headers["x-amz-date"]
    kind = S3SigV4Auth if service == "s3" else SigV4Auth
    auth = kind(Credentials(access_key, request["secret"], request["token"]), service, region)
    now = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    assert abs((datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - now).total_seconds()) < 300
    text = auth.string_to_sign(again, auth.canonical_request(again))
    return signature, auth.signature(text, again)


requests = json.load(sys.stdin)
wrong = 0 if requests else 1
for request in requests:
    theirs, ours = expected(request)
    if theirs != ours:
        wrong += 1
        print(f"{request['method']} {request['url']}: {theirs}, and botocore signs {ours}")
sys.exit(1 if wrong else 0)
