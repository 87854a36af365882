#!/usr/bin/env python3
"""Measures a function's binary: from the start of its process to its first request for work, and its memory.

    tests/scripts/measure_function.py BINARY [RUNS] < event.json

Speaks just enough of the Lambda Runtime API for that: it answers each GET .../next with the event on stdin (an empty
object if there is none), ten times a run, and takes what the function answers. Prints one JSON object: milliseconds from
the fork to the first GET (median and worst of RUNS), and the peak resident memory in KiB when the first GET came and
after the ten events. AWS is wherever the environment says; by default nowhere, so that each event fails, which measures
a function that does nothing but start.
"""

import http.server
import json
import os
import statistics
import subprocess
import sys
import threading
import time

EVENTS_A_RUN = 10


class Run:
    """One process of the function, and what it did."""

    def __init__(self, binary, event):
        self.event = event
        self.asked_at = None
        self.peaks_kib = []
        self.answers = []
        self.done = threading.Event()
        # A function may ask for work before Popen has returned here.
        self.spawned = threading.Event()
        run = self

        class Api(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if run.asked_at is None:
                    run.asked_at = time.monotonic()
                run.peaks_kib.append(run.peak_kib())
                if len(run.peaks_kib) > EVENTS_A_RUN:
                    run.done.set()
                    time.sleep(60)
                    return
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", f"r-{len(run.peaks_kib)}")
                self.send_header("Lambda-Runtime-Deadline-Ms", str(int(time.time() * 1000) + 60000))
                self.send_header(
                    "Lambda-Runtime-Invoked-Function-Arn",
                    "arn:aws:lambda:eu-west-1:123456789012:function:measured",
                )
                self.send_header("Content-Length", str(len(run.event)))
                self.end_headers()
                self.wfile.write(run.event)

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                run.answers.append((self.path.rsplit("/", 1)[-1], body.decode()))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        nowhere = {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "example",
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "SLIPWAY_SPEC_BUCKET": "specs",
            "SLIPWAY_ASSET_BUCKET": "assets",
            "SLIPWAY_KMS_KEY_ARN": "arn:aws:kms:eu-west-1:123456789012:key/k",
            "SLIPWAY_BUS_NAME": "slipway",
            "SLIPWAY_CLOUDFORMATION_ROLE_ARN": "arn:aws:iam::123456789012:role/cloudformation",
            "SLIPWAY_TICK_ROLE_ARN": "arn:aws:iam::123456789012:role/tick",
            "SLIPWAY_TICK_GROUP": "slipway",
        }
        runtime = {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": "measured",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_STREAM_NAME": "s",
            "AWS_LAMBDA_LOG_GROUP_NAME": "g",
        }
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [binary], env={**nowhere, **os.environ, **runtime}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.spawned.set()
        if not self.done.wait(timeout=120):
            self.process.kill()
            raise SystemExit(f"the function did not ask for work: {self.process.stdout.read().decode()}")
        self.process.kill()
        self.log = self.process.communicate()[0].decode()
        server.shutdown()

    def peak_kib(self):
        self.spawned.wait()
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    event = (b"" if sys.stdin.isatty() else sys.stdin.buffer.read()).strip() or b"{}"
    runs = [Run(sys.argv[1], event) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 20)]
    starts_ms = [(run.asked_at - run.started_at) * 1000 for run in runs]
    last = runs[-1]
    json.dump(
        {
            "binary": os.path.basename(sys.argv[1]),
            "runs": len(runs),
            "start_ms_median": round(statistics.median(starts_ms), 1),
            "start_ms_worst": round(max(starts_ms), 1),
            "peak_kib_started": max(run.peaks_kib[0] for run in runs),
            "peak_kib_after_events": max(run.peaks_kib[-1] for run in runs),
            "last_answer": last.answers[-1],
            "last_line_of_log": last.log.strip().splitlines()[-1:],
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
