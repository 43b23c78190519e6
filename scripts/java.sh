#!/bin/sh
# Makes sure that a Java for Spark is here: looks at the one that Spark would start, and as root on a system
# with apt-get installs one. Says what to do when it can do neither.
set -u
WANTED=17
PACKAGE=openjdk-17-jre-headless

java_version() {
    program=java
    [ -n "${JAVA_HOME:-}" ] && program="$JAVA_HOME/bin/java"
    # Java 8 calls itself 1.8, newer ones 17.0.1 or 21.
    "$program" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

is_enough() {
    found=$(java_version)
    [ -n "$found" ] && [ "$found" -ge "$WANTED" ]
}

is_enough && exit 0

if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $PACKAGE, which Spark needs"
    { apt-get install -y "$PACKAGE" || { apt-get update && apt-get install -y "$PACKAGE"; }; } >/dev/null 2>&1
    is_enough && exit 0
fi

found=$(java_version)
if [ -n "$found" ]; then
    echo "Spark needs Java $WANTED or newer, and this is Java $found." >&2
else
    echo "Spark needs Java $WANTED or newer, and there is none." >&2
fi
echo "Install one, for example: apt-get install $PACKAGE, or brew install openjdk@17." >&2
echo "Then put it on PATH, or point JAVA_HOME at it." >&2
exit 1
