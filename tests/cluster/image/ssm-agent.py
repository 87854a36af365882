#!/usr/bin/python3
"""Stands in for amazon-ssm-agent, which no registry here has, as far as Slipway's documents need it.

What is the same (github.com/aws/amazon-ssm-agent, agent/plugins/runscript, agent/appconfig/constants.go): a document's lines become one
file, `_script.sh` in a folder of the command's own, run by `sh -c` as root in that folder; five at a time (CommandWorkersLimitMin), five
more waiting (CommandWorkerBufferLimitMin); 24,000 characters of output are told, of what is longer the first, with
"---Output truncated---" at the end; after `timeoutSeconds` it is killed, with all that it started. What is not: it asks the stand-in of
the metadata service for work, and not Systems Manager, and it is no judge of its own updates, inventory or sessions.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import time
import urllib.request

URL = "http://169.254.169.254/slipway-tests/run-command"
HOME = "/var/lib/amazon/ssm/orchestration"
WORKERS = 5
KEPT = 24_000
SUFFIX = "\n---Output truncated---"


def ask(path: str, body: dict) -> dict:
    request = urllib.request.Request(f"{URL}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    # Whatever the answer is waited for is less than this.
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def kept(output: bytes) -> str:
    text = output.decode(errors="replace")
    return text if len(text) <= KEPT else text[: KEPT - len(SUFFIX)] + SUFFIX


def carry_out(command: dict) -> dict:
    folder = os.path.join(HOME, command["id"])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    script = os.path.join(folder, "_script.sh")
    with open(script, "w") as file:
        file.write("\n".join(command["lines"]) + "\n")
    os.chmod(script, 0o700)
    process = subprocess.Popen(
        ["sh", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=command["seconds"])
        return {"code": process.returncode, "stdout": kept(out), "stderr": kept(err)}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return {"code": -1, "stdout": kept(out), "stderr": kept(err), "timedOut": True}


def work_on(command: dict) -> None:
    try:
        told = carry_out(command)
    except OSError as error:
        told = {"code": 1, "stdout": "", "stderr": str(error)}
    for pause in (1, 2, 4, 8, 16, 32):
        try:
            ask("ended", {"id": command["id"], **told})
            return
        except OSError:
            time.sleep(pause)


def main() -> None:
    workers = concurrent.futures.ThreadPoolExecutor(WORKERS)
    while True:
        try:
            for command in ask("next", {}).get("commands", []):
                workers.submit(work_on, command)
        except (OSError, ValueError):
            time.sleep(2)


main()
