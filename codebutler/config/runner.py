"""The image in which agents work where `sandbox.mode` is `docker`: its name, and what it is made of."""

from __future__ import annotations

RUNNER = "codebutler-runner"
BASE = "debian:bookworm-slim"
IDLER = "/.codebutler/cat"
"""A container's first process. Nobody may read the file: so the kernel lets no agent, who is the same user, write that
process's memory or open its files (PR_SET_DUMPABLE)."""
TOOLS = "bash ca-certificates curl git jq less make openssh-client patch procps python3 ripgrep unzip"

# A base that has git has what we need: nothing is fetched then, unless more is asked for.
DOCKERFILE = f"""
ARG BASE
FROM ${{BASE}}
ARG PACKAGES
ARG TOOLS
RUN set -e; \\
    if [ -n "$PACKAGES" ] || ! command -v git > /dev/null; then \\
        apt-get update && apt-get install -y --no-install-recommends $TOOLS $PACKAGES && \\
        rm -rf /var/lib/apt/lists/*; \\
    fi; \\
    grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'agent:x:1000:1000::/workspace:/bin/sh' >> /etc/passwd; \\
    mkdir -p /workspace /tmp /.codebutler && chmod 1777 /tmp; \\
    cp "$(command -v cat)" {IDLER} && chmod 0111 {IDLER}
WORKDIR /workspace
"""
