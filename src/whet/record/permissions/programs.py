"""How the words of well-known programs are read: which are paths, which are text, which options are harmless.

A program that stands here is understood only with the options that stand here: any other may name a file, run
something or follow links.  A program that does not stand here is trusted by whoever allows it by name, and all its
words are looked at as paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .paths import Access


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """How one program reads its words."""

    flags: str = ""
    """Letters of options without a value; `*` where nothing is an option."""
    valued: str = ""
    """Letters of options with a value that is text."""
    files: str = ""
    """Letters of options with a value that is a path, which is written where `last` is, else read."""
    long: tuple[str, ...] = ()
    """Long options, with a value after `=` or none."""
    leading: int = 0
    """Operands in front that are text: the pattern of grep, the mode of chmod."""
    script: re.Pattern[str] | None = None
    """What a leading operand, or the value of `-e`, must look like: nothing in it runs or writes."""
    text: bool = False
    """No operand is a path."""
    access: Access = "read"
    last: Access | None = None
    """Use of the last operand, where it differs and there are several."""
    recursive: str = ""
    """Letters of flags by which all below a folder is read or changed, not only listed; `*` for always."""
    here: bool = False
    """Without an operand it looks at the folder that it runs in."""
    links: str = ""
    """Letters of flags by which it makes links; `*` for always."""


_SED = re.compile(
    r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?[pdq])"
    r"|(?:(?:\d+(?:,(?:\d+|\$))?)?s([/|#,:])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpI0-9]*)"
    r"|(?:/[^/\\\n]*/[pd])"
)
_AWK = re.compile(
    r"(?:NR\s*[=<>!]=?\s*\d+\s*|/[^/|\\\"]*/\s*)?(?:\{\s*print(?:\s+\$\w+(?:\s*,\s*\$\w+)*)?\s*\})?"
)
_JQ = re.compile(r"(?!.*\benv\b)[.\[\]A-Za-z0-9_|,\s\"=<>!()-]*")
_GREP = KnownProgram(
    flags="EFGPivwxcLlqonHhsabzZTUyr",
    valued="eABCm",
    long=(
        "--color",
        "--colour",
        "--include",
        "--exclude",
        "--exclude-dir",
        "--count",
        "--line-number",
        "--ignore-case",
        "--only-matching",
        "--recursive",
        "--files-with-matches",
        "--extended-regexp",
        "--fixed-strings",
        "--max-count",
        "--invert-match",
        "--word-regexp",
        "--no-messages",
        "--quiet",
        "--context",
        "--with-filename",
    ),
    leading=1,
    recursive="r",
)
_SUM = KnownProgram(flags="bt")

PROGRAMS: dict[str, KnownProgram] = {
    "echo": KnownProgram(flags="*", text=True),
    "printf": KnownProgram(text=True),
    "true": KnownProgram(flags="*", text=True),
    "false": KnownProgram(flags="*", text=True),
    ":": KnownProgram(flags="*", text=True),
    "pwd": KnownProgram(flags="LP", text=True),
    "whoami": KnownProgram(text=True),
    "id": KnownProgram(flags="ugGnr", text=True),
    "uname": KnownProgram(flags="asnrvmpio", text=True),
    "nproc": KnownProgram(text=True),
    "arch": KnownProgram(text=True),
    "tty": KnownProgram(flags="s", text=True),
    "uptime": KnownProgram(flags="ps", text=True),
    "date": KnownProgram(
        flags="uR", valued="d", long=("--utc", "--iso-8601", "--rfc-3339", "--date"), text=True
    ),
    "sleep": KnownProgram(text=True),
    "seq": KnownProgram(flags="w", valued="sf", text=True),
    "expr": KnownProgram(text=True),
    "basename": KnownProgram(flags="az", valued="s", text=True),
    "dirname": KnownProgram(flags="z", text=True),
    "tr": KnownProgram(flags="cCdst", text=True),
    "yes": KnownProgram(text=True),
    "wait": KnownProgram(text=True),
    "exit": KnownProgram(text=True),
    "ls": KnownProgram(
        flags="1aAlhtrSRFdiGgnopskcuUXxCmNqQbBv",
        long=(
            "--color",
            "--all",
            "--almost-all",
            "--human-readable",
            "--reverse",
            "--recursive",
            "--sort",
            "--time",
            "--group-directories-first",
            "--full-time",
        ),
        here=True,
    ),
    "cat": KnownProgram(flags="nbeEstTvAu", long=("--number", "--show-all")),
    "head": KnownProgram(flags="qvz", valued="nc", long=("--lines", "--bytes", "--quiet")),
    "tail": KnownProgram(flags="qvzfF", valued="ncs", long=("--lines", "--bytes", "--quiet", "--follow")),
    "wc": KnownProgram(flags="lwcmL", long=("--lines", "--words", "--bytes", "--chars")),
    "sort": KnownProgram(
        flags="bdfgiMhnrRVcCmsuz",
        valued="kt",
        files="o",
        long=(
            "--reverse",
            "--numeric-sort",
            "--unique",
            "--key",
            "--field-separator",
            "--human-numeric-sort",
        ),
        access="read",
        last="write",
    ),
    "uniq": KnownProgram(
        flags="cdDiuz", valued="fsw", long=("--count", "--repeated", "--unique"), last="write"
    ),
    "cut": KnownProgram(flags="sz", valued="bcdf", long=("--delimiter", "--fields", "--characters")),
    "rev": KnownProgram(),
    "tac": KnownProgram(),
    "nl": KnownProgram(flags="p", valued="bnwsv"),
    "paste": KnownProgram(flags="sz", valued="d"),
    "join": KnownProgram(flags="i", valued="12tav"),
    "fold": KnownProgram(flags="bs", valued="w"),
    "column": KnownProgram(flags="tx", valued="sc"),
    "comm": KnownProgram(flags="123z"),
    "cmp": KnownProgram(flags="bls"),
    "diff": KnownProgram(
        flags="ubBwiqscyNaEtTpe",
        valued="UC",
        long=("--unified", "--brief", "--color", "--ignore-all-space", "--stat"),
    ),
    "file": KnownProgram(flags="bi", long=("--brief", "--mime", "--mime-type")),
    "stat": KnownProgram(flags="Lt", valued="c", long=("--format",)),
    "readlink": KnownProgram(flags="femn"),
    "realpath": KnownProgram(flags="emsq"),
    "test": KnownProgram(flags="", text=False),
    "[": KnownProgram(flags="", text=False),
    "du": KnownProgram(flags="ahscbkm", valued="d", long=("--max-depth", "--summarize"), here=True),
    "df": KnownProgram(flags="hTik", here=True),
    "tree": KnownProgram(flags="adfhpsC", valued="LIP", here=True),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "cksum": KnownProgram(),
    "base64": KnownProgram(flags="di", valued="w", long=("--decode", "--wrap")),
    "od": KnownProgram(flags="cxbov", valued="AtNjw"),
    "hexdump": KnownProgram(flags="Cbcdox", valued="n"),
    "strings": KnownProgram(flags="a", valued="n"),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": KnownProgram(
        flags="ilnNcwvxFUSsoH",
        valued="egtTABCm",
        long=("--files", "--glob", "--type", "--hidden", "--count", "--no-heading", "--line-number"),
        leading=1,
        recursive="*",
        here=True,
    ),
    "sed": KnownProgram(flags="nErsz", long=("--quiet",), leading=1, script=_SED, valued="e"),
    "awk": KnownProgram(leading=1, script=_AWK, valued="F"),
    "gawk": KnownProgram(leading=1, script=_AWK, valued="F"),
    "mawk": KnownProgram(leading=1, script=_AWK, valued="F"),
    "jq": KnownProgram(flags="rcnesaSMCj", leading=1, script=_JQ),
    "mkdir": KnownProgram(flags="pv", valued="m", access="write", long=("--parents", "--verbose")),
    "rmdir": KnownProgram(flags="pv", access="delete"),
    "touch": KnownProgram(flags="acmh", valued="dt", access="write"),
    "rm": KnownProgram(
        flags="rRfvdiI", access="delete", recursive="rR", long=("--recursive", "--force", "--verbose")
    ),
    "unlink": KnownProgram(access="delete"),
    "shred": KnownProgram(flags="fuvz", valued="n", access="delete"),
    "cp": KnownProgram(
        flags="rRafipnuvTx",
        last="write",
        recursive="rRa",
        links="rRa",
        long=("--recursive", "--force", "--verbose", "--archive", "--no-clobber", "--update"),
    ),
    "mv": KnownProgram(
        flags="fivnuT", access="delete", last="write", links="*", long=("--force", "--verbose")
    ),
    "ln": KnownProgram(
        flags="sfnvrT", access="write", links="*", long=("--symbolic", "--force", "--relative")
    ),
    "chmod": KnownProgram(flags="Rvcf", leading=1, access="write", recursive="R"),
    "tee": KnownProgram(flags="ai", access="write"),
    "truncate": KnownProgram(flags="c", valued="s", access="write", long=("--size",)),
    "git": KnownProgram(),
}

INLINE = {
    "python": "BEsSuvOqbI",
    "node": "",
    "nodejs": "",
    "deno": "",
    "bun": "",
    "perl": "",
    "ruby": "",
    "php": "",
    "lua": "",
    "tclsh": "",
    "Rscript": "",
    "pypy": "BEsSuvOqbI",
}
"""Interpreters → the flags with which they run a file; any other may bring code of its own."""

_OPAQUE = (
    "vi vim nvim view vimdiff emacs ed ex nano pico gdb lldb expect script screen tmux at batch crontab "
    "parallel watch su runuser pkexec chroot unshare nsenter ssh scp sftp rsync telnet nc ncat netcat socat "
    "mount umount sqlite3 psql mysql mariadb redis-cli mongosh bc dc m4 eval source . trap alias unalias let "
    "declare typeset readonly local read mapfile readarray enable hash bind complete fc history pushd popd "
    "shopt printenv xargs osascript systemd-run dbus-send setpriv capsh start-stop-daemon sg newgrp cpio ar "
    "gcc cc ld as busctl machinectl docker podman kubectl less more man most w3m lynx open xdg-open strace "
    "ltrace perf valgrind flock logger wall write mail sendmail iptables reboot shutdown halt poweroff init "
    "systemctl service insmod modprobe kexec swapoff swapon losetup mkfs fdisk parted dmsetup"
)
OPAQUE = frozenset(_OPAQUE.split())
"""Programs that run what is given to them as text, or at run time, or do more than their words say."""

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "rbash"})

WRAPPERS: dict[str, tuple[str, str, int]] = {
    "env": ("i", "u", 0),
    "nohup": ("", "", 0),
    "nice": ("", "n", 0),
    "ionice": ("t", "cn", 0),
    "timeout": ("v", "ks", 1),
    "stdbuf": ("", "ioe", 0),
    "time": ("p", "", 0),
    "setsid": ("fw", "", 0),
    "command": ("", "", 0),
    "builtin": ("", "", 0),
    "exec": ("", "", 0),
    "busybox": ("", "", 0),
    "sudo": ("nEHS", "u", 0),
    "doas": ("n", "u", 0),
}
"""Programs that run the program in their words → flags, options with a value, operands before it."""
RAISING = frozenset({"sudo", "doas"})
"""Wrappers that change who runs it: allowed as a command of their own, besides what they run."""

GIT_RUNS = re.compile(
    r"-c|--config-env(=.*)?|--exec-path(=.*)?|-O.*|--open-files-in-pager(=.*)?|--upload-pack(=.*)?|--receive-pack(=.*)?"
    r"|--exec(=.*)?|-x|--extcmd(=.*)?|--ext-diff|--textconv|--git-dir(=.*)?|--work-tree(=.*)?|--template(=.*)?"
    r"|--tool(=.*)?|--separate-git-dir(=.*)?|--no-index|bisect|submodule|filter-branch|difftool|mergetool|config|hook"
    r"|daemon|instaweb|credential|send-email|web--browse|remote-ext|fast-import|maintenance|ext::.*"
)
"""Words of git that run programs, or bring another configuration that does."""
_GIT_LINKS = "checkout switch restore reset merge rebase pull clone stash apply am cherry-pick revert"
GIT_LINKS = frozenset(_GIT_LINKS.split())
"""Subcommands of git that write files, and links among them."""
