#!/usr/bin/env bash
# The MCP Inspector's command line, which connects anew for every call.
set -euo pipefail
. "$(dirname "$0")/flow.sh"

inspector() { # METHOD OPTIONS...: the result
    mcp-inspector --cli --quiet --format json --transport http --server-url "$PADDOCK_URL/mcp" --protocol-era auto \
        --header "Authorization: Bearer $PADDOCK_TOKEN" --method "$@" </dev/null | jq .result
}
call() { inspector tools/call --tool-name "$1" --tool-args-json "$2" | document || die "$1"; }

inspector tools/list --strict | jq -e '[.tools[].name] | index("run_code")' >/dev/null || die 'there is no run_code'
flow
echo done
