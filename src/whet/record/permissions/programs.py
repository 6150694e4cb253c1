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
class Program:
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
_GREP = Program(
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
_SUM = Program(flags="bt")

PROGRAMS: dict[str, Program] = {
    "echo": Program(flags="*", text=True),
    "printf": Program(text=True),
    "true": Program(flags="*", text=True),
    "false": Program(flags="*", text=True),
    ":": Program(flags="*", text=True),
    "pwd": Program(flags="LP", text=True),
    "whoami": Program(text=True),
    "id": Program(flags="ugGnr", text=True),
    "uname": Program(flags="asnrvmpio", text=True),
    "nproc": Program(text=True),
    "arch": Program(text=True),
    "tty": Program(flags="s", text=True),
    "uptime": Program(flags="ps", text=True),
    "date": Program(flags="uR", valued="d", long=("--utc", "--iso-8601", "--rfc-3339", "--date"), text=True),
    "sleep": Program(text=True),
    "seq": Program(flags="w", valued="sf", text=True),
    "expr": Program(text=True),
    "basename": Program(flags="az", valued="s", text=True),
    "dirname": Program(flags="z", text=True),
    "tr": Program(flags="cCdst", text=True),
    "yes": Program(text=True),
    "wait": Program(text=True),
    "exit": Program(text=True),
    "ls": Program(
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
    "cat": Program(flags="nbeEstTvAu", long=("--number", "--show-all")),
    "head": Program(flags="qvz", valued="nc", long=("--lines", "--bytes", "--quiet")),
    "tail": Program(flags="qvzfF", valued="ncs", long=("--lines", "--bytes", "--quiet", "--follow")),
    "wc": Program(flags="lwcmL", long=("--lines", "--words", "--bytes", "--chars")),
    "sort": Program(
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
    "uniq": Program(flags="cdDiuz", valued="fsw", long=("--count", "--repeated", "--unique"), last="write"),
    "cut": Program(flags="sz", valued="bcdf", long=("--delimiter", "--fields", "--characters")),
    "rev": Program(),
    "tac": Program(),
    "nl": Program(flags="p", valued="bnwsv"),
    "paste": Program(flags="sz", valued="d"),
    "join": Program(flags="i", valued="12tav"),
    "fold": Program(flags="bs", valued="w"),
    "column": Program(flags="tx", valued="sc"),
    "comm": Program(flags="123z"),
    "cmp": Program(flags="bls"),
    "diff": Program(
        flags="ubBwiqscyNaEtTpe",
        valued="UC",
        long=("--unified", "--brief", "--color", "--ignore-all-space", "--stat"),
    ),
    "file": Program(flags="bi", long=("--brief", "--mime", "--mime-type")),
    "stat": Program(flags="Lt", valued="c", long=("--format",)),
    "readlink": Program(flags="femn"),
    "realpath": Program(flags="emsq"),
    "test": Program(flags="", text=False),
    "[": Program(flags="", text=False),
    "du": Program(flags="ahscbkm", valued="d", long=("--max-depth", "--summarize"), here=True),
    "df": Program(flags="hTik", here=True),
    "tree": Program(flags="adfhpsC", valued="LIP", here=True),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "cksum": Program(),
    "base64": Program(flags="di", valued="w", long=("--decode", "--wrap")),
    "od": Program(flags="cxbov", valued="AtNjw"),
    "hexdump": Program(flags="Cbcdox", valued="n"),
    "strings": Program(flags="a", valued="n"),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": Program(
        flags="ilnNcwvxFUSsoH",
        valued="egtTABCm",
        long=("--files", "--glob", "--type", "--hidden", "--count", "--no-heading", "--line-number"),
        leading=1,
        recursive="*",
        here=True,
    ),
    "sed": Program(flags="nErsz", long=("--quiet",), leading=1, script=_SED, valued="e"),
    "awk": Program(leading=1, script=_AWK, valued="F"),
    "gawk": Program(leading=1, script=_AWK, valued="F"),
    "mawk": Program(leading=1, script=_AWK, valued="F"),
    "jq": Program(flags="rcnesaSMCj", leading=1, script=_JQ),
    "mkdir": Program(flags="pv", valued="m", access="write", long=("--parents", "--verbose")),
    "rmdir": Program(flags="pv", access="delete"),
    "touch": Program(flags="acmh", valued="dt", access="write"),
    "rm": Program(
        flags="rRfvdiI", access="delete", recursive="rR", long=("--recursive", "--force", "--verbose")
    ),
    "unlink": Program(access="delete"),
    "shred": Program(flags="fuvz", valued="n", access="delete"),
    "cp": Program(
        flags="rRafipnuvTx",
        last="write",
        recursive="rRa",
        links="rRa",
        long=("--recursive", "--force", "--verbose", "--archive", "--no-clobber", "--update"),
    ),
    "mv": Program(flags="fivnuT", access="delete", last="write", links="*", long=("--force", "--verbose")),
    "ln": Program(flags="sfnvrT", access="write", links="*", long=("--symbolic", "--force", "--relative")),
    "chmod": Program(flags="Rvcf", leading=1, access="write", recursive="R"),
    "tee": Program(flags="ai", access="write"),
    "truncate": Program(flags="c", valued="s", access="write", long=("--size",)),
    "git": Program(),
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
