#!/bin/bash
# Stands in for Claude Code: speaks just enough of its stream-json, and says when it began and when it answered.
now() { stamp=${EPOCHREALTIME:-$(perl -MTime::HiRes=time -e 'printf "%.6f", time')}; }
now
began=$stamp
if [ "$1" = --version ]; then
    echo '2.1.328 (Claude Code)'
    exit
fi
for session; do :; done
while IFS= read -r line; do
    case $line in
    *'"initialize"'*)
        echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize","response":{}}}'
        ;;
    *'"type":"user"'*)
        printf '{"type":"system","subtype":"init","session_id":"%s","claude_code_version":"2.1.328"}\n' "$session"
        echo '{"type":"assistant","message":{"model":"bench","content":[{"type":"text","text":"Looking."}]}}'
        if [[ $line =~ ask\ leave ]]; then
            echo '{"type":"control_request","request_id":"leave-1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"make"},"tool_use_id":"t1"}}'
            while IFS= read -r line; do
                case $line in *'"leave-1"'*) break ;; esac
            done
            now
            printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"total_cost_usd":0.01,"usage":{"input_tokens":1,"output_tokens":1},"session_id":"%s","result":"went on %s"}\n' \
                "$session" "$stamp"
            continue
        fi
        if [[ $line =~ work\ for\ ([0-9]+)\ seconds ]]; then
            until=$((SECONDS + BASH_REMATCH[1]))
            while [ $SECONDS -lt $until ]; do
                tool=$((tool + 1))
                echo '{"type":"assistant","message":{"model":"bench","content":[{"type":"tool_use","id":"t'$tool'","name":"Bash","input":{"command":"make part-'$tool'"}}]}}'
                sleep 0.3
                echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t'$tool'","content":"made"}]}}'
            done
        fi
        if [[ $line =~ use\ ([0-9]+)\ tools\ in\ ([0-9]+)\ seconds ]]; then
            pause=$((1000 * BASH_REMATCH[2] / BASH_REMATCH[1]))
            printf -v pause '%d.%03d' $((pause / 1000)) $((pause % 1000))
            for ((tool = 1; tool <= BASH_REMATCH[1]; tool++)); do
                echo '{"type":"assistant","message":{"model":"bench","content":[{"type":"tool_use","id":"t'$tool'","name":"Bash","input":{"command":"make part-'$tool'"}}]}}'
                sleep "$pause"
                echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t'$tool'","content":"made"}]}}'
            done
        fi
        files=
        if [[ $line =~ send\ ([0-9]+)\ files ]]; then
            for ((number = 1; number <= BASH_REMATCH[1]; number++)); do
                files+="<<<SLACK:file>>>\\n$number.bin\\n<<<END_SLACK>>>\\n"
            done
        fi
        # Long enough for what the beginning of a turn sends to be over, so that it is not measured again.
        [[ $line =~ at\ once ]] || sleep 1
        now
        printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"total_cost_usd":0.01,"usage":{"input_tokens":1,"output_tokens":1},"session_id":"%s","result":"%sbegan %s, answered %s"}\n' \
            "$session" "$files" "$began" "$stamp"
        ;;
    esac
done
