"""Runs moto's server on a free port of the loopback and prints its URL as the first line.

    embedded_moto.py [NAME=VALUE ...]

HOURS_AGO in the environment: S3 says of every object that it was written so many hours before.

Each argument becomes a public SSM parameter in every region, for GetParameter: PutParameter refuses names that begin
with /aws, and moto carries few of the real ones.

It ends when its standard input closes, however its parent ends: no orphan survives a killed test run.
"""

import datetime
import functools
import json
import logging
import os
import re
import sys
import threading
from urllib.parse import parse_qsl

import boto3
from jsonpath_ng import ext
from moto.core.config import default_user_config
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3 import models as s3
from moto.s3.responses import S3Response
from moto.sqs.models import sqs_backends
from moto.ssm import models
from werkzeug.serving import make_server


def seed(parameters: dict[str, str]) -> None:
    """Adds `parameters` to what moto answers."""
    original = models.SimpleSystemManagerBackend.get_parameter

    def get_parameter(self, name):
        if name not in parameters:
            return original(self, name)
        return models.Parameter(
            account_id=self.account_id,
            name=name,
            value=parameters[name],
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.datetime(2026, 1, 1),
            version=1,
            data_type="aws:ec2:image",
        )

    models.SimpleSystemManagerBackend.get_parameter = get_parameter


def age(hours: int) -> None:
    """Makes every object older than it is."""
    original = s3.utcnow
    s3.utcnow = lambda: original() - datetime.timedelta(hours=hours)


def remember() -> None:
    """What depends on nothing but its argument is found out once: of each request moto lists its folders, and tries some two hundred
    patterns of hosts; for each event that a rule transforms it generates the parser of its paths anew. That was a third of its work."""
    find = DomainDispatcherApplication.get_backend_for_host
    DomainDispatcherApplication.get_backend_for_host = functools.cache(find)
    ext.parse = functools.cache(ext.parse)


def answer_as_s3() -> None:
    """The answers about a bucket's versioning and notifications have other names in moto than in S3's API reference
    (API_GetBucketVersioning, API_GetBucketNotificationConfiguration). And moto takes an EventBridgeConfiguration, sends the events, and
    leaves it out of what it answers."""

    def renamed(body, root):
        text = body.decode() if isinstance(body, bytes) else body
        tree = re.compile(r"<(\w+)([^<>]*?)(?:/>|>(.*)</\1>)\s*$", re.DOTALL)
        return tree.sub(lambda found: f"<{root}{found[2]}>{found[3] or ''}</{root}>", text)

    versioning, notification = S3Response.get_bucket_versioning, S3Response.get_bucket_notification

    def get_bucket_versioning(self):
        status, headers, body = versioning(self)
        return status, headers, renamed(body, "VersioningConfiguration")

    def get_bucket_notification(self):
        status, headers, body = notification(self)
        text = renamed(body, "NotificationConfiguration")
        known = self.backend.get_bucket_notification_configuration(self.bucket_name)
        if known is not None and known.event_bridge is not None:
            end = "</NotificationConfiguration>"
            text = text.replace(end, f"<EventBridgeConfiguration></EventBridgeConfiguration>{end}")
        return status, headers, text

    S3Response.get_bucket_versioning = get_bucket_versioning
    S3Response.get_bucket_notification = get_bucket_notification


def one_at_a_time() -> None:
    """Of two writers under one condition S3 lets one win. moto looks and then writes, and its threads come between."""
    lock = threading.Lock()
    for name in ["put_object", "delete_object"]:
        original = getattr(S3Response, name)

        def write(self, original=original):
            with lock:
                return original(self)

        setattr(S3Response, name, write)


def run_state_machines(endpoint: str, key: str) -> None:
    """`GET /slipway/state-machines?endpoint=URL&key=KEY`: from now on state machines run, and call AWS there with that access key. By
    itself moto only records them, and its interpreter would call this server without the gateway before it."""
    import moto.stepfunctions.parser.models  # noqa: F401, as it loads every module that names the function below

    def client(region, service, state_credentials=None):
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=endpoint,
            aws_access_key_id=key,
            aws_secret_access_key="embedded",
        )

    for name, module in list(sys.modules.items()):
        if name.startswith("moto.stepfunctions.") and hasattr(module, "boto_client_for"):
            module.boto_client_for = client
    default_user_config["stepfunctions"] = {"execute_state_machine": True}


def waiting(application):
    """`GET /slipway/waiting`: the names of the queues that hold messages. Whoever asks each of ten queues five times a second has moto do little else."""

    def serve(environ, start_response):
        if environ.get("PATH_INFO") == "/slipway/state-machines":
            run_state_machines(**dict(parse_qsl(environ.get("QUERY_STRING", ""))))
            start_response("200 OK", [("content-type", "application/json")])
            return [b"{}"]
        if environ.get("PATH_INFO") != "/slipway/waiting":
            return application(environ, start_response)
        regions = [region for account in list(sqs_backends.values()) for region in list(account.values())]
        queues = [queue for region in regions for queue in list(region.queues.values())]
        names = [queue.name for queue in queues if queue.approximate_number_of_messages]
        start_response("200 OK", [("content-type", "application/json")])
        return [json.dumps(names).encode()]

    return serve


def main() -> None:
    remember()
    one_at_a_time()
    answer_as_s3()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    seed(dict(argument.split("=", 1) for argument in sys.argv[1:]))
    age(int(os.environ.get("HOURS_AGO", "0")))
    server = make_server(
        "127.0.0.1",
        0,
        waiting(DomainDispatcherApplication(create_backend_app)),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
    # By itself it lets 128 connections wait, and where sixteen functions begin at once on a busy machine, the others time out.
    server.socket.listen(4096)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
