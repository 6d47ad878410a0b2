#!/usr/bin/env bash
# brokers.sh: installs what --kafka=java and a build with Spark's shim need, unless it
# is already installed: Java's compiler, Maven, and Kafka's jars. A second call installs
# nothing. Run it as root, on Debian or Ubuntu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive
started=$SECONDS

say() { printf '[brokers %3d s] %s\n' "$((SECONDS - started))" "$*"; }

# install PROGRAM PACKAGE...: installs the packages if the program is missing
install() {
    local program=$1
    shift
    if type -P "$program" > /dev/null; then
        say "$program: was there"
        return
    fi
    # A new machine has no package lists, or old ones that name vanished files.
    [ -n "${lists_are_fresh:-}" ] || apt-get update -qq
    lists_are_fresh=1
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null
    say "$program: installed $*"
}

install javac default-jdk-headless # the compiler for Spark's shim
install mvn maven
say "Kafka's jars: $(python3 -m tests.harness.brokers.jars)"
