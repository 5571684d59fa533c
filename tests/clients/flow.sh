# The flow of every client that is a command; flow.mjs explains it. A script that sources it must have `call
# TOOL ARGUMENTS`, which prints the document of a successful result. The flow leaves files in the current
# folder.

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

document() { # its standard input: a result of tools/call
    jq -e 'select(.isError | not) | select(.content[0].text != "").structuredContent'
}

turned() { # FILE OTHER: whether one is the other, last byte first
    python3 -c 'import sys; one, other = (open(name, "rb").read() for name in sys.argv[1:]); sys.exit(one != other[::-1])' "$@"
}

flow() {
    local round listed link
    for ((round = 0; round <= PADDOCK_RESTARTS; round++)); do
        if ((round > 0)); then
            echo restart
            read -r
        fi
        head -c 20000 /dev/urandom >"in-$round.bin"
        base64 -w 0 "in-$round.bin" >content
        call upload_file "$(jq -Rc --arg name "in-$round.bin" \
            '{conversationId: "client", filename: $name, content: .}' content)" >/dev/null
        call run_code "$(jq -nc --arg round "$round" '{conversationId: "client", language: "python", code:
"content = open(\"/data/in-\($round).bin\", \"rb\").read()
open(\"/data/out-\($round).bin\", \"wb\").write(content[::-1])
print(len(content))"}')" | jq -e '.stdout == "20000\n"' >/dev/null || die 'the run'
        listed=$(call list_artifacts '{"conversationId": "client"}')
        [[ $(jq '.artifacts | length' <<<"$listed") == $((2 * round + 2)) ]] || die "the files: $listed"
        link=$(jq -r --arg name "out-$round.bin" '.artifacts[] | select(.filename == $name).download_url' <<<"$listed")
        curl --silent --show-error --fail "$link" --output "out-$round.bin"
        turned "in-$round.bin" "out-$round.bin" || die 'the bytes differ'
    done
}
