#!/usr/bin/env bash
# curl with the headers of n8n's HTTP Request node: bare calls, no session. Then the workflow that we offer for import, as
# n8n would run it.
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

workflow=$(dirname "$0")/../../deploy/n8n/http-request.json
parameter() { jq -er --arg name "$1" --arg value "$2" '.nodes[] | select(.name == $name).parameters[$value]' "$workflow"; }
url=$(parameter 'Run code' url)
ran=$(post "$PADDOCK_URL/${url#*://*/}" "$(parameter 'Run code' jsonBody)")
path=$(parameter 'Download the file' url) # ={{ $json.… }}, of what came before
path=${path#'={{ $json'}
report=$(curl --silent --show-error --fail "$(jq -er "${path%' }}'}" <<<"$ran")")
[[ $report == $'region,revenue\nnorth,700\nsouth,500' ]] || die "the workflow made: $report"
echo done
