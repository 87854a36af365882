#!/usr/bin/env bash
# Checks infra/template.yaml and infra/integrations: cfn-lint; of the first `sam validate --lint` and our own rules on its permissions, too. Needs no AWS.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/tests/scripts/lint-venv.sh"
bin=$root/.tools/lint/bin
template=$root/infra/template.yaml

# sam asks for a region and wants to send telemetry; it gets neither an account nor a line.
export AWS_DEFAULT_REGION=${AWS_DEFAULT_REGION:-eu-west-1} SAM_CLI_TELEMETRY=0
"$bin/cfn-lint" --non-zero-exit-code informational "$template"
"$bin/cfn-lint" --non-zero-exit-code informational --include-checks I --template "$root"/infra/integrations/*.yaml
"$bin/sam" validate --lint --template "$template" >/dev/null
for architecture in arm64 x86_64; do
    "$bin/python" "$root/tests/scripts/transform.py" "$template" "Architecture=$architecture" |
        "$bin/python" "$root/tests/scripts/check_permissions.py"
done
echo "infra/template.yaml, infra/integrations: clean"
