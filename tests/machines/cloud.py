"""What stands around the machines of the tests: AWS' endpoints under their own names, the metadata service, and the VPC's resolver.

    cloud.py CONFIG.json

CONFIG: {"moto": URL, "certificate": FILE, "key": FILE, "address": IP, "resolver": IP, "zone": ID, "domain": NAME, "log": FILE,
"machines": FILE}. The file of machines is read at each request, so that they may come and go: by address, their metadata (path to
text), "user-data" among them.

- HTTPS on ADDRESS:443 hands every call on to moto, which knows the service by the host's name. Auto Scaling's hooks, at which moto
  fails, are answered here: a hook is settled once. Every call is written to LOG, one JSON object a line, without its secrets.
- HTTP on 169.254.169.254:80 tells each machine, known by its address as EC2 knows it, who it is.
- DNS on RESOLVER:53: AWS' names are ADDRESS; names of DOMAIN are what Route 53 has of them at this moment.

Prints one line when all three listen. It runs in the tests' own network namespace, and ends with them.
"""

import http.client
import http.server
import json
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree

config = json.load(open(sys.argv[1]))
moto = urllib.parse.urlsplit(config["moto"])
lock = threading.Lock()
settled: dict[tuple[str, str], str] = {}


def log(**what) -> None:
    with lock, open(config["log"], "a") as file:
        file.write(json.dumps({"at": time.time(), **what}) + "\n")


def machines() -> dict:
    return json.load(open(config["machines"]))


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status: int, headers, body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def hook(self, form: dict) -> bytes | None:
        """The answer to a call that moto does not know."""
        action = form.get("Action", "")
        if action not in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"):
            return None
        key = (form["LifecycleHookName"], form["InstanceId"])
        with lock:
            if key in settled:
                return None
            if action == "CompleteLifecycleAction":
                settled[key] = form["LifecycleActionResult"]
        return f"<{action}Response><{action}Result/></{action}Response>".encode()

    def handle_call(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        host = self.headers["Host"]
        form = {}
        if self.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
            form = dict(urllib.parse.parse_qsl(body.decode()))
        told = {"from": self.client_address[0], "host": host, "method": self.command, "path": self.path, "form": form}
        if target := self.headers.get("X-Amz-Target"):
            told["target"] = target
        if host.startswith("autoscaling."):
            if answer := self.hook(form):
                log(**told, status=200)
                return self.reply(200, [("Content-Type", "text/xml")], answer)
            no_hook = (
                "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>No active Lifecycle Action found with "
                f"instance ID {form.get('InstanceId')}</Message></Error></ErrorResponse>"
            )
            if form.get("Action") == "SetInstanceHealth":
                log(**told, status=200)
                return self.reply(200, [("Content-Type", "text/xml")], b"<SetInstanceHealthResponse/>")
            log(**told, status=400)
            return self.reply(400, [("Content-Type", "text/xml")], no_hook.encode())
        connection = http.client.HTTPConnection(moto.hostname, moto.port, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        log(**told, status=answer.status)
        self.reply(answer.status, answer.getheaders(), content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_call


class Metadata(http.server.BaseHTTPRequestHandler):
    TOKEN = "token-of-this-session"

    def log_message(self, *_):
        pass

    def reply(self, text: str, status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        asked = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self.reply(self.TOKEN if asked else "", 200 if asked else 404)

    def do_GET(self):
        # In a container cloud-init does not see that this is EC2, and asks by version 1. Nobody else may.
        is_cloud_init = self.headers.get("User-Agent", "").startswith(("Cloud-Init/", "python-requests/"))
        if self.headers.get("X-aws-ec2-metadata-token") != self.TOKEN and not is_cloud_init:
            return self.reply("", 401)
        told = machines().get(self.client_address[0])
        path = self.path.split("/", 2)[2] if self.path.count("/") > 1 else ""
        if told is None:
            return self.reply("", 404)
        if path in told:
            return self.reply(told[path])
        # A folder lists what is in it.
        folder = path if path.endswith("/") else path + "/"
        inside = {rest.split("/")[0] + ("/" if "/" in rest else "") for name in told if (rest := name.removeprefix(folder)) != name}
        return self.reply("\n".join(sorted(inside)) if inside else "", 200 if inside else 404)


def addresses(name: str) -> list[str]:
    """What `name` resolves to, as the VPC's resolver sees it."""
    if re.search(r"\.amazonaws\.com$", name):
        return [config["address"]]
    if not name.endswith("." + config["domain"]):
        return []
    connection = http.client.HTTPConnection(moto.hostname, moto.port, timeout=10)
    scope = "AWS4-HMAC-SHA256 Credential=RESOLVER/20260101/us-east-1/route53/aws4_request, SignedHeaders=host, Signature=0"
    connection.request("GET", f"/2013-04-01/hostedzone/{config['zone']}/rrset", headers={"Authorization": scope})
    tree = ElementTree.fromstring(connection.getresponse().read())
    space = {"r": "https://route53.amazonaws.com/doc/2013-04-01/"}
    sets = tree.iterfind(".//r:ResourceRecordSet", space)
    ours = (one for one in sets if one.findtext("r:Name", "", space).rstrip(".") == name and one.findtext("r:Type", "", space) == "A")
    return [value.text for one in ours for value in one.iterfind(".//r:Value", space)]


def resolve(question: bytes) -> bytes:
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    found = addresses(name)
    answers = b"".join(
        struct.pack(">HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(address) for address in found if kind == 1
    )
    code = 0 if found else 3
    count = len(found) if kind == 1 else 0
    return question[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, count, 0, 0) + question[12 : at + 5] + answers


def serve_names() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((config["resolver"], 53))

    def answer(question: bytes, peer) -> None:
        try:
            server.sendto(resolve(question), peer)
        except Exception as error:
            log(trouble=f"DNS: {error!r}")

    while True:
        threading.Thread(target=answer, args=server.recvfrom(4096), daemon=True).start()


def main() -> None:
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, address):
            log(trouble=f"{address}: {sys.exc_info()[1]!r}")

    front = Server((config["address"], 443), Front)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config["certificate"], config["key"])
    # The handshake belongs into the connection's own thread.
    front.socket = context.wrap_socket(front.socket, server_side=True, do_handshake_on_connect=False)
    for server in (front, Server(("169.254.169.254", 80), Metadata)):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=serve_names, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
