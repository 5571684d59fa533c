#!/usr/bin/env bash
# curl with the headers of n8n's HTTP Request node: calls without a session. n8n.mjs runs the workflows of
# deploy/n8n.
set -euo pipefail
. "$(dirname "$0")/flow.sh"

post() { # URL BODY
    curl --silent --show-error --fail-with-body "$1" --data-binary "$2" --header 'Content-Type: application/json' \
        --header 'Accept: application/json,text/html,application/xhtml+xml,application/xml,text/*;q=0.9, image/*;q=0.8, */*;q=0.7' \
        --header 'Connection: close' --header "Authorization: Bearer $PADDOCK_TOKEN"
}
call() {
    local body
    body=$(jq -nc --arg name "$1" --argjson arguments "$2" \
        '{jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: $name, arguments: $arguments}}')
    post "$PADDOCK_URL/mcp" "$body" | jq .result | document || die "$1"
}
flow
echo done
